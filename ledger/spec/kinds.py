"""The kinds of specs and their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).with_name("schemas")
KINDS = ("plan", "accelerator", "cluster", "model", "precision", "optimizer", "stack", "evidence", "lecture", "suite")
Schema = dict[str, Any]
DOCUMENT = "in"  # the key under which a schema that was followed keeps its document


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


@cache
def described(kind: str, path: tuple[str | int, ...]) -> str:
    """What the schema of a kind says of the place at a path; of a place that it does not know, what others say."""
    found: list[Schema] = [documents()[f"{kind}.schema.json"]]
    for step in path:
        found = [inner for schema in found for inner in _under(schema, step)]
    said = (schema["description"] for schema in found if "description" in schema)
    return next(said, description(path[-1]) if not found and path and isinstance(path[-1], str) else "")


def _under(schema: Schema, step: str | int) -> list[Schema]:
    """The schemas of what stands at one step below a place."""
    inner = schema.get("properties", {}).get(step) if isinstance(step, str) else schema.get("items")
    further = schema.get("additionalProperties")
    if inner is None and isinstance(step, str) and isinstance(further, dict):
        inner = further
    branches = [branch for key in ("anyOf", "allOf") for branch in schema.get(key, ())]
    branches += [schema[key] for key in ("then", "else") if key in schema]
    own = [_whole(inner, schema)] if isinstance(inner, dict) else []
    return [*own, *(found for branch in branches for found in _under(_whole(branch, schema), step))]


def _whole(schema: Schema, above: Schema) -> Schema:
    """A schema over the one that it refers to, which knows the document that its own references are into."""
    file, _, pointer = schema.get("$ref", "").partition("#")
    document: Schema = documents().get(file, above.get(DOCUMENT, above))
    referred: Schema = document if "$ref" in schema else {}
    for step in pointer.strip("/").split("/") if pointer else ():
        referred = referred[step]
    return {**referred, **schema, DOCUMENT: document}


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
