"""Expressions over named quantities (`16 * parameters / devices`): exact where their numbers are, with units."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ledger.spec.expressions import ExpressionError

LONGEST = 500  # characters
LARGEST = 10**60  # of any part of an expression
FINEST = LARGEST**4  # of its denominator
COUNTED = ("tokens", "images", "parameters")  # units that are left out where they stand beside others
FORMS = "numbers, names, + - * / // ** ( ), comparisons, `a if b else c`, sqrt, min, max, ceil, floor, sum"
Powers = Mapping[str, int]
Value = int | Fraction | float | str | bool
Arithmetic = Callable[[Fraction | float, Fraction | float], Fraction | float]
SUMS: Mapping[type[ast.operator], Arithmetic] = {ast.Add: operator.add, ast.Sub: operator.sub}
PRODUCTS: Mapping[type[ast.operator], tuple[Arithmetic, int]] = {
    ast.Mult: (operator.mul, 1),
    ast.Div: (operator.truediv, -1),
    ast.FloorDiv: (operator.floordiv, -1),
}
COMPARED: Mapping[type[ast.cmpop], Callable[[Fraction | float, Fraction | float], bool]] = {
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
}
ROUNDED: Mapping[str, Callable[[Fraction | float], int]] = {"ceil": math.ceil, "floor": math.floor}
CHOSEN: Mapping[str, Callable[..., ExpressionQuantity]] = {"min": min, "max": max}


@dataclass(frozen=True)
class ExpressionQuantity:
    """A number in the SI base unit that is made of these powers, a word, or true or false."""

    value: Value
    powers: Powers = field(default_factory=dict)

    def __lt__(self, other: ExpressionQuantity) -> bool:
        return self.number < other.number

    @property
    def number(self) -> Fraction | float:
        """The number; ExpressionError of a word."""
        if isinstance(self.value, str | bool):
            raise ExpressionError(
                f"`{self.value}` is no number" if self.value != "" else "there is no such number", FORMS
            )
        return self.value if isinstance(self.value, float) else Fraction(self.value)

    @property
    def unit(self) -> str:
        """The unit as text: `FLOP/B`; what is counted is named where it stands alone or over a time."""
        powers = {name: power for name, power in self.powers.items() if power}
        if not set(powers) <= {*COUNTED, "s"} or sum(map(abs, powers.values())) > 2 or len({*COUNTED} & {*powers}) > 1:
            powers = {name: power for name, power in powers.items() if name not in COUNTED}
        above = "*".join(name if power == 1 else f"{name}**{power}" for name, power in powers.items() if power > 0)
        below = "".join(f"/{name}" * -power for name, power in powers.items() if power < 0)
        return f"{above}{below}" or "1"


def quantity_in(value: Value, unit: str) -> ExpressionQuantity:
    """A quantity in a unit as text; what is a share or a number of times has none."""
    above, *below = ("" if unit in ("1", "%", "x", "plain") else unit.removesuffix(" each")).split("/")
    powers: dict[str, int] = {name: 1 for name in (above,) if name}
    for name in below:
        powers[name] = powers.get(name, 0) - 1
    return ExpressionQuantity(value, powers)


def alike(left: ExpressionQuantity, right: ExpressionQuantity) -> bool:
    """Whether two quantities have the same unit, counted things (tokens, parameters) left out."""
    return _physical_powers(left.powers) == _physical_powers(right.powers)


NONE = ExpressionQuantity("")  # what there is none of: a figure that comes out so is left out
Lookup = Callable[[str], ExpressionQuantity]  # raises KeyError
Sum = Callable[[Sequence[str]], Sequence[ExpressionQuantity]]  # of the names that patterns match


@dataclass(frozen=True)
class Names:
    """The names of an expression: quantities, and functions of patterns with a `*`."""

    lookup: Lookup
    functions: Mapping[str, Sum] = field(default_factory=dict)
    unknown: Callable[[str], ExpressionError] = lambda name: ExpressionError(f"nothing here is called `{name}`", FORMS)


def evaluate(text: str, names: Names) -> ExpressionQuantity:
    """The quantity that an expression gives; raises ExpressionError, which says what may be written instead."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression of more than {LONGEST} characters", FORMS)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"`{text}` is no expression", FORMS) from error
    return _Evaluator(text, names).value(tree.body)


@dataclass(frozen=True)
class _Evaluator:
    """Evaluates one expression over names."""

    text: str
    names: Names

    def value(self, node: ast.expr) -> ExpressionQuantity:
        match node:
            case ast.Constant(value=int() | float() | str() as constant) if not isinstance(constant, bool):
                return ExpressionQuantity(
                    constant if isinstance(constant, str) else Fraction(str(self.bounded(constant)))
                )
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self.named(self.path(node))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.value(operand)
                return ExpressionQuantity(-inner.number, inner.powers)
            case ast.BinOp(left=left, op=op, right=right):
                return self.joined(op, self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return ExpressionQuantity(self.compared(op, self.value(left), self.value(right)))
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.value(body if self.value(test).value else otherwise)
            case ast.Call(func=ast.Name(id=name), args=inputs, keywords=[]) if inputs:
                return self.called(name, inputs)
        raise ExpressionError(f"`{ast.unparse(node)}` has no place in an expression", FORMS)

    def path(self, node: ast.expr) -> str:
        """The dotted name; what stands in brackets is a word that is looked up."""
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=value, attr=name):
                return f"{self.path(value)}.{name}"
            case ast.Subscript(value=value, slice=key):
                return f"{self.path(value)}.{self.value(key).value}"
        raise ExpressionError(f"`{ast.unparse(node)}` is no name", FORMS)

    def named(self, name: str) -> ExpressionQuantity:
        try:
            return self.names.lookup(name)
        except KeyError:
            raise self.names.unknown(name) from None

    def compared(self, op: ast.cmpop, left: ExpressionQuantity, right: ExpressionQuantity) -> bool:
        """Words are equal or not; numbers of one unit have an order."""
        if isinstance(op, ast.Eq):
            if not any(isinstance(operand.value, str | bool) for operand in (left, right)):
                self.alike(left, right)
            return left.value == right.value
        if type(op) not in COMPARED:
            raise ExpressionError(f"`{self.text}` compares in a way that is not known here", FORMS)
        self.alike(left, right)
        return COMPARED[type(op)](left.number, right.number)

    def alike(self, left: ExpressionQuantity, right: ExpressionQuantity) -> None:
        """ExpressionError for quantities of two units."""
        if 0 not in (left.value, right.value) and _physical_powers(left.powers) != _physical_powers(right.powers):
            raise ExpressionError(f"`{self.text}` holds {left.unit} against {right.unit}", "both in one unit")

    def all_alike(self, several: Sequence[ExpressionQuantity]) -> None:
        """ExpressionError for quantities of more than one unit."""
        for quantity in several[1:]:
            self.alike(several[0], quantity)

    def joined(self, op: ast.operator, left: ExpressionQuantity, right: ExpressionQuantity) -> ExpressionQuantity:
        """Two quantities by an operator; unlike ones are not added."""
        if type(op) in SUMS:
            self.alike(left, right)
            return ExpressionQuantity(
                self.bounded(SUMS[type(op)](left.number, right.number)), left.powers or right.powers
            )
        if isinstance(op, ast.Pow):
            return self.power(left, right.number)
        if type(op) not in PRODUCTS:
            raise ExpressionError(f"`{self.text}` has an operator that is not known here", FORMS)
        function, sign = PRODUCTS[type(op)]
        if sign < 0 and not right.number:
            raise ExpressionError(f"`{self.text}` divides by zero", FORMS)
        powers = dict(left.powers)
        for name, power in right.powers.items():
            powers[name] = powers.get(name, 0) + sign * power
        return ExpressionQuantity(self.bounded(function(left.number, right.number)), powers)

    def power(self, base: ExpressionQuantity, exponent: Fraction | float) -> ExpressionQuantity:
        if exponent != int(exponent) or not 0 <= exponent <= 64:
            raise ExpressionError(f"`{self.text}` has an exponent that is not a whole number from 0 to 64", FORMS)
        try:
            raised = self.bounded(base.number ** int(exponent))
        except OverflowError:
            raise self.beyond_reason() from None
        return ExpressionQuantity(raised, {name: power * int(exponent) for name, power in base.powers.items()})

    def called(self, name: str, inputs: Sequence[ast.expr]) -> ExpressionQuantity:
        """A function of quantities, or the sum over all that patterns match."""
        if name in self.names.functions:
            terms = self.names.functions[name]([str(self.value(node).value) for node in inputs])
            added: Fraction | float = sum((term.number for term in terms), Fraction(0))
            self.all_alike(terms)
            return ExpressionQuantity(self.bounded(added), terms[0].powers if terms else {})
        quantities = [self.value(node) for node in inputs]
        if name in CHOSEN:
            self.all_alike(quantities)
            return CHOSEN[name](quantities)
        if name in ROUNDED and len(quantities) == 1:
            return ExpressionQuantity(Fraction(ROUNDED[name](quantities[0].number)), quantities[0].powers)
        if name == "sqrt" and len(quantities) == 1 and quantities[0].number >= 0:
            return self.root(quantities[0])
        raise ExpressionError(f"`{self.text}`: there is no `{name}` of {len(quantities)} such values", FORMS)

    def root(self, square: ExpressionQuantity) -> ExpressionQuantity:
        """The root of a number, and of what of its unit is a square; the rest is left out, as the FLOPs of a budget."""
        halves = {unit: power // 2 for unit, power in square.powers.items() if power % 2 == 0}
        return ExpressionQuantity(math.sqrt(square.number), halves)

    def bounded(self, value: Fraction | float) -> Fraction | float:
        if not -LARGEST <= value <= LARGEST or (isinstance(value, Fraction) and value.denominator > FINEST):
            raise self.beyond_reason()
        return value

    def beyond_reason(self) -> ExpressionError:
        return ExpressionError(f"`{self.text}` is beyond reason", FORMS)


def _physical_powers(powers: Powers) -> Powers:
    return {name: power for name, power in powers.items() if power and name not in COUNTED}
