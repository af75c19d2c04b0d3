"""The outcome of comparing one figure of the ledger with PyTorch's, as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EQUAL, EXPLAINED, WITHIN, DIFFERS, UNCHECKED = "equal", "explained", "within", "differs", "not checked"
STATUSES = (EQUAL, EXPLAINED, WITHIN, DIFFERS, UNCHECKED)


@dataclass(frozen=True)
class Tolerance:
    """How far a figure may be off once named causes are taken away: `relative` to what was found."""

    title: str
    relative: float = 0.0


EXACT = Tolerance("exact")
ROUNDING = Tolerance("512 B rounding")  # none: both count in the blocks of PyTorch's allocator, of 512 B
HALF_PERCENT = Tolerance("0.5 %", 0.005)
TOLERANCES = {tolerance.title: tolerance for tolerance in (EXACT, ROUNDING, HALF_PERCENT)}


@dataclass(frozen=True)
class KnownDifference:
    """A named part of found minus predicted, known to the byte."""

    name: str
    amount: int


def total(causes: Iterable[KnownDifference]) -> int:
    """Bytes of all of them."""
    return sum(cause.amount for cause in causes)


@dataclass(frozen=True)
class ComparedFigure:
    """One figure: predicted by the ledger, found by PyTorch. `skipped` says why nothing was found.

    `where`: the moment of the step at which PyTorch's figure is reached, for peaks.
    """

    account: str
    unit: str
    predicted: int | None
    found: int | None
    tolerance: Tolerance
    origin: str = ""
    causes: tuple[KnownDifference, ...] = ()
    where: str = ""
    skipped: str = ""

    @property
    def difference(self) -> int:
        """Predicted minus found; 0 where either is missing."""
        return 0 if self.predicted is None or self.found is None else self.predicted - self.found

    @property
    def unexplained(self) -> int:
        """What is left of the difference once its causes are taken away."""
        return self.difference + total(self.causes)

    @property
    def error(self) -> float:
        """The difference relative to what was found."""
        if not self.found:
            return float(bool(self.difference))
        return self.difference / self.found

    @property
    def status(self) -> str:
        """What the comparison came to, one of STATUSES: equal, explained, within tolerance, different, unchecked."""
        if self.predicted is None or self.found is None:
            return UNCHECKED
        if self.difference == 0:
            return EQUAL
        if self.unexplained == 0:
            return EXPLAINED
        return WITHIN if abs(self.unexplained) <= self.tolerance.relative * self.found else DIFFERS

    @property
    def agrees(self) -> bool:
        """Whether nothing is left unexplained; what was not checked does not disagree."""
        return self.status != DIFFERS


def unchecked(account: str, reason: str) -> ComparedFigure:
    """A figure that the judge cannot find, and why."""
    return ComparedFigure(account, "", None, None, EXACT, skipped=reason)


def worst(verdicts: Sequence[ComparedFigure]) -> ComparedFigure | None:
    """The checked figure with the largest relative difference."""
    return max((v for v in verdicts if v.status != UNCHECKED), key=lambda v: abs(v.error), default=None)
