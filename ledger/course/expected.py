"""What a lecture expects of an answer: values as written, and formulas by hand over the numbers of a question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ledger.spec.expressions import ExpressionError
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.quantities import QuantityError, parse_any, parted
from ledger.spec.quantity_expressions import Names, Quantity, evaluate, measured
from ledger.spec.reader import Node

CLOSE = Fraction(1, 10**9)  # relative; where a formula is compared with a number that went through floats


@dataclass(frozen=True)
class Expected:
    """What a figure must be: a number in its base unit within `tolerance`, a word, or true or false.

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
    known = {name: number(str(node.value)) for name, node in _entries(question, "with").items()}
    for figure, node in _entries(question, "is").items():
        text = str(node.value)
        try:
            value = Fraction(evaluate(text, Names(known.__getitem__, unknown=_unnamed(known))).number)
        except ExpressionError as error:
            raise SpecError([Problem(node.where, error.message, error.help)]) from error
        yield Expected(figure, value, text, node.where, abs(value) * CLOSE)


def number(text: str) -> Quantity:
    """A number of `with`, in its base unit; a text that is none is a word."""
    try:
        return measured(*parse_any(text))
    except QuantityError:
        return Quantity(text)


def _unnamed(known: Mapping[str, Quantity]) -> Callable[[str], ExpressionError]:
    return lambda name: ExpressionError(f"`{name}` is no number of `with`", nearest(name, list(known)))


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
    """What one step in the last decimal of a written quantity is worth, in its base unit; 0 without decimals."""
    digits, unit = parted(text)
    mantissa, _, power = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return parse_any(f"1e{int(power or 0) - decimals} {unit}")[0] if decimals else Fraction(0)
