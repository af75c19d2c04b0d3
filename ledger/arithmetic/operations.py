"""The cause of its entries, in a unit."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Number = int | Fraction | float


@dataclass(frozen=True)
class ArithmeticOperation:
    """One operation. `array` names numpy's function, `script` is its JavaScript, `binds` how tightly that binds.

    Operands of `script` are written in parentheses where they bind less tightly than the operation does.
    """

    exact: Callable[..., Any]
    array: str
    script: str
    binds: int = 9


def as_integer(number: Number) -> Number:
    """A fraction without a denominator is an integer."""
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number


def divide(above: Number, below: Number) -> Number:
    """The quotient, exact where both are."""
    if isinstance(above, float) or isinstance(below, float):
        return above / below
    return as_integer(Fraction(above) / Fraction(below))


def power(base: Number, exponent: int) -> Number:
    """A whole power, exact where the base is."""
    return base**exponent if isinstance(base, float) else as_integer(Fraction(base) ** exponent)


def ceil_div(rows: Number, shards: Number) -> Number:
    """Rows of the largest share."""
    return -((-rows) // shards)


def next_power_of_two(number: Number) -> int:
    """The smallest power of two that is not below a whole number of at least 1."""
    return 1 << (int(number) - 1).bit_length()


def choose(condition: bool, yes: Number, no: Number) -> Number:
    """One of two numbers."""
    return yes if condition else no


def share(part: Number, of: Number) -> Number:
    """A part over its whole; of nothing, 0."""
    return part / of if of else 0.0


SUM, PRODUCT, CALL = 6, 7, 9  # how tightly JavaScript binds: sums, products, calls and names
COMPARISON, EQUALITY, BOTH, CHOICE = 5, 4, 3, 1
WHOLE = 1e-3  # what is not whole to begin with is off by a third or so; rounding is off by far less

OPERATIONS: dict[str, ArithmeticOperation] = {
    "add": ArithmeticOperation(operator.add, "add", "{}+{}", SUM),
    "subtract": ArithmeticOperation(operator.sub, "subtract", "{}-{}", SUM),
    "multiply": ArithmeticOperation(operator.mul, "multiply", "{}*{}", PRODUCT),
    "divide": ArithmeticOperation(divide, "divide", "{}/{}", PRODUCT),
    "true_divide": ArithmeticOperation(operator.truediv, "divide", "{}/{}", PRODUCT),
    "floor_divide": ArithmeticOperation(operator.floordiv, "floor_divide", "Math.floor({}/{})", CALL),
    "ceil_divide": ArithmeticOperation(ceil_div, "ceil_divide", "Math.ceil({}/{})", CALL),
    "next_power_of_two": ArithmeticOperation(
        next_power_of_two, "exp2", "Math.pow(2,32-Math.clz32({}-1))", CALL
    ),  # up to 2**32 in JavaScript
    "modulo": ArithmeticOperation(operator.mod, "mod", "{}%{}", PRODUCT),
    "power": ArithmeticOperation(power, "power", "{}**{}", CALL),
    "minimum": ArithmeticOperation(min, "minimum", "Math.min({},{})", CALL),
    "maximum": ArithmeticOperation(max, "maximum", "Math.max({},{})", CALL),
    "absolute": ArithmeticOperation(abs, "absolute", "Math.abs({})", CALL),
    "square_root": ArithmeticOperation(math.sqrt, "sqrt", "Math.sqrt({})", CALL),
    "logarithm": ArithmeticOperation(math.log, "log", "Math.log({})", CALL),
    "truncate": ArithmeticOperation(int, "truncate", f"Math.floor({{}}+{WHOLE})", CALL),
    "floor": ArithmeticOperation(math.floor, "floor", "Math.floor({})", CALL),
    "share": ArithmeticOperation(share, "share", "share({},{})", CALL),
    "less": ArithmeticOperation(operator.lt, "less", "{}<{}", COMPARISON),
    "less_equal": ArithmeticOperation(operator.le, "less_equal", "{}<={}", COMPARISON),
    "equal": ArithmeticOperation(operator.eq, "equal", "{}==={}", EQUALITY),
    "not": ArithmeticOperation(operator.not_, "logical_not", "!{}", CALL),
    "both": ArithmeticOperation(lambda left, right: bool(left and right), "logical_and", "{}&&{}", BOTH),
    "where": ArithmeticOperation(choose, "where", "{}?{}:{}", CHOICE),
}
