"""A document against the JSON Schema of its kind -> findings with places, near misses and help."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, parse_any, write
from ledger.spec.reader import Node

SCHEMAS = Path(__file__).with_name("schemas")
KINDS = ("plan", "accelerator", "cluster", "model", "precision", "stack", "evidence", "lecture")
COUNTABLE = {"1", "parameters"}  # dimensions whose base unit is a bare number
WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Finding:
    """A problem and the path it is about; `harmless`: the rest of the part can still be read."""

    path: Path_
    problem: Problem
    harmless: bool = False


@cache
def documents() -> Mapping[str, dict[str, Any]]:
    """Every schema file by its `$id`."""
    return {path.name: json.loads(path.read_text("utf-8")) for path in sorted(SCHEMAS.glob("*.schema.json"))}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of spec, complete in itself: the schemas it refers to stand in its `$defs`."""
    root = documents()[f"{kind}.schema.json"]
    others = {name: document for name, document in documents().items() if name != root["$id"]}
    return {**root, "$defs": {**root.get("$defs", {}), **others}}


def findings(node: Node, kind: str) -> Iterator[Finding]:
    """Everything in a document that its kind's schema does not allow."""
    plain: Any = node.plain()
    for error in _validator(kind).iter_errors(plain):
        yield from _explained(error, node)


def nearest(word: str, known: list[str]) -> str:
    """A help line that offers the names written most like `word`, or all of them where none is near."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), list(folded), n=3, cutoff=0.55)
    if near:
        return "did you mean " + " or ".join(f"`{folded[name]}`" for name in near) + "?"
    return f"known: {', '.join(known)}" if known else ""


@cache
def _validator(kind: str) -> Draft202012Validator:
    """The validator of a kind. Without `$schema`, at which jsonschema would fall back to one that knows no quantities."""
    plain = {
        name: {key: document[key] for key in document if key != "$schema"} for name, document in documents().items()
    }
    registry = Registry().with_resources(
        (name, DRAFT202012.create_resource(document)) for name, document in plain.items()
    )
    extended: Any = validators.extend(Draft202012Validator, {"quantity": _quantity})  # type: ignore[no-untyped-call]  # its stub
    validator: Draft202012Validator = extended(plain[f"{kind}.schema.json"], registry=registry)
    return validator


def _quantity(_: object, base: str, instance: object, keywords: Mapping[str, Any]) -> Iterator[ValidationError]:
    """The `quantity` keyword: text with a unit of the dimension, above zero unless `zero` or `signed` stands beside."""
    path = ["value"] if isinstance(instance, dict) and "value" in instance else []
    value = instance["value"] if isinstance(instance, dict) and path else instance
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return
    try:
        if base == "any":
            parse_any(str(value))
            return
        number = parse(str(value), base) if isinstance(value, str) or base not in COUNTABLE else Fraction(str(value))
    except QuantityError as error:
        yield ValidationError(error.message, path=path, cause=error)
        return
    shown = write(value, base) if not isinstance(value, str) else value
    least = f"{DIMENSIONS[base].noun} is {'not negative' if keywords.get('zero') else 'above zero'}"
    greatest = keywords.get("greatest", DIMENSIONS[base].greatest)
    if not keywords.get("signed") and (number < 0 or (number == 0 and not keywords.get("zero"))):
        cause = QuantityError("", f"{least}, for example {DIMENSIONS[base].example}")
        yield ValidationError(f"`{shown}` is {'negative' if number < 0 else 'zero'}", path=path, cause=cause)
    elif number > greatest:
        cause = QuantityError("", f"at most {write(float(greatest), base)}")
        yield ValidationError(f"`{shown}` is beyond reason", path=path, cause=cause)


def _explained(error: ValidationError, root: Node) -> Iterator[Finding]:
    if error.validator == "anyOf":
        for inner in _fitting(error):
            yield from _explained(inner, root)
        return
    explain = EXPLANATIONS.get(str(error.validator), _other)
    yield from explain(error, tuple(error.absolute_path), root)


def _fitting(error: ValidationError) -> list[ValidationError]:
    """The errors of the alternative that has the instance's type; a type error over all alternatives where none has."""
    branches: dict[object, list[ValidationError]] = {}
    for inner in error.context or []:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    fitting = [errors for errors in branches.values() if not any(e.validator == "type" and not e.path for e in errors)]
    if fitting:
        return min(fitting, key=len)
    types = [str(e.validator_value) for errors in branches.values() for e in errors if e.validator == "type"]
    merged = ValidationError(error.message, validator="type", validator_value=types, instance=error.instance)
    merged.path, merged.parent = error.path, error.parent
    return [merged]


def place(root: Node, path: Path_) -> Location:
    """Where the value at `path` stands, or the nearest value above it."""
    node = root
    for step in path:
        inner = node.items[step] if isinstance(step, int) and step < len(node.items) else node.fields.get(str(step))
        if inner is None:
            break
        node = inner
    return node.where


def key_place(root: Node, path: Path_, key: str) -> Location:
    """Where a key of the mapping at `path` stands."""
    node = root
    for step in path:
        node = node.items[step] if isinstance(step, int) else node.fields[step]
    return node.keys.get(key, node.where)


def label(path: Path_) -> str:
    """A path as people write it."""
    return ".".join(str(step) for step in path) or "this spec"


def _unknown_fields(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    known = list(error.schema["properties"]) if isinstance(error.schema, dict) else []
    for key in [key for key in error.instance if key not in known]:
        message = f"`{key}` is no field of {_named(path)}"
        yield Finding((*path, key), Problem(key_place(root, path, key), message, nearest(key, known)), harmless=True)


def _named(path: Path_) -> str:
    return f"`{label(path)}`" if path else "this spec"


def _missing(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    for key in [key for key in error.validator_value if key not in error.instance]:
        owner = f"`{label(path)}`" if path else "this spec"
        yield Finding((*path, key), Problem(place(root, path), f"{owner} lacks `{key}`", _described(error, key)))


def _missing_beside(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    for present, needed in error.validator_value.items():
        for key in [key for key in needed if present in error.instance and key not in error.instance]:
            help_text = _described(error, key)
            message = f"a file of its own needs `{key}`"
            yield Finding((*path, key), Problem(place(root, path), message, help_text), harmless=True)


def _described(error: Any, key: str) -> str:
    entry = error.schema.get("properties", {}).get(key, {}) if isinstance(error.schema, dict) else {}
    if not entry and error.parent is None:
        entry = _property(str(error.schema_path), key)
    text = entry.get("description", "")
    if not text and "$ref" in entry:
        file, _, name = entry["$ref"].partition("#/$defs/")
        text = documents().get(file, {}).get("$defs", {}).get(name, {}).get("description", "")
    return f"`{key}:` {text}" if text else f"add `{key}:`"


def _property(_: str, key: str) -> Mapping[str, Any]:
    """A property's schema by its name alone; names mean one thing throughout the kinds' top levels."""
    tops = (document.get("properties", {}) for document in documents().values())
    return next((top[key] for top in tops if key in top), {})


def _type(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    words = list(dict.fromkeys(WORDS[kind] for kind in wanted))
    message = f"`{label(path)}` must be {' or '.join(words)}, not {_shown(error.instance)}"
    yield Finding(path, Problem(place(root, path), message))


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else f"`{value}`"


def _choice(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    choices = [str(choice) for choice in error.validator_value]
    known = f"one of {', '.join(choices)}"
    near = nearest(str(error.instance), choices)
    help_text = f"{near} ({known})" if near.startswith("did") else known
    yield Finding(path, Problem(place(root, path), f"`{label(path)}` cannot be {_shown(error.instance)}", help_text))


def _constant(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    message = f"`{label(path)}` must be `{error.validator_value}`, not {_shown(error.instance)}"
    yield Finding(
        path, Problem(place(root, path), message, f"write `{path[-1]}: {error.validator_value}`"), harmless=True
    )


def _bound(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    if error.validator == "maximum":
        message, help_text = f"`{label(path)}` is beyond reason: {error.instance}", f"at most {error.validator_value}"
    else:
        least = "at least" if error.validator == "minimum" else "above"
        message = f"`{label(path)}` must be {least} {error.validator_value}, not {error.instance}"
        help_text = ""
    yield Finding(path, Problem(place(root, path), message, help_text))


def _of_quantity(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    steps = [step for step in path if step != "value"]
    help_text = error.cause.help if isinstance(error.cause, QuantityError) else ""
    yield Finding(path, Problem(place(root, path), f"`{label(tuple(steps))}`: {error.message}", help_text))


def _other(error: Any, path: Path_, root: Node) -> Iterator[Finding]:
    help_text = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
    yield Finding(path, Problem(place(root, path), f"`{label(path)}`: {error.message}", help_text))


EXPLANATIONS: Mapping[str, Callable[[Any, Path_, Node], Iterator[Finding]]] = {
    "additionalProperties": _unknown_fields,
    "required": _missing,
    "dependentRequired": _missing_beside,
    "type": _type,
    "enum": _choice,
    "const": _constant,
    "minimum": _bound,
    "exclusiveMinimum": _bound,
    "maximum": _bound,
    "quantity": _of_quantity,
}
