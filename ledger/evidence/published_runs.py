"""Published runs that the library carries, each with its measurement and its prediction, and steps measured here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from ledger.books import compile_plan
from ledger.evidence.citations import evidence_files, is_about
from ledger.evidence.documents import read_evidence
from ledger.evidence.run_records import PEAK, STEP_TIME, MeasuredRun
from ledger.evidence.tables import read_table
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

PREDICTED = "published-runs-predicted.csv"


@dataclass(frozen=True)
class PublishedRun:
    """A run with the sizes by which neighbours are found, its measurements and its predictions.

    Seconds a step and bytes; 0 where nothing was published, or nothing is predicted.
    """

    id: str
    source: str
    model: str
    accelerator: str
    stack: str
    dtype: str
    recompute: str
    d_model: int
    layers: int
    seq_len: int
    micro_batch: int
    devices: int
    data: int
    tensor: int
    pipeline: int
    context: int
    zero: int
    experts: int
    step: float = 0.0
    measured_step: float = 0.0
    memory: float = 0.0
    measured_memory: float = 0.0
    memory_total: str = "memory.reserved"  # the key of totals that was measured


def published_runs() -> tuple[PublishedRun, ...]:
    """The predictions as they were last written; none where the library has no such table."""
    path = predictions_path()
    return _read(path, path.stat().st_mtime_ns) if path.exists() else ()


def predictions_path() -> Path:
    """The library's file of predictions."""
    return default_library().folder("evidence") / PREDICTED


@cache
def _read(path: Path, _stamp: int) -> tuple[PublishedRun, ...]:
    """The table, read once per state of it."""
    types = column_types()
    rows = read_table(path, tuple(types))
    return tuple(
        PublishedRun(**{name: CELL_TYPES[kind](row.text(name)) for name, kind in types.items()}) for row in rows
    )


CELL_TYPES: Mapping[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}


def column_types() -> dict[str, str]:
    """The columns of the table, and the type of what stands in each."""
    return {field.name: str(field.type) for field in fields(PublishedRun) if field.name != "memory_total"}


def run_of_plan(plan: Plan, name: str, source: str, model: str) -> PublishedRun:
    """A plan that ran, with nothing measured or predicted of it yet."""
    mesh = plan.parallelism
    return PublishedRun(
        id=name,
        source=source,
        model=model,
        accelerator=plan.accelerator.name,
        stack=plan.stack.name,
        dtype=plan.precision.multiplies,
        recompute=plan.recompute.policy,
        d_model=plan.model.d_model,
        layers=sum(group.repeat for group in plan.model.groups),
        seq_len=plan.run.seq_len,
        micro_batch=plan.run.micro_batch,
        devices=plan.cluster.devices,
        data=mesh.data,
        tensor=mesh.tensor,
        pipeline=mesh.pipeline,
        context=mesh.context,
        zero=mesh.zero,
        experts=experts_per_layer(plan),
    )


def experts_per_layer(plan: Plan) -> int:
    """Experts of a layer; 0 where no layer has any."""
    return max(group.mlp.experts for group in plan.model.groups)


# --- steps of the user's own device ---


@dataclass(frozen=True)
class OwnStep:
    """A measured step with the plan that ran, not compiled yet."""

    run: PublishedRun
    plan: Plan

    def predicted(self) -> PublishedRun:
        """The run with what the compiler says of it under the same prices."""
        totals = compile_plan(self.plan).totals
        return replace(self.run, step=float(totals[STEP_TIME]), memory=float(totals[PEAK]))


def own_steps(plan: Plan, but: Collection[str]) -> Iterator[OwnStep]:
    """Every step of files about the plan's device; those named are left out, and those that make no plan."""
    library_devices = default_library().names("accelerator")
    for path in evidence_files(plan):
        try:
            evidence = read_evidence(path)
        except SpecError:
            continue
        if is_about(evidence.device, plan.accelerator) or evidence.device not in library_devices:
            for run in evidence.runs:
                ran = _plan_that_ran(run, plan) if run.id not in but else None
                if ran is not None:
                    yield OwnStep(_with_measurements(run, ran, evidence.citation), ran)


def _plan_that_ran(run: MeasuredRun, plan: Plan) -> Plan | None:
    """The plan of a run with the given plan's prices; None where it cannot be compiled with them."""
    spec = plan.origins.get("accelerator.spec")
    priced = (f"accelerator={default_library().path_of_place(spec.where.file)}",) if spec else ()
    try:
        return load_plan(run.plan, (*run.settings, *priced))
    except SpecError:
        return None


def _with_measurements(run: MeasuredRun, plan: Plan, source: str) -> PublishedRun:
    return replace(
        run_of_plan(plan, run.id, source, plan.model.title),
        measured_step=run.measured[STEP_TIME],
        measured_memory=run.measured.get(PEAK, 0.0),
        memory_total=PEAK,
    )
