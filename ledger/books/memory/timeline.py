"""Moments of a step: what runs, beside what; and stocks, as many of which are alive at each of them as a rule says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import sympy

from ledger.books.entries import Entry, Lifetime
from ledger.books.module_fetches import Profile
from ledger.books.resources import stock
from ledger.model.causes import Cause
from ledger.model.dims import symbol
from ledger.model.fsdp_units import ENDS
from ledger.model.multi_token import UNIT
from ledger.model.operations import ONE, ZERO
from ledger.model.tensors import CeilDiv
from ledger.model.units import Unit

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


@dataclass(frozen=True)
class Surroundings:
    """What one set of gathered weights stands beside, in a pass: the sets before and after it in this pass.

    `inside` counts the layers of this set that the pass left behind; `closes` says that no further one follows.
    `moving`: the unit of the layer whose activations go to the host meanwhile, or come back for the next backward.
    `gathered`: what is there while it runs, where modules gather their own weights.
    """

    before: str = ""
    after: str = ""
    inside: int = 0
    closes: bool = True
    moving: str = ""
    gathered: Profile | None = None


@dataclass(frozen=True)
class Point:
    """A moment: `unit` runs in a `phase` (nothing in the optimizer); `left` are the layers of each unit left behind."""

    name: str
    title: str
    phase: str
    unit: str = ""
    left: Mapping[str, sympy.Expr] = field(default_factory=dict)
    beside: Surroundings = Surroundings()


AliveCount = Callable[[Point], sympy.Expr]  # how many of a thing are alive at a moment


@dataclass(frozen=True)
class Timeline:
    """The moments of a step in order; `counts` has the layers of each unit that this device holds.

    `chunked`: they may lie in several chunks, which micro-batches pass one after the other.
    """

    points: tuple[Point, ...]
    counts: Mapping[str, sympy.Expr]
    chunked: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the moments."""
        return tuple(point.name for point in self.points)

    @property
    def titles(self) -> Mapping[str, str]:
        """What each moment is called, for people."""
        return {point.name: point.title for point in self.points}

    @property
    def whole(self) -> Lifetime:
        """All of the step."""
        return Lifetime(0, len(self.points) - 1)

    @property
    def last(self) -> Lifetime:
        """The last moment alone, at which the optimizer updates."""
        return Lifetime(len(self.points) - 1, len(self.points) - 1)

    def saved(self, unit: Unit) -> AliveCount:
        """Layers of a unit that wait for their backward pass; the one that runs is not among them."""

        def waiting(point: Point) -> sympy.Expr:
            if point.phase == OPTIMIZER:
                return ZERO
            left = point.left[unit.name]
            if point.phase == FORWARD:
                return left + self._elsewhere(unit, point)
            return self.counts[unit.name] - left - (1 if point.unit == unit.name else 0) + self._elsewhere(unit, point)

        return waiting

    def flying(self, unit: Unit, others: sympy.Expr) -> AliveCount:
        """Layers that hold other micro-batches in both passes, so many where most are in flight.

        Where a step has no more micro-batches than stages, the first chunk runs before all others forward, and after
        them backward.
        """

        def alive(point: Point) -> sympy.Expr:
            if point.phase == OPTIMIZER:
                return ZERO
            if not self.chunked or not self._first_chunk(unit, point):
                return others
            return others * (_steady() + (ONE - _steady()) / symbol("chunks"))

        return alive

    def _first_chunk(self, unit: Unit, point: Point) -> bool:
        """Whether layers near the start of the model run, of which few are left behind forward, or wait in backward."""
        left = point.left[unit.name]
        if point.phase == BACKWARD:
            left = self.counts[unit.name] - left - (1 if point.unit == unit.name else 0)
        return bool(left.is_Integer) and unit.name not in (*ENDS, UNIT)

    def _elsewhere(self, unit: Unit, point: Point) -> sympy.Expr:
        """While the first chunk runs, layers of other chunks in which as many micro-batches wait as ever.

        A micro-batch comes to a chunk when the one before it has passed others (Narayanan et al. 2021, figure 4), so
        that a device holds nearly as much while the first layers run as while the last ones do.
        """
        if not self.chunked or not self._first_chunk(unit, point):
            return ZERO
        return self.counts[unit.name] * (ONE - ONE / symbol("chunks")) * _steady()

    def through(self, unit: str) -> AliveCount:
        """Layers of a unit whose backward pass is over."""

        def done(point: Point) -> sympy.Expr:
            if point.phase == OPTIMIZER:
                return self.counts[unit]
            return ZERO if point.phase == FORWARD else point.left[unit]

        return done


def _steady() -> sympy.Expr:
    """1 where chunks take turns in several rounds, of one micro-batch for each stage; 0 where there is one round."""
    rounds = CeilDiv(symbol("micro_batches"), symbol("pipeline"))
    return CeilDiv(rounds - 1, symbol("micro_batches"))


def always(count: sympy.Expr) -> AliveCount:
    """Equally many at every moment."""
    return lambda _: count


def until_update(count: sympy.Expr) -> AliveCount:
    """Equally many in both passes."""
    return lambda point: ZERO if point.phase == OPTIMIZER else count


def posted(  # noqa: PLR0913 - the arguments are the facts of one stock
    line: Timeline,
    cause: Cause,
    category: str,
    amount: sympy.Expr,
    alive: AliveCount,
    why: str,
) -> Iterator[Entry]:
    """The entries of a stock: one for each stretch of moments over which equally many are alive."""
    counts = [alive(point) for point in line.points]
    first = 0
    for index in range(1, len(counts) + 1):
        if index == len(counts) or counts[index] != counts[first]:
            if counts[first] != ZERO:
                yield Entry(cause, stock(category), Lifetime(first, index - 1), amount, counts[first], why)
            first = index
