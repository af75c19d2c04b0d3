"""Why layouts are not legal, told from some of a space: the rule that stands in the way, and the key that it reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from ledger.search.axes import Axes
from ledger.search.bases import Base
from ledger.search.choices import VALUES, cuts
from ledger.search.space import DATA, LAYOUT, MESH, Layout, laid_out
from ledger.spec.inputs import violations
from ledger.spec.plan import Parallelism, Plan
from ledger.spec.problems import SpecError

ASKED, MOST_BASES, EXAMPLES = 200, 8, 20  # layouts of a base that are asked, bases, and layouts whose keys are changed
NOTHING, WORST = (
    10**6,
    1000,
)  # wrong with a layout that is legal by all that is asked here, and with one that is no choice at all
DEGREES = tuple(MESH + key for key in ("tensor", "pipeline", "context"))
FIRST = (*DEGREES, f"{MESH}expert", f"{MESH}offload", "recompute", "run.micro_batch")  # keys that no other one idles


def _staged(layout: Layout) -> bool:
    return bool(layout[f"{MESH}pipeline"] > 1)


# Whether a value of a key has an effect beside those that are chosen before it, and what is due.
SERVES: Mapping[str, tuple[Callable[[Layout, Any], bool], str]] = {
    "sequence": (lambda of, value: of[f"{MESH}tensor"] > 1 or value == "off", "is off where tensor is 1"),
    "context_exchange": (
        lambda of, value: (value is None) == (of[f"{MESH}context"] == 1),
        "is null where context is 1, and named elsewhere",
    ),
    "schedule": (
        lambda of, value: (value is None) != _staged(of),
        "is null where pipeline is 1, and named elsewhere",
    ),
    "interleave": (lambda of, value: _staged(of) or value == 1, "is 1 where pipeline is 1"),
    "ends": (lambda of, value: _staged(of) or value is None, "is null where pipeline is 1"),
    "stages": (lambda of, value: _staged(of) or value is None, "is null where pipeline is 1"),
    "zero": (lambda *_: True, ""),
    "reshard": (
        lambda of, value: (value is None) == (of[f"{MESH}zero"] != 3),
        "is null where zero is below 3, and stated where it is 3",
    ),
    "replicate": (lambda of, value: of[f"{MESH}zero"] > 0 or value == 1, "is 1 where zero is 0"),
}


@dataclass(frozen=True)
class Reason:
    """The key that stands in the way, if one of those that were named does, and what is wrong."""

    key: str
    text: str


def common_reason(bases: Sequence[Base], axes: Axes, without: Callable[[Base, str], Plan | None]) -> Reason:
    """What keeps some layouts of a space from being legal: of those that miss least, the most frequent reason.

    `without`: the plan of a base with one of its own changes taken back.
    """
    reasons: dict[int, Counter[tuple[str, str]]] = {}
    examples: dict[tuple[str, str], list[tuple[Base, Layout]]] = {}
    texts: dict[tuple[str, str], set[str]] = {}
    drawn = np.random.default_rng(0)
    for base in islice(bases, MOST_BASES):
        for _ in range(ASKED):
            layout, key = _drawn(base, drawn)
            missed, key, text = (1, key, _idle(key)) if key else _wrong(layout, base.plan, axes.data)
            told = (key, _form(text))
            reasons.setdefault(missed, Counter())[told] += 1
            examples.setdefault(told, []).append((base, layout))
            texts.setdefault(told, set()).add(text)
    told, _ = reasons[min(reasons)].most_common(1)[0]
    text = min(texts[told], key=lambda one: (len(one), one))
    blamed = told[0] or _blamed(told[1], examples[told][:EXAMPLES], axes, without)
    return Reason(blamed if blamed in axes.named else "", text)


def _drawn(base: Base, drawn: np.random.Generator) -> tuple[Layout, str]:
    """A layout of a base in which each key has an effect, or the first key that has no value with one."""
    layout: dict[str, Any] = {}
    keys = (*FIRST, *(MESH + name for name in SERVES))
    for key in (one for one in keys if one in base.space.values):
        serves = SERVES[key.removeprefix(MESH)][0] if key not in FIRST else lambda *_: True
        fitting = [value for value in base.space.values[key] if serves(layout, value)]
        if key in (f"{MESH}ends", f"{MESH}stages") and _staged(layout):
            fitting = [value for value in fitting if _cuts(base.plan, layout, key, value)]
        if not fitting:
            return layout, key
        layout[key] = fitting[drawn.integers(len(fitting))]
    return {key: layout[key] for key in base.space.keys}, ""


def _cuts(plan: Plan, layout: Layout, key: str, value: Any) -> bool:
    """Whether a pipeline's layers are cut so in one of the ways that are told apart."""
    mesh = Parallelism(pipeline=layout[f"{MESH}pipeline"], interleave=layout.get(f"{MESH}interleave", 1))
    ways = cuts(plan, mesh)
    if key == f"{MESH}ends":
        return any(ends == value for ends, _ in ways)
    return (layout[f"{MESH}ends"], value) in ways


def _idle(key: str) -> str:
    due = SERVES[key.removeprefix(MESH)][1] if key.removeprefix(MESH) in SERVES else ""
    return f"`{key}` {due}" if due else f"`{key}` has no value here"


def _wrong(layout: Layout, plan: Plan, data: Sequence[int]) -> tuple[int, str, str]:
    """How much is wrong with a layout, the key where that is known, and the first of it."""
    devices, product = plan.cluster.devices, prod(layout.get(key, 1) for key in DEGREES)
    if devices % product:
        names = " x ".join(f"{key.removeprefix(MESH)} {layout[key]}" for key in DEGREES if key in layout)
        return WORST, "", f"for example, {names} does not divide the {devices} devices"
    told = _violations(plan, layout)
    if told:
        return len(told) + 1, "", f"for example: {told[0]}"
    if data and devices // product not in data:
        none = [degree for degree in data if devices % degree]
        if none:
            return 0, DATA, f"{', '.join(map(str, none))} does not divide the {devices} devices"
        return 0, DATA, f"the other degrees leave other values, for example {devices // product} of {devices} devices"
    return NOTHING, "", "no reason was found among some of its layouts"


def _violations(plan: Plan, layout: Layout) -> list[str]:
    try:
        return [problem.message for problem in violations(laid_out(plan, layout))]
    except SpecError as error:
        return [problem.message for problem in error.problems]


def _blamed(
    form: str, examples: Sequence[tuple[Base, Layout]], axes: Axes, without: Callable[[Base, str], Plan | None]
) -> str:
    """The key that was named and whose other values most often take a reason away."""
    found: Counter[str] = Counter()
    for base, layout in examples:
        for key in (*axes.others, *axes.layout):
            wrong = [_wrong(other, plan, ()) for plan, other in _others(base, layout, key, without)]
            legal = any(missed == NOTHING for missed, _, _ in wrong)
            gone = any(_form(said) != form for _, _, said in wrong)
            # What makes a layout legal counts more than what shows another fault; a plan more than its layout.
            found[key] += (1 if key in LAYOUT else 2) * (EXAMPLES * legal + gone)
    best = found.most_common(1)
    return best[0][0] if best and best[0][1] else ""


def _others(
    base: Base, layout: Layout, key: str, without: Callable[[Base, str], Plan | None]
) -> Iterator[tuple[Plan, Layout]]:
    """A layout with other values of a key, or in the plan that does not change it."""
    if key in LAYOUT:
        yield from ((base.plan, {**layout, key: value}) for value in VALUES[key](base.plan))
    elif plan := without(base, key):
        yield plan, layout


def _form(text: str) -> str:
    """A sentence without its numbers."""
    return re.sub(r"\d+", "", text)
