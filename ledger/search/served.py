"""Layouts of a plan that serves, compiled one by one: a space has tens of them, and each takes milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.books.serving.compiler import compile_serving_totals
from ledger.search.blocks import Block
from ledger.search.space import MESH, Space, laid_out

if TYPE_CHECKING:
    from ledger.spec.plan import Plan

TENSOR = f"{MESH}tensor"
LATENCY, FIRST, RATE = "serve.time_per_token", "serve.ttft", "serve.tokens_per_second"
EACH, COST = f"{RATE}_per_device", "cost.per_million_tokens"
SHOWN = (LATENCY, FIRST, RATE, EACH, "memory.reserved")  # totals of every row, beside those that are asked for
FRONT = (LATENCY, EACH)


def served_parts(space: Space) -> Iterator[Space]:
    """The parts of a space that are priced by themselves: one for each tensor-parallel degree."""
    return (replace(space, values={**space.values, TENSOR: (degree,)}) for degree in space.values[TENSOR])


def price_served(space: Space, keys: Sequence[str]) -> Iterator[Block]:
    """The legal layouts of a space with these totals, a block each; NaN where a layout has none of a total."""
    places = {key: {_text(value): place for place, value in enumerate(space.values[key])} for key in space.keys}
    for layout in space.layouts():
        totals = compile_serving_totals(laid_out(space.plan, layout))
        choices = {key: np.array([places[key][_text(layout[key])]], np.int32) for key in space.keys}
        yield Block(space, choices, {key: np.array([_number(totals, key)]) for key in keys})


def shown_totals(plans: Sequence[Plan]) -> tuple[str, ...]:
    """The totals of every row: dollars too where all plans have a price of their devices."""
    return (*SHOWN, COST) if all(plan.assumptions.price for plan in plans) else SHOWN


def _number(totals: Mapping[str, Any], key: str) -> float:
    return float(totals[key]) if key in totals else nan


def _text(value: Any) -> str:
    return repr(value)
