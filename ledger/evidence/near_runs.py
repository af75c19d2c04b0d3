"""The published runs nearest to a plan: on the same device, of similar width and layout, with our error on each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log2
from typing import TYPE_CHECKING

from ledger.evidence.near_measurements import NearMeasurement
from ledger.evidence.own_steps import own_steps
from ledger.evidence.published_runs import PublishedRun, experts_per_layer, published_runs

if TYPE_CHECKING:
    from ledger.books.results import Compiled
    from ledger.spec.plan import Plan

MOST_RUNS = 5  # runs
WIDEST = 2.0  # doublings of the model's width: a run beyond it is of another kind of model
FARTHEST = 7.0  # distance, in doublings of the sizes below as they weigh, from which on a run is no neighbour
OTHER_KIND = 1.0  # what another number format, recomputation, software or way of sharding counts for
# How much a doubling of each size counts: what changes kernels most first.
WEIGHTS = {
    "d_model": 2.0,
    "layers": 0.5,
    "seq_len": 0.75,
    "micro_batch": 0.25,
    "devices": 0.25,
    "tensor": 0.75,
    "pipeline": 0.5,
    "context": 0.75,
}
SIZE_WORDS = {
    "d_model": "width",
    "seq_len": "tokens a sequence",
    "micro_batch": "sequences a micro-batch",
    "tensor": "tensor-parallel",
    "pipeline": "stages",
    "context": "context-parallel",
}


def nearest_runs(compiled: Compiled) -> tuple[NearMeasurement, ...]:
    """Steps and peaks of the nearest runs, the nearest run first; none where there is no run like the plan.

    Predictions of runs that the library carries are read; steps of a device of one's own are compiled.
    """
    plan = compiled.plan
    if plan.model.bare:
        return ()
    own = {step.run.id: step for step in own_steps(plan, {run.id for run in published_runs()})}
    runs = neighbours(plan, (*(step.run for step in own.values()), *published_runs()))
    predicted = (own[run.id].predicted() if run.id in own else run for run in runs)
    return tuple(measurement for run in predicted for measurement in _measurements(run, plan))


def neighbours(plan: Plan, runs: Iterable[PublishedRun]) -> list[PublishedRun]:
    """The nearest of the runs on the plan's device."""
    distances = [(distance(run, plan), run) for run in runs if run.accelerator == plan.accelerator.name]
    near = [
        (far, run)
        for far, run in distances
        if far <= FARTHEST and abs(log2(run.d_model / plan.model.d_model)) <= WIDEST
    ]
    kinds: dict[tuple[object, ...], PublishedRun] = {}
    for _, run in sorted(near, key=lambda pair: (pair[0], pair[1].id)):
        kind = (run.model, run.stack, run.dtype, run.recompute, run.zero, *(getattr(run, size) for size in WEIGHTS))
        kinds.setdefault(kind, run)  # the same run of several releases says the same
    return list(kinds.values())[:MOST_RUNS]


def distance(run: PublishedRun, plan: Plan) -> float:
    """Doublings between a run and the plan, weighed, and what is of another kind."""
    of_plan = sizes(plan)
    doublings = sum(weight * abs(log2(getattr(run, name) / of_plan[name])) for name, weight in WEIGHTS.items())
    return doublings + OTHER_KIND * sum(1 for _ in differences_in_kind(run, plan))


def sizes(plan: Plan) -> dict[str, int]:
    """The sizes of a plan that a distance is made of."""
    mesh = plan.parallelism
    return {
        "d_model": plan.model.d_model,
        "layers": sum(group.repeat for group in plan.model.groups),
        "seq_len": plan.run.seq_len,
        "micro_batch": plan.run.micro_batch,
        "devices": plan.cluster.devices,
        "tensor": mesh.tensor,
        "pipeline": mesh.pipeline,
        "context": mesh.context,
    }


def differences_in_kind(run: PublishedRun, plan: Plan) -> Iterator[str]:
    """In what kind a run differs, in words."""
    if run.dtype != plan.precision.multiplies:
        yield f"{run.dtype} matmuls"
    if run.recompute != plan.recompute.policy:
        yield f"recompute {run.recompute}"
    if run.stack != plan.stack.name:
        yield run.stack
    if (run.zero == 3) != (plan.parallelism.zero == 3):
        yield f"ZeRO {run.zero}"
    if (run.experts > 0) != (experts_per_layer(plan) > 0):
        yield f"{run.experts} experts a layer" if run.experts else "no experts"


def mechanisms_not_run(run: PublishedRun, plan: Plan) -> Iterator[str]:
    """What the plan does and the run did not: mechanisms of whose cost the run says nothing."""
    mesh = plan.parallelism
    if experts_per_layer(plan) and not run.experts:
        yield "routes tokens to experts"
    if mesh.tensor > 1 and run.tensor == 1:
        yield "splits tensors over devices"
    if mesh.context > 1 and run.context == 1:
        yield "splits sequences over devices"
    if mesh.pipeline > 1 and run.pipeline == 1:
        yield "runs as a pipeline"
    if mesh.zero == 3 and run.zero != 3:
        yield "shards its weights"
    if run.dtype != plan.precision.multiplies:
        yield f"multiplies in {plan.precision.multiplies}"


def _measurements(run: PublishedRun, plan: Plan) -> Iterator[NearMeasurement]:
    """What was measured of a run, each beside its prediction."""
    of_plan = sizes(plan)
    other_sizes = [
        f"{SIZE_WORDS[name]} {getattr(run, name)}" for name in SIZE_WORDS if getattr(run, name) != of_plan[name]
    ]
    differs = ", ".join((*other_sizes, *differences_in_kind(run, plan)))
    name = f"{run.model}, {run.devices} device{'' if run.devices == 1 else 's'} ({run.id})"
    if run.step and run.measured_step:
        lacking = tuple(mechanisms_not_run(run, plan))
        yield NearMeasurement("time.step", name, run.step, run.measured_step, "s", run.source, differs, lacks=lacking)
    if run.memory and run.measured_memory:
        yield NearMeasurement(run.memory_total, name, run.memory, run.measured_memory, "B", run.source, differs)
