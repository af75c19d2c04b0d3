"""One role's passes in seconds: kernels end to end, and transfers hidden where the stack's rules let them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.arithmetic.values import Amount, largest_of, maximum, minimum, share
from ledger.books.entries import MICRO_BATCH, STEP
from ledger.books.launch_overhead import checks_once, launches
from ledger.books.overlap import cargo, gradients_hide, hidden, moves
from ledger.books.overlap import tax as slowed
from ledger.books.results import KernelTime
from ledger.model.causes import HostTransfer, Purpose
from ledger.model.fsdp_units import ROOT
from ledger.model.offloading import DOWN, OF_ACTIVATIONS, OF_GRADIENTS, UP, sums_on_host
from ledger.model.pipelines import Pace
from ledger.model.schedule import Role, micro_batches
from ledger.spec.axes import INNERMOST_FIRST
from ledger.spec.plan import Plan

HOST, PIPELINE = "host", "pipeline"  # cargo that no unit moves while it runs
KINDS = tuple(axis for axis in INNERMOST_FIRST if axis != PIPELINE)  # what moves while a unit runs
PASSES = {"forward": ("forward",), "backward": ("recompute", "backward")}


@dataclass(frozen=True)
class UnitPass:
    """One unit in one pass of one micro-batch: device seconds, what launching costs more, transfers by their fate.

    `shown` are seconds of transfers that nothing hides, `hidden` those of weights, gradients and tokens beside it,
    `tax` the compute lost there, `weights` the part of `device` that gradients of weights take.
    """

    device: Amount
    launch: Amount
    shown: Mapping[str, Amount]
    tax: Amount
    weights: Amount = 0.0
    hidden: Amount = 0.0

    @property
    def seconds(self) -> Amount:
        """What the pass of this unit takes."""
        return self.device + self.launch + sum(self.shown.values()) + self.tax


@dataclass(frozen=True)
class StageTime:
    """One role's micro-batch and step: `passes` by pass and unit, `once` what a step adds, by kind.

    `count` is the micro-batches of a step; `launch` what hosts need beyond that for transfers once a step.
    """

    role: Role
    count: Amount
    kernels: tuple[KernelTime, ...]
    passes: Mapping[tuple[str, str], UnitPass]
    sends: Amount
    optimizer: Amount
    once: Mapping[str, Amount]
    launch: Amount = 0.0

    @property
    def micro_batch(self) -> Amount:
        """Seconds of one micro-batch, both passes."""
        return sum(unit_pass.seconds for unit_pass in self.passes.values()) + self.sends

    def pass_seconds(self, wanted: str) -> Amount:
        """Seconds of one micro-batch's forward or backward pass, sends aside."""
        return sum(unit_pass.seconds for (name, _), unit_pass in self.passes.items() if name == wanted)

    @property
    def pace(self) -> Pace:
        """A micro-batch as a schedule orders it: forward, gradients of inputs and what is rebuilt, those of weights."""
        forward = self.pass_seconds("forward")
        weights = sum(unit_pass.weights for unit_pass in self.passes.values())
        forward += self.sends / 2
        return Pace(forward, self.micro_batch - forward - weights, weights)

    @property
    def exposed(self) -> Mapping[str, Amount]:
        """The share of its transfers' seconds that the step waits for, by what moves."""
        everything: dict[str, Amount] = defaultdict(float)
        for row in self.kernels:
            if moves(row):
                everything[cargo(row)] += row.seconds * row.times
        shown: dict[str, Amount] = defaultdict(float, self.once)
        shown["pipeline"] += self.count * self.sends
        for unit_pass in self.passes.values():
            for kind, seconds in unit_pass.shown.items():
                shown[kind] += self.count * seconds
        return {kind: minimum(1.0, share(shown[kind], seconds)) for kind, seconds in everything.items()}


def stage_time(role: Role, rows: Sequence[KernelTime], plan: Plan) -> StageTime:
    """Prices of one role put in order: what hides behind what is the stack's rule, transfer by transfer."""
    recurring = [row for row in rows if row.per == MICRO_BATCH and cargo(row) != PIPELINE]
    passes = {
        (name, unit): _unit_pass(
            name, unit, [row for row in recurring if row.cause.unit == unit and row.when in phases], plan
        )
        for name, phases in PASSES.items()
        for unit in dict.fromkeys(row.cause.unit for row in recurring if row.when in phases)
    }
    send = largest_of(row.seconds for row in rows if cargo(row) == PIPELINE)
    waits = 0.0 if plan.stack.overlap.pipeline == "compute" else 2 * max(role.sends, role.returns) * send
    optimizer = sum(row.seconds * row.times for row in rows if row.when == "optimizer" and not moves(row))
    once, left = _once(rows, passes, plan)
    late = checks_once(rows, left, plan)
    return StageTime(role, micro_batches(plan), tuple(rows), passes, waits, optimizer, once, late)


def _unit_pass(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> UnitPass:
    """One unit's pass of one micro-batch."""
    count = micro_batches(plan)

    def seconds(chosen: Iterable[KernelTime]) -> Amount:
        return sum(row.seconds * row.times for row in chosen) / count

    compute = [row for row in rows if not moves(row)]
    device = seconds(compute)
    shown = {kind: seconds(row for row in rows if moves(row) and cargo(row) == kind) for kind in KINDS}
    behind = 0.0
    for kind, sheltered in hidden(name, rows, plan):
        shown[kind] -= sheltered / count
        behind += sheltered / count
    open_ones = sum(seconds for kind, seconds in shown.items() if kind != "data")  # a host launches meanwhile
    ahead = 0.0 if plan.accelerator.kind == "cpu" else device + open_ones  # a CPU launches nothing while it computes
    launch = maximum(0.0, launches(name, unit, rows, plan) / count - ahead)
    taken = device + launch  # what transfers of weights and gradients may hide behind
    hides = weights_hide(name, plan) and unit != ROOT
    behind_unit = minimum(shown["data"], maximum(0.0, taken - behind)) if hides else 0.0
    shown["data"] -= behind_unit
    copied = [row for row in rows if moves(row) and cargo(row) == HOST]
    if unit == ROOT or plan.stack.overlap.host == "none":
        shown[HOST] = seconds(copied)
    else:
        waited = [row for row in copied if sums_on_host(plan) and row.kind == HostTransfer(OF_GRADIENTS, DOWN)]
        beside = [row for row in copied if row not in waited]
        shown[HOST] = seconds(waited) + _beside(beside, seconds, taken, taken - behind_unit)
    tax = slowed(plan) * (behind + behind_unit)
    weights = seconds(row for row in compute if row.cause.purpose is Purpose.WEIGHT_GRADIENT)
    return UnitPass(device, launch, shown, tax, weights, behind + behind_unit)


def _beside(
    copied: Sequence[KernelTime], seconds: Callable[[Iterable[KernelTime]], Amount], room: Amount, left: Amount
) -> Amount:
    """Of a unit's copies, what its kernels do not hide: each direction of the link works by itself.

    A copy that feeds or follows a transfer between devices (of weights, of gradients) has what that one leaves.
    """
    waits = [0.0]
    for way in (DOWN, UP):
        mine = [row for row in copied if isinstance(row.kind, HostTransfer) and row.kind.direction == way]
        chained = [row for row in mine if row.kind != HostTransfer(OF_ACTIVATIONS, way)]
        waits += [seconds(mine) - room, seconds(chained) - left]
    return maximum(*waits)


def weights_hide(name: str, plan: Plan) -> bool:
    """Whether transfers of weights and gradients may run beside the compute of a pass."""
    rule = plan.stack.overlap
    return rule.gather == "layer" if name == "forward" else rule.gather != "none" and gradients_hide(plan)


def _once(
    rows: Sequence[KernelTime], passes: Mapping[tuple[str, str], UnitPass], plan: Plan
) -> tuple[dict[str, Amount], Amount]:
    """Transfers once a step that nothing hides: gradients after the last backward, weights before the next forward.

    With them what is left of the last backward, for others to hide behind.
    """
    taken, free = _taken(passes), _free(passes)
    moved = [row for row in rows if moves(row) and row.per == STEP and cargo(row) != HOST]
    late = [row for row in moved if row.when != "optimizer"]
    reduced = gradients = sum(row.seconds * row.times for row in late)
    weights = sum(row.seconds * row.times for row in moved if row.when == "optimizer")
    if gradients_hide(plan):  # the last unit's gradients have nothing left to hide behind
        gradients = maximum(largest_of(row.seconds for row in late), reduced - free["backward"])
    if plan.stack.overlap.gather == "layer":
        weights = maximum(0.0, weights - free["forward"])
    copied = [row for row in rows if moves(row) and row.per == STEP and cargo(row) == HOST]
    host = _host(copied, bool(late), taken["backward"], plan)
    return {"data": gradients + weights, HOST: host}, maximum(0.0, free["backward"] - (reduced - gradients))


def _taken(passes: Mapping[tuple[str, str], UnitPass]) -> dict[str, Amount]:
    """What one micro-batch takes in each pass, transfers aside."""
    return {name: sum(one.device + one.launch for (p, _), one in passes.items() if p == name) for name in PASSES}


def _free(passes: Mapping[tuple[str, str], UnitPass]) -> dict[str, Amount]:
    """What of it nothing else is hidden behind: a link moves one thing at a time."""
    used = {name: sum(one.hidden for (p, _), one in passes.items() if p == name) for name in PASSES}
    return {name: maximum(0.0, taken - used[name]) for name, taken in _taken(passes).items()}


def _host(rows: Sequence[KernelTime], summed_late: bool, backward: Amount, plan: Plan) -> Amount:
    """Copies to the host and back that nothing hides; a gradient leaves when it is summed over data."""
    down = [row for row in rows if row.when != "optimizer"]
    up = sum(row.seconds * row.times for row in rows if row.when == "optimizer")
    gradients = sum(row.seconds * row.times for row in down)
    rule = plan.stack.overlap
    if rule.host == "compute" and (gradients_hide(plan) or not summed_late):
        gradients = maximum(largest_of(row.seconds for row in down), gradients - backward)
    return gradients + up


def with_exposure(time: StageTime) -> tuple[KernelTime, ...]:
    """The rows, transfers with the seconds of each that nothing hides (spread evenly over those of one cargo)."""
    exposed = time.exposed
    return tuple(
        replace(row, exposed=row.seconds * exposed[cargo(row)]) if moves(row) and row.seconds else row
        for row in time.kernels
    )
