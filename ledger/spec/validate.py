"""A document against the JSON Schema of its kind, with one keyword of our own: `quantity`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from ledger.spec.explain import Finding, Whole, explained
from ledger.spec.kinds import documents
from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, parse_any, write
from ledger.spec.reader import Node

BARE = {"1": "", "parameters": " parameters"}  # dimensions whose values may be bare numbers, and the unit those have


def findings(node: Node, kind: str) -> Iterator[Finding]:
    """Everything in a document that its kind's schema does not allow."""
    plain: Any = node.plain()
    for error in _validator(kind).iter_errors(plain):
        yield from explained(error, Whole(node, kind))


@cache
def _validator(kind: str) -> Draft202012Validator:
    """The validator of a kind. Without `$schema`, which would call up a stock validator that knows no quantities."""
    plain = {
        name: {key: document[key] for key in document if key != "$schema"} for name, document in documents().items()
    }
    resources = ((name, DRAFT202012.create_resource(document)) for name, document in plain.items())
    extend: Any = validators.extend  # its stub has no types
    validator: Draft202012Validator = extend(Draft202012Validator, {"quantity": _quantity})(
        plain[f"{kind}.schema.json"], registry=Registry().with_resources(resources)
    )
    return validator


def _quantity(_: object, base: str, instance: object, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    """The keyword: text with a unit of the dimension, also as the `value` of a sourced value."""
    sourced = isinstance(instance, dict) and "value" in instance
    value = instance["value"] if isinstance(instance, dict) and sourced else instance
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return
    try:
        if base == "any":
            parse_any(str(value))
        else:
            _check(value, base, schema)
    except QuantityError as error:
        yield ValidationError(error.message, path=["value"] if sourced else (), cause=error)


def _check(value: str | float, base: str, schema: Mapping[str, Any]) -> None:
    """Raises QuantityError: above zero unless `zero` or `signed` stands beside, and at most `greatest`."""
    text = value if isinstance(value, str) else f"{value}{BARE.get(base, '')}"
    number = parse(text, base)
    if number < 0 and not schema.get("signed"):
        raise QuantityError(
            f"`{value}` is negative", f"{DIMENSIONS[base].noun} is due, for example {DIMENSIONS[base].example}"
        )
    if number == 0 and not (schema.get("signed") or schema.get("zero")):
        raise QuantityError(
            f"`{value}` is zero", f"{DIMENSIONS[base].noun} is due, for example {DIMENSIONS[base].example}"
        )
    if "greatest" in schema and number > schema["greatest"]:
        raise QuantityError(f"`{value}` is beyond reason", f"at most {write(schema['greatest'], base)}")
