"""Sizes written as expressions, evaluated in place: `d_ff: 4 * d_model` -> its whole number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from operator import is_

from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.faults import Fault, Faults, label
from ledger.spec.parts import PartOf, nested_types
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem
from ledger.spec.reader import Node
from ledger.spec.structures import Row
from ledger.spec.values import Size

SHARED_PARTS = ("cluster", "parallelism", "run")  # parts that may name each other's sizes
Scope = tuple[Mapping[str, Node], ...]


@cache
def size_names() -> frozenset[str]:
    """The fields that hold a size."""
    rows = (entry for entry in nested_types(PartOf(Plan)) if isinstance(entry, Row))
    return frozenset(row.key for row in rows if isinstance(row.type, Size))


def evaluate_sizes(root: Node) -> tuple[Node, Faults]:
    """A plan whose sizes are numbers; those that could not be evaluated stay, each with what is wrong with it."""
    problems: Faults = []
    shared: Scope = tuple(root.fields[part].fields for part in SHARED_PARTS if part in root.fields)
    scopes = {**dict.fromkeys(SHARED_PARTS, shared), "model": ()}
    fields = {
        part: _walk(root.fields[part], scope, (part,), problems)
        for part, scope in scopes.items()
        if part in root.fields
    }
    return root.within(fields, {}), problems


def _walk(node: Node, scope: Scope, path: tuple[str, ...], problems: Faults) -> Node:
    """The same value with numbers for sizes; the very same node where there is nothing to evaluate."""
    if isinstance(node.value, tuple):
        items = tuple(_walk(item, scope, path, problems) for item in node.items)
        return node if all(map(is_, items, node.items)) else Node(items, node.where)
    if not isinstance(node.value, Mapping):
        return node
    inner = (node.fields, *scope)
    fields = {}
    for key, value in node.fields.items():
        fields[key] = _walk(value, inner, (*path, key), problems)
        if key in size_names() and isinstance(value.value, str):
            try:
                fields[key] = Node(_named(key, inner, ()), value.where)
            except ExpressionError as error:
                problem = Problem(value.where, f"{label((*path, key))}: {error.message}", error.help)
                problems.append(Fault((*path, key), problem))
    return node if all(map(is_, fields.values(), node.fields.values())) else Node(fields, node.where, node.keys)


def _named(name: str, scope: Scope, asked: tuple[str, ...]) -> int:
    """The size of that name, nearest first; KeyError where there is none, ExpressionError where it asks for itself."""
    if name in asked:
        raise ExpressionError(f"`{name}` is defined by itself", " -> ".join((*asked, name)))
    for depth, fields in enumerate(scope):
        value = fields[name].value if name in fields else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and name in size_names():
            here = scope[depth:]
            return evaluate(value, partial(_named, scope=here, asked=(*asked, name)), partial(_known, here))
    raise KeyError(name)


def _known(scope: Scope) -> list[str]:
    return sorted({name for fields in scope for name in fields if name in size_names()})
