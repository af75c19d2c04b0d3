"""The values that a key of a spec may have, where they can be listed: derived from its type in the field table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from itertools import combinations
from typing import Any

from ledger.spec.faults import StatedValue
from ledger.spec.parts import PartOf, spec_type
from ledger.spec.problems import Location
from ledger.spec.reader import as_node
from ledger.spec.structures import AnyOf, DerivedType, Fields, ListOf, Sourced
from ledger.spec.token_budget import EXAMPLE, PerParameter
from ledger.spec.values import Choice, Flag, Integer, ValueType

FEW = 2  # entries of the longest lists that are listed
ALL_SUBSETS = 3  # a list of so many choices is listed in full


def listed_values(kind: ValueType | None, most: int) -> tuple[Any, ...]:
    """Values of a type as specs write them, without repetition; none where they cannot be listed.

    Counts within a mapping (`{layers: 4}`) go from 1 to `most`, lists of several choices have at most two entries.
    """
    if isinstance(kind, PartOf):
        return listed_values(alternatives, most) if isinstance(alternatives := spec_type(kind.cls), AnyOf) else ()
    return tuple(_list_values(kind, most)) if kind is not None else ()


def options_of(kind: ValueType | None, most: int) -> list[tuple[Any, Any]]:
    """The listed values of a type, each with the plan's value; of several with one meaning, the first."""
    options: list[tuple[Any, Any]] = []
    for stated in listed_values(kind, most):
        meant = kind.read(StatedValue(as_node(stated, Location(""))), []) if kind is not None else None
        if all(meant != known_meaning for _, known_meaning in options):
            options.append((stated, meant))
    return options


@singledispatch
def _list_values(kind: ValueType, most: int) -> Iterator[Any]:  # noqa: ARG001 - what other types are listed by
    """No values: those of types that are none of the ones below cannot be listed."""
    return iter(())


@_list_values.register
def _values_of_choices(kind: Choice, most: int) -> Iterator[Any]:  # noqa: ARG001
    """The options, without those that another one is the plain name of (`true` of `all`)."""
    plain = [option for option in kind.options if option not in kind.means]
    return (option for option in kind.options if option not in kind.means or kind.means[option] not in plain)


@_list_values.register
def _values_of_flags(kind: Flag, most: int) -> Iterator[Any]:  # noqa: ARG001
    """Both truth values, false first."""
    return iter((False, True))


@_list_values.register
def _values_of_alternatives(kind: AnyOf, most: int) -> Iterator[Any]:
    """The values of each form; of a mapping, each entry alone."""
    for inner in kind.alternatives:
        form = inner.inner if isinstance(inner, DerivedType) else inner
        yield from _single_entries(form, most) if isinstance(form, Fields) else listed_values(form, most)


def _single_entries(kind: Fields, most: int) -> Iterator[Any]:
    """The entries of a mapping, each alone, without those that need another."""
    for row in kind.rows:
        if row.key not in kind.companion_keys:
            yield from ({row.key: value} for value in _entry_values(row.type, most))


def _entry_values(kind: ValueType, most: int) -> Iterator[Any]:
    if isinstance(kind, AnyOf):
        for inner in kind.alternatives:
            yield from _entry_values(inner, most)
    else:
        yield from range(1, most + 1) if isinstance(kind, Integer) else listed_values(kind, most)


@_list_values.register
def _values_per_parameter(kind: PerParameter, most: int) -> Iterator[Any]:  # noqa: ARG001
    """The number that is usual."""
    return iter((EXAMPLE,))


@_list_values.register
def _values_of_made(kind: DerivedType, most: int) -> Iterator[Any]:
    """The values of the inner type."""
    return iter(listed_values(kind.inner, most))


@_list_values.register
def _values_of_sourced(kind: Sourced, most: int) -> Iterator[Any]:
    """The values without a source."""
    return iter(listed_values(kind.inner, most))


@_list_values.register
def _values_of_lists(kind: ListOf, most: int) -> Iterator[Any]:
    """Every list of few entries, each once, in the order of the choices."""
    items = listed_values(kind.item, most) if isinstance(kind.item, Choice) else ()
    longest = len(items) if len(items) <= ALL_SUBSETS else FEW
    return (list(entries) for length in range(1, longest + 1) for entries in combinations(items, length))
