"""Parts of specs: a dataclass is the table of a part's fields, each with its type, meaning, default and place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ledger.spec.faults import Faults, StatedValue
from ledger.spec.structures import (
    KEEP_EACH_ENTRY,
    NEEDED,
    OPTIONAL,
    SOURCED,
    AnyOf,
    DerivedType,
    Fields,
    ListOf,
    Needed,
    Row,
    Sourced,
    Values,
)
from ledger.spec.values import Choice, Constant, Flag, Schema, String, ValueType

Make = Callable[[Values], Any]
VERSION = "ledger/1"
SPEC = Row("spec", Constant(VERSION), f"The version of the spec language: always `{VERSION}`.")
BASE = Row("base", String(), "Takes the named part, and overrides the values given beside it.")
NAME = String(least=1)
TITLE = "The name that people read."
TITLED = String(1, 200)
DTYPE = Choice("fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4")  # number formats


@dataclass(frozen=True)
class At:
    """The path of a field in the part's mapping, if not its own name: `scaleup.bandwidth`.

    The empty path is that of a value which may stand instead of the mapping.
    """

    path: str


@dataclass(frozen=True)
class Nested:
    """A mapping within a part whose entries the plan keeps one by one; `instead` may stand for all of it."""

    meaning: str
    needed: Needed = OPTIONAL
    sourced: bool = False
    instead: str = ""


@dataclass(frozen=True)
class PartHeader:
    """The description of a part of a spec, besides its fields.

    `kind` is that of a part which the library has by name; `inline`: it needs title and source only in a file of its
    own. `groups` are mappings within it, by path. `extra` are fields that the plan keeps otherwise, or not at all.
    `replaced_keys` are paths that it once had, each with what to write instead.
    """

    title: str = ""
    meaning: str = ""
    kind: str = ""
    inline: bool = True
    sourced: bool = False
    groups: Mapping[str, Nested] = field(default_factory=dict)
    extra: tuple[Row, ...] = ()
    least: int | None = None
    most: int | None = None
    companion_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    replaced_keys: Mapping[str, str] = field(default_factory=dict)


PLAIN = PartHeader()


def header_of(cls: type) -> PartHeader:
    """The header that the class states as a part of a spec."""
    header: PartHeader = getattr(cls, "spec", PLAIN)
    return header


@dataclass(frozen=True)
class PartOf(ValueType):
    """A mapping with the fields of a dataclass, or what may stand instead of it."""

    cls: type

    @property
    def types(self) -> tuple[str, ...]:
        """A mapping, and the types of what may stand instead."""
        return spec_type(self.cls).types

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The part that a mapping, or what stands instead of it, describes."""
        return spec_type(self.cls).value(written, faults)

    @property
    def inner_keys(self) -> Collection[str]:
        """The keys of the part."""
        return spec_type(self.cls).inner_keys

    def plain(self, value: Any) -> Any:
        """The value that may stand instead of the mapping, if one says the same."""
        return next(
            (row.type.plain(getattr(value, row.attribute, None)) for row in field_rows(self.cls) if not row.key), None
        )

    def schema(self) -> Schema:
        """A reference: the schema of a part stands once in a document."""
        return {"$ref": f"#/$defs/{definition_name(self.cls)}"}


@dataclass(frozen=True)
class ValuesOf(PartOf):
    """The values of a part one by one, which is made of them and of other parts together."""

    def value(self, written: StatedValue, faults: Faults) -> Values:
        """Every value by its attribute."""
        fields_type: Any = spec_type(self.cls)
        return fields_type.values(written, faults)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PartByName(PartOf):
    """A part by its name in the library or by its path, or written out; documents hold it written out when read."""

    @property
    def types(self) -> tuple[str, ...]:
        """A text, and those of the part."""
        return ("string", *super().types)

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The part; where it is not sound, whether a name was meant is a guess."""
        value, new_faults = _read_part(self, written)
        faults.extend(new_faults)
        return value

    def meant(self, written: StatedValue) -> ValueType:
        """A name; a mapping that has a name and nothing that the part needs; or the part."""
        if isinstance(written.node.value, str):
            return NAME
        part_type, keys = spec_type(self.cls), written.node.fields
        name_type = self.name_alone if "name" in keys else None
        is_name_alone = isinstance(part_type, Fields) and not any(row.key in keys for row in part_type.due)
        return name_type if name_type and is_name_alone else part_type

    @property
    def name_alone(self) -> Fields | None:
        """`{name: adamw}`, of a part that has a name of its own."""
        return next((Fields((replace(row, needed=NEEDED),)) for row in field_rows(self.cls) if row.key == "name"), None)

    def schema(self) -> Schema:
        """A name, a mapping with the name alone, or the part; editors would show what any of these is, not the key."""
        name_mapping = [self.name_alone.schema()] if self.name_alone else []
        return {"anyOf": [NAME.schema(), *name_mapping, super().schema()]}


@lru_cache(maxsize=64)
def _read_part(named: PartByName, written: StatedValue) -> tuple[Any, Faults]:
    """A part and what is wrong with it; parts of the library are read with many plans."""
    faults: Faults = []
    value = named.meant(written).read(written, faults)
    return value, [replace(fault, harmless=False) for fault in faults]


def definition_name(cls: type) -> str:
    """The name of a part in a schema: `newton_schulz`."""
    name = cls.__name__
    if name.isupper():
        return name.lower()
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip("_")


@cache
def field_rows(cls: type) -> tuple[Row, ...]:
    """The fields of a class that a spec may state, in order, each with its path as the key."""
    hints = get_type_hints(cls, include_extras=True)
    stated = (field_ for field_ in fields(cls) if get_origin(hints[field_.name]) is Annotated)
    return tuple(_field_row(field_, hints[field_.name]) for field_ in stated)


def _field_row(field_: Field[Any], hint: Any) -> Row:
    """A field of a dataclass as its annotation has it: a type, a meaning, where it stands, and when it is needed."""
    kind, *said = get_args(hint)
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)  # `X | None` is a field of `X`
    kind = next(present for present in kinds if present is not NoneType)

    def of(cls: type, otherwise: Any) -> Any:
        return next((entry for entry in said if isinstance(entry, cls)), otherwise)

    stated = field_.default is MISSING and field_.default_factory is MISSING
    default = field_.default_factory() if field_.default_factory is not MISSING else None if stated else field_.default
    path = of(At, At(field_.name)).path
    needed = of(Needed, NEEDED if stated and path else OPTIONAL)
    meaning = of(str, header_of(kind).meaning if is_part(kind) else "")
    type_ = of(ValueType, None) or value_type(kind)
    return Row(path, type_, meaning, field_.name, needed, None if OPTIONAL in said else default)


def is_part(kind: Any) -> bool:
    """Whether an annotation is a dataclass."""
    return isinstance(kind, type) and is_dataclass(kind)


def value_type(kind: Any) -> ValueType:
    """The type that an annotation alone tells: true or false, a text, a part, or a list of them."""
    if is_part(kind):
        return PartByName(kind) if header_of(kind).kind else PartOf(kind)
    if get_origin(kind) is tuple:
        return ListOf(value_type(get_args(kind)[0]), least=1)
    plain: Mapping[Any, ValueType] = {bool: Flag(), str: String()}
    return plain[kind]


@cache
def spec_type(cls: type) -> ValueType:
    """The mapping that the class is written as, with the value that may stand instead of it."""
    about, stated = header_of(cls), field_rows(cls)
    make = _maker(cls)
    listed = (*_header_rows(cls), *(row for row in stated if row.key), *about.extra)
    in_order = sorted(listed, key=lambda row: row.key != SPEC.key)
    beside_keys = {"spec": (about.kind, SOURCED.key)} if about.kind and about.inline else {}
    rows_of = tuple(_nest_rows(in_order, about, ""))
    mapping = Fields(
        rows_of,
        make,
        about.least,
        about.most,
        {**beside_keys, **about.companion_keys},
        based=bool(about.kind),
        replaced_keys=about.replaced_keys,
    )
    return _add_alternative(mapping, next((row for row in stated if not row.key), None), make)


def _maker(cls: type) -> Make:
    """The constructor of a class from its values; a part of the library has no name yet, and perhaps no title."""
    make: Make = getattr(cls, "from_spec", None) or (lambda values: cls(**values))
    names = {row.name for row in fields(cls)} if header_of(cls).kind else set()
    unnamed = {name: "" for name in ("name", "title") if name in names}
    return lambda values: make(unnamed | values)


def _add_alternative(mapping: Fields, row: Row | None, make: Make) -> ValueType:
    """A mapping, or the value of the field that may stand instead of it."""
    if row is None:
        return mapping
    bare = row.type.inner if isinstance(row.type, Sourced) else row.type
    return AnyOf((DerivedType(bare, lambda value: make({row.attribute: value})), mapping))


def _header_rows(cls: type) -> tuple[Row, ...]:
    """The fields that every part of the library has: version, base, title and source; or the source alone."""
    about, names = header_of(cls), {row.name for row in fields(cls)}
    if not about.kind:
        return (SOURCED,) if about.sourced else ()
    needed = OPTIONAL if about.inline else NEEDED
    title = Row(about.kind, TITLED, TITLE, "title" if "title" in names else "", needed)
    source = replace(SOURCED, attribute="source" if "source" in names else "", needed=needed)
    return (SPEC, BASE, title, source)


def _nest_rows(listed: Sequence[Row], about: PartHeader, above: str) -> Iterator[Row]:
    """Rows as they stand in a mapping: those with a longer path in mappings of their own."""
    inner: dict[str, list[Row]] = {}
    for row in listed:
        first, _, remaining = row.key.partition(".")
        inner.setdefault(first, []).append(replace(row, key=remaining))
    for key, members in inner.items():
        if members[0].key:
            group = about.groups[above + key]
            entries = tuple(_nest_rows(members, about, f"{above}{key}."))
            bare = next((row for row in entries if row.attribute == group.instead), None)
            gone = {path.removeprefix(f"{above}{key}."): instead for path, instead in about.replaced_keys.items()}
            mapping = Fields((SOURCED, *entries) if group.sourced else entries, replaced_keys=gone)
            yield Row(key, _add_alternative(mapping, bare, dict), group.meaning, KEEP_EACH_ENTRY, group.needed)
        else:
            yield replace(members[0], key=key)


def nested_types(kind: ValueType, seen: set[type] | None = None) -> Iterator[Row | type]:
    """Every field of a type's values and of what those are made of, and every class of a part, each class once."""
    visited = set() if seen is None else seen
    if isinstance(kind, PartOf):
        if kind.cls not in visited:
            visited.add(kind.cls)
            yield kind.cls
            yield from nested_types(spec_type(kind.cls), visited)
        return
    if isinstance(kind, Fields):
        yield from kind.rows
    for inner in kind.inners:
        yield from nested_types(inner, visited)
