"""The step in seconds: kernels end to end, transfers hidden where the stack's rules let them, the pipeline's bubble.

Time is a valuation of a ledger, never an entry of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from ledger.books.entries import MICRO_BATCH, STEP
from ledger.books.prices import DEVIATION
from ledger.books.results import KernelTime, Span
from ledger.model.program import ROOT
from ledger.model.schedule import Role, micro_batches
from ledger.spec.plan import Plan

# What a closed form with the right kernels still misses on a stack that nothing was fitted on: the mean absolute error
# of such models over published runs is 9 to 12 %; 5 to 6 % separate labs that run the same configuration.
UNSEEN_STACK = 0.10

SEND = "send.pipeline"
PASSES = {"forward": ("forward",), "backward": ("recompute", "backward")}


@dataclass(frozen=True)
class Stretch:
    """One unit in one pass of one micro-batch: device seconds, what launching costs more, transfers by their fate.

    `shown` are seconds of transfers that nothing hides, `tax` the compute lost beside hidden ones.
    """

    device: float
    launch: float
    shown: Mapping[str, float]
    tax: float

    @property
    def seconds(self) -> float:
        """What the pass of this unit takes."""
        return self.device + self.launch + sum(self.shown.values()) + self.tax


@dataclass(frozen=True)
class RoleTime:
    """One role's micro-batch and step: `passes` by pass and unit, `once` what a step adds, by kind.

    `count` is the micro-batches of a step.
    """

    role: Role
    count: int
    kernels: tuple[KernelTime, ...]
    passes: Mapping[tuple[str, str], Stretch]
    sends: float
    optimizer: float
    once: Mapping[str, float]

    @property
    def micro_batch(self) -> float:
        """Seconds of one micro-batch, both passes."""
        return sum(stretch.seconds for stretch in self.passes.values()) + self.sends

    @property
    def exposed(self) -> Mapping[str, float]:
        """The share of its transfers' seconds that the step waits for, by what moves: tensor, data or pipeline."""
        everything: dict[str, float] = defaultdict(float)
        for row in self.kernels:
            if _moves(row):
                everything[_cargo(row)] += row.seconds * row.times
        shown: dict[str, float] = defaultdict(float, self.once)
        shown["pipeline"] += self.count * self.sends
        for stretch in self.passes.values():
            for cargo, seconds in stretch.shown.items():
                shown[cargo] += self.count * seconds
        return {cargo: min(1.0, shown[cargo] / seconds) for cargo, seconds in everything.items() if seconds}


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
    uncalibrated: float  # share of the step that only data sheets price


# --- one role -----------------------------------------------------------------------------------


def role_time(role: Role, rows: Sequence[KernelTime], plan: Plan) -> RoleTime:
    """Prices of one role put in order: what hides behind what is the stack's rule, transfer by transfer."""
    recurring = [row for row in rows if row.per == MICRO_BATCH and row.kind != SEND]
    passes = {
        (name, unit): _stretch(
            name, unit, [row for row in recurring if _unit(row) == unit and row.when in phases], plan
        )
        for name, phases in PASSES.items()
        for unit in dict.fromkeys(_unit(row) for row in recurring if row.when in phases)
    }
    send = max((row.seconds for row in rows if row.kind == SEND), default=0.0)
    waits = 0.0 if plan.stack.overlap.pipeline == "compute" else 2 * plan.parallelism.interleave * send
    optimizer = sum(row.seconds * row.times for row in rows if row.when == "optimizer" and not _moves(row))
    return RoleTime(role, micro_batches(plan), tuple(rows), passes, waits, optimizer, _once(rows, passes, plan))


def _unit(row: KernelTime) -> str:
    return row.account.split("/")[0]


def _moves(row: KernelTime) -> bool:
    return row.bound == "network"


def _axis(row: KernelTime) -> str:
    return row.kind.split(".")[1]


def _cargo(row: KernelTime) -> str:
    """What a transfer moves: activations within a layer, weights and their gradients, or activations between stages."""
    if row.kind == SEND:
        return "pipeline"
    return "tensor" if _axis(row) in ("tensor", "context") else "data"


def _stretch(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> Stretch:
    """One unit's pass of one micro-batch."""
    count = micro_batches(plan)

    def seconds(chosen: Iterable[KernelTime]) -> float:
        return sum(row.seconds * row.times for row in chosen) / count

    compute = [row for row in rows if not _moves(row)]
    inner = [row for row in rows if _moves(row) and _cargo(row) == "tensor"]
    outer = [row for row in rows if _moves(row) and row not in inner]
    device = seconds(compute)
    launches = 0.0 if plan.stack.graphs else plan.stack.launch * sum(row.times for row in compute) / count
    sheltered = seconds(row for row in inner if may_hide(row, name, plan))
    behind_matmul = min(sheltered, seconds(row for row in compute if row.kind.startswith("matmul")))
    room = device - behind_matmul if weights_hide(name, plan) and unit != ROOT else 0.0
    behind_unit = min(seconds(outer), room)
    shown = {"tensor": seconds(inner) - behind_matmul, "data": seconds(outer) - behind_unit}
    tax = plan.stack.overlap_tax * (behind_matmul + behind_unit)
    return Stretch(device, max(0.0, launches - device), shown, tax)


def may_hide(row: KernelTime, name: str, plan: Plan) -> bool:
    """Whether a tensor-parallel transfer may run beside a contraction.

    `matmul`: the one it feeds or follows. `weight_gradient`: only transfers of a column-parallel input and of its
    gradient, which need not wait for the other gradient (Korthikanti et al. 2022; Megatron-LM mpu/layers.py).
    """
    rule = plan.stack.overlap.tensor if _axis(row) == "tensor" else "none"
    late = row.account.endswith((".all_gather.gradient", ".share.gradient", ".again"))
    return rule == "matmul" or (rule == "weight_gradient" and name == "backward" and late)


def weights_hide(name: str, plan: Plan) -> bool:
    """Whether transfers of weights and gradients may run beside the compute of a pass."""
    rule = plan.stack.overlap
    return rule.gather == "layer" if name == "forward" else "none" not in (rule.gather, rule.data)


def _once(rows: Sequence[KernelTime], passes: Mapping[tuple[str, str], Stretch], plan: Plan) -> dict[str, float]:
    """Transfers once a step that nothing hides: gradients after the last backward, weights before the next forward."""
    device = {name: sum(stretch.device for (p, _), stretch in passes.items() if p == name) for name in PASSES}
    moved = [row for row in rows if _moves(row) and row.per == STEP]
    late = [row for row in moved if row.when != "optimizer"]
    gradients = sum(row.seconds * row.times for row in late)
    weights = sum(row.seconds * row.times for row in moved if row.when == "optimizer")
    if plan.stack.overlap.data == "backward":  # the last unit's gradients have nothing left to hide behind
        gradients = max(max((row.seconds for row in late), default=0.0), gradients - device["backward"])
    if plan.stack.overlap.gather == "layer":
        weights = max(0.0, weights - device["forward"])
    return {"data": gradients + weights}


# --- the step -----------------------------------------------------------------------------------


def step_time(times: Sequence[RoleTime], plan: Plan) -> StepTime:
    """All roles together: the slowest stage sets the pace, the others fill and drain the pipeline."""
    count, chunks = micro_batches(plan), plan.parallelism.interleave
    slowest = max(times, key=lambda time: time.micro_batch)
    stages = [time for time in times for _ in time.role.stages]
    bubble = (sum(time.micro_batch for time in stages) - slowest.micro_batch) / chunks
    optimizer = max(time.optimizer for time in times)
    once = max((sum(time.once.values()) for time in times), default=0.0)
    spans = _spans(slowest, count, bubble, optimizer, once)
    estimate = sum(span.seconds for span in spans)
    error, uncalibrated = _error(slowest, estimate)
    communication = sum(row.seconds * row.times for row in slowest.kernels if _moves(row))
    exposed = sum(span.seconds for span in spans if span.name.startswith("comm"))
    return StepTime(
        floor=max(_floor(time, plan) for time in times),
        roofline=max(_roofline(time) for time in times),
        estimate=estimate,
        low=estimate * (1 - min(error, 0.9)),
        high=estimate * (1 + error),
        serial=_serial(slowest, count, bubble, optimizer),
        spans=spans,
        compute=count * sum(stretch.device for stretch in slowest.passes.values()),
        communication=communication,
        exposed=exposed,
        bubble=bubble,
        optimizer=optimizer,
        forward=sum(
            stretch.seconds for time in stages for (name, _), stretch in time.passes.items() if name == "forward"
        ),
        slowest=slowest.role.name,
        uncalibrated=uncalibrated,
    )


TITLES = {
    "forward": "forward kernels",
    "recompute": "recomputed kernels",
    "backward": "backward kernels",
    "comm.tensor": "tensor- and context-parallel transfers not hidden",
    "comm.data": "weight and gradient transfers not hidden",
    "comm.pipeline": "sends between stages",
    "tax": "compute slowed by transfers beside it",
    "launch": "waiting for launches",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer update",
}


def _spans(slowest: RoleTime, count: int, bubble: float, optimizer: float, once: float) -> tuple[Span, ...]:
    parts: dict[str, float] = defaultdict(float)
    for row in slowest.kernels:
        if not _moves(row) and row.when != "optimizer":
            parts[row.when] += row.seconds * row.times
    for stretch in slowest.passes.values():
        for axis, seconds in stretch.shown.items():
            parts[f"comm.{axis}"] += seconds * count
        parts["tax"] += stretch.tax * count
        parts["launch"] += stretch.launch * count
    parts["comm.data"] += once
    parts["comm.pipeline"] = slowest.sends * count
    parts["bubble"], parts["optimizer"] = bubble, optimizer
    return tuple(Span(name, title, parts[name]) for name, title in TITLES.items() if parts[name] > 0)


def _serial(slowest: RoleTime, count: int, bubble: float, optimizer: float) -> float:
    """The same kernels and transfers, nothing hidden."""
    everything = sum(row.seconds * row.times for row in slowest.kernels if row.when != "optimizer")
    gathers = sum(row.seconds * row.times for row in slowest.kernels if row.when == "optimizer" and _moves(row))
    launches = count * sum(stretch.launch for stretch in slowest.passes.values())
    sends = sum(row.seconds * row.times for row in slowest.kernels if row.kind == SEND)
    waits = max(0.0, slowest.sends * count - sends)
    return everything + gathers + launches + waits + bubble + optimizer


def _roofline(time: RoleTime) -> float:
    """Each kernel at the larger of its compute and its traffic, by data sheet; transfers only if they are more."""
    compute = sum(row.roofline * row.times for row in time.kernels if not _moves(row))
    return max(compute, _wire(time))


def _wire(time: RoleTime) -> float:
    """The busiest axis at the line rate of its links."""
    axes: dict[str, float] = defaultdict(float)
    for row in time.kernels:
        if _moves(row):
            axes[_axis(row)] += row.roofline * row.times
    return max(axes.values(), default=0.0)


def _floor(time: RoleTime, plan: Plan) -> float:
    """Every resource busy all the time and perfectly overlapped, at datasheet prices."""
    resources: dict[str, float] = defaultdict(float)
    for row in time.kernels:
        if not _moves(row):
            resources["hbm"] += row.bytes * row.times / plan.accelerator.bandwidth
            resources["matmul"] += row.compute * row.times
    return max(_wire(time), *resources.values())


def _error(slowest: RoleTime, estimate: float) -> tuple[float, float]:
    """One standard deviation of the step, relative: errors of one curve add up, those of several partly cancel.

    Also the share of the step that no curve prices.
    """
    by_kind: dict[str, float] = defaultdict(float)
    unpriced = 0.0
    exposed = slowest.exposed
    for row in slowest.kernels:
        share = row.seconds * row.times / estimate * (exposed[_cargo(row)] if _moves(row) and row.seconds else 1.0)
        by_kind[row.kind] += row.error * share
        unpriced += 0.0 if row.calibrated else share
    variance = sum((DEVIATION * error) ** 2 for error in by_kind.values()) + (DEVIATION * UNSEEN_STACK) ** 2
    return sqrt(variance), unpriced


def with_exposure(time: RoleTime) -> tuple[KernelTime, ...]:
    """The rows, transfers with the seconds of each that nothing hides (spread evenly over those of one cargo)."""
    exposed = time.exposed
    return tuple(
        replace(row, exposed=row.seconds * exposed[_cargo(row)]) if _moves(row) and row.seconds else row
        for row in time.kernels
    )
