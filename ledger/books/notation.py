"""Formulas as text, in the order of the table of symbols, not in sympy's."""

from __future__ import annotations

from functools import lru_cache

import sympy

from ledger.model.dims import RANK
from ledger.model.tensors import CeilDiv


@lru_cache(maxsize=100_000)
def text(expr: sympy.Expr) -> str:
    """A formula in plain text: numbers, then symbols in table order, then what divides: `2*B*S*D*H*E/tp`."""
    if isinstance(expr, sympy.Add):
        terms = sorted(expr.args, key=_term_order)
        joined = " + ".join(text(term) for term in terms)
        return joined.replace("+ -", "- ")
    if isinstance(expr, sympy.Mul):
        return _product(expr)
    if isinstance(expr, sympy.Pow):
        if expr.exp.is_negative:
            return f"1/{_factor(1 / expr)}"
        return f"{_factor(expr.base)}**{text(expr.exp)}"
    if isinstance(expr, CeilDiv):
        rows, shards = expr.args
        return f"ceil({_factor(rows) if isinstance(rows, sympy.Add) else text(rows)}/{_factor(shards)})"
    return str(expr)


def _factor(expr: sympy.Expr) -> str:
    return f"({text(expr)})" if isinstance(expr, sympy.Add | sympy.Mul) else text(expr)


def _product(expr: sympy.Expr) -> str:
    numerator, denominator = expr.as_numer_denom() if not expr.has(CeilDiv) else _split(expr)
    number, factors = numerator.as_coeff_mul()
    ordered = sorted(factors, key=_order)
    words = [_factor(factor) if isinstance(factor, sympy.Add) else text(factor) for factor in ordered]
    sign = "-" if number == -1 and words else ""
    if number not in (1, -1) or not words:
        words.insert(0, str(number))
    above_line = sign + "*".join(words)
    return above_line if denominator == 1 else f"{above_line}/{_factor(denominator)}"


def _split(expr: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Numerator and denominator without looking inside functions."""
    above: list[sympy.Expr] = []
    below: list[sympy.Expr] = []
    for factor in sympy.Mul.make_args(expr):
        divides = isinstance(factor, sympy.Pow) and factor.exp.is_negative
        (below if divides else above).append(1 / factor if divides else factor)
    number = expr.as_coeff_Mul()[0]
    if isinstance(number, sympy.Rational) and number.q != 1:
        return sympy.Mul(*above) * number.q / 1, sympy.Mul(*below, number.q)
    return sympy.Mul(*above), sympy.Mul(*below)


def _order(factor: sympy.Expr) -> tuple[int, int, str]:
    base = factor.base if isinstance(factor, sympy.Pow) else factor
    if isinstance(base, sympy.Symbol):
        return 0, RANK.get(base.name.split("_", 1)[0], len(RANK)), base.name
    return 1, 0, str(base)


def _term_order(term: sympy.Expr) -> tuple[int, str]:
    number = term.as_coeff_Mul()[0]
    return (1 if number.is_negative else 0) * 10 - len(term.free_symbols), text(term)
