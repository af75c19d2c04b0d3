"""Records of whole runs: what each must say, and the plan and the measurements that it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ledger.evidence.microbenchmarks.records import RESULTS
from ledger.spec.faults import Faults, StatedValue
from ledger.spec.library import default_library
from ledger.spec.overrides import settings
from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import parse_any
from ledger.spec.reader import Node
from ledger.spec.structures import NEEDED, Fields, MappingOf, Row
from ledger.spec.values import Anything, Flag, Label, Quantity, String

STEP, FIT = "step", "fit"  # kinds of records: a step that was measured; a plan that ran, or ran out of memory
STEP_TIME, PEAK, RESERVED, FITS = "time.step", "memory.peak", "peak.reserved", "fits"  # what may be measured
TOTALS = (
    Row(STEP_TIME, Quantity("s"), "A step, on average."),
    *(Row(name, Quantity("B", measured=True), "Bytes of a device.") for name in (PEAK, "memory.reserved", RESERVED)),
    Row("mfu", Quantity("1", greatest=1), "Of the publication."),
    Row(FITS, Flag(), "True where the plan ran, else false."),
)
# The measurement that a kind of record is about, and how it is written.
NEEDED_TOTAL: Mapping[str, str] = {STEP: STEP_TIME, FIT: FITS}
EXAMPLES: Mapping[str, str] = {STEP: "{time.step: 1.42 s}", FIT: "{fits: true}"}


def _record_type(kind: str) -> Fields:
    """The fields of a record of a kind."""
    totals = tuple(replace(row, needed=NEEDED) if row.key == NEEDED_TOTAL[kind] else row for row in TOTALS)
    return Fields(
        (
            Row("what", String(), "The kind of record.", needed=NEEDED),
            Row("id", Label(), "a name of its own", needed=NEEDED),
            Row("set", MappingOf(Anything()), "`{run.micro_batch: 2}`: what is this run's own."),
            Row("measured", Fields(totals), f"`{EXAMPLES[kind]}`: what was measured", needed=NEEDED),
            *(Row(name, Anything(), "Of `ledger bench`.") for name in RESULTS if name != "measured"),
        )
    )


RUN_RECORDS = {kind: _record_type(kind) for kind in NEEDED_TOTAL}


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
    """Problems of the records of a kind, each with its place."""
    seen: dict[str, Location] = {}
    for record in records:
        faults: Faults = []
        RUN_RECORDS[kind].read(StatedValue(record, ("record",)), faults)
        yield from (fault.problem for fault in faults)
        name = record.fields.get("id")
        if name is not None and isinstance(name.value, str | int | float):
            if str(name.value) in seen:
                help_text = (
                    f"the other one is in line {seen[str(name.value)].line}; remove one, or give it another name"
                )
                yield Problem(name.where, f"two records have the id `{name.value}`", help_text)
            seen.setdefault(str(name.value), name.where)


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
