"""The kinds of specs: what may stand in each, and the JSON Schema that is published of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ledger.spec.evidence import EVIDENCE
from ledger.spec.parts import PartOf, ValuesOf, definition_name, header_of, nested_types, spec_type
from ledger.spec.plan import Accelerator, Cluster, Model, Optimizer, Plan, Precision, Price, Stack
from ledger.spec.publication import Publication, Spelling
from ledger.spec.suite import Suite
from ledger.spec.value_types import ValueType

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LIBRARY_PARTS: Mapping[str, type] = {
    header_of(cls).kind: cls for cls in (Accelerator, Cluster, Price, Model, Precision, Optimizer, Stack)
}
# Parts of the library that no plan names: what is known of published runs.
BESIDE_PLANS: Mapping[str, type] = {header_of(cls).kind: cls for cls in (Publication, Spelling)}
TYPES: Mapping[str, ValueType] = {
    "plan": ValuesOf(Plan),
    **{kind: PartOf(cls) for kind, cls in {**LIBRARY_PARTS, **BESIDE_PLANS}.items()},
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
    said = {"title": header_of(head).title} if head else {}
    classes = [entry for entry in nested_types(kind) if isinstance(entry, type)]
    referred = [cls for cls in classes if cls is not head or cls in _within(cls)]
    return {
        "$schema": DIALECT,
        **said,
        **root,
        "$defs": {definition_name(cls): definition_schema(cls) for cls in referred},
    }


def _within(cls: type) -> list[Any]:
    """The parts that a part is made of."""
    return list(nested_types(spec_type(cls)))


def definition_schema(cls: type) -> dict[str, Any]:
    """The schema of a part, with what it is."""
    meaning = header_of(cls).meaning or header_of(cls).title
    return ({"description": meaning} if meaning else {}) | spec_type(cls).schema()
