"""The kinds of specs and their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).with_name("schemas")
KINDS = ("plan", "accelerator", "cluster", "model", "precision", "optimizer", "stack", "evidence", "lecture", "suite")


@cache
def documents() -> Mapping[str, dict[str, Any]]:
    """Every schema file by its `$id`."""
    return {path.name: json.loads(path.read_text("utf-8")) for path in sorted(SCHEMAS.glob("*.schema.json"))}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of spec, complete in itself: the schemas it refers to stand in its `$defs`."""
    root = documents()[f"{kind}.schema.json"]
    others = {name: document for name, document in documents().items() if name != root["$id"]}
    return {**root, "$defs": {**root.get("$defs", {}), **others}}


@cache
def description(key: str) -> str:
    """What the schemas say of a field, a plan's before its parts': a name means one thing, or nearly."""
    ordered = [documents()[f"{kind}.schema.json"] for kind in KINDS]
    found = (entry for document in ordered for entry in _properties(document, key, document))
    return next((entry["description"] for entry in found if "description" in entry), "")


def _properties(schema: Any, key: str, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every schema of a property of that name, the outermost first, over what it refers to."""
    if isinstance(schema, list):
        return [entry for inner in schema for entry in _properties(inner, key, document)]
    if not isinstance(schema, dict):
        return []
    own = schema.get("properties", {}).get(key)
    deeper = _properties(list(schema.values()), key, document)
    if not isinstance(own, dict):
        return deeper
    file, _, name = own.get("$ref", "").partition("#/$defs/")
    referred = (documents().get(file, {}) if file else document).get("$defs", {}).get(name, {})
    return [{**referred, **own}, *deeper]
