"""What comes in as JSON, held by `jsonschema` to the schema that is published of it: faults in words, with paths."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from ledger.spec.faults import (
    Fault,
    StatedValue,
    fault_at,
    missing_key,
    out_of_bounds,
    quote,
    unknown_field,
    wrong_amount,
    wrong_choice,
    wrong_constant,
    wrong_type,
)
from ledger.spec.problems import MOST_PROBLEMS, Location, Problem
from ledger.spec.reader import Node, as_node
from ledger.spec.values import LIMITS, Schema


@dataclass(frozen=True)
class PublishedSchema:
    """A schema of JSON that others write; what is read of a record is what its schema says.

    Whole numbers are written as such (`8`, not `8.0`), and a number is neither infinite nor NaN.
    """

    content: Schema

    @cached_property
    def validator(self) -> Any:
        """The validator of `jsonschema`, which is imported when the first record is held to a schema."""
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend

        types = Draft202012Validator.TYPE_CHECKER.redefine_many(
            {
                "integer": lambda _, value: is_number(value) and isinstance(value, int),
                "number": lambda _, value: is_number(value),
            }
        )
        return extend(Draft202012Validator, type_checker=types)(self.content)

    def errors(self, record: object) -> Iterator[Any]:
        """What `jsonschema` says against a record; no more than anyone reads."""
        return islice(self.validator.iter_errors(record), MOST_PROBLEMS)

    def problems(self, record: object, where: Location, name: str) -> Iterator[Problem]:
        """What is wrong with a record that is called `name`, each with the path of the value."""
        for error in self.errors(record):
            instance = error.instance if isinstance(error.instance, str) else as_node(error.instance, where).value
            path = (name, *error.absolute_path)
            stated = StatedValue(Node(instance, where), path, error.schema.get("description", ""))
            for fault in _faults(stated, error):
                yield Problem(where, printable(fault.problem.message), printable(fault.problem.help))


def schema_file(path: Path) -> PublishedSchema:
    """The schema that stands in a file of the package."""
    return PublishedSchema(json.loads(path.read_text(encoding="utf-8")))


def is_number(value: object) -> bool:
    """Whether a value is a number of JSON, which is finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf


def printable(text: str) -> str:
    """A text as every terminal shows it: letters that it would obey, or cannot encode, as escapes."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _faults(stated: StatedValue, error: Any) -> Iterable[Fault]:
    """A validation error in the words that specs have for it."""
    keyword, due, inner = error.validator, error.validator_value, error.schema.get("properties", {})
    if keyword == "type":
        return [wrong_type(stated, [name for name in ([due] if isinstance(due, str) else due) if name != "null"])]
    if keyword == "required":
        absent = [key for key in due if key not in stated.node.fields and error.message.startswith(f"{key!r} ")]
        return [missing_key(stated, key, inner.get(key, {}).get("description", "")) for key in absent]
    if keyword == "additionalProperties":
        return [unknown_field(stated, key, list(inner)) for key in stated.node.fields if key not in inner]
    if keyword == "enum":
        return [wrong_choice(stated, due)]
    if keyword == "const":
        return [wrong_constant(stated, due)]
    if keyword in LIMITS:
        is_amount = isinstance(stated.node.value, str | tuple | Mapping)
        return [(wrong_amount if is_amount else out_of_bounds)(stated, LIMITS[keyword][1], due)]
    return [fault_at(stated, f" cannot be {quote(stated.node.value)}", stated.meaning)]
