"""The kinds of specs: what may stand in each, and the JSON Schema that is published of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ledger.spec.evidence import EVIDENCE
from ledger.spec.parts import PartOf, ValuesOf, below, definition, form, part
from ledger.spec.plan import Accelerator, Cluster, Model, Optimizer, Plan, Precision, Stack
from ledger.spec.suite import Suite
from ledger.spec.value_types import ValueType

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PARTS: Mapping[str, type] = {part(cls).kind: cls for cls in (Accelerator, Cluster, Model, Precision, Optimizer, Stack)}
TYPES: Mapping[str, ValueType] = {
    "plan": ValuesOf(Plan),
    **{kind: PartOf(cls) for kind, cls in PARTS.items()},
    "evidence": EVIDENCE,
    "suite": PartOf(Suite),
}
KINDS = tuple(TYPES)


@cache
def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of spec, complete in itself: the parts it refers to stand in its `$defs`."""
    return published(TYPES[kind])


def published(kind: ValueType) -> dict[str, Any]:
    """The JSON Schema of a document of that type."""
    head = kind.cls if isinstance(kind, PartOf) else None
    root = definition_schema(head) if head else kind.schema()
    said = {"title": part(head).title} if head else {}
    classes = [entry for entry in below(kind) if isinstance(entry, type)]
    referred = [cls for cls in classes if cls is not head or cls in _within(cls)]
    return {"$schema": DIALECT, **said, **root, "$defs": {definition(cls): definition_schema(cls) for cls in referred}}


def _within(cls: type) -> list[Any]:
    """The parts that a part is made of."""
    return list(below(form(cls)))


def definition_schema(cls: type) -> dict[str, Any]:
    """The schema of a part, with what it is."""
    meaning = part(cls).meaning or part(cls).title
    return ({"description": meaning} if meaning else {}) | form(cls).schema()
