"""The files that a report's evidence is read from, of all those that the library has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledger.evidence.citations import cited_file, device_of, evidence_files, find_cited
from ledger.evidence.documents import read_evidence
from ledger.evidence.own_steps import own_steps
from ledger.evidence.published_runs import predictions_path, published_runs
from ledger.evidence.verification_records import nearest_file
from ledger.spec.library import default_library
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError


def files_of_evidence(plan: Plan) -> Iterator[Path]:
    """Measurements behind its prices, price lists of what they measured, runs with their plans, the nearest verdicts.

    The parts of plans that ran are found by name in the library in use, which can note them.
    """
    measured = dict.fromkeys((*evidence_files(plan), *_cited(plan)))
    yield from measured
    devices = dict.fromkeys(filter(None, map(device_of, measured)))
    yield from (path for path in (default_library().path("accelerator", name) for name in devices) if path.is_file())
    yield from _plans_that_ran(plan, tuple(measured))
    yield from (path for path in (predictions_path(), nearest_file(plan)) if path is not None and path.is_file())


def _cited(plan: Plan) -> Iterator[Path]:
    """Files that prices cite and that are there, also those that name no device."""
    for name in dict.fromkeys(cited_file(curve) for curve in plan.accelerator.calibration):
        path = find_cited(name, plan)
        if path is not None and path.is_file():
            yield path.resolve()


def _plans_that_ran(plan: Plan, measured: tuple[Path, ...]) -> Iterator[Path]:
    """The files of plans whose steps were measured on the plan's device."""
    if plan.model.bare:
        return
    for _ in own_steps(plan, {run.id for run in published_runs()}):
        pass  # read so that the library notes their parts
    for path in measured:
        try:
            runs = read_evidence(path).runs
        except SpecError:
            continue
        yield from (Path(name) for name in {run.plan for run in runs} if "\n" not in name and Path(name).is_file())
