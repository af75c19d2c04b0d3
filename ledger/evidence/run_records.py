"""Records of whole runs: what each must say, and the plan and the measurements that it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from ledger.spec.library import default_library
from ledger.spec.overrides import settings
from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import QuantityError, parse_any
from ledger.spec.reader import Node

STEP, FIT = "step", "fit"  # kinds of records: a step that was measured; a plan that ran, or ran out of memory
STEP_TIME, PEAK, RESERVED, FITS = "time.step", "memory.peak", "peak.reserved", "fits"  # what may be measured
TOTAL_UNITS: Mapping[str, str] = {STEP_TIME: "s", PEAK: "B", "memory.reserved": "B", RESERVED: "B"}
NEEDED_TOTAL: Mapping[str, str] = {STEP: STEP_TIME, FIT: FITS}  # the measurement that a kind of record is about
EXAMPLES: Mapping[str, str] = {STEP: "`measured: {time.step: 1.42 s}`", FIT: "`measured: {fits: true}`"}


@dataclass(frozen=True)
class MeasuredRun:
    """A plan that was run: a document or the path of one, the `settings` that change it, and what was measured.

    `measured`: totals in SI units; of a plan that was only seen to fit or not, `ran` says which.
    """

    id: str
    plan: str
    settings: tuple[str, ...]
    measured: Mapping[str, float]
    ran: bool = True


def run_problems(records: Sequence[Node], kind: str) -> Iterator[Problem]:
    """What the records of a kind lack, or say that cannot be, each with its place."""
    seen: dict[object, Location] = {}
    for record in records:
        name = record.fields.get("id")
        if name is None:
            yield Problem(record.where, f"a record of `what: {kind}` has no `id`", "give each run a name of its own")
        elif name.value in seen:
            help_text = f"the other one is in line {seen[name.value].line}; remove one, or give it another name"
            yield Problem(name.where, f"two records have the id `{name.value}`", help_text)
        else:
            seen[name.value] = name.where
        stated = record.fields.get("set")
        if stated is not None and not isinstance(stated.value, Mapping):
            yield Problem(stated.where, "`set` is no mapping", "for example `set: {run.micro_batch: 2}`")
        yield from _measurement_problems(record, kind)


def _measurement_problems(record: Node, kind: str) -> Iterator[Problem]:
    """What is wrong with the measurements of one record."""
    measured = record.fields.get("measured")
    if measured is None or not isinstance(measured.value, Mapping) or NEEDED_TOTAL[kind] not in measured.fields:
        where = record.where if measured is None else measured.where
        yield Problem(where, f"the run has no measured `{NEEDED_TOTAL[kind]}`", EXAMPLES[kind])
        return
    for key, node in measured.fields.items():
        if key == FITS:
            if not isinstance(node.value, bool):
                yield Problem(node.where, f"`fits` is `{node.value}`", "true where the plan ran, else false")
        elif message := _quantity_fault(key, str(node.value)):
            yield Problem(node.where, message, f"a number above zero with its unit, as in {EXAMPLES[STEP]}")


def _quantity_fault(key: str, text: str) -> str:
    """Why a text is no measurement of that total; empty where it is one."""
    try:
        value, unit = parse_any(text, TOTAL_UNITS.get(key, ""))
    except QuantityError as error:
        return f"`{key}`: {error}"
    if unit != TOTAL_UNITS.get(key, unit):
        return f"`{key}`: `{text}` is in {unit or 'no unit'}, not in {TOTAL_UNITS[key]}"
    return "" if value > 0 else f"`{key}` is {text}"


def measured_run(record: Node, plan: str) -> MeasuredRun:
    """The run of a record that has no problems, of a file whose runs share this plan."""
    stated = record.fields["measured"].fields
    amounts = {key: float(parse_any(str(node.value))[0]) for key, node in stated.items() if key != FITS}
    ran = FITS not in stated or bool(stated[FITS].value)
    changes = settings(record.fields["set"]) if "set" in record.fields else ()
    return MeasuredRun(str(record.fields["id"].value), plan, changes, amounts, ran)


def plan_of_runs(plan: Node | None, folder: Path) -> str:
    """The plan of a file as it can be loaded: its text, or the path of one of the library or of one's own."""
    if plan is None:
        return ""
    if not isinstance(plan.value, str):
        return yaml.safe_dump(plan.plain(), sort_keys=False, allow_unicode=True)
    library = default_library()
    named = plan.value in library.names("plan")
    return str(library.path("plan", plan.value) if named else folder / plan.value)
