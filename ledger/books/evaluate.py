"""Two ways from a formula to a number: exact integers and fractions, and float64 vectors, compiled once a structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sympy

from ledger.model.tensors import CeilDiv

if TYPE_CHECKING:
    import numpy as np

Exact = int | Fraction
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


@lru_cache(maxsize=64)
def compiled(exprs: tuple[sympy.Expr, ...], symbols: tuple[sympy.Symbol, ...]) -> Callable[..., list[Any]]:
    """One numpy function for many formulas, with their common parts shared; compiled once for each structure."""
    import numpy as np

    ceil_div = {"CeilDiv": lambda rows, shards: -np.floor_divide(-rows, shards)}
    function: Callable[..., list[Any]] = sympy.lambdify(
        list(symbols), list(exprs), modules=[ceil_div, "numpy"], cse=True
    )
    return function


def vector(exprs: Sequence[sympy.Expr], columns: Mapping[sympy.Symbol, Any]) -> list[np.ndarray]:
    """Formulas over columns of values, in float64: for sweeps, never for totals that must be exact."""
    import numpy as np

    symbols = tuple(sorted(columns, key=str))
    values = [np.asarray(columns[symbol], dtype=np.float64) for symbol in symbols]
    return [np.asarray(result, dtype=np.float64) for result in compiled(tuple(exprs), symbols)(*values)]
