"""From a formula to a value: exact numbers of exact sizes, a term of a trace's graph of traced ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy

from ledger.arithmetic.values import Amount, ceil_divide, divide
from ledger.model.tensors import CeilDiv

Exact = Amount  # an int or a Fraction, never rounded; or a value of a trace
Value = Callable[[sympy.Expr], Exact]
Bindings = Mapping[sympy.Symbol, Exact]


def exact(bindings: Bindings) -> Value:
    """A function that evaluates formulas under these bindings without rounding; shared parts are evaluated once.

    Raises KeyError, naming the symbol, where a formula uses one that is not bound.
    """
    values: dict[sympy.Expr, Exact] = dict(bindings)

    def value(expr: sympy.Expr) -> Exact:
        result = values.get(expr)
        if result is None:
            result = values[expr] = _apply(expr, value)
        return result

    return value


def _apply(expr: sympy.Expr, value: Value) -> Exact:
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Rational):
        return Fraction(int(expr.p), int(expr.q))
    if isinstance(expr, sympy.Add):
        return sum(map(value, expr.args), 0)
    if isinstance(expr, sympy.Mul):
        return _product(expr.args, value)
    if isinstance(expr, sympy.Pow):
        return _product((expr,), value)
    if isinstance(expr, CeilDiv):
        rows, shards = map(value, expr.args)
        return ceil_divide(rows, shards)
    raise KeyError(str(expr))


def _product(factors: tuple[sympy.Expr, ...], value: Value) -> Exact:
    """All that multiplies over all that divides, so that whole numbers stay whole as long as they can."""
    above: Exact = 1
    below: Exact = 1
    for factor in factors:
        if isinstance(factor, sympy.Pow):
            power, base = int(factor.exp), value(factor.base)
            for _ in range(abs(power)):
                above, below = (above * base, below) if power > 0 else (above, below * base)
        elif isinstance(factor, sympy.Rational):
            above, below = above * int(factor.p), below * int(factor.q)
        else:
            above = above * value(factor)  # not in place: it may be the array of another
    return divide(above, below)
