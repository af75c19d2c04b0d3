"""The parts of an answer (figures with units and closed forms, tables, curves, bits), and what is expected of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ledger.model.dtypes import Bits
from ledger.spec.expressions import ExpressionError
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.quantities import QuantityError, parse_any, split_number_and_unit
from ledger.spec.quantity_expressions import ExpressionQuantity, Names, Value, alike, evaluate, quantity_in
from ledger.spec.reader import Node

CLOSE = Fraction(1, 10**9)  # relative; where a formula is compared with a number that went through floats


@dataclass(frozen=True)
class Expected:
    """The expected value of a figure: a number in its base unit within `tolerance`, a word, or true or false.

    `unit` is the base unit that is written beside the number, `1` of a number alone; `where` the place of all this.
    """

    figure: str
    value: Fraction | str | bool
    text: str
    where: Location
    tolerance: Fraction = Fraction(0)
    unit: str = "1"


def _entries(node: Node, key: str) -> Mapping[str, Node]:
    return node.fields[key].fields if key in node.fields else {}


def expected(question: Node) -> Iterator[Expected]:
    """The values that a question states, and what its formulas give; raises SpecError."""
    for figure, node in _entries(question, "expect").items():
        yield stated(figure, node)
    numbers = {name: number(str(node.value)) for name, node in _entries(question, "with").items()}
    for figure, node in _entries(question, "is").items():
        text = str(node.value)
        try:
            value = Fraction(evaluate(text, Names(numbers.__getitem__, unknown=_unknown_name(numbers))).number)
        except ExpressionError as error:
            raise SpecError([Problem(node.where, error.message, error.help)]) from error
        yield Expected(figure, value, text, node.where, abs(value) * CLOSE)


def number(text: str) -> ExpressionQuantity:
    """A number of `with`, in its base unit; a text that is none is a word."""
    try:
        return quantity_in(*parse_any(text))
    except QuantityError:
        return ExpressionQuantity(text)


def _unknown_name(numbers: Mapping[str, ExpressionQuantity]) -> Callable[[str], ExpressionError]:
    return lambda name: ExpressionError(f"`{name}` is no number of `with`", nearest(name, list(numbers)))


def stated(figure: str, node: Node) -> Expected:
    """A value as written. A number with decimals holds to half its last digit, one without exactly."""
    text = str(node.value)
    if isinstance(node.value, bool):
        return Expected(figure, node.value, text, node.where)
    try:
        value, unit = parse_any(text)
    except QuantityError:
        return Expected(figure, text, text, node.where)
    try:
        return Expected(figure, value, text, node.where, last_digit(text) / 2, unit)
    except QuantityError as error:  # of so many decimals that the last is none of a quantity
        raise SpecError([Problem(node.where, error.message, "as many decimals as are meant")]) from error


def last_digit(text: str) -> Fraction:
    """The size of one step in the last decimal of a written quantity, in its base unit; 0 without decimals."""
    digits, unit = split_number_and_unit(text)
    mantissa, _, power = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return parse_any(f"1e{int(power or 0) - decimals} {unit}")[0] if decimals else Fraction(0)


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
    """A table: columns with their units, rows. No unit is text; `mixed` holds Amounts.

    `figures` are the names of its columns after the first, or of its rows where `of_rows`.
    """

    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Value | Amount, ...], ...]
    figures: tuple[str, ...] = ()
    of_rows: bool = False


@dataclass(frozen=True)
class Plot:
    """Points (across, up, label) of one quantity over another, with their titles and units."""

    title: str
    across: tuple[str, str]
    up: tuple[str, str]
    points: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class AnswerContent:
    """The compiler's answer to one question."""

    figures: tuple[Figure, ...]
    grid: Grid | None = None
    curve: Plot | None = None
    bits: Bits | None = None


@dataclass(frozen=True)
class Outcome:
    """An expectation beside what was found; `holds` within the rounding of the expected value."""

    expected: Expected
    value: Value | None
    holds: bool


def compare_figure(expected: Expected, found: Figure | None) -> Outcome:
    """Words and truth values must be equal, numbers within the tolerance and in a unit that is theirs."""
    if found is None:
        return Outcome(expected, None, holds=False)
    expected_value, value = expected.value, found.value
    if isinstance(expected_value, str | bool) or isinstance(value, str | bool):
        return Outcome(expected, value, type(expected_value) is type(value) and expected_value == value)
    is_alike = expected.unit == "1" or alike(quantity_in(0, expected.unit), quantity_in(0, found.unit))
    return Outcome(expected, value, is_alike and abs(Fraction(value) - expected_value) <= expected.tolerance)
