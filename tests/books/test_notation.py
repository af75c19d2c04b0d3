"""Formulas as text: what is printed means what is evaluated."""

from __future__ import annotations

import ast
import operator

import pytest
import sympy

from ledger.books.evaluate import Exact, exact
from ledger.books.notation import text
from ledger.model.tensors import CeilDiv
from tests.model import plans
from tests.model.strategies import parts
from tests.sampling import law

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def parsed(formula: str) -> sympy.Expr:
    """The expression that a reader takes the text for: the usual precedence, `ceil(a/b)` rounded up."""
    return _expression(ast.parse(formula, mode="eval").body)


def _expression(node: ast.expr) -> sympy.Expr:
    match node:
        case ast.Constant(value=int(number)):
            return sympy.Integer(number)
        case ast.Name(id=name):
            return sympy.Symbol(name, positive=True, integer=True)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_expression(operand)
        case ast.Call(func=ast.Name(id="ceil"), args=[ast.BinOp(op=ast.Div(), left=rows, right=shards)]):
            return CeilDiv(_expression(rows), _expression(shards))
        case ast.BinOp(left=left, op=sign, right=right):
            return OPERATORS[type(sign)](_expression(left), _expression(right))
    raise AssertionError(f"no reader understands {ast.unparse(node)}")


def values(expr: sympy.Expr, symbols: list[sympy.Symbol]) -> list[Exact]:
    """The expression at three points with a prime in every symbol: two polynomials that agree there are one."""
    return [
        exact({symbol: int(sympy.prime(start + 7 * index)) for index, symbol in enumerate(symbols)})(expr)
        for start in (5, 60, 113)
    ]


@law(parts(), few=3, many=12)
def test_every_formula_reads_as_it_is_evaluated(whole: plans.Mapped) -> None:
    """All accounts of a plan: the text parses, names the same symbols, and has the same value."""
    for account in {row.formula: row for row in plans.compiled(**whole).accounts}.values():
        read, written = parsed(account.formula), account.expression
        symbols = sorted(read.free_symbols | written.free_symbols, key=str)
        assert {str(symbol) for symbol in read.free_symbols} == {str(symbol) for symbol in written.free_symbols}
        assert values(read, symbols) == values(written, symbols), account.formula


a, b, c = sympy.symbols("B S D", positive=True, integer=True)


@pytest.mark.parametrize(
    "expr",
    [
        a - b,
        -a - 2 * b,
        a - (b - c),
        a * (b - 1) / c,
        (a + b) ** 2 / (2 * c),
        1 / (a * b),
        sympy.Rational(3, 4) * a / b,
        CeilDiv(a, b) * c,
        CeilDiv(a * b, 32 * c) / 2,
        CeilDiv(a + b, c),
        a * CeilDiv(b, c) ** 2,
        (a - CeilDiv(a, b)) / c,
    ],
    ids=str,
)
def test_signs_powers_and_rounding(expr: sympy.Expr) -> None:
    """What precedence could change is put in parentheses."""
    assert values(parsed(text(expr)), [a, b, c]) == values(expr, [a, b, c]), text(expr)
