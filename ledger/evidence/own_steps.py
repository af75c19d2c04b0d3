"""Whole steps that were measured on the plan's device and that the library has no prediction of, as one's own are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ledger.books import compile_plan
from ledger.evidence.citations import evidence_files, is_about
from ledger.evidence.documents import read_evidence
from ledger.evidence.published_runs import PublishedRun, run_of_plan
from ledger.evidence.run_records import PEAK, STEP_TIME, MeasuredRun
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError


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
                    yield OwnStep(_measured(run, ran, evidence.citation), ran)


def _plan_that_ran(run: MeasuredRun, plan: Plan) -> Plan | None:
    """The plan of a run with the given plan's prices; None where it cannot be compiled with them."""
    spec = plan.origins.get("accelerator.spec")
    priced = (f"accelerator={default_library().located(spec.where.file)}",) if spec else ()
    try:
        return load_plan(run.plan, (*run.settings, *priced))
    except SpecError:
        return None


def _measured(run: MeasuredRun, plan: Plan, source: str) -> PublishedRun:
    return replace(
        run_of_plan(plan, run.id, source, plan.model.title),
        measured_step=run.measured[STEP_TIME],
        measured_memory=run.measured.get(PEAK, 0.0),
        memory_total=PEAK,
    )
