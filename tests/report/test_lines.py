"""Long formulas over several lines: the same value, letters that are defined, and no line that must be scaled far."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

import ledger
from ledger.report.typesetting.lines import LINE, arrange, break_lines, width
from ledger.report.typesetting.pictures import EXTENT, cached_picture
from ledger.report.typesetting.trees import add_terms, factors, multiply_factors, parse, terms

SPECS = Path(__file__).resolve().parents[2] / "specs"
LONG = "4*D*dp*ceil(H*E/dp) + 2*H*E*dp*ceil(D/dp) + 8*D*dp*ceil(K*E/dp) + 3*D*H*E + 6*F*dp*ceil(D/dp) + 7*(H + K)**2"
CHAIN = "ceil(D*F/tp/(dp*cp)) + ceil(D*H/tp/(dp*cp)) + ceil(D*K/tp/(dp*cp)) + ceil(D*X/ep/(dp*cp/ep)) + ceil(D/(dp*cp))"
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101)


@pytest.fixture(scope="module")
def formulas() -> set[str]:
    """All formulas of two plans of the library, the one with the longest names among them."""
    plans = [ledger.compile(str(SPECS / f"{name}.yaml")) for name in ("deepseek-v3", "405b")]
    return {account.formula for plan in plans for account in plan.accounts}


def value(tree: ast.expr, sizes: Mapping[str, Fraction]) -> Fraction:
    """What a tree comes to, by rules of the test's own."""
    match tree:
        case ast.Constant(value=number):
            return Fraction(str(number))
        case ast.Name(id=name):
            return sizes[name]
        case ast.Call(func=ast.Name(id="ceil"), args=[inner]):
            return Fraction(math.ceil(value(inner, sizes)))
        case ast.Call(func=ast.Name(id="over"), args=[above, below]):
            return value(above, sizes) / value(below, sizes)
        case ast.BinOp(left=left, op=op, right=right):
            one, other = value(left, sizes), value(right, sizes)
            signs = {ast.Add: one + other, ast.Sub: one - other, ast.Mult: one * other}
            if isinstance(op, ast.Pow):
                return Fraction(one ** int(other))
            return signs[type(op)] if type(op) in signs else one / other
    raise AssertionError(ast.dump(tree))


def primes(tree: ast.expr) -> dict[str, Fraction]:
    """A prime for every name."""
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"ceil"})
    return dict(zip(names, map(Fraction, PRIMES), strict=False))


def test_an_arranged_formula_has_the_value_of_the_written_one(formulas: set[str]) -> None:
    """Letters put back for what they stand for, over distinct primes: equal, for every formula of two plans."""
    for formula in (LONG, CHAIN, *formulas):
        tree = parse(formula)
        found, sizes = arrange(tree), primes(tree)
        for letter, meaning in found.definitions:
            sizes[letter] = value(meaning, sizes)
        assert value(found.tree, sizes) == value(tree, sizes), formula


def test_what_recurs_is_defined_once() -> None:
    """The divisor of five quotients gets a letter that no size has, and stands below the formula."""
    found = break_lines(CHAIN)
    assert found.definitions == (r"n = \mathrm{dp} \cdot \mathrm{cp} ",)
    assert not any("cp" in line for line in found.lines)


def test_a_formula_that_fits_stays_as_it_was_written() -> None:
    """Nothing is named or reordered without need."""
    assert break_lines("2*B*S*D + 2*B*S*F").lines == (r"2 \, B \, S \, D + 2 \, B \, S \, F",)


def test_parentheses_close_where_they_open(formulas: set[str]) -> None:
    """A sum in parentheses may go on over lines, and all of them are closed in the end."""
    for formula in formulas:
        text = "".join(break_lines(formula).lines)
        assert len(re.findall(r"(?<!left)\(", text)) == len(re.findall(r"(?<!right)\)", text))


@pytest.mark.parametrize("count", [3, pytest.param(12, marks=pytest.mark.long)])
def test_no_line_is_scaled_below_seven_tenths(formulas: set[str], count: int) -> None:
    """Paper has 51 mm for a formula, 260 px at the size of pictures; the widest line that is drawn keeps 70 % of it."""
    widest = 51 / 25.4 * 96 / 0.74 / 0.70
    for formula in sorted(formulas, key=lambda formula: (len(formula), formula))[-count:]:
        found = break_lines(formula)
        for line in (*found.lines, *found.definitions):
            drawn = EXTENT.search(cached_picture(line))
            assert drawn
            assert float(drawn[2]) <= widest, line


@pytest.mark.parametrize("formula", ["2*B*S*D", "ceil(V/tp)*D + B", "3*B*S*H*E/2 + 4*D", "F_experts*X_experts"])
def test_widths_are_close_to_what_is_drawn(formula: str) -> None:
    """Within a fifth, which a line of the table has to spare."""
    drawn = EXTENT.search(cached_picture(break_lines(formula).lines[0]))
    assert drawn
    assert width(parse(formula)) == pytest.approx(float(drawn[2]), rel=0.2)
    assert width(parse(formula)) < LINE


def test_sums_and_products_come_apart_and_together() -> None:
    """Terms keep their signs."""
    tree = parse("a - b + c*d*e")
    assert [sign for sign, _ in terms(tree)] == ["+", "-", "+"]
    assert ast.unparse(add_terms(terms(tree))) == "a - b + c * d * e"
    assert ast.unparse(multiply_factors(factors(parse("c*d*e")))) == "c * d * e"
