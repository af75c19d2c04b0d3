"""Every key of a plan by its dotted path, from the tables of the parts, and values that are written by such paths."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ledger.spec.faults import Faults, Written, unknown_field
from ledger.spec.parts import PartByName, PartOf, spec_type
from ledger.spec.paths import PLAN, type_of
from ledger.spec.structures import AnyOf, Fields, ListOf, Made, Sourced
from ledger.spec.value_types import ValueType

HEADERS = ("spec", "source", "base", "title")  # keys that say nothing of a plan's books
FIRST = "0"  # of a list, the entry that stands for all
LAYERS = f"model.layers.{FIRST}."  # what is said of every layer leaves this out


@cache
def plan_keys() -> tuple[str, ...]:
    """The paths of a plan's values as `--set` takes them; of lists (layers), those of the first entry."""
    return tuple(dict.fromkeys(_below(PLAN, "", ())))


def misfits(values: Written) -> Faults:
    """What a plan cannot say of the values that a mapping holds by their paths."""
    found: Faults = []
    for path, node in values.node.fields.items():
        kind = type_of(path) or type_of(LAYERS + path)
        if kind is None:
            known = (*plan_keys(), *(key.removeprefix(LAYERS) for key in plan_keys() if key.startswith(LAYERS)))
            found.append(unknown_field(values, path, known))
        elif not isinstance(kind, PartByName):
            kind.read(values.inner(path, node), found)
    return found


def _below(kind: ValueType, path: str, within: tuple[type, ...]) -> Iterator[str]:
    """The paths below a value; a part within itself is not entered again."""
    if isinstance(kind, PartOf):
        if kind.cls not in within:
            yield from _below(spec_type(kind.cls), path, (*within, kind.cls))
    elif isinstance(kind, Fields):
        for row in kind.rows:
            if row.key not in HEADERS:
                inner = f"{path}.{row.key}" if path else row.key
                yield inner
                yield from _below(row.type, inner, within)
    elif isinstance(kind, AnyOf | Made):
        for inner_kind in kind.inners:
            yield from _below(inner_kind, path, within)
    elif isinstance(kind, Sourced):
        yield from _below(kind.inner, path, within)
    elif isinstance(kind, ListOf) and isinstance(kind.item, PartOf):
        yield from _below(kind.item, f"{path}.{FIRST}", within)
