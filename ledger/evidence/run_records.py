"""Records of whole runs, held to what they must say: a name, settings, and measurements above zero with their units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import QuantityError, parse_any
from ledger.spec.reader import Node

UNITS: Mapping[str, str] = {"time.step": "s", "memory.peak": "B", "memory.reserved": "B", "peak.reserved": "B"}
NEEDED: Mapping[str, str] = {"step": "time.step", "fit": "fits"}  # the measurement that a kind of record is about
EXAMPLES: Mapping[str, str] = {"step": "`measured: {time.step: 1.42 s}`", "fit": "`measured: {fits: true}`"}


def faults(records: Sequence[Node], what: str) -> Iterator[Problem]:
    """What the records of a kind lack, or say that cannot be, each with its place."""
    seen: dict[object, Location] = {}
    for record in records:
        name = record.fields.get("id")
        if name is None:
            yield Problem(record.where, f"a record of `what: {what}` has no `id`", "give each run a name of its own")
        elif name.value in seen:
            help_text = f"the other one is in line {seen[name.value].line}; remove one, or give it another name"
            yield Problem(name.where, f"two records have the id `{name.value}`", help_text)
        else:
            seen[name.value] = name.where
        settings = record.fields.get("set")
        if settings is not None and not isinstance(settings.value, Mapping):
            yield Problem(settings.where, "`set` is no mapping", "for example `set: {run.micro_batch: 2}`")
        yield from _measured(record, what)


def _measured(record: Node, what: str) -> Iterator[Problem]:
    """What is wrong with the measurements of one record."""
    measured = record.fields.get("measured")
    if measured is None or not isinstance(measured.value, Mapping) or NEEDED[what] not in measured.fields:
        where = record.where if measured is None else measured.where
        yield Problem(where, f"the run has no measured `{NEEDED[what]}`", EXAMPLES[what])
        return
    for key, node in measured.fields.items():
        if key == "fits":
            if not isinstance(node.value, bool):
                yield Problem(node.where, f"`fits` is `{node.value}`", "true where the plan ran, else false")
        elif message := _unfit(key, str(node.value)):
            yield Problem(node.where, message, f"a number above zero with its unit, as in {EXAMPLES['step']}")


def _unfit(key: str, text: str) -> str:
    """Why a text is no measurement of that kind; empty where it is one."""
    try:
        value, unit = parse_any(text, UNITS.get(key, ""))
    except QuantityError as error:
        return f"`{key}`: {error}"
    if unit != UNITS.get(key, unit):
        return f"`{key}`: `{text}` is in {unit or 'no unit'}, not in {UNITS[key]}"
    return "" if value > 0 else f"`{key}` is {text}"
