"""How wide a formula will be, close enough to choose where it goes on in the next line."""

from __future__ import annotations

import ast

from ledger.report.typesetting.trees import is_sum

# px at the size of pictures (`pictures.POINTS`), measured on what the typesetter draws.
LETTER, UPRIGHT, DIGIT, INDEX = 11.0, 7.2, 7.5, 5.4
SPACE, DOT, SIGN, SLASH, BRACKETS, FENCE, BAR = 2.5, 10.0, 19.0, 8.0, 12.0, 12.5, 3.0


def width(node: ast.expr) -> float:
    """The width of a tree in one line."""
    match node:
        case ast.Constant(value=value):
            return DIGIT * len(str(value))
        case ast.Name(id=name):
            return _name(name)
        case ast.UnaryOp(operand=operand):
            return DIGIT + width(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return width(left) + SIGN + width(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return fenced(left) + (DOT if _words(left) or _words(right) else SPACE) + fenced(right)
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


def _words(node: ast.expr) -> bool:
    """Whether a word stands in it, which takes a dot before and after."""
    return any(_upright(part.id) for part in ast.walk(node) if isinstance(part, ast.Name))


def _upright(name: str) -> bool:
    return len(name.partition("_")[0]) > 1


def _name(name: str) -> float:
    stem, _, index = name.partition("_")
    return (UPRIGHT * len(stem) if len(stem) > 1 else LETTER) + INDEX * len(index)
