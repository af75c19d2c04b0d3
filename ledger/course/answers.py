"""What an answer is made of: figures with units and closed forms, tables, a curve, the bits of a format."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ledger.model.number_bits import Bits
from ledger.spec.quantity_expressions import Value, alike, measured

if TYPE_CHECKING:
    from ledger.course.expected import Expected
    from ledger.course.lecture import Question


@dataclass(frozen=True)
class Amount:
    """A number in a table whose rows have units of their own, and how it differs from another, where it does."""

    value: int | Fraction | float
    unit: str
    change: int | Fraction | float | None = None


@dataclass(frozen=True)
class Figure:
    """One number of an answer, or a word, or yes or no: `value` in the SI base `unit`, and the form it came from."""

    name: str
    title: str
    value: Value
    unit: str = "1"
    formula: str = ""


@dataclass(frozen=True)
class Grid:
    """A table: columns with their units, rows. No unit is text; `mixed` holds Amounts."""

    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Value | Amount, ...], ...]


@dataclass(frozen=True)
class Plot:
    """Points (across, up, label) of one quantity over another, with their titles and units."""

    title: str
    across: tuple[str, str]
    up: tuple[str, str]
    points: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Found:
    """What the compiler says to one question."""

    figures: tuple[Figure, ...]
    grid: Grid | None = None
    curve: Plot | None = None
    bits: Bits | None = None


@dataclass(frozen=True)
class Outcome:
    """An expectation beside what was found; `holds` within the rounding of the expected value."""

    expected: Expected
    found: Value | None
    holds: bool


@dataclass(frozen=True)
class Answer:
    """A question with its answer, and how that compares with what was expected."""

    question: Question
    found: Found
    outcomes: tuple[Outcome, ...]

    @property
    def holds(self) -> bool:
        """Whether every expectation holds."""
        return all(outcome.holds for outcome in self.outcomes)

    def figure(self, name: str) -> Figure | None:
        """The figure of that name."""
        return next((figure for figure in self.found.figures if figure.name == name), None)


def compared(expected: Expected, found: Figure | None) -> Outcome:
    """Words and truth values must be equal, numbers within the tolerance and in a unit that is theirs."""
    if found is None:
        return Outcome(expected, None, holds=False)
    wanted, value = expected.value, found.value
    if isinstance(wanted, str | bool) or isinstance(value, str | bool):
        return Outcome(expected, value, type(wanted) is type(value) and wanted == value)
    is_alike = expected.unit == "1" or alike(measured(0, expected.unit), measured(0, found.unit))
    return Outcome(expected, value, is_alike and abs(Fraction(value) - wanted) <= expected.tolerance)
