"""An input that is looked for, and the values it may have, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log
from typing import Any

import sympy

from ledger.books.results import Number
from ledger.spec.paths import unit
from ledger.spec.plan import Plan

REACH = 10**18  # beyond every size that a plan can state
FINE = 1e-9  # relative distance of real numbers that are told apart
NEXT_REAL = round(0.01 / FINE)  # one per cent further is one step beyond
SPAN = 40  # powers of two below and above the given real number that are searched


@dataclass(frozen=True)
class Unknown:
    """An input that is looked for: `given` in the plan, legal in `some` values, else in multiples of `step`.

    Without a `step` it is a real number. None is above `greatest`, for the reason `cap`. `sign` stands for it in
    formulas; `why` says what is legal.
    """

    path: str
    given: Number
    put: Callable[[Plan, Any], Plan]
    why: str = ""
    some: tuple[int, ...] = ()
    step: int = 0
    greatest: float = inf
    cap: str = ""
    sign: sympy.Symbol | None = None

    @property
    def unit(self) -> str:
        """The base unit of its values."""
        return unit(self.path)

    @property
    def real(self) -> bool:
        """Whether every positive number is legal; then ranks are steps of one part in 10**9."""
        return not self.some and not self.step

    def value(self, rank: int) -> Number:
        """The legal value of this rank, from 0."""
        if self.real:
            return min(float(self.given) * 2.0**-SPAN * exp(rank * FINE), self.greatest)
        return self.some[rank] if self.some else (rank + 1) * self.step

    @property
    def last(self) -> int:
        """The rank of the largest value that is ever tried."""
        if self.real:
            widest = int(2 * SPAN * log(2) / FINE)
            return widest if self.greatest == inf else min(widest, self.rank(self.greatest))
        return len(self.some) - 1 if self.some else int(min(REACH, self.greatest)) // self.step - 1

    def rank(self, value: float) -> int:
        """The rank of the largest legal value up to `value`, or that of the smallest."""
        if self.real:
            return max(int((log(value / float(self.given)) + SPAN * log(2)) / FINE), 0)
        if self.some:
            return max(sum(one <= value for one in self.some) - 1, 0)
        return max(int(min(value, REACH)) // self.step - 1, 0)
