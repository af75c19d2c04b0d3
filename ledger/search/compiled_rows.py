"""Layouts that are compiled one by one: of plans that serve, which have tens of them, and of models with an encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.books.compiler import compile_plan, compile_totals
from ledger.search.blocks import Block
from ledger.search.space import MESH, Space, laid_out

if TYPE_CHECKING:
    from ledger.spec.plan import Plan

ALONE = ("parallelism.zero", "parallelism.offload", "recompute", "run.micro_batch")  # keys whose values are apart
SHARES = "pace."  # totals that only a whole compilation has


def is_compiled(plan: Plan) -> bool:
    """Whether layouts of a plan are not put together from facts: what an encoder gives lives beside its layers."""
    return plan.serve is not None or bool(plan.model.encoder_groups)


def compiled_parts(space: Space) -> Iterator[Space]:
    """The parts of a space that are priced by themselves: by tensor-parallel degree, or by how states are held."""
    keys = (f"{MESH}tensor",) if space.plan.serve else ALONE
    for chosen in product(*(space.values[key] for key in keys)):
        own = {key: (value,) for key, value in zip(keys, chosen, strict=True)}
        yield replace(space, values={**space.values, **own})


def price_compiled(space: Space, keys: Sequence[str]) -> Iterator[Block]:
    """The legal layouts of a space with these totals, a block each; NaN where a layout has none of a total."""
    places = {key: {_text(value): place for place, value in enumerate(space.values[key])} for key in space.keys}
    shares = any(key.startswith(SHARES) for key in keys)
    for layout in space.layouts():
        plan = laid_out(space.plan, layout)
        totals = compile_plan(plan).totals if shares else compile_totals(plan)
        choices = {key: np.array([places[key][_text(layout[key])]], np.int32) for key in space.keys}
        yield Block(space, choices, {key: np.array([_number(totals, key)]) for key in keys})


def _number(totals: Mapping[str, Any], key: str) -> float:
    return float(totals[key]) if key in totals else nan


def _text(value: Any) -> str:
    return repr(value)
