"""Formulas as trees, in the order in which they were written."""

from __future__ import annotations

import ast
from collections.abc import Callable


class FormulaError(ValueError):
    """A text that is not an expression of sums, products, quotients, powers and calls."""


def parse(formula: str) -> ast.expr:
    """The tree of a formula; FormulaError where it is none."""
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
    except SyntaxError as error:
        message = f"not a formula: {formula}"
        raise FormulaError(message) from error
    allowed = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)
    for node in ast.walk(tree):
        if not isinstance(node, allowed) or (isinstance(node, ast.Call) and not isinstance(node.func, ast.Name)):
            message = f"not a formula, because of its {type(node).__name__.lower()}: {formula}"
            raise FormulaError(message)
    return tree


def is_sum(node: ast.expr) -> bool:
    """Whether a node is a sum or a difference."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


def terms(node: ast.expr) -> list[tuple[str, ast.expr]]:
    """The terms of a sum, each with its sign, from the left; anything else is one term."""
    if isinstance(node, ast.BinOp) and is_sum(node):
        sign = "+" if isinstance(node.op, ast.Add) else "-"
        tail = terms(node.right) if sign == "+" else [("+", node.right)]
        return [*terms(node.left), (sign, tail[0][1]), *tail[1:]]
    return [("+", node)]


def factors(node: ast.expr) -> list[ast.expr]:
    """The factors of a product, from the left; a quotient is one factor."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]


def add_terms(parts: list[tuple[str, ast.expr]]) -> ast.expr:
    """The sum of terms with signs; the first sign is a plus."""
    (_, total), *later_terms = parts
    for sign, part in later_terms:
        total = ast.BinOp(total, ast.Add() if sign == "+" else ast.Sub(), part)
    return total


def multiply_factors(parts: list[ast.expr]) -> ast.expr:
    """The product of factors; one where there are none."""
    if not parts:
        return ast.Constant(1)
    product, *later_factors = parts
    for part in later_factors:
        product = ast.BinOp(product, ast.Mult(), part)
    return product


def children(node: ast.expr) -> list[ast.expr]:
    """The expressions a node is made of."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Call(args=arguments):
            return list(arguments)
        case _:
            return []


def map_children(node: ast.expr, change: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """The node with its parts changed."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            return ast.BinOp(change(left), op, change(right))
        case ast.UnaryOp(op=op, operand=operand):
            return ast.UnaryOp(op, change(operand))
        case ast.Call(func=func, args=arguments):
            return ast.Call(func, [change(argument) for argument in arguments], [])
        case _:
            return node


Key = str | int | float | tuple["Key", ...]


def key(node: ast.expr) -> Key:
    """What equal trees have in common and others do not."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return type(op).__name__, key(left), key(right)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return name, *map(key, arguments)
        case ast.UnaryOp(operand=operand):
            return "minus", key(operand)
    return ast.unparse(node)
