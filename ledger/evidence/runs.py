"""Whole runs: each record of evidence becomes a plan, is priced like any other, and compared with what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from ledger.books import compile_plan
from ledger.evidence.citations import CARRIED
from ledger.evidence.run_records import faults
from ledger.spec.library import default_library, shown
from ledger.spec.load import load_plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.quantities import parse_any
from ledger.spec.reader import Node, read
from ledger.spec.sources import from_file
from ledger.spec.validate import findings

STEP, PEAK = "time.step", "memory.peak"
WHOLE = re.compile(r"^\s*- \{?what: *step\b", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One measured run: its plan as a document or a path, with overrides; the totals measured, in SI units."""

    name: str
    source: str
    plan: str
    overrides: tuple[str, ...]
    measured: Mapping[str, float]


@dataclass(frozen=True)
class Score:
    """A run predicted: seconds a step with the estimate's own `band`, and peak bytes."""

    run: Run
    predicted: float
    band: tuple[float, float]
    peak: float

    @property
    def measured(self) -> float:
        """Seconds a step that were published."""
        return self.run.measured[STEP]

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1

    @property
    def memory_error(self) -> float | None:
        """The same of peak memory; None where none was measured."""
        measured = self.run.measured.get(PEAK)
        return self.peak / measured - 1 if measured else None


@dataclass(frozen=True)
class Summary:
    """Errors of several runs: mean absolute, mean signed, and the worst."""

    rows: int
    absolute: float
    signed: float
    worst: float


def read_runs(path: Path, what: str = "step") -> tuple[Run, ...]:
    """The runs of an evidence file that holds a `plan` and records of this kind: `step`, or `fit`.

    Raises SpecError where the file cannot be read safely, or has no runs.
    """
    text = from_file(path).text
    node = read(text, str(path))
    if "evidence" in node.fields:
        problems = [finding.problem for finding in findings(node, "evidence")]
        if problems:
            raise SpecError(problems, {str(path): text})
    listed = node.fields["records"].items if "records" in node.fields else ()
    if problems := list(faults([one for one in listed if _is(one, what)], what)):
        raise SpecError(problems, {str(path): text})
    document = yaml.load(text, Loader=yaml.CSafeLoader)
    known = document.get("records", ()) if "evidence" in node.fields else ()
    records = [record for record in known if record.get("what") == what and "error" not in record]
    if not records or "plan" not in document:
        message = f"holds no whole runs: it needs a `plan` and records of `what: {what}`"
        raise SpecError([Problem(Location(str(path)), message, "give an evidence file such as korthikanti-2022")])
    base = _base(document["plan"], path.parent)
    return tuple(_run(record, base, document["evidence"]) for record in records)


def _is(record: Node, what: str) -> bool:
    """Whether a record is of a kind, and could be measured."""
    kind = record.fields.get("what")
    return kind is not None and kind.value == what and "error" not in record.fields


def _base(plan: Any, folder: Path) -> str:
    """The plan of a file as it can be loaded: its text, or the path of one of the library or of one's own."""
    if not isinstance(plan, str):
        return yaml.safe_dump(plan, sort_keys=False)
    library = default_library()
    return str(library.folder("plan") / f"{plan}.yaml" if plan in library.names("plan") else folder / plan)


def holds(path: Path, what: str) -> bool:
    """Whether an evidence file has records of a kind; raises SpecError where it cannot be read safely."""
    text = from_file(path).text
    records = read(text, str(path)).fields.get("records")
    kinds = (item.fields.get("what") for item in records.items) if records else ()
    return any(kind is not None and kind.value == what for kind in kinds)


def steps(path: Path) -> bool:
    """Whether a file has whole steps beside a plan, by a look at its text."""
    return bool(WHOLE.search(path.read_text("utf-8-sig", errors="replace")))


def cited_as(path: Path) -> str:
    """How the runs of a file are cited: its publication, or the command that measured, and the file."""
    source = str(read(from_file(path).text, str(path)).fields["source"].value)
    own = path.resolve().parent == default_library().folder("evidence").resolve()
    return f"{source} ({CARRIED}{path.name})" if own else f"{source} ({shown(path)})"


def _run(record: Mapping[str, Any], base: str, source: str) -> Run:
    overrides = tuple(f"{key}={value}" for key, value in record.get("set", {}).items())
    measured = {key: _amount(value) for key, value in record["measured"].items()}
    return Run(str(record["id"]), source, base, overrides, measured)


def _amount(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float(parse_any(str(value))[0])


def unpriced(path: Path, overrides: Sequence[str]) -> Problem | None:
    """What to do about a file of a device that is none of the library's, as one's own is; None where it has prices."""
    text = from_file(path).text
    plan = read(text, str(path)).fields.get("plan")
    device = plan.fields.get("accelerator") if plan else None
    if device is None or not isinstance(device.value, str) or device.value.endswith((".yaml", ".yml")):
        return None
    if any(override.startswith("accelerator") for override in overrides):
        return None
    if default_library().spelt("accelerator", device.value):
        return None
    own = f"{device.value}.yaml"
    command = f"`ledger calibrate {path} --out {own}` makes its spec; then add `--set accelerator={own}`"
    return Problem(device.where, f"no accelerator of the library is named `{device.value}`", command)


def scored(runs: Iterable[Run], overrides: Sequence[str] = ()) -> Iterator[Score]:
    """Every run with its predicted step time; `overrides` change every plan alike."""
    for run in runs:
        totals = compile_plan(load_plan(run.plan, (*run.overrides, *overrides))).totals
        band = float(totals["time.step.low"]), float(totals["time.step.high"])
        yield Score(run, float(totals[STEP]), band, float(totals[PEAK]))


def summary(scores: Sequence[Score]) -> Summary:
    """Mean absolute and mean signed error of step time."""
    errors = [score.error for score in scores]
    return Summary(len(errors), fmean(map(abs, errors)), fmean(errors), max(errors, key=abs))


def contract(scores: Sequence[Score]) -> dict[str, Any]:
    """The object of the published contract `ledger-score/1`; memory is null where none was published."""
    sources = {score.run.source for score in scores}
    whole = summary(scores)
    memory = [abs(error) for score in scores if (error := score.memory_error) is not None]
    return {
        "schema": "ledger-score/1",
        "rows": [_row(score) for score in scores],
        "sources": {
            source: vars(summary([score for score in scores if score.run.source == source]))
            for source in sorted(sources)
        },
        "overall": {
            "time_mape": whole.absolute,
            "time_bias": whole.signed,
            "mem_mape": fmean(memory) if memory else None,
            "time_rows": whole.rows,
            "mem_rows": len(memory),
            "skipped": 0,
        },
    }


def _row(score: Score) -> dict[str, Any]:
    return {
        "id": score.run.name,
        "source": score.run.source,
        "predicted_step_s": score.predicted,
        "time_error": score.error,
        "predicted_peak_mem_gib": score.peak / 2**30,
        "mem_error": score.memory_error,
        "skipped": None,
    }
