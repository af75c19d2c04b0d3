"""The step in seconds: the slowest role sets the pace, the others fill the pipeline; three bounds around the estimate.

Time is a valuation of a ledger, never an entry of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from ledger.books.entries import STEP
from ledger.books.overlap import cargo, moves, spent
from ledger.books.passes import PIPELINE, RoleTime
from ledger.books.prices import DEVIATION
from ledger.books.results import Number, Span
from ledger.model.causes import HostTransfer, Transfer
from ledger.model.schedule import micro_batches, schedule
from ledger.spec.plan import Plan

# What a closed form with the right kernels still misses on a stack that nothing was fitted on: the mean absolute error
# of such models over published runs is 9 to 12 %; 5 to 6 % separate labs that run the same configuration.
UNSEEN_STACK = 0.10
UNSEEN = DEVIATION * UNSEEN_STACK  # one standard deviation


@dataclass(frozen=True)
class StepTime:
    """The step: its three bounds, the estimate with its band, and the parts of the critical path."""

    floor: float
    roofline: float
    estimate: float
    low: float
    high: float
    serial: float
    spans: tuple[Span, ...]
    compute: float
    communication: float
    exposed: float
    bubble: float
    optimizer: float
    forward: float  # one micro-batch through all stages
    slowest: str


def step_time(times: Sequence[RoleTime], plan: Plan) -> StepTime:
    """All roles together: the slowest stage sets the pace, the others fill and drain the pipeline."""
    count, chunks = micro_batches(plan), plan.parallelism.interleave
    slowest = max(times, key=lambda time: time.micro_batch)
    stages = [time for time in times for _ in time.role.stages]
    others = [time.pace for time in stages]
    others.remove(slowest.pace)
    bubble = schedule(plan.parallelism).bubble(others, slowest.pace, chunks)
    optimizer = max(time.optimizer for time in times)
    once = max((time.once for time in times), key=lambda found: sum(found.values()))
    hosts = max(time.launch for time in times)
    spans = _spans(slowest, bubble, optimizer, once, hosts)
    estimate = sum(span.seconds for span in spans)
    error = _error(slowest, estimate)
    roofline = max(_roofline(time) for time in times)
    late = max(spent(row for row in time.kernels if moves(row) and row.per == STEP) for time in times)
    recurring = spent(row for row in slowest.kernels if moves(row) and row.per != STEP)
    sends = spent(row for row in slowest.kernels if cargo(row) == PIPELINE)
    waits = max(0.0, slowest.sends * count - sends)
    exposed = sum(span.seconds for span in spans if span.name.startswith("comm"))
    return StepTime(
        floor=max(_floor(time, plan) for time in times),
        roofline=roofline,
        estimate=estimate,
        low=max(roofline, estimate * (1 - min(error, 0.9))),
        high=estimate * (1 + error),
        serial=_serial(slowest, recurring + late + waits, bubble, optimizer) + hosts,
        spans=spans,
        compute=count * sum(stretch.device for stretch in slowest.passes.values()),
        communication=recurring + late + waits,
        exposed=exposed,
        bubble=bubble,
        optimizer=optimizer,
        forward=sum(
            stretch.seconds for time in stages for (name, _), stretch in time.passes.items() if name == "forward"
        ),
        slowest=slowest.role.name,
    )


TITLES = {
    "forward": "forward kernels",
    "recompute": "recomputed kernels",
    "backward": "backward kernels",
    "comm.tensor": "tensor-parallel transfers not hidden",
    "comm.context": "context-parallel transfers not hidden",
    "comm.expert": "tokens to and from experts not hidden",
    "comm.data": "weight and gradient transfers not hidden",
    "comm.pipeline": "sends between stages",
    "comm.host": "copies to and from host memory not hidden",
    "tax": "compute slowed by transfers beside it",
    "launch": "waiting for launches",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer update",
}


def _spans(
    slowest: RoleTime, bubble: float, optimizer: float, once: Mapping[str, float], hosts: float
) -> tuple[Span, ...]:
    parts, count = defaultdict[str, float](float), slowest.count
    for row in slowest.kernels:
        if not moves(row) and row.when != "optimizer":
            parts[row.when] += row.seconds * row.times
    for stretch in slowest.passes.values():
        for kind, seconds in stretch.shown.items():
            parts[f"comm.{kind}"] += seconds * count
        parts["tax"] += stretch.tax * count
        parts["launch"] += stretch.launch * count
    for kind, seconds in once.items():
        parts[f"comm.{kind}"] += seconds
    parts["comm.pipeline"] = slowest.sends * count
    parts["launch"] += hosts
    parts["bubble"], parts["optimizer"] = bubble, optimizer
    return tuple(Span(name, title, parts[name]) for name, title in TITLES.items() if parts[name] > 0)


def _serial(slowest: RoleTime, transfers: float, bubble: float, optimizer: float) -> float:
    """The same kernels and transfers, nothing hidden."""
    kernels = spent(row for row in slowest.kernels if row.when != "optimizer" and not moves(row))
    launches = slowest.count * sum(stretch.launch for stretch in slowest.passes.values())
    return kernels + transfers + launches + bubble + optimizer


def _roofline(time: RoleTime) -> float:
    """Each kernel at the larger of its compute and its traffic, by data sheet; transfers only if they are more."""
    compute = sum(row.roofline * row.times for row in time.kernels if not moves(row))
    return max(compute, _wire(time))


def _wire(time: RoleTime) -> float:
    """The busiest axis at the line rate of its links."""
    axes: dict[str, float] = defaultdict(float)
    for row in time.kernels:
        if isinstance(row.kind, Transfer | HostTransfer):
            way = row.kind.axis if isinstance(row.kind, Transfer) else row.kind.direction
            axes[way] += row.roofline * row.times
    return max(axes.values(), default=0.0)


def _floor(time: RoleTime, plan: Plan) -> float:
    """Every resource busy all the time and perfectly overlapped, at datasheet prices."""
    resources: dict[str, float] = defaultdict(float)
    for row in time.kernels:
        if not moves(row):
            resources["hbm"] += row.bytes * row.times / plan.accelerator.bandwidth
            resources["matmul"] += row.compute * row.times
    return max([_wire(time), *resources.values()])


def _error(slowest: RoleTime, estimate: float) -> float:
    """One standard deviation of the step, relative: errors of one curve add up, those of several partly cancel."""
    by_kind: dict[str, float] = defaultdict(float)
    exposed = slowest.exposed
    for row in slowest.kernels:
        share = row.seconds * row.times / estimate * (exposed[cargo(row)] if moves(row) and row.seconds else 1.0)
        by_kind[str(row.kind)] += row.error * share
    return sqrt(sum((DEVIATION * error) ** 2 for error in by_kind.values()) + UNSEEN**2)


def band(totals: Mapping[str, Number]) -> tuple[float, float]:
    """What the band around an estimate is made of, each one standard deviation: the stack's part, and the prices'."""
    whole = float(totals["time.step.high"]) / float(totals["time.step"]) - 1
    return UNSEEN, sqrt(max(0.0, whole**2 - UNSEEN**2))
