"""The step in seconds: the slowest role sets the pace, the others fill the pipeline; three bounds around the estimate.

Time is a valuation of a ledger, never an entry of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from ledger.arithmetic.values import Amount, largest, largest_of, maximum, minimum, of_item, parts_of, square_root
from ledger.books.assembly.stages import HOST_SUM, StageTime
from ledger.books.assembly.work import PIPELINE
from ledger.books.prices import DEVIATION
from ledger.books.results import Number, WaterfallPart
from ledger.books.step_sums import ERROR, LATE, PRODUCTS, RECURRING, ROOFLINE, TRAFFIC, WIRE, among
from ledger.model.batch import data_time, data_wait, fed_step
from ledger.model.schedule import Pace, Peers, PipelineWork, micro_batches, schedule
from ledger.spec.parallelism import AXES, INNERMOST_FIRST
from ledger.spec.plan import Plan

PRICED = 0.06  # of the step: what prices missed in those runs, most of which ran on measured devices
EQUAL = 1e-12  # of the seconds of two stages: what adding them up in another order may make of them
TENTH = 1.2816  # standard deviations beyond which a tenth of a normal distribution lies


@dataclass(frozen=True)
class StepTime:
    """The step: its three bounds, the estimate with its band, and the parts of the critical path, by name."""

    floor: Amount
    roofline: Amount
    estimate: Amount
    low: Amount
    high: Amount
    serial: Amount
    parts: Mapping[str, Amount]
    compute: Amount
    communication: Amount
    exposed: Amount
    bubble: Amount
    optimizer: Amount
    forward: Amount  # one micro-batch through all stages
    slowest: Amount  # its place among the roles


@dataclass(frozen=True)
class CriticalPath:
    """The slowest role's step: its `place` among the roles, the parts of its seconds by name, and their sum.

    `worked` is the sum without the wait for data.
    """

    place: Amount
    parts: Mapping[str, Amount]
    worked: Amount
    estimate: Amount


def critical_path(times: Sequence[StageTime], bubble: Callable[[Peers, Pace], Amount], plan: Plan) -> CriticalPath:
    """The slowest stage sets the pace, the others fill and drain the pipeline (`bubble`: how long it waits).

    Where the plan states rates of its data, a step also waits for a batch that takes longer than all of that.
    """
    place = largest(times, lambda time: time.micro_batch, EQUAL)
    waits = of_item(place, times, lambda slowest: _bubble_seconds(slowest, times, bubble))
    hosts = maximum(*(time.launch for time in times))
    latest = largest(times, lambda time: sum(time.once.values()), EQUAL)
    once = parts_of(latest, times, lambda time: time.once)
    last = {"bubble": waits, "optimizer": maximum(*(time.optimizer for time in times))}
    parts = parts_of(place, times, lambda slowest: _step_parts(slowest, once, hosts) | last)
    worked = sum(parts[name] for name in TITLES if name in parts)
    if plan.data.waits(plan.model):
        parts = {**parts, DATA: data_wait(plan, worked)}
    return CriticalPath(place, parts, worked, fed_step(plan, worked))


def estimated(times: Sequence[StageTime], plan: Plan) -> CriticalPath:
    """The slowest role's step, in the order in which the plan's pipeline works."""
    order, work = schedule(plan.parallelism), PipelineWork(micro_batches(plan), plan.parallelism.interleave)
    return critical_path(times, lambda neighbours, pace: order.bubble(neighbours, pace, work), plan)


def step_time(times: Sequence[StageTime], plan: Plan) -> StepTime:
    """All roles together: the slowest stage sets the pace, the others fill and drain the pipeline."""
    return bounded(times, estimated(times, plan), plan)


def bounded(times: Sequence[StageTime], path: CriticalPath, plan: Plan) -> StepTime:
    """The step of a critical path with its bounds, and the parts that totals name.

    What published runs missed is of kernels and transfers: rates of data are stated, and a wait for them has no spread.
    """
    place, parts, worked = path.place, path.parts, path.worked
    bubble, optimizer = parts["bubble"], parts["optimizer"]
    hosts = maximum(*(time.launch for time in times))
    further = of_item(place, times, lambda slowest: _further_error(slowest, worked))
    ends = STEP[evidence_on_stack(plan)]
    batch = (data_time(plan),) if plan.data.waits(plan.model) else ()
    roofline = maximum(*(_roofline_seconds(time) for time in times), *batch)
    late = maximum(*(sum(among(time.sums, LATE).values()) for time in times))
    moved = of_item(place, times, _transfer_seconds) + late
    return StepTime(
        floor=maximum(*(_floor_seconds(time, plan) for time in times), *batch),
        roofline=roofline,
        estimate=path.estimate,
        low=maximum(roofline, fed_step(plan, worked * (1 - minimum(_combined_error(1 - ends.low, further), 0.9)))),
        high=fed_step(plan, worked * (1 + _combined_error(ends.high - 1, further))),
        serial=of_item(place, times, _serial_kernels) + moved + bubble + optimizer + hosts + sum(batch),
        parts=parts,
        compute=of_item(place, times, _kernel_seconds),
        communication=moved,
        exposed=sum(seconds for name, seconds in parts.items() if name in OPEN_TRANSFERS),
        bubble=bubble,
        optimizer=optimizer,
        forward=sum(time.pass_seconds("forward") * time.stages for time in times),
        slowest=place,
    )


def _bubble_seconds(slowest: StageTime, times: Sequence[StageTime], bubble: Callable[[Peers, Pace], Amount]) -> Amount:
    """Seconds of a step in which the slowest device waits for others."""
    neighbours = [(time.stages - (1 if time is slowest else 0), time.pace) for time in times]
    return bubble(neighbours, slowest.pace)


def _transfer_seconds(slowest: StageTime) -> Amount:
    """Seconds of a stage's recurring transfers, and of sends beyond them."""
    recurring = among(slowest.sums, RECURRING)
    sends = recurring.get((PIPELINE,), 0.0)
    return sum(recurring.values()) + maximum(0.0, slowest.sends * slowest.count - sends)


def _kernel_seconds(slowest: StageTime) -> Amount:
    """Seconds of a stage's kernels that recur with every micro-batch."""
    return slowest.count * sum(unit_pass.device for unit_pass in slowest.passes.values())


DATA = "batch"  # what a step waits for until its batch is there
KERNELS = {"forward": "forward kernels", "recompute": "recomputed kernels", "backward": "backward kernels"}
OPEN_TRANSFERS = {
    **{f"comm.{axis}": AXES[axis].exposed for axis in INNERMOST_FIRST},
    "comm.host": "copies to and from host memory not hidden",
}
WAITS = {
    "tax": "compute slowed by transfers beside it",
    "launch": "waiting for launches",
    "bubble": "pipeline bubble",
    f"comm.{HOST_SUM}": "gradients added up in host memory",
    "optimizer": "optimizer update",
    DATA: "waiting for data",
}


TITLES = {**KERNELS, **OPEN_TRANSFERS, **WAITS}


def spans(time: StepTime) -> tuple[WaterfallPart, ...]:
    """The parts of the critical path that take any time, in the order of a step."""
    return tuple(
        WaterfallPart(name, title, time.parts[name], transfer=name in OPEN_TRANSFERS)
        for name, title in TITLES.items()
        if time.parts.get(name, 0) > 0
    )


def _step_parts(slowest: StageTime, once: Mapping[str, Amount], hosts: Amount) -> dict[str, Amount]:
    """Seconds of a step by what they go into, on the slowest device."""
    parts, count = defaultdict[str, Amount](float, slowest.computed), slowest.count
    for unit_pass in slowest.passes.values():
        for kind, seconds in unit_pass.exposed.items():
            parts[f"comm.{kind}"] += seconds * count
        parts["tax"] += unit_pass.slowdown * count
        parts["launch"] += unit_pass.launch * count
    for kind, seconds in once.items():
        parts[f"comm.{kind}"] += seconds
    parts["comm.pipeline"] = slowest.sends * count
    parts["launch"] += hosts
    return dict(parts)


def _serial_kernels(slowest: StageTime) -> Amount:
    """Seconds of a stage's kernels and of launching them, one after the other."""
    kernels = sum(slowest.computed.values())
    return kernels + slowest.count * sum(unit_pass.launch for unit_pass in slowest.passes.values())


def _roofline_seconds(time: StageTime) -> Amount:
    """Each kernel at the larger of its compute and its traffic, by data sheet; transfers only if they are more."""
    return maximum(time.sums.get((ROOFLINE,), 0.0), _wire_seconds(time))


def _wire_seconds(time: StageTime) -> Amount:
    """The busiest axis at the line rate of its links."""
    return largest_of(among(time.sums, WIRE).values())


def _floor_seconds(time: StageTime, plan: Plan) -> Amount:
    """Every resource busy all the time and perfectly overlapped, at datasheet prices."""
    traffic = time.sums.get((TRAFFIC,), 0.0) / plan.accelerator.bandwidth
    return maximum(_wire_seconds(time), traffic, time.sums.get((PRODUCTS,), 0.0))


def _combined_error(first: Amount, second: Amount) -> Amount:
    """The error that two errors make which do not depend on each other."""
    return square_root(first**2 + second**2)


def _further_error(slowest: StageTime, worked: Amount) -> Amount:
    """By how much prices may miss beyond what they missed in scored runs: a tenth of steps lies further, each side."""
    by_kind: dict[str, Amount] = defaultdict(float)  # errors of one curve add up, those of several partly cancel
    exposed = slowest.exposed_shares
    for (kind, moved), seconds in among(slowest.sums, ERROR).items():
        by_kind[kind] += seconds / worked * (exposed[moved] if moved else 1.0)
    missed = square_root(sum((DEVIATION * error) ** 2 for error in by_kind.values()))  # one standard deviation
    return TENTH * square_root(maximum(missed**2 - PRICED**2, 0.0))


def widened(plan: Plan, totals: Mapping[str, Number]) -> float:
    """By how much the prices of a plan's device widen the interval, upwards and relative to the step without data.

    Nothing where a step waits for data beyond its upper end.
    """
    wait, highest = float(totals.get("time.data.wait", 0)), float(totals["time.step.high"])
    if wait and plan.data.prefetch and highest <= float(totals["time.data"]):
        return 0.0
    high = (highest - (0 if plan.data.prefetch else wait)) / (float(totals["time.step"]) - wait) - 1
    return sqrt(max(0.0, high**2 - (STEP[evidence_on_stack(plan)].high - 1) ** 2))


# --- intervals ---

MEASURED, ELSEWHERE, UNKNOWN = "measured", "elsewhere", "unknown"  # what is known of a plan's software


@dataclass(frozen=True)
class Interval:
    """Ends of measured over predicted figures between which 80 of 100 published runs lie."""

    low: float
    high: float


# By what was known before a source was: runs of the stack on the device, on other devices, none (`make coverage`).
STEP: Mapping[str, Interval] = {
    MEASURED: Interval(0.91, 1.33),
    ELSEWHERE: Interval(0.91, 1.33),
    UNKNOWN: Interval(0.91, 1.33),
}
MEMORY: Mapping[str, Interval] = {
    MEASURED: Interval(0.92, 1.18),
    ELSEWHERE: Interval(0.92, 1.18),
    UNKNOWN: Interval(0.92, 1.20),
}


def evidence_on_stack(plan: Plan) -> str:
    """What is known of a plan's software: its stack was scored on this device, on others, or never."""
    scored = plan.stack.scored_on
    return MEASURED if plan.accelerator.name in scored else ELSEWHERE if scored else UNKNOWN
