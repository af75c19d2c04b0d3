"""From a formula to a number: integers and fractions, never rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy

from ledger.model.tensors import CeilDiv

Exact = int | Fraction
Value = Callable[[sympy.Expr], Exact]
Bindings = Mapping[sympy.Symbol, Exact]


def exact(bindings: Bindings) -> Callable[[sympy.Expr], Exact]:
    """A function that evaluates formulas exactly under these bindings; shared parts are evaluated once.

    Raises KeyError, naming the symbol, where a formula uses one that is not bound.
    """
    known: dict[sympy.Expr, Exact] = dict(bindings)

    def value(expr: sympy.Expr) -> Exact:
        found = known.get(expr)
        if found is None:
            found = known[expr] = _whole(_apply(expr, value))
        return found

    return value


def _apply(expr: sympy.Expr, value: Callable[[sympy.Expr], Exact]) -> Exact:
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Rational):
        return Fraction(int(expr.p), int(expr.q))
    if isinstance(expr, sympy.Add):
        return sum(map(value, expr.args), 0)
    if isinstance(expr, sympy.Mul):
        result: Exact = 1
        for factor in expr.args:
            result *= value(factor)
        return result
    if isinstance(expr, sympy.Pow):
        return Fraction(value(expr.base)) ** int(expr.exp)
    if isinstance(expr, CeilDiv):
        rows, shards = map(value, expr.args)
        return -((-rows) // shards)
    raise KeyError(str(expr))


def _whole(number: Exact) -> Exact:
    return number.numerator if isinstance(number, Fraction) and number.denominator == 1 else number
