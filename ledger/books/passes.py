"""One role's passes in seconds: kernels end to end, and transfers hidden where the stack's rules let them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

from ledger.arithmetic.values import Amount, largest_of, maximum, minimum, share, where
from ledger.books.entries import MICRO_BATCH, STEP
from ledger.books.launch_overhead import checks_once, launches
from ledger.books.overlap import cargo, computes, gradients_hide, hidden, moves, on_host, spent
from ledger.books.overlap import tax as slowed
from ledger.books.results import KernelTime
from ledger.books.step_sums import LATE, RECURRING, StepSums, among, step_sums
from ledger.model.causes import HostTransfer, Purpose
from ledger.model.fsdp_units import ROOT
from ledger.model.offloading import DOWN, OF_ACTIVATIONS, OF_GRADIENTS, UP, sums_on_host
from ledger.model.pipelines import Pace
from ledger.model.schedule import Role, micro_batches
from ledger.spec.axes import INNERMOST_FIRST
from ledger.spec.plan import Plan
from ledger.spec.stages import depth

HOST, PIPELINE = "host", "pipeline"  # cargo that no unit moves while it runs
HOST_SUM = "host_sum"  # gradients that the host adds up, which the step waits for
KINDS = tuple(axis for axis in INNERMOST_FIRST if axis != PIPELINE)  # what moves while a unit runs
PASSES = {"forward": ("forward",), "backward": ("recompute", "backward")}


@dataclass(frozen=True)
class UnitWork:
    """What one unit does in one pass of one micro-batch, before weights and gradients hide: sums, which add up.

    `device` are seconds of kernels, `hosts` those that the host needs to launch them; `shown` those of transfers by
    kind that no kernel of the unit hides, and `behind` those that one does. `copies`: down and up, all of a unit's
    copies and those chained to a transfer between devices; `waited` those that nothing hides. `weights` is the part of
    `device` that gradients of weights take, `summed` what the host needs to add gradients up.
    """

    device: Amount = 0.0
    hosts: Amount = 0.0
    shown: Mapping[str, Amount] = field(default_factory=dict)
    behind: Amount = 0.0
    copies: Mapping[str, tuple[Amount, Amount]] = field(default_factory=dict)
    waited: Amount = 0.0
    weights: Amount = 0.0
    summed: Amount = 0.0


@dataclass(frozen=True)
class UnitPass:
    """One unit in one pass of one micro-batch: device seconds, what launching costs more, transfers by their fate.

    `shown` are seconds of transfers that nothing hides, `hidden` those of weights, gradients and tokens beside it,
    `tax` the compute lost there, `weights` the part of `device` that gradients of weights take, `copied` the part of
    `shown` that copies to the host and back take.
    """

    device: Amount
    launch: Amount
    shown: Mapping[str, Amount]
    tax: Amount
    weights: Amount = 0.0
    hidden: Amount = 0.0
    copied: Amount = 0.0

    @property
    def seconds(self) -> Amount:
        """What the pass of this unit takes."""
        return self.device + self.launch + sum(self.shown.values()) + self.tax


PASS_SECONDS = tuple(one.name for one in fields(UnitPass) if one.name != "shown")


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
    def stages(self) -> Amount:
        """Devices of a pipeline that play the role."""
        return len(self.role.stages)

    @property
    def computed(self) -> Mapping[str, Amount]:
        """Seconds of kernels in a step, the update aside, by phase."""
        found: dict[str, Amount] = defaultdict(float)
        for row in self.kernels:
            if computes(row) and row.when != "optimizer":
                found[row.when] += row.seconds * row.times
        return found

    @cached_property
    def sums(self) -> StepSums:
        """What its kernels and transfers add up to in a step, the update's among them."""
        return step_sums(self.kernels)

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
        for name in (RECURRING, LATE):
            for (moved,), seconds in among(self.sums, name).items():
                everything[moved] = everything[moved] + seconds
        shown: dict[str, Amount] = defaultdict(float, self.once)
        shown["pipeline"] = shown["pipeline"] + self.count * self.sends
        for unit_pass in self.passes.values():
            for kind, seconds in unit_pass.shown.items():  # not in place: of a search they are arrays of others
                shown[kind] = shown[kind] + self.count * seconds
        return {kind: minimum(1.0, share(shown[kind], seconds)) for kind, seconds in everything.items()}


@dataclass(frozen=True)
class StepWork:
    """What a role does once a step beside its update: seconds of transfers, and the longest of those that may hide.

    `reduced` are gradients after backward, `gathered` weights after the update, `down` and `up` copies to the host and
    back, `update` the host's work in its own memory. `late`: whether any gradients are reduced once a step.
    """

    reduced: Amount = 0.0
    longest: Amount = 0.0
    gathered: Amount = 0.0
    down: Amount = 0.0
    longest_down: Amount = 0.0
    up: Amount = 0.0
    update: Amount = 0.0
    late: Amount = False


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
    work = step_work(rows)
    optimizer = spent(row for row in rows if row.when == "optimizer" and computes(row))
    optimizer += update_waits(work, passes, plan)
    once, left = transfers_once(work, passes, plan)
    late = checks_once(rows, left, plan)
    waits = send_waits(role, largest_of(row.seconds for row in rows if cargo(row) == PIPELINE), plan)
    return StageTime(role, micro_batches(plan), tuple(rows), passes, waits, optimizer, once, late)


def send_waits(role: Role, send: Amount, plan: Plan) -> Amount:
    """Seconds of a micro-batch in which a device waits for what it sends and receives; `send`: the longest of each."""
    return 0.0 if plan.stack.overlap.pipeline == "compute" else 2 * maximum(role.sends, role.returns) * send


def _unit_pass(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> UnitPass:
    """One unit's pass of one micro-batch."""
    return unit_pass(name, unit, unit_work(name, unit, rows, plan), plan)


def unit_work(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> UnitWork:
    """What a unit's kernels and transfers take in one pass of one micro-batch."""
    count = micro_batches(plan)

    def seconds(chosen: Iterable[KernelTime]) -> Amount:
        return sum(row.seconds * row.times for row in chosen) / count

    compute = [row for row in rows if computes(row)]
    shown = {kind: seconds(row for row in rows if moves(row) and cargo(row) == kind) for kind in KINDS}
    behind = 0.0
    for kind, sheltered in hidden(name, rows, plan):
        shown[kind] -= sheltered / count
        behind += sheltered / count
    copied = [row for row in rows if moves(row) and cargo(row) == HOST]
    alone = unit == ROOT or plan.stack.overlap.host == "none"
    waited = [row for row in copied if alone or _added_on_host(row, plan)]
    beside = [row for row in copied if row not in waited]
    return UnitWork(
        device=seconds(compute),
        hosts=launches(name, unit, rows, plan) / count,
        shown=shown,
        behind=behind,
        copies={way: (seconds(mine), seconds(_chained(mine))) for way, mine in _by_way(beside)},
        waited=seconds(waited),
        weights=seconds(row for row in compute if row.cause.purpose is Purpose.WEIGHT_GRADIENT),
        summed=seconds(row for row in rows if on_host(row)),
    )


def unit_pass(name: str, unit: str, work: UnitWork, plan: Plan) -> UnitPass:
    """A unit's work put in order: weights and gradients, and copies to the host, hide behind what it takes."""
    shown = dict(work.shown)
    open_ones = sum(seconds for kind, seconds in shown.items() if kind != "data")  # a host launches meanwhile
    waits = plan.accelerator.kind == "cpu" or plan.stack.blocking  # nothing is launched meanwhile
    ahead = 0.0 if waits else work.device + open_ones
    launch = maximum(0.0, work.hosts - ahead)
    taken = work.device + launch  # what transfers of weights and gradients may hide behind
    hides = weights_hide(name, plan) and unit != ROOT
    behind_unit = minimum(_reach(plan) * shown["data"], maximum(0.0, taken - work.behind)) if hides else 0.0
    shown["data"] -= behind_unit
    room = taken + open_ones  # copies move over a link of their own while the device waits for others
    shown[HOST] = work.waited + _beside(work.copies, room + shown["data"], room - behind_unit)
    shown[HOST_SUM] = work.summed
    tax = slowed(plan) * (work.behind + behind_unit)
    return UnitPass(work.device, launch, shown, tax, work.weights, work.behind + behind_unit, shown[HOST])


def _added_on_host(row: KernelTime, plan: Plan) -> bool:
    """Whether a copy is of a gradient that is added to another one on the host, so that it is waited for."""
    return sums_on_host(plan) and row.kind == HostTransfer(OF_GRADIENTS, DOWN)


def _by_way(copied: Sequence[KernelTime]) -> Iterator[tuple[str, list[KernelTime]]]:
    """Copies by their direction, if there are any: each direction of the link works by itself."""
    for way in (DOWN, UP):
        found = [row for row in copied if isinstance(row.kind, HostTransfer) and row.kind.direction == way]
        if found:
            yield way, found


def _chained(copied: Sequence[KernelTime]) -> Iterator[KernelTime]:
    """Copies that feed or follow a transfer between devices: those of weights and of gradients."""
    return (row for row in copied if isinstance(row.kind, HostTransfer) and row.kind.of != OF_ACTIVATIONS)


def _beside(copies: Mapping[str, tuple[Amount, Amount]], room: Amount, left: Amount) -> Amount:
    """Of a unit's copies, what its kernels do not hide; one that is chained to a transfer has what that one leaves."""
    waits: list[Amount] = []
    for mine, chained in copies.values():
        waits += [mine - room, chained - left]
    return maximum(0.0, *waits) if waits else 0.0


def weights_hide(name: str, plan: Plan) -> bool:
    """Whether transfers of weights and gradients may run beside the compute of a pass."""
    rule = plan.stack.overlap
    return rule.gather == "layer" if name == "forward" else rule.gather != "none" and gradients_hide(plan)


def _reach(plan: Plan) -> Amount:
    """The share of weights and gradients that may hide where sets of layers move as one.

    No set runs while the first is gathered, or its gradients are reduced: all of it but one layer, which what comes
    before and after the layers hides as it does where each moves alone.
    """
    together = maximum(1, plan.parallelism.wrap)
    return 1 - (together - 1) * plan.parallelism.pipeline / maximum(1, depth(plan.model))


def step_work(rows: Sequence[KernelTime]) -> StepWork:
    """What the transfers of a role take that run once a step."""
    once = [row for row in rows if moves(row) and row.per == STEP]
    moved, copied = [r for r in once if cargo(r) != HOST], [r for r in once if cargo(r) == HOST]
    late, down = ([row for row in each if row.when != "optimizer"] for each in (moved, copied))
    return StepWork(
        reduced=spent(late),
        longest=largest_of(row.seconds for row in late),
        gathered=spent(row for row in moved if row.when == "optimizer"),
        down=spent(down),
        longest_down=largest_of(row.seconds for row in down),
        up=spent(row for row in copied if row.when == "optimizer"),
        update=spent(row for row in rows if on_host(row) and row.per == STEP),
        late=bool(late),
    )


def update_waits(work: StepWork, passes: Mapping[tuple[str, str], UnitPass], plan: Plan) -> Amount:
    """What of the host's update the step waits for: all of it, or what the last backward does not hide."""
    if plan.stack.overlap.update == "none":
        return work.update
    return maximum(0.0, work.update - _taken(passes)["backward"])


def transfers_once(
    work: StepWork, passes: Mapping[tuple[str, str], UnitPass], plan: Plan
) -> tuple[dict[str, Amount], Amount]:
    """Transfers once a step that nothing hides: gradients after the last backward, weights before the next forward.

    With them what is left of the last backward, for others to hide behind.
    """
    taken, free = _taken(passes), _free(passes)
    gradients, weights = work.reduced, work.gathered
    if gradients_hide(plan):  # the last unit's gradients have nothing left to hide behind
        gradients = maximum(work.longest, work.reduced - free["backward"])
    if plan.stack.overlap.gather == "layer":
        weights = maximum(0.0, weights - free["forward"])
    host = _host(work, taken["backward"], plan)
    return {"data": gradients + weights, HOST: host}, maximum(0.0, free["backward"] - (work.reduced - gradients))


def _taken(passes: Mapping[tuple[str, str], UnitPass]) -> dict[str, Amount]:
    """What one micro-batch takes in each pass, transfers aside."""
    return {name: sum(one.device + one.launch for (p, _), one in passes.items() if p == name) for name in PASSES}


def _free(passes: Mapping[tuple[str, str], UnitPass]) -> dict[str, Amount]:
    """What of it nothing else is hidden behind: a link moves one thing at a time."""
    used = {name: sum(one.hidden for (p, _), one in passes.items() if p == name) for name in PASSES}
    waited = {name: sum(one.copied for (p, _), one in passes.items() if p == name) for name in PASSES}
    return {name: maximum(0.0, taken + waited[name] - used[name]) for name, taken in _taken(passes).items()}


def _host(work: StepWork, backward: Amount, plan: Plan) -> Amount:
    """Copies to the host and back that nothing hides; a gradient leaves when it is summed over data."""
    if plan.stack.overlap.host != "compute":
        return work.down + work.up
    behind = maximum(work.longest_down, work.down - backward)
    return (behind if gradients_hide(plan) else where(work.late, work.down, behind)) + work.up


def with_exposure(time: StageTime) -> tuple[KernelTime, ...]:
    """The rows, transfers with the seconds of each that nothing hides (spread evenly over those of one cargo)."""
    exposed = time.exposed
    return tuple(
        replace(row, exposed=row.seconds * exposed[cargo(row)]) if moves(row) and row.seconds else row
        for row in time.kernels
    )
