"""Types of values that are made of others: lists, mappings, values with a source, and alternatives of several forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ledger.spec.findings import (
    Findings,
    Written,
    malformed,
    missing,
    missing_beside,
    repeated,
    unknown_field,
    wrong_amount,
)
from ledger.spec.values import Amount, Schema, Text, ValueType, given

Values = dict[str, Any]  # by the attribute that each is kept in


@dataclass(frozen=True)
class Condition:
    """That a key is given, and has this value if one is named."""

    key: str
    value: str = ""

    def holds(self, written: Written) -> bool:
        """Whether a mapping meets it."""
        node = written.node.fields.get(self.key)
        return node is not None and (not self.value or node.value == self.value)

    def schema(self) -> Schema:
        """The same as JSON Schema."""
        equal = {"properties": {self.key: {"const": self.value}}} if self.value else {}
        return {"required": [self.key], **equal}


@dataclass(frozen=True)
class Needed:
    """When a field must be given: always, or only where (or only unless) another one is given, or has some value."""

    when: Condition | None = None
    unless: Condition | None = None
    never: bool = False

    def holds(self, written: Written) -> bool:
        """Whether a mapping needs the field."""
        return not (
            self.never
            or (self.when is not None and not self.when.holds(written))
            or (self.unless is not None and self.unless.holds(written))
        )


EACH = "*"
NEEDED = Needed()
OPTIONAL = Needed(never=True)  # said of a field of a part: it follows from others where it is not given


@dataclass(frozen=True)
class Row:
    """A field of a mapping: its key, its type, its meaning; `attribute` is where the plan keeps its value.

    Of a row kept `EACH` the entries of its mapping are kept one by one; one that is kept nowhere is checked all the
    same. `default` is what the plan has where nothing is said.
    """

    key: str
    type: ValueType
    meaning: str
    attribute: str = ""
    needed: Needed = OPTIONAL
    default: Any = None

    def schema(self) -> Schema:
        """The type with its meaning, and the default where a spec could say it."""
        return self.type.schema() | given(description=self.meaning or None, default=self.type.plain(self.default))


SOURCED = Row(
    "source",
    Text(least=3),
    "The publication or measurement that the numbers come from: title, version, page or table.",
)


@dataclass(frozen=True)
class Fields(ValueType):
    """A mapping with these fields and no others, or further ones of one type (`others`).

    `least` and `most` count its entries; `beside` are keys that others need; `based`: nothing is needed where another
    part is its base; `gone` are keys that it once had, each with what stands for it now. What is read is given to
    `make`.
    """

    rows: tuple[Row, ...]
    make: Callable[[Values], Any] = dict
    least: int = 0
    most: int | None = None
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    based: bool = False
    others: ValueType | None = None
    gone: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_key(self) -> Mapping[str, Row]:
        """The fields by their keys."""
        return {row.key: row for row in self.rows}

    @cached_property
    def due(self) -> tuple[Row, ...]:
        """Fields that are needed, always or under a condition."""
        return tuple(row for row in self.rows if not row.needed.never)

    @property
    def types(self) -> tuple[str, ...]:
        """A mapping."""
        return ("object",)

    def value(self, written: Written, findings: Findings) -> Any:
        """What the values are made into; None where one of them is unsound."""
        before = len(findings)
        values = self.values(written, findings)
        sound = all(finding.harmless for finding in findings[before:])
        return self.make(values) if sound else None

    def values(self, written: Written, findings: Findings) -> Values:
        """Every value that is sound, by its attribute."""
        values: Values = {}
        for key, node in written.node.fields.items():
            row = self.by_key.get(key)
            if row is not None:
                before = len(findings)
                value = row.type.read(written.inner(key, node, row.meaning), findings)
                if row.attribute and all(finding.harmless for finding in findings[before:]):
                    values.update(value if row.attribute == EACH else {row.attribute: value})
            elif self.others is not None:
                values[key] = self.others.read(written.inner(key, node), findings)
            else:
                findings.append(unknown_field(written, key, list(self.by_key), self.gone.get(key, "")))
        findings.extend(self.lacking(written))
        return values

    def lacking(self, written: Written) -> Findings:
        """Keys that are needed and not there, and too few or too many of them."""
        keys, found = written.node.fields, Findings()
        if not (self.based and "base" in keys):
            absent = (row for row in self.due if row.key not in keys and row.needed.holds(written))
            found += (missing(written, row.key, row.meaning) for row in absent)
        for present, needed in self.beside.items() if keys else ():
            if present in keys:
                absent_keys = (key for key in needed if key not in keys)
                found += (missing_beside(written, present, key, self.by_key[key].meaning) for key in absent_keys)
        if len(keys) < self.least:
            found.append(wrong_amount(written, "at least", self.least))
        if self.most is not None and len(keys) > self.most:
            found.append(wrong_amount(written, "at most", self.most))
        return found

    def schema(self) -> Schema:
        """Its fields, which of them are needed, and when."""
        always = [row.key for row in self.due if row.needed == NEEDED]
        found: Schema = {"type": "object", "additionalProperties": self.others.schema() if self.others else False}
        found |= given(minProperties=self.least or None, maxProperties=self.most)
        found |= {"dependentRequired": {key: list(keys) for key, keys in self.beside.items()}} if self.beside else {}
        conditions = [_condition(keys, needed) for needed, keys in self.conditional().items()]
        required: Schema = ({"required": always} if always else {}) | ({"allOf": conditions} if conditions else {})
        if self.based and required:
            required = {"if": {"required": ["base"]}, "else": required}
        return found | required | {"properties": {row.key: row.schema() for row in self.rows}}

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The types of its fields."""
        return (*(row.type for row in self.rows), *((self.others,) if self.others else ()))

    def conditional(self) -> dict[Needed, list[str]]:
        """Keys that are needed under a condition, by the condition."""
        found: dict[Needed, list[str]] = {}
        for row in self.due:
            if row.needed != NEEDED:
                found.setdefault(row.needed, []).append(row.key)
        return found


def _condition(keys: list[str], needed: Needed) -> Schema:
    if needed.when is not None:
        return {"if": needed.when.schema(), "then": {"required": keys}}
    return {"if": needed.unless.schema(), "else": {"required": keys}} if needed.unless else {}


@dataclass(frozen=True)
class Sourced(ValueType):
    """A value, or `{value: ..., source: ...}` with its own source."""

    inner: ValueType

    @property
    def types(self) -> tuple[str, ...]:
        """Those of the value, or a mapping."""
        return (*self.inner.types, "object")

    def value(self, written: Written, findings: Findings) -> Any:
        """The value."""
        if isinstance(written.node.value, Mapping):
            return self.whole.values(written, findings).get("value")
        return self.inner.value(written, findings)

    @cached_property
    def whole(self) -> Fields:
        """The mapping with value and source."""
        return Fields((Row("value", self.inner, "", "value", NEEDED), replace(SOURCED, needed=NEEDED)))

    def plain(self, value: Any) -> Any:
        """As without a source."""
        return self.inner.plain(value)

    def schema(self) -> Schema:
        """Either of the two."""
        return {**self.whole.schema(), **self.inner.schema(), "type": list(self.types)}


def quantity(
    unit: str, *, zero: bool = False, signed: bool = False, greatest: int | None = None, exact: bool = False
) -> Sourced:
    """A quantity of the dimension whose base is `unit`, which may have a source of its own."""
    return Sourced(Amount(unit, zero, signed, greatest, exact))


@dataclass(frozen=True)
class ListOf(ValueType):
    """A list of `least` to `most` values of one type, each once if `unique`."""

    item: ValueType
    least: int = 0
    most: int | None = None
    unique: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """A list."""
        return ("array",)

    def value(self, written: Written, findings: Findings) -> tuple[Any, ...]:
        """The values."""
        items = written.node.items
        if len(items) < self.least:
            findings.append(wrong_amount(written, "at least", self.least))
        if self.most is not None and len(items) > self.most:
            findings.append(wrong_amount(written, "at most", self.most))
        if self.unique:
            findings.extend(_repetitions(written))
        return tuple(self.item.read(written.inner(index, node), findings) for index, node in enumerate(items))

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The type of its entries."""
        return (self.item,)

    def schema(self) -> Schema:
        """Its entries, and how many there are."""
        bounds = given(minItems=self.least or None, maxItems=self.most, uniqueItems=self.unique or None)
        return {"type": "array", "items": self.item.schema()} | bounds


def _repetitions(written: Written) -> Findings:
    """The first entry that stands a second time; 1 and true are two values."""
    seen: list[tuple[object, bool]] = []
    for node in written.node.items:
        plain = node.plain()
        if (plain, isinstance(plain, bool)) in seen:
            return [repeated(written, plain)]
        seen.append((plain, isinstance(plain, bool)))
    return []


@dataclass(frozen=True)
class MappingOf(ValueType):
    """A mapping of `least` entries or more of one type, whose names have the form `pattern`."""

    item: ValueType
    least: int = 0
    pattern: str = ""

    @property
    def types(self) -> tuple[str, ...]:
        """A mapping."""
        return ("object",)

    def value(self, written: Written, findings: Findings) -> dict[str, Any]:
        """The values by name, as they are written."""
        fields = written.node.fields
        if len(fields) < self.least:
            findings.append(wrong_amount(written, "at least", self.least))
        if self.pattern:
            strange = (name for name in fields if not re.search(self.pattern, name))
            findings.extend(malformed(written, name, self.pattern) for name in strange)
        return {name: self.item.read(written.inner(name, node), findings) for name, node in fields.items()}

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The type of its entries."""
        return (self.item,)

    def schema(self) -> Schema:
        """Its entries, and the form of their names."""
        names = {"propertyNames": {"pattern": self.pattern}} if self.pattern else {}
        return (
            {"type": "object", "additionalProperties": self.item.schema()}
            | given(minProperties=self.least or None)
            | names
        )


def members(item: ValueType, names: Mapping[str, str], *, sourced: bool = False) -> Fields:
    """A mapping of at least one of these names, each with its meaning, to values of one type."""
    rows = tuple(Row(name, item, meaning, name) for name, meaning in names.items())
    return Fields((SOURCED, *rows) if sourced else rows, least=1)


@dataclass(frozen=True)
class Made(ValueType):
    """A value of another type, of which `make` makes what the plan has."""

    inner: ValueType
    make: Callable[[Any], Any]

    @property
    def types(self) -> tuple[str, ...]:
        """Those of the other type."""
        return self.inner.types

    def value(self, written: Written, findings: Findings) -> Any:
        """What is made of a sound value."""
        before = len(findings)
        value = self.inner.read(written, findings)
        return None if findings[before:] else self.make(value)

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The other type."""
        return (self.inner,)

    def schema(self) -> Schema:
        """That of the other type."""
        return self.inner.schema()


@dataclass(frozen=True)
class OneOf(ValueType):
    """A value of one of several types."""

    alternatives: tuple[ValueType, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Those of all alternatives."""
        return tuple(dict.fromkeys(name for one in self.alternatives for name in one.types))

    def value(self, written: Written, findings: Findings) -> Any:
        """The value; where no alternative fits, the one that was most likely meant says what is wrong."""
        tried: list[tuple[Any, Findings]] = []
        for alternative in (one for one in self.alternatives if one.suits(written.node.value)):
            found: Findings = []
            tried.append((alternative.value(written, found), found))
            if not found:
                return tried[-1][0]
        value, found = min(tried, key=lambda pair: len(pair[1]))
        findings.extend(replace(finding, harmless=False) for finding in found)  # what was meant is a guess
        return value

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """All alternatives."""
        return self.alternatives

    def plain(self, value: Any) -> Any:
        """As the first alternative says it that can."""
        return next((plain for one in self.alternatives if (plain := one.plain(value)) is not None), None)

    def schema(self) -> Schema:
        """Any of them."""
        return {"anyOf": [one.schema() for one in self.alternatives]}
