"""Why layouts are not legal, told from some of a space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from math import prod

import numpy as np

from ledger.search.bases import Base
from ledger.search.space import LAYOUT, Layout, effective, laid_out
from ledger.spec.inputs import violations
from ledger.spec.problems import SpecError

ASKED, MOST_BASES = 400, 8  # layouts of a base that are asked why they are not legal, and bases
WORST = 1000  # what is wrong with a layout that is no choice at all


def common_reason(bases: Sequence[Base], data: Sequence[int]) -> str:
    """What keeps some layouts of a space from being legal: of those that miss least, the most frequent reason."""
    reasons: dict[int, Counter[str]] = {}
    drawn = np.random.default_rng(0)
    for base in islice(bases, MOST_BASES):
        if not all(base.space.values.values()):
            return "a key has no value"
        for _ in range(ASKED):
            layout = {key: base.space.values[key][drawn.integers(len(base.space.values[key]))] for key in LAYOUT}
            missed, reason = _reason(layout, base, data)
            reasons.setdefault(missed, Counter())[reason] += 1
    reason, _ = reasons[min(reasons)].most_common(1)[0]
    return reason


def _reason(layout: Layout, base: Base, data: Sequence[int]) -> tuple[int, str]:
    """How much is wrong with a layout, and the first of it."""
    devices = base.plan.cluster.devices
    degrees = {key: layout[f"parallelism.{key}"] for key in ("tensor", "pipeline", "context")}
    if devices % prod(degrees.values()):
        names = " x ".join(f"{key} {degree}" for key, degree in degrees.items())
        return WORST, f"for example, {names} does not divide the {devices} devices"
    try:
        told = violations(laid_out(base.plan, layout))
    except SpecError as error:
        told = error.problems
    if told:
        return len(told) + 1, f"for example: {told[0].message}"
    if not effective(layout, base.plan):
        return 1, "a key has no effect beside the others: where it has none it is left out (null), or neutral"
    if data and devices // prod(degrees.values()) not in data:
        return 0, f"for example, data = {devices // prod(degrees.values())} is what {devices} devices leave"
    return WORST, "no reason was found among some of its layouts"
