"""Arithmetic in sizes (`4 * d_model`): a whitelist over Python's syntax tree, exact, never evaluated as Python."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from ledger.spec.near import nearest

LONGEST_EXPRESSION = 200  # characters
LARGEST_RESULT = 2**80  # of any intermediate result
GREATEST_EXPONENT = 64
# Bare numbers joined by a dash or a slash: a date, a version, a ratio. Spaces say that arithmetic is meant.
NO_ARITHMETIC = re.compile(r"[0-9]+(?:[-/][0-9]+)+")

OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Pow: lambda left, right: Fraction(left**right),
}
ALLOWED = "sizes are numbers and names joined by + - * / // ** and parentheses"


class ExpressionError(ValueError):
    """A text is no size; `help` says what may stand there."""

    def __init__(self, message: str, help_text: str = ALLOWED) -> None:
        super().__init__(message)
        self.message = message
        self.help = help_text


def evaluate(text: str, lookup: Callable[[str], int], names: Callable[[], list[str]] = list) -> int:
    """The whole number that an expression over named sizes gives; `lookup` raises KeyError for a name it lacks."""
    value = ratio(text, lookup, names)
    if value.denominator != 1:
        raise ExpressionError(f"`{text}` gives {value}, no whole number", "`//` rounds down, if that is what is meant")
    return int(value)


def ratio(
    text: str,
    lookup: Callable[[str], int | Fraction],
    names: Callable[[], list[str]] = list,
    largest: int = LARGEST_RESULT,
) -> Fraction:
    """The exact value of an expression over named numbers, none of whose parts passes `largest`."""
    if len(text) > LONGEST_EXPRESSION:
        raise ExpressionError(f"an expression of more than {LONGEST_EXPRESSION} characters")
    if NO_ARITHMETIC.fullmatch(text.strip()):
        spaced = " ".join(re.split(r"([-/])", text.strip()))
        raise ExpressionError(f"`{text}` is no whole number", f"with spaces it is arithmetic: `{spaced}`")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"`{text}` is no whole number and no expression") from error
    return _Evaluator(text, lookup, names, largest).value(tree.body)


class _Evaluator:
    """Evaluates one expression; every refusal names the text it stands in."""

    def __init__(
        self, text: str, lookup: Callable[[str], int | Fraction], names: Callable[[], list[str]], largest: int
    ) -> None:
        self.text, self.lookup, self.names, self.largest = text, lookup, names, largest

    def value(self, node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return self.bounded(Fraction(number))
            case ast.Name(id=name):
                return Fraction(self.named(name))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self.applied(op, self.value(left), self.value(right))
        segment = ast.get_source_segment(self.text.strip(), node) or type(node).__name__
        raise ExpressionError(f"`{segment}` has no place in a size")

    def applied(self, op: ast.operator, left: Fraction, right: Fraction) -> Fraction:
        if isinstance(op, ast.Div | ast.FloorDiv) and right == 0:
            raise ExpressionError(f"`{self.text}` divides by zero")
        if isinstance(op, ast.Pow) and not (0 <= right <= GREATEST_EXPONENT and right.denominator == 1):
            raise ExpressionError(f"`{self.text}` has an exponent that is not between 0 and {GREATEST_EXPONENT}")
        return self.bounded(OPERATORS[type(op)](left, right))

    def bounded(self, value: Fraction) -> Fraction:
        if abs(value) > self.largest or value.denominator > self.largest:
            raise ExpressionError(f"`{self.text}` is beyond reason")
        return value

    def named(self, name: str) -> int | Fraction:
        try:
            return self.lookup(name)
        except KeyError:
            raise ExpressionError(f"`{name}` is no size of this part", nearest(name, self.names())) from None
