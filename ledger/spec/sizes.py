"""Sizes written as expressions, evaluated in place: `d_ff: 4 * d_model` -> its whole number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    sizes = _Sizes()
    shared: Scope = tuple(root.fields[part].fields for part in SHARED_PARTS if part in root.fields)
    scopes = {**dict.fromkeys(SHARED_PARTS, shared), "model": ()}
    fields = {
        part: sizes.walk(root.fields[part], scope, (part,)) for part, scope in scopes.items() if part in root.fields
    }
    return root.within(fields, {}), sizes.problems


@dataclass(frozen=True)
class _Sizes:
    """The sizes of one document: each is evaluated once, however many others name it."""

    problems: Faults = field(default_factory=list)
    known: dict[tuple[int, int, str], int | ExpressionError] = field(default_factory=dict)

    def walk(self, node: Node, scope: Scope, path: tuple[str, ...]) -> Node:
        """The same value with numbers for sizes; the very same node where there is nothing to evaluate."""
        if isinstance(node.value, tuple):
            items = tuple(self.walk(item, scope, path) for item in node.items)
            return node if all(map(is_, items, node.items)) else Node(items, node.where)
        if not isinstance(node.value, Mapping):
            return node
        inner = (node.fields, *scope)
        fields = {}
        for key, value in node.fields.items():
            fields[key] = self.walk(value, inner, (*path, key))
            if key in size_names() and isinstance(value.value, str):
                try:
                    fields[key] = Node(self.named(key, inner, ()), value.where)
                except ExpressionError as error:
                    problem = Problem(value.where, f"{label((*path, key))}: {error.message}", error.help)
                    self.problems.append(Fault((*path, key), problem))
        return node if all(map(is_, fields.values(), node.fields.values())) else Node(fields, node.where, node.keys)

    def named(self, name: str, scope: Scope, asked: tuple[str, ...]) -> int:
        """The size of that name, nearest first; KeyError where there is none, ExpressionError where it has no value."""
        if name in asked:
            raise ExpressionError(f"`{name}` is defined by itself", " -> ".join((*asked, name)))
        for depth, fields in enumerate(scope):
            value = fields[name].value if name in fields else None
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if isinstance(value, str) and name in size_names():
                return self.evaluated(name, value, scope[depth:], asked)
        raise KeyError(name)

    def evaluated(self, name: str, text: str, scope: Scope, asked: tuple[str, ...]) -> int:
        """What the expression of a name gives, whose own names are looked up in its scope; raises ExpressionError."""
        place = (id(scope[0]), len(scope), name)
        if place not in self.known:
            lookup = partial(self.named, scope=scope, asked=(*asked, name))
            try:
                self.known[place] = evaluate(text, lookup, partial(_known, scope))
            except ExpressionError as error:
                self.known[place] = error
            except RecursionError:
                self.known[place] = ExpressionError(f"`{name}` is nested too deep", "write the number")
        found = self.known[place]
        if isinstance(found, ExpressionError):
            raise found
        return found


def _known(scope: Scope) -> list[str]:
    return sorted({name for fields in scope for name in fields if name in size_names()})
