"""Laws that every compiled plan keeps, whatever it is of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from numbers import Real
from typing import Any

from ledger.books.compiled import Compiled

ORDER = ("time.floor", "time.roofline", "time.step", "time.serial")  # each no longer than the next
ROUNDING = 1e-9  # of sums of floats
# Stages of a pipeline that are not the slowest hide transfers of theirs behind what they launch: where a launch is
# faster, more of those transfers is left at the end of a step, and the slowest stage is no faster.
SLACK = 1e-4  # of a step, by which a resource that is better may lengthen it so
# Schedules that put off gradients of weights until a device waits: where backward waits for the network, a faster
# matmul shortens what fills the waits and nothing else, so that a step may get longer by hundredths of a per cent.
FILLING = ("zero_bubble", "zero_bubble_h2", "dual_pipe")


def is_lawful(compiled: Compiled) -> str:
    """The first law that a plan breaks; none where it keeps them all."""
    return next(broken_laws(compiled.totals, filling=compiled.plan.parallelism.schedule in FILLING), "")


def broken_laws(totals: Mapping[str, Any], *, filling: bool = False) -> Iterator[str]:
    """Amounts are finite and not below zero, and the bounds of a step are in order.

    `filling`: a resource that is better may make a step longer, by the schedule (FILLING).
    """
    for name, value in totals.items():
        if isinstance(value, Real) and not math.isfinite(value):
            yield f"{name} is {value}"
        elif isinstance(value, Real) and value < -(SLACK if name.startswith("pace.") else ROUNDING):
            if filling and name.startswith("pace."):
                continue
            yield f"{name} is {value}, below zero"
    known = [name for name in ORDER if name in totals]
    for shorter, longer in pairwise(known):
        if totals[shorter] > totals[longer] * (1 + ROUNDING):
            yield f"{shorter} is {totals[shorter]}, {longer} is {totals[longer]}"
