"""Long formulas shortened, and broken into lines before a plus or a minus, else before a factor."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from ledger.report.typesetting.latex import PRODUCT, in_latex
from ledger.report.typesetting.trees import (
    Key,
    add_terms,
    children,
    factors,
    is_sum,
    key,
    map_children,
    multiply_factors,
    parse,
    terms,
)

LINE = 300.0  # px at the size of pictures


@dataclass(frozen=True)
class FormulaLines:
    """A formula line by line in LaTeX, and the lines of what its own letters stand for."""

    lines: tuple[str, ...]
    definitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class FormulaPiece:
    """A part that stays in one line: LaTeX and width, sign included; `opens`: a bracket that goes on over lines."""

    text: str
    width: float
    opens: bool = False


def break_lines(formula: str) -> FormulaLines:
    """The formula as it was written where that reads well in one line; else over several, with letters of its own."""
    tree = parse(formula)
    if width(tree) <= LINE and not _divides_in_turn(tree):
        return FormulaLines((in_latex(tree).text,))
    shorter = arrange(tree)
    definitions: list[str] = []
    for letter, meaning in shorter.definitions:
        first, *further_lines = pack_lines(pieces(meaning))
        definitions += [f"{in_latex(ast.Name(letter)).text} = {first}", *further_lines]
    return FormulaLines(tuple(pack_lines(pieces(shorter.tree))), tuple(definitions))


def _divides_in_turn(tree: ast.expr) -> bool:
    """Whether something is divided by a quotient, which a slash shows better than a fraction in a fraction."""
    quotients = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    return any(isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.Div) for node in quotients)


def pack_lines(parts: Iterator[FormulaPiece]) -> Iterator[str]:
    """Lines as full as they can be; those after the first are indented."""
    line, reached = "", 0.0
    for part in parts:
        if line and (part.opens or reached + part.width > LINE):
            yield line
            line, reached = r"\quad ", SIGN
        line, reached = f"{line}{part.text} ", reached + part.width
    yield line


def pieces(node: ast.expr) -> Iterator[FormulaPiece]:
    """What a formula is broken into: its terms, and the factors and inner terms of those that are too long."""
    for place, (sign, term) in enumerate(terms(node)):
        inner = list(_term_pieces(term))
        if place:
            inner[0] = FormulaPiece(f"{sign} {inner[0].text}", SIGN + inner[0].width, inner[0].opens)
        yield from inner


def _term_pieces(term: ast.expr) -> Iterator[FormulaPiece]:
    """A term in one piece, or in several where it is too long."""
    parts = factors(term)
    if width(term) <= LINE or len(parts) == 1:
        yield FormulaPiece(in_latex(term).within(PRODUCT), width(term))
    elif is_sum(parts[-1]):
        yield from _bracketed_pieces(parts[:-1], parts[-1])
    else:
        first, *later_factors = parts
        yield FormulaPiece(in_latex(first).within(PRODUCT), width(first))
        for part in later_factors:
            yield FormulaPiece(rf"\cdot {in_latex(part).within(PRODUCT)}", DOT + width(part))


def _bracketed_pieces(before: list[ast.expr], inside: ast.expr) -> Iterator[FormulaPiece]:
    """Factors before a sum in parentheses that goes on over lines."""
    head = multiply_factors(before)
    first, *later_pieces = pieces(inside)
    text = rf"{in_latex(head).within(PRODUCT)} \, ({first.text}"
    opened = FormulaPiece(text, width(head) + SPACE + FENCE / 2 + first.width, opens=True)
    *middle, last = (opened, *later_pieces)
    yield from middle
    yield replace(last, text=f"{last.text})", width=last.width + FENCE / 2)


# --- shorter forms of long formulas ---

LETTERS = "nmgq"  # for what recurs; none of them is in the table of symbols
COSTS = 60.0  # px that a definition must save to be worth its line
SHARED = 3  # terms that share a factor before it is written once


@dataclass(frozen=True)
class ArrangedFormula:
    """A formula over letters of its own, and what those stand for, in the order in which they were introduced."""

    tree: ast.expr
    definitions: tuple[tuple[str, ast.expr], ...]


def arrange(tree: ast.expr) -> ArrangedFormula:
    """A shorter formula of equal value: recurring parts named, common factors first, rounded quotients with a slash."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    definitions: list[tuple[str, ast.expr]] = []
    for letter in (letter for letter in LETTERS if letter not in used):
        recurring = _find_recurring(tree)
        if recurring is None:
            break
        tree = _replace(tree, key(recurring), ast.Name(letter))
        definitions.append((letter, recurring))
    named = tuple((letter, _slash_quotients(_factor_all(meaning))) for letter, meaning in definitions)
    return ArrangedFormula(_slash_quotients(_factor_shared(_factor_inside(tree), SHARED)), named)


# --- letters for recurring parts ---


def _find_recurring(tree: ast.expr) -> ast.expr | None:
    """The divisor, or else the sum or rounded quotient, whose name saves most; None where none is worth it."""
    nodes = [(node, below, key(node)) for node, below in _nameable_parts(tree)]
    counts = Counter(name for _, _, name in nodes)
    saved = [(below, (counts[name] - 1) * width(node), counts[name], node) for node, below, name in nodes]
    worth = [row for row in saved if row[1] - row[2] * LETTER > COSTS]
    return max(worth, key=lambda row: row[:2])[-1] if worth else None


def _nameable_parts(node: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """Parts of a formula that a reader would give a letter, and whether they divide something."""
    for child in children(node):
        below = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and child is node.right
        divides = below and isinstance(child, ast.BinOp)
        if isinstance(child, ast.Call) or divides or (is_sum(child) and not is_sum(node)):
            yield child, divides
        yield from _nameable_parts(child)


def _replace(node: ast.expr, replaced: Key, name: ast.Name) -> ast.expr:
    if key(node) == replaced:
        return name
    return map_children(node, lambda child: _replace(child, replaced, name))


# --- common factors ---


def _factor_inside(node: ast.expr) -> ast.expr:
    """Sums inside products, quotients and brackets with what all their terms share before them."""
    return map_children(node, lambda child: _factor_inside(child) if is_sum(node) else _factor_all(child))


def _factor_all(node: ast.expr) -> ast.expr:
    """A sum with the factors that all its terms share before them, outside and within; other nodes only within."""
    inner = _factor_inside(node)
    return _factor_shared(inner, len(terms(inner))) if is_sum(inner) else inner


def _factor_shared(tree: ast.expr, least: int) -> ast.expr:
    """A sum in which factors that at least so many terms share are written once, before those terms."""
    remaining = [part for sign, part in terms(tree) if sign == "+"]
    if len(remaining) < len(terms(tree)):
        return tree
    groups: list[ast.expr] = []
    while (name := _shared_factor(remaining, least)) is not None:
        sharing = [factors(term) for term in remaining if name in _factor_names(term)]
        remaining = [term for term in remaining if name not in _factor_names(term)]
        groups.append(_bracket_shared(name, sharing))
    return add_terms([("+", part) for part in (*groups, *remaining)])


def _factor_names(term: ast.expr) -> set[str]:
    return {factor.id for factor in factors(term) if isinstance(factor, ast.Name)}


def _shared_factor(parts: list[ast.expr], least: int) -> str | None:
    """The factor that most terms share, at least so many; the first of several."""
    counts = Counter(name for part in parts for name in sorted(_factor_names(part)))
    name, count = max(counts.items(), key=lambda pair: pair[1], default=("", 0))
    return name if count >= least else None


def _bracket_shared(name: str, sharing: list[list[ast.expr]]) -> ast.expr:
    """Terms with a factor in common, after all that they have in common: names, and the greatest number."""
    divisor = gcd(*(_leading_number(parts) for parts in sharing))
    first, *other_names = ([factor.id for factor in parts if isinstance(factor, ast.Name)] for parts in sharing)
    common = [
        factor_name
        for factor_name in dict.fromkeys(first)
        if factor_name == name or all(factor_name in names for names in other_names)
    ]
    inside = [
        multiply_factors(_with_number(_leading_number(parts) // divisor, _remove_factors(parts, common)))
        for parts in sharing
    ]
    before = _with_number(divisor, [ast.Name(factor_name) for factor_name in common])
    return multiply_factors([*before, add_terms([("+", part) for part in inside])])


def _leading_number(parts: list[ast.expr]) -> int:
    """The whole number that a product begins with; 1 where it begins with none."""
    first = parts[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, int) else 1


def _remove_factors(parts: list[ast.expr], names: list[str]) -> list[ast.expr]:
    """The factors after the number, without the first of each of the names."""
    remaining, to_remove = [], list(names)
    for factor in parts[1:] if _leading_number(parts) != 1 else parts:
        if isinstance(factor, ast.Name) and factor.id in to_remove:
            to_remove.remove(factor.id)
        else:
            remaining.append(factor)
    return remaining


def _with_number(number: int, parts: list[ast.expr]) -> list[ast.expr]:
    return parts if number == 1 and parts else [ast.Constant(number), *parts]


# --- quotients ---


def _slash_quotients(node: ast.expr) -> ast.expr:
    """Quotients that are rounded get a slash, so that lines stay low; `a/b/c` is a over b and c."""
    inner = map_children(node, _slash_quotients)
    match inner:
        case ast.Call(func=ast.Name(id="ceil"), args=[ast.BinOp(op=ast.Div()) as quotient]):
            above, below = _split_quotient(quotient)
            below = list(_cancel(below))
            return ast.Call(inner.func, [ast.Call(ast.Name("over"), [above, multiply_factors(below)], [])], [])
        case _:
            return inner


def _split_quotient(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """What is divided, and by what in turn."""
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            above, below = _split_quotient(left)
            return above, [*below, right]
        case _:
            return node, []


def _cancel(below: list[ast.expr]) -> Iterator[ast.expr]:
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


# --- estimated widths ---

# px at the size of pictures (`pictures.POINTS`), measured on what the typesetter draws.
LETTER, UPRIGHT, DIGIT, INDEX = 11.0, 7.2, 7.5, 5.4
SPACE, DOT, SIGN, SLASH, BRACKETS, FENCE, BAR = 2.5, 10.0, 19.0, 8.0, 12.0, 12.5, 3.0


def width(node: ast.expr) -> float:
    """The width of a tree in one line."""
    match node:
        case ast.Constant(value=value):
            return DIGIT * len(str(value))
        case ast.Name(id=name):
            return _name_width(name)
        case ast.UnaryOp(operand=operand):
            return DIGIT + width(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return width(left) + SIGN + width(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return fenced(left) + (DOT if _has_word(left) or _has_word(right) else SPACE) + fenced(right)
        case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv(), right=right):
            return max(width(left), width(right)) + BAR
        case ast.BinOp(left=left, right=right):
            return fenced(left) + 0.7 * width(right)
        case ast.Call(func=ast.Name(id="over"), args=[above, below]):
            return fenced(above) + SLASH + fenced(below)
        case ast.Call(args=arguments):
            return BRACKETS + sum(map(width, arguments))
    return 0.0


def fenced(node: ast.expr) -> float:
    """The width of a factor, in parentheses where it is a sum."""
    return width(node) + (FENCE if is_sum(node) else 0.0)


def _has_word(node: ast.expr) -> bool:
    """Whether a word stands in it, which takes a dot before and after."""
    return any(len(part.id.partition("_")[0]) > 1 for part in ast.walk(node) if isinstance(part, ast.Name))


def _name_width(name: str) -> float:
    stem, _, index = name.partition("_")
    return (UPRIGHT * len(stem) if len(stem) > 1 else LETTER) + INDEX * len(index)
