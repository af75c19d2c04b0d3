"""What a JSON Schema validator objects to -> problems in the user's words, with places and near misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jsonschema.exceptions import ValidationError

from ledger.spec.kinds import described
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import QuantityError
from ledger.spec.reader import Node

WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Finding:
    """A problem and the path it is about; `harmless`: the rest of the part can still be read."""

    path: Steps
    problem: Problem
    harmless: bool = False


@dataclass(frozen=True)
class Whole:
    """A document, and the kind of spec whose schema it is held to."""

    node: Node
    kind: str


def explained(error: Any, whole: Whole) -> Iterator[Finding]:
    """The findings that one objection amounts to; the validator's own types are partly unset, hence `Any`."""
    if error.validator == "anyOf":  # the alternative that was meant is a guess, so nothing of it can be relied on
        for inner in _fitting(error):
            yield from (replace(finding, harmless=False) for finding in explained(inner, whole))
    else:
        explain = EXPLANATIONS.get(error.validator, _other)
        yield from explain(error, tuple(error.absolute_path), whole)


def _fitting(error: Any) -> list[ValidationError]:
    """The errors of the alternative that has the value's type; one type error where none has."""
    branches: dict[object, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    fitting = [errors for errors in branches.values() if not any(e.validator == "type" and not e.path for e in errors)]
    if fitting:
        return min(fitting, key=lambda errors: (len(errors), errors[0].validator in {"enum", "const"}))
    types = [e.validator_value for errors in branches.values() for e in errors if e.validator == "type"]
    return [
        ValidationError("", "type", error.path, instance=error.instance, validator_value=types, parent=error.parent)
    ]


def place(root: Node, path: Steps) -> Location:
    """Where the value at `path` stands, or the nearest value above it."""
    node = root
    for step in path:
        inner = node.items[step] if isinstance(step, int) else node.fields.get(step)
        if inner is None:
            break
        node = inner
    return node.where


def label(path: Steps) -> str:
    """A path as people write it."""
    return f"`{'.'.join(str(step) for step in path)}`" if path else "this spec"


def _unknown_fields(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    known = list(error.schema["properties"])
    owner = whole.node
    for step in path:
        owner = owner.items[step] if isinstance(step, int) else owner.fields[step]
    for key in [key for key in error.instance if key not in known]:
        problem = Problem(
            owner.keys.get(key, owner.where), f"`{key}` is no field of {label(path)}", nearest(key, known)
        )
        yield Finding((*path, key), problem, harmless=True)


def _missing(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    for key in [key for key in error.validator_value if key not in error.instance]:
        problem = Problem(place(whole.node, path), f"{label(path)} lacks `{key}`", _what(path, key, whole))
        yield Finding((*path, key), problem)


def _missing_beside(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    """A key that needs another beside it; `spec` marks a file of its own, which has a title and a source."""
    for present, needed in error.validator_value.items():
        for key in [key for key in needed if present in error.instance and key not in error.instance]:
            message, help_text = (
                f"{label(path)} has `{present}`, which needs `{key}` beside it",
                _what(path, key, whole),
            )
            if present == "spec":
                message = f"{label(path)} lacks `{key}`, which a file of its own needs"
                help_text = help_text if key == "source" else f"`{key}:` The name that people read."
            yield Finding((*path, key), Problem(place(whole.node, path), message, help_text), harmless=True)


def _what(path: Steps, key: str, whole: Whole) -> str:
    return f"`{key}:` {described(whole.kind, (*path, key))}"


def _type(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    words = " or ".join(dict.fromkeys(WORDS[kind] for kind in wanted))
    problem = Problem(
        place(whole.node, path), f"{label(path)} must be {words}, not {_shown(error.instance)}", _meaning(path, whole)
    )
    yield Finding(path, problem)


def _meaning(path: Steps, whole: Whole) -> str:
    """What stands at a path; of an entry of a list that nothing is said of, what the list is."""
    while path and isinstance(path[-1], int) and not described(whole.kind, path):
        path = path[:-1]
    return described(whole.kind, path)


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f"`{value}`"


def _choice(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    choices = [_spelt(choice) for choice in error.validator_value]
    near = nearest(str(error.instance), choices)
    help_text = f"{near} ({', '.join(choices)})" if near.startswith("did") else f"one of {', '.join(choices)}"
    if len(choices) == 1:
        help_text = f"`{choices[0]}`, or another form. {_meaning(path, whole)}"
    problem = Problem(place(whole.node, path), f"{label(path)} cannot be {_shown(error.instance)}", help_text)
    yield Finding(path, problem)


def _spelt(value: object) -> str:
    """A value as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _constant(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    message = f"{label(path)} must be `{error.validator_value}`, not {_shown(error.instance)}"
    problem = Problem(place(whole.node, path), message, f"write `{path[-1]}: {error.validator_value}`")
    yield Finding(path, problem, harmless=True)


def _bound(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}[error.validator]
    message = f"{label(path)} must be {words} {error.validator_value}, not {error.instance}"
    yield Finding(path, Problem(place(whole.node, path), message, _meaning(path, whole)))


def _of_quantity(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    help_text = error.cause.help if isinstance(error.cause, QuantityError) else ""
    named = label(tuple(step for step in path if step != "value"))
    yield Finding(path, Problem(place(whole.node, path), f"{named}: {error.message}", help_text))


def _amount(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    """Too few or too many entries, or letters."""
    given, limit = error.instance, error.validator_value
    if not given:
        message = f"{label(path)} is empty"
    elif limit == 1 and isinstance(given, dict):
        message = f"{label(path)} has {' and '.join(f'`{key}`' for key in given)}, of which one is due"
    else:
        bound = "at least" if error.validator.startswith("min") else "at most"
        noun = "letters" if isinstance(given, str) else "entries"
        message = f"{label(path)} has {len(given)} {noun}, and {bound} {limit} are due"
    yield Finding(path, Problem(place(whole.node, path), message, _meaning(path, whole)))


def _repeated(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    twice = next(entry for index, entry in enumerate(error.instance) if entry in error.instance[:index])
    problem = Problem(place(whole.node, path), f"{label(path)} has {_shown(twice)} twice", "each entry once")
    yield Finding(path, problem)


def _form(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    """A text that is not written as it must be."""
    message = f"{label(path)}: {_shown(error.instance)} is not of the form `{error.validator_value}`"
    yield Finding(path, Problem(place(whole.node, path), message, _meaning(path, whole)))


def _other(error: Any, path: Steps, whole: Whole) -> Iterator[Finding]:
    yield Finding(path, Problem(place(whole.node, path), f"{label(path)}: {error.message}", _meaning(path, whole)))


EXPLANATIONS: Mapping[str, Callable[[Any, Steps, Whole], Iterator[Finding]]] = {
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
    "minItems": _amount,
    "maxItems": _amount,
    "minProperties": _amount,
    "maxProperties": _amount,
    "minLength": _amount,
    "maxLength": _amount,
    "uniqueItems": _repeated,
    "pattern": _form,
}
