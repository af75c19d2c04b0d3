"""Closed forms differentiated: the logarithmic gradient of a formula in all its symbols at once, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy

from ledger.books.evaluate import Exact
from ledger.model.tensors import CeilDiv

Gradient = Mapping[sympy.Symbol, Fraction]


def slopes(value: Callable[[sympy.Expr], Exact]) -> Callable[[sympy.Expr], Gradient]:
    """A function that gives s * d(formula)/ds for every symbol s of a formula, at the sizes that `value` binds.

    Rounding up to equal shards is differentiated as the plain quotient.
    """
    known: dict[sympy.Expr, Gradient] = {}

    def slope(expr: sympy.Expr) -> Gradient:
        found = known.get(expr)
        if found is None:
            found = known[expr] = _slope(expr, value, slope)
        return found

    return slope


def _slope(expr: sympy.Expr, value: Callable[[sympy.Expr], Exact], slope: Callable[[sympy.Expr], Gradient]) -> Gradient:
    if isinstance(expr, sympy.Symbol):
        return {expr: Fraction(value(expr))}
    if isinstance(expr, sympy.Rational):
        return {}
    if isinstance(expr, sympy.Add):
        return added(*((Fraction(1), slope(term)) for term in expr.args))
    if isinstance(expr, sympy.Mul):
        return added(*((_others(expr, index, value), slope(factor)) for index, factor in enumerate(expr.args)))
    if isinstance(expr, sympy.Pow):
        power = int(expr.exp)
        return added((power * Fraction(value(expr.base)) ** (power - 1), slope(expr.base)))
    if isinstance(expr, CeilDiv):
        rows, shards = expr.args
        over, whole = Fraction(1) / Fraction(value(shards)), Fraction(value(rows))
        return added((over, slope(rows)), (-whole * over**2, slope(shards)))
    raise TypeError(f"no derivative of {expr}")


def _others(expr: sympy.Mul, index: int, value: Callable[[sympy.Expr], Exact]) -> Fraction:
    """The product of all factors but one."""
    result = Fraction(1)
    for place, factor in enumerate(expr.args):
        if place != index:
            result *= value(factor)
    return result


def added(*terms: tuple[Fraction, Gradient]) -> dict[sympy.Symbol, Fraction]:
    """A sum of gradients with their weights."""
    found: dict[sympy.Symbol, Fraction] = {}
    for weight, gradient in terms:
        for sign, amount in gradient.items():
            found[sign] = found.get(sign, Fraction(0)) + weight * amount
    return found
