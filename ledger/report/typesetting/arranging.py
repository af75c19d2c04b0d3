"""Long formulas as a textbook has them: what recurs gets a letter, what all terms of a sum share stands before it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ledger.report.typesetting.trees import (
    Key,
    add_terms,
    children,
    factors,
    is_sum,
    key,
    map_children,
    multiply_factors,
    terms,
)
from ledger.report.typesetting.widths import LETTER, width

LETTERS = "nmgq"  # for what recurs; none of them is in the table of symbols
COSTS = 60.0  # px that a definition must save to be worth its line
SHARED = 3  # terms that share a factor before it is written once


@dataclass(frozen=True)
class ArrangedFormula:
    """A formula over letters of its own, and what those stand for, in the order in which they were introduced."""

    tree: ast.expr
    definitions: tuple[tuple[str, ast.expr], ...]


def arrange(tree: ast.expr) -> ArrangedFormula:
    """The same value, shorter: what recurs is named, common factors come first, rounded quotients get a slash."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    definitions: list[tuple[str, ast.expr]] = []
    for letter in (letter for letter in LETTERS if letter not in used):
        recurring = _recurring(tree)
        if recurring is None:
            break
        tree = _replaced(tree, key(recurring), ast.Name(letter))
        definitions.append((letter, recurring))
    named = tuple((letter, _slashed(_shortened(meaning))) for letter, meaning in definitions)
    return ArrangedFormula(_slashed(_factored(_gathered(tree), SHARED)), named)


# --- what recurs --------------------------------------------------------------------------------


def _recurring(tree: ast.expr) -> ast.expr | None:
    """The divisor, or else the sum or rounded quotient, whose name saves most; None where none is worth it."""
    nodes = [(node, below, key(node)) for node, below in _nameable(tree)]
    counts = Counter(name for _, _, name in nodes)
    saved = [(below, (counts[name] - 1) * width(node), counts[name], node) for node, below, name in nodes]
    worth = [row for row in saved if row[1] - row[2] * LETTER > COSTS]
    return max(worth, key=lambda row: row[:2])[-1] if worth else None


def _nameable(node: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """Parts of a formula that a reader would give a letter, and whether they divide something."""
    for child in children(node):
        below = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and child is node.right
        divides = below and isinstance(child, ast.BinOp)
        if isinstance(child, ast.Call) or divides or (is_sum(child) and not is_sum(node)):
            yield child, divides
        yield from _nameable(child)


def _replaced(node: ast.expr, replaced: Key, name: ast.Name) -> ast.expr:
    if key(node) == replaced:
        return name
    return map_children(node, lambda child: _replaced(child, replaced, name))


# --- what is shared -----------------------------------------------------------------------------


def _gathered(node: ast.expr) -> ast.expr:
    """Sums inside products, quotients and brackets with what all their terms share before them."""
    return map_children(node, lambda child: _gathered(child) if is_sum(node) else _shortened(child))


def _shortened(node: ast.expr) -> ast.expr:
    """The same with what all terms share before them, if it is a sum, and within it."""
    inner = _gathered(node)
    return _factored(inner, len(terms(inner))) if is_sum(inner) else inner


def _factored(tree: ast.expr, least: int) -> ast.expr:
    """A sum in which factors that at least so many terms share are written once, before those terms."""
    rest = [part for sign, part in terms(tree) if sign == "+"]
    if len(rest) < len(terms(tree)):
        return tree
    groups: list[ast.expr] = []
    while (name := _shared(rest, least)) is not None:
        sharing = [factors(term) for term in rest if name in _names(term)]
        rest = [term for term in rest if name not in _names(term)]
        groups.append(_group(name, sharing))
    return add_terms([("+", part) for part in (*groups, *rest)])


def _names(term: ast.expr) -> set[str]:
    return {factor.id for factor in factors(term) if isinstance(factor, ast.Name)}


def _shared(parts: list[ast.expr], least: int) -> str | None:
    """The factor that most terms share, at least so many; the first of several."""
    counts = Counter(name for part in parts for name in sorted(_names(part)))
    name, count = max(counts.items(), key=lambda pair: pair[1], default=("", 0))
    return name if count >= least else None


def _group(name: str, sharing: list[list[ast.expr]]) -> ast.expr:
    """Terms with a factor in common, after all that they have in common: names, and the greatest number."""
    divisor = gcd(*(_number(parts) for parts in sharing))
    first, *others = ([factor.id for factor in parts if isinstance(factor, ast.Name)] for parts in sharing)
    common = [
        factor_name
        for factor_name in dict.fromkeys(first)
        if factor_name == name or all(factor_name in names for names in others)
    ]
    inside = [multiply_factors(_times(_number(parts) // divisor, _without(parts, common))) for parts in sharing]
    before = _times(divisor, [ast.Name(factor_name) for factor_name in common])
    return multiply_factors([*before, add_terms([("+", part) for part in inside])])


def _number(parts: list[ast.expr]) -> int:
    """The whole number that a product begins with; 1 where it begins with none."""
    first = parts[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, int) else 1


def _without(parts: list[ast.expr], names: list[str]) -> list[ast.expr]:
    """The factors after the number, without the first of each of the names."""
    rest, left = [], list(names)
    for factor in parts[1:] if _number(parts) != 1 else parts:
        if isinstance(factor, ast.Name) and factor.id in left:
            left.remove(factor.id)
        else:
            rest.append(factor)
    return rest


def _times(number: int, parts: list[ast.expr]) -> list[ast.expr]:
    return parts if number == 1 and parts else [ast.Constant(number), *parts]


# --- quotients ----------------------------------------------------------------------------------


def _slashed(node: ast.expr) -> ast.expr:
    """Quotients that are rounded get a slash, so that lines stay low; `a/b/c` is a over b and c."""
    inner = map_children(node, _slashed)
    match inner:
        case ast.Call(func=ast.Name(id="ceil"), args=[ast.BinOp(op=ast.Div()) as quotient]):
            above, below = _quotient(quotient)
            below = list(_cancelled(below))
            return ast.Call(inner.func, [ast.Call(ast.Name("over"), [above, multiply_factors(below)], [])], [])
        case _:
            return inner


def _quotient(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """What is divided, and by what in turn."""
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            above, below = _quotient(left)
            return above, [*below, right]
        case _:
            return node, []


def _cancelled(below: list[ast.expr]) -> Iterator[ast.expr]:
    """Divisors without one that is divided out again: `a/b/(c/b)` is a over c."""
    undone = [
        key(divisor.right) for divisor in below if isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Div)
    ]
    for divisor in below:
        match divisor:
            case ast.BinOp(left=left, op=ast.Div(), right=right) if key(right) in map(key, below):
                yield left
            case _ if key(divisor) in undone:
                undone.remove(key(divisor))
            case _:
                yield divisor
