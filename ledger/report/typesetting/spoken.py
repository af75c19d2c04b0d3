"""Formulas in words, for those who do not see them."""

from __future__ import annotations

import ast

from ledger.report.typesetting.trees import is_sum, parse

SPOKEN_CALLS = {
    "ceil": "{0} rounded up",
    "floor": "{0} rounded down",
    "CeilDiv": "{0} over {1}, rounded up",
    "sqrt": "the square root of {0}",
}
SPOKEN_OPERATORS = {
    ast.Add: "plus",
    ast.Sub: "minus",
    ast.Mult: "times",
    ast.Div: "over",
    ast.FloorDiv: "over",
    ast.Pow: "to the power of",
}


def spoken(formula: str) -> str:
    """The formula in words."""
    return in_words(parse(formula))


def in_words(node: ast.expr) -> str:
    """A tree in words; sums inside products are called what they are."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            first, second = (in_words(side) for side in (left, right))
            if not isinstance(op, ast.Add | ast.Sub):
                first, second = (
                    f"the quantity {words}," if is_sum(side) else words
                    for side, words in ((left, first), (right, second))
                )
            return f"{first} {SPOKEN_OPERATORS[type(op)]} {second}"
        case ast.UnaryOp(operand=operand):
            return f"minus {in_words(operand)}"
        case ast.Call(func=ast.Name(id=name), args=arguments):
            words = [in_words(argument) for argument in arguments]
            return SPOKEN_CALLS.get(name, f"{name} of {' and '.join(words)}").format(*words)
        case _:
            return ast.unparse(node)
