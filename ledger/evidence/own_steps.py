"""Whole steps that were measured on the plan's device and that the library has no prediction of, as one's own are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ledger.books import compile_plan
from ledger.evidence.citations import device, files, own
from ledger.evidence.known_runs import Known, described
from ledger.evidence.runs import PEAK, STEP, Run, cited_as, read_runs, steps
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError


@dataclass(frozen=True)
class OwnStep:
    """A measured step with the plan that ran, not compiled yet."""

    run: Known
    plan: Plan

    def predicted(self) -> Known:
        """The run with what the compiler says of it under the same prices."""
        totals = compile_plan(self.plan).totals
        return replace(self.run, step=float(totals[STEP]), memory=float(totals[PEAK]))


def own_steps(plan: Plan, but: Collection[str]) -> Iterator[OwnStep]:
    """Every step of files about the plan's device; those named are left out, and those that make no plan."""
    known = default_library().names("accelerator")
    for path in files(plan):
        name = device(path)
        if (own(name, plan.accelerator) or name not in known) and steps(path):
            try:
                runs, source = read_runs(path), cited_as(path)
            except SpecError:
                continue
            for run in runs:
                ran = _plan(run, plan) if run.name not in but else None
                if ran is not None:
                    yield OwnStep(_known(run, ran, source), ran)


def _plan(run: Run, plan: Plan) -> Plan | None:
    """The plan that ran, with the plan's own prices; None where it cannot be compiled with them."""
    spec = plan.origins.get("accelerator.spec")
    priced = (f"accelerator={spec.where.file}",) if spec else ()
    try:
        return load_plan(run.plan, (*run.overrides, *priced))
    except SpecError:
        return None


def _known(run: Run, plan: Plan, source: str) -> Known:
    known = described(plan, run.name, source, plan.model.title)
    return replace(known, measured_step=run.measured[STEP], measured_memory=run.measured.get(PEAK, 0.0), held=PEAK)
