"""Types of values that are made of others: lists, mappings, values with a source, and alternatives of several forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from ledger.spec.faults import (
    Faults,
    StatedValue,
    cut_short,
    duplicate_entry,
    missing_companion_key,
    missing_key,
    no_alternative,
    unknown_field,
    wrong_form,
)
from ledger.spec.problems import MOST_PROBLEMS
from ledger.spec.reader import Node
from ledger.spec.values import Quantity, Schema, String, ValueType

Values = dict[str, Any]  # by the attribute that each is kept in
LONGEST_LIST = 1000  # entries, where a field says no less


@dataclass(frozen=True)
class KeyStated:
    """The condition that a key is given, and has this value if one is named."""

    key: str
    value: str = ""

    def holds(self, written: StatedValue) -> bool:
        """Whether a mapping meets it."""
        node = written.node.fields.get(self.key)
        return node is not None and (not self.value or node.value == self.value)

    def schema(self) -> Schema:
        """The condition as JSON Schema."""
        equal = {"properties": {self.key: {"const": self.value}}} if self.value else {}
        return {"required": [self.key], **equal}


@dataclass(frozen=True)
class AnyStated:
    """The condition that one of several keys is given with its value."""

    keys: tuple[KeyStated, ...]

    def holds(self, written: StatedValue) -> bool:
        """Whether a mapping meets one of them."""
        return any(key.holds(written) for key in self.keys)

    def schema(self) -> Schema:
        """The condition as JSON Schema."""
        return {"anyOf": [key.schema() for key in self.keys]}


@dataclass(frozen=True)
class Needed:
    """The need for a field: always, or only where (or only unless) another one is given, or has some value."""

    when: KeyStated | None = None
    unless: KeyStated | AnyStated | None = None
    never: bool = False

    def holds(self, written: StatedValue) -> bool:
        """Whether a mapping needs the field."""
        return not (
            self.never
            or (self.when is not None and not self.when.holds(written))
            or (self.unless is not None and self.unless.holds(written))
        )


KEEP_EACH_ENTRY = "*"
NAMED_KEYS = 3  # of a mapping that is one of several forms
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
        default = None if self.needed == NEEDED else self.type.plain(self.default)
        stated = {} if default is None else {"default": default}
        return self.type.schema() | ({"description": self.meaning} if self.meaning else {}) | stated


SOURCED = Row(
    "source",
    String(least=3),
    "The publication or measurement that the numbers come from: title, version, page or table.",
)


@dataclass(frozen=True)
class Fields(ValueType):
    """A mapping with these fields and no others, or further ones of one type (`further_fields`).

    `least` and `most` count its entries; `companion_keys` are keys that others need; `based`: nothing is needed where
    another part is its base; `replaced_keys` are keys that it once had, each with what stands for it now. What is read
    is given to `make`.
    """

    json = ("object",)
    keywords = (("least", "minProperties"), ("most", "maxProperties"))
    rows: tuple[Row, ...]
    make: Callable[[Values], Any] = dict
    least: int | None = None
    most: int | None = None
    companion_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    based: bool = False
    further_fields: ValueType | None = None
    replaced_keys: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_key(self) -> Mapping[str, Row]:
        """The fields by their keys."""
        return {row.key: row for row in self.rows}

    @cached_property
    def due(self) -> tuple[Row, ...]:
        """Fields that are needed, always or under a condition."""
        return tuple(row for row in self.rows if not row.needed.never)

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The values as `make` joins them; None where one is unsound, and where a base is still to be found."""
        fault_count = len(faults)
        values = self.values(written, faults)
        has_base = self.based and "base" in written.node.fields
        is_sound = all(fault.harmless for fault in faults[fault_count:]) and not has_base
        return self.make(values) if is_sound else None

    @property
    def form(self) -> str:
        """A mapping with its keys."""
        keys = [f"{row.key}: ..." for row in self.rows if row.key != SOURCED.key][:NAMED_KEYS]
        return f"`{{{', '.join(keys)}}}`" if keys else super().form

    def values(self, written: StatedValue, faults: Faults) -> Values:
        """Every value that is sound, by its attribute."""
        values: Values = {}
        for key, node in until_too_many_faults(written, written.node.fields.items(), faults):
            row = self.by_key.get(key)
            if row is not None:
                fault_count = len(faults)
                value = row.type.read(written.inner(key, node, row.meaning), faults)
                if row.attribute and all(fault.harmless for fault in faults[fault_count:]):
                    values.update(value if row.attribute == KEEP_EACH_ENTRY else {row.attribute: value})
            elif self.further_fields is not None:
                values[key] = self.further_fields.read(written.inner(key, node), faults)
            else:
                instead = self.replaced_keys.get(key, "") or self.advice_for_inner_key(key)
                faults.append(unknown_field(written, key, list(self.by_key), instead))
        faults.extend(self.missing_keys(written))
        return values

    def advice_for_inner_key(self, key: str) -> str:
        """The advice for a key that is a field of one of the inner parts; empty where it is of none or several."""
        parts = [row.key for row in self.rows if key in row.type.inner_keys]
        return f"it is a field of `{parts[0]}`: write `{parts[0]}.{key}`" if len(parts) == 1 else ""

    @property
    def inner_keys(self) -> Collection[str]:
        """The keys of its fields."""
        return self.by_key.keys()

    def missing_keys(self, written: StatedValue) -> Faults:
        """Keys that are needed and not there, and too few or too many of them."""
        keys, faults = written.node.fields, Faults()
        if not (self.based and "base" in keys):
            absent = (row for row in self.due if row.key not in keys and row.needed.holds(written))
            faults += (missing_key(written, row.key, row.meaning) for row in absent)
        for present, needed in self.companion_keys.items() if keys else ():
            if present in keys:
                absent_keys = (key for key in needed if key not in keys)
                faults += (
                    missing_companion_key(written, present, key, self.by_key[key].meaning) for key in absent_keys
                )
        return [*faults, *self.bound_faults(written, len(keys))]

    def schema(self) -> Schema:
        """Its fields, which of them are needed, and when."""
        always = [row.key for row in self.due if row.needed == NEEDED]
        schema = super().schema() | {
            "additionalProperties": self.further_fields.schema() if self.further_fields else False
        }
        schema |= (
            {"dependentRequired": {key: list(keys) for key, keys in self.companion_keys.items()}}
            if self.companion_keys
            else {}
        )
        conditions = [_condition(keys, needed) for needed, keys in self.conditional().items()]
        required: Schema = ({"required": always} if always else {}) | ({"allOf": conditions} if conditions else {})
        if self.based and required:
            required = {"if": {"required": ["base"]}, "else": required}
        return schema | required | {"properties": {row.key: row.schema() for row in self.rows}}

    @property
    def inners(self) -> tuple[ValueType, ...]:
        """The types of its fields."""
        return (*(row.type for row in self.rows), *((self.further_fields,) if self.further_fields else ()))

    def conditional(self) -> dict[Needed, list[str]]:
        """Keys that are needed under a condition, by the condition."""
        keys_by_condition: dict[Needed, list[str]] = {}
        for row in self.due:
            if row.needed != NEEDED:
                keys_by_condition.setdefault(row.needed, []).append(row.key)
        return keys_by_condition


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
        """The JSON types of the value, and a mapping."""
        return (*self.inner.types, "object")

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The value without its source."""
        if isinstance(written.node.value, Mapping):
            return self.mapping.values(written, faults).get("value")
        return self.inner.value(written, faults)

    @property
    def form(self) -> str:
        """The form of the value without a source."""
        return self.inner.form

    @cached_property
    def mapping(self) -> Fields:
        """The mapping with value and source."""
        return Fields((Row("value", self.inner, "", "value", NEEDED), replace(SOURCED, needed=NEEDED)))

    def plain(self, value: Any) -> Any:
        """A default without a source."""
        return self.inner.plain(value)

    def schema(self) -> Schema:
        """The schema of the value, and of a mapping with value and source."""
        mapping = self.mapping.schema()
        mapping["properties"]["value"]["description"] = "The value, whose source is beside it."
        return {**mapping, **self.inner.schema(), "type": list(self.types)}


def quantity(unit: str, **range_of: Any) -> Sourced:
    """A quantity of the dimension whose base is `unit` (see `Quantity`), which may have a source of its own."""
    return Sourced(Quantity(unit, **range_of))


@dataclass(frozen=True)
class ListOf(ValueType):
    """A list of `least` to `most` values of one type, each once if `unique`."""

    json = ("array",)
    keywords = (("least", "minItems"), ("most", "maxItems"), ("unique", "uniqueItems"))
    item: ValueType
    least: int | None = None
    most: int = LONGEST_LIST
    unique: bool = False

    def value(self, written: StatedValue, faults: Faults) -> tuple[Any, ...]:
        """The values; of a list that is too long none."""
        items = written.node.items
        faults += self.bound_faults(written, len(items))
        if len(items) > self.most:
            return ()
        if self.unique:
            faults.extend(_repetitions(written))
        entries = until_too_many_faults(written, enumerate(items), faults)
        return tuple(self.item.read(written.inner(index, node), faults) for index, node in entries)

    def schema(self) -> Schema:
        """Its entries, and how many there are."""
        return super().schema() | {"items": self.item.schema()}


def _repetitions(written: StatedValue) -> Faults:
    """The first entry that stands a second time; 1 and true are two values."""
    seen: set[str] = set()
    for node in written.node.items:
        plain = node.plain()
        content = json.dumps(plain, sort_keys=True)
        if content in seen:
            return [duplicate_entry(written, plain)]
        seen.add(content)
    return []


Key = TypeVar("Key")


def until_too_many_faults(
    written: StatedValue, entries: Iterable[tuple[Key, Node]], faults: Faults
) -> Iterator[tuple[Key, Node]]:
    """The entries of a value, until there are more faults than anyone reads; the rest is said to be left out."""
    for entry in entries:
        if len(faults) > MOST_PROBLEMS:
            faults.append(cut_short(written))
            return
        yield entry


@dataclass(frozen=True)
class MappingOf(ValueType):
    """A mapping of `least` entries or more of one type, whose names have the form `pattern`."""

    json = ("object",)
    keywords = (("least", "minProperties"),)
    item: ValueType
    least: int | None = None
    pattern: str = ""

    def value(self, written: StatedValue, faults: Faults) -> dict[str, Any]:
        """The values by name, as they are written."""
        fields = written.node.fields
        faults += self.bound_faults(written, len(fields))
        if self.pattern:
            strange = islice((name for name in fields if not re.search(self.pattern, name)), MOST_PROBLEMS)
            faults.extend(wrong_form(written, name, self.pattern) for name in strange)
        entries = until_too_many_faults(written, fields.items(), faults)
        return {name: self.item.read(written.inner(name, node), faults) for name, node in entries}

    def schema(self) -> Schema:
        """Its entries, and the form of their names."""
        names = {"propertyNames": {"pattern": self.pattern}} if self.pattern else {}
        return super().schema() | {"additionalProperties": self.item.schema()} | names


def members(item: ValueType, names: Mapping[str, str], *, sourced: bool = False) -> Fields:
    """A mapping of at least one of these names, each with its meaning, to values of one type."""
    rows = tuple(Row(name, item, meaning, name) for name, meaning in names.items())
    return Fields((SOURCED, *rows) if sourced else rows, least=1)


@dataclass(frozen=True)
class DerivedType(ValueType):
    """A value of another type, which `make` turns into the plan's value."""

    inner: ValueType
    make: Callable[[Any], Any]

    @property
    def types(self) -> tuple[str, ...]:
        """The JSON types of the inner type."""
        return self.inner.types

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The result of `make` for a sound value, else None."""
        fault_count = len(faults)
        value = self.inner.read(written, faults)
        return None if faults[fault_count:] else self.make(value)

    @property
    def form(self) -> str:
        """The form of the inner type."""
        return self.inner.form

    def schema(self) -> Schema:
        """The schema of the inner type."""
        return self.inner.schema()


@dataclass(frozen=True)
class AnyOf(ValueType):
    """A value of one of several types."""

    alternatives: tuple[ValueType, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """The JSON types of all alternatives."""
        return tuple(dict.fromkeys(name for alternative in self.alternatives for name in alternative.types))

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The value; where none fits, a fault names all alternatives, and what is wrong with the one likely meant.

        Of a mapping or a list, the one with the fewest faults was likely meant, and only its faults are added.
        """
        tried: list[tuple[Any, Faults]] = []
        for alternative in self.alternatives:
            if not alternative.suits(written.node.value):
                continue
            new_faults: Faults = []
            value = alternative.value(written, new_faults)
            if not new_faults:
                return value
            tried.append((value, new_faults))
        if not isinstance(written.node.value, Mapping | tuple):
            every_fault = (fault for _, new_faults in tried for fault in new_faults)
            faults.append(no_alternative(written, self.forms, every_fault))
            return None
        value, fewest = min(tried, key=lambda pair: len(pair[1]))
        faults.extend(replace(fault, harmless=False) for fault in fewest)  # which alternative was meant is a guess
        return value

    @property
    def forms(self) -> tuple[str, ...]:
        """The form of each alternative."""
        return tuple(dict.fromkeys(alternative.form for alternative in self.alternatives))

    @property
    def form(self) -> str:
        """The forms of all alternatives."""
        return " or ".join(self.forms)

    def plain(self, value: Any) -> Any:
        """A default in the first alternative that can state it."""
        plains = (alternative.plain(value) for alternative in self.alternatives)
        return next((plain for plain in plains if plain is not None), None)

    def schema(self) -> Schema:
        """The schemas of all alternatives."""
        return {"anyOf": [alternative.schema() for alternative in self.alternatives]}
