"""Where a long formula goes on in the next line: before a plus or a minus, else before a factor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ledger.report.typesetting.arranging import arrange
from ledger.report.typesetting.latex import PRODUCT, in_latex
from ledger.report.typesetting.trees import factors, is_sum, multiply_factors, parse, terms
from ledger.report.typesetting.widths import DOT, FENCE, SIGN, SPACE, width

LINE = 300.0  # px at the size of pictures


@dataclass(frozen=True)
class FormulaLines:
    """A formula line by line in LaTeX, and the lines of what its own letters stand for."""

    lines: tuple[str, ...]
    definitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class FormulaPiece:
    """What stays in one line: its LaTeX and its width, with the sign before it; `opens` one that goes on over lines."""

    text: str
    width: float
    opens: bool = False


def break_lines(formula: str) -> FormulaLines:
    """The formula as it was written where that reads well in one line; else over several, with letters of its own."""
    tree = parse(formula)
    if width(tree) <= LINE and not _divides_in_turn(tree):
        return FormulaLines((in_latex(tree).text,))
    shorter = arrange(tree)
    definitions = [line for letter, meaning in shorter.definitions for line in _definition(letter, meaning)]
    return FormulaLines(tuple(pack_lines(pieces(shorter.tree))), tuple(definitions))


def _divides_in_turn(tree: ast.expr) -> bool:
    """Whether something is divided by a quotient, which a slash shows better than a fraction in a fraction."""
    quotients = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    return any(isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.Div) for node in quotients)


def _definition(letter: str, meaning: ast.expr) -> Iterator[str]:
    head = in_latex(ast.Name(letter)).text
    first, *rest = pack_lines(pieces(meaning))
    yield f"{head} = {first}"
    yield from rest


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
        inner = list(_term(term))
        if place:
            inner[0] = FormulaPiece(f"{sign} {inner[0].text}", SIGN + inner[0].width, inner[0].opens)
        yield from inner


def _term(term: ast.expr) -> Iterator[FormulaPiece]:
    """A term in one piece, or in several where it is too long."""
    parts = factors(term)
    if width(term) <= LINE or len(parts) == 1:
        yield FormulaPiece(in_latex(term).within(PRODUCT), width(term))
    elif is_sum(parts[-1]):
        yield from _bracketed(parts[:-1], parts[-1])
    else:
        first, *rest = parts
        yield FormulaPiece(in_latex(first).within(PRODUCT), width(first))
        for part in rest:
            yield FormulaPiece(rf"\cdot {in_latex(part).within(PRODUCT)}", DOT + width(part))


def _bracketed(before: list[ast.expr], inside: ast.expr) -> Iterator[FormulaPiece]:
    """Factors before a sum in parentheses that goes on over lines."""
    head = multiply_factors(before)
    first, *rest = pieces(inside)
    text = rf"{in_latex(head).within(PRODUCT)} \, ({first.text}"
    opened = FormulaPiece(text, width(head) + SPACE + FENCE / 2 + first.width, opens=True)
    *middle, last = (opened, *rest)
    yield from middle
    yield replace(last, text=f"{last.text})", width=last.width + FENCE / 2)
