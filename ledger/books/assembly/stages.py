"""One stage's step in seconds: kernels end to end, and transfers hidden where the stack's rules let them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.arithmetic.values import Amount, maximum, minimum, share, where
from ledger.books.assembly.work import HOST, PASSES, PassOf, StageWork, StepWork, UnitWork
from ledger.books.overlap import compared_once, gradients_hide, is_transfer, slowdown, transfer_kind
from ledger.books.results import KernelTime
from ledger.books.step_sums import LATE, RECURRING, StepSums, among
from ledger.model.causes import ROOT
from ledger.model.schedule import Pace, Role, micro_batches
from ledger.spec.plan import Plan
from ledger.spec.stages import depth

HOST_SUM = "host_sum"  # gradients that the host adds up, which the step waits for


@dataclass(frozen=True)
class UnitPass:
    """One unit in one pass of one micro-batch: device seconds, what launching costs more, transfers by their fate.

    `exposed`: seconds of transfers that nothing hides, of which `copied` go to the host and back; `overlapped`: those
    of weights, gradients and tokens beside it; `slowdown`: the compute lost there. Of `device`, `rebuilt` recompute and
    `weight_gradients` give gradients of weights.
    """

    device: Amount
    launch: Amount
    exposed: Mapping[str, Amount]
    slowdown: Amount
    rebuilt: Amount = 0.0
    weight_gradients: Amount = 0.0
    overlapped: Amount = 0.0
    copied: Amount = 0.0

    @property
    def seconds(self) -> Amount:
        """What the pass of this unit takes."""
        return self.device + self.launch + sum(self.exposed.values()) + self.slowdown


@dataclass(frozen=True)
class StageTime:
    """One stage's micro-batch and step: `passes` by pass and unit, `once` what a step adds, by kind of transfer.

    `count` is the micro-batches of a step; `launch` what hosts need beyond that for transfers once a step; `computed`
    seconds of kernels in a step by phase, the update aside; `sums` what all of its kernels and transfers add up to.
    """

    role: Role
    count: Amount
    passes: Mapping[PassOf, UnitPass]
    sends: Amount
    optimizer: Amount
    once: Mapping[str, Amount]
    launch: Amount
    computed: Mapping[str, Amount]
    sums: StepSums

    @property
    def stages(self) -> int:
        """Devices of a pipeline that play the role."""
        return len(self.role.stages)

    @property
    def micro_batch(self) -> Amount:
        """Seconds of one micro-batch, both passes."""
        return sum(unit_pass.seconds for unit_pass in self.passes.values()) + self.sends

    def pass_seconds(self, pass_name: str) -> Amount:
        """Seconds of one micro-batch's forward or backward pass, sends aside."""
        return sum(unit_pass.seconds for (name, _), unit_pass in self.passes.items() if name == pass_name)

    @property
    def pace(self) -> Pace:
        """A micro-batch as a schedule orders it: forward, gradients of inputs and what is rebuilt, those of weights."""
        forward = self.pass_seconds("forward") + self.sends / 2
        weights = sum(unit_pass.weight_gradients for unit_pass in self.passes.values())
        return Pace(forward, self.micro_batch - forward - weights, weights)

    @property
    def exposed_shares(self) -> Mapping[str, Amount]:
        """The share of its transfers' seconds that the step waits for, by what moves."""
        seconds_by_kind: dict[str, Amount] = defaultdict(float)
        for name in (RECURRING, LATE):
            for (moved,), seconds in among(self.sums, name).items():
                seconds_by_kind[moved] = seconds_by_kind[moved] + seconds
        exposed: dict[str, Amount] = defaultdict(float, self.once)
        exposed["pipeline"] = exposed["pipeline"] + self.count * self.sends
        for unit_pass in self.passes.values():
            for kind, seconds in unit_pass.exposed.items():  # not in place: these may be arrays of others
                exposed[kind] = exposed[kind] + self.count * seconds
        return {kind: minimum(1.0, share(exposed[kind], seconds)) for kind, seconds in seconds_by_kind.items()}


def stage_time(role: Role, work: StageWork, plan: Plan) -> StageTime:
    """The work of a stage put in order: what hides behind what is the stack's rule, transfer by transfer."""
    count, once = micro_batches(plan), work.once
    passes = {(name, unit): unit_pass(name, unit, unit_work, plan) for (name, unit), unit_work in work.passes(plan)}
    transfers, unused = transfers_once(once, passes, plan)
    return StageTime(
        role=role,
        count=count,
        passes=passes,
        sends=send_seconds(role, work.send, plan),
        optimizer=once.update + update_waits(once, passes, plan),
        once=transfers,
        launch=compared_once(once.compared, unused, plan),
        computed=_computed_seconds(passes, count, once),
        sums=work.sums,
    )


def _computed_seconds(passes: Mapping[PassOf, UnitPass], count: Amount, once: StepWork) -> dict[str, Amount]:
    """Seconds of kernels in a step, the update aside, by phase."""
    forward, backward = (sum(run.device for (name, _), run in passes.items() if name == phase) for phase in PASSES)
    rebuilt = sum(run.rebuilt for run in passes.values())
    recurring = {"forward": forward, "recompute": rebuilt, "backward": backward - rebuilt}
    return {name: count * seconds + once.computed.get(name, 0.0) for name, seconds in recurring.items()}


def send_seconds(role: Role, send: Amount, plan: Plan) -> Amount:
    """Seconds of a micro-batch in which a device waits for what it sends and receives; `send`: the longest of each."""
    return 0.0 if plan.stack.overlap.pipeline == "compute" else 2 * maximum(role.sends, role.returns) * send


def unit_pass(name: str, unit: str, work: UnitWork, plan: Plan) -> UnitPass:
    """A unit's work put in order: weights and gradients, and copies to the host, hide behind what it takes."""
    exposed = dict(work.exposed)
    other_transfers = sum(seconds for kind, seconds in exposed.items() if kind != "data")  # a host launches meanwhile
    blocked = plan.accelerator.kind == "cpu" or plan.stack.blocking  # nothing is launched meanwhile
    launch = maximum(0.0, work.host_seconds - (0.0 if blocked else work.device + other_transfers))
    busy = work.device + launch  # what transfers of weights and gradients may hide behind
    hides = weights_hide(name, plan) and unit != ROOT
    hidden = minimum(_hidden_share(plan) * exposed["data"], maximum(0.0, busy - work.overlapped)) if hides else 0.0
    exposed["data"] = exposed["data"] - hidden
    room = busy + other_transfers  # copies move over a link of their own while the device waits for others
    exposed[HOST] = work.blocking + _exposed_copies(work, room + exposed["data"], room - hidden)
    exposed[HOST_SUM] = work.host_sums
    overlapped = work.overlapped + hidden
    return UnitPass(
        device=work.device,
        launch=launch,
        exposed=exposed,
        slowdown=slowdown(plan) * overlapped,
        rebuilt=work.rebuilt,
        weight_gradients=work.weight_gradients,
        overlapped=overlapped,
        copied=exposed[HOST],
    )


def _exposed_copies(work: UnitWork, room: Amount, room_beside_chained: Amount) -> Amount:
    """Of a unit's copies, what its kernels do not hide; one that is chained to a transfer has what that one leaves."""
    waits: list[Amount] = []
    for seconds, chained in work.copies.values():
        waits += [seconds - room, chained - room_beside_chained]
    return maximum(0.0, *waits) if waits else 0.0


def weights_hide(name: str, plan: Plan) -> bool:
    """Whether transfers of weights and gradients may run beside the compute of a pass."""
    rule = plan.stack.overlap
    return rule.gather == "layer" if name == "forward" else rule.gather != "none" and gradients_hide(plan)


def _hidden_share(plan: Plan) -> Amount:
    """The share of weights and gradients that may hide where sets of layers move as one.

    No set runs while the first is gathered, or its gradients are reduced: all of it but one layer, which what comes
    before and after the layers hides as it does where each moves alone.
    """
    together = maximum(1, plan.parallelism.wrap)
    return 1 - (together - 1) * plan.parallelism.pipeline / maximum(1, depth(plan.model))


def update_waits(work: StepWork, passes: Mapping[PassOf, UnitPass], plan: Plan) -> Amount:
    """Seconds of the host's update that the step waits for: all, or what the last backward does not hide."""
    if plan.stack.overlap.update == "none":
        return work.host_update
    return maximum(0.0, work.host_update - _busy_seconds(passes)["backward"])


def transfers_once(work: StepWork, passes: Mapping[PassOf, UnitPass], plan: Plan) -> tuple[dict[str, Amount], Amount]:
    """Transfers once a step that nothing hides: gradients after the last backward, weights before the next forward.

    The second result: the seconds of the last backward that still hide nothing.
    """
    busy, free = _busy_seconds(passes), _unused_seconds(passes)
    gradients, weights = work.reduced, work.gathered
    if gradients_hide(plan):  # the last unit's gradients have nothing left to hide behind
        gradients = maximum(work.longest, work.reduced - free["backward"])
    if plan.stack.overlap.gather == "layer":
        weights = maximum(0.0, weights - free["forward"])
    host = _exposed_host_copies(work, busy["backward"], plan)
    return {"data": gradients + weights, HOST: host}, maximum(0.0, free["backward"] - (work.reduced - gradients))


def _busy_seconds(passes: Mapping[PassOf, UnitPass]) -> dict[str, Amount]:
    """Seconds of one micro-batch in each pass, transfers aside."""
    return {name: sum(run.device + run.launch for (key, _), run in passes.items() if key == name) for name in PASSES}


def _unused_seconds(passes: Mapping[PassOf, UnitPass]) -> dict[str, Amount]:
    """Seconds of one micro-batch in each pass that hide no transfer yet: a link moves one thing at a time."""
    overlapped = {name: sum(run.overlapped for (key, _), run in passes.items() if key == name) for name in PASSES}
    copied = {name: sum(run.copied for (key, _), run in passes.items() if key == name) for name in PASSES}
    return {name: maximum(0.0, busy + copied[name] - overlapped[name]) for name, busy in _busy_seconds(passes).items()}


def _exposed_host_copies(work: StepWork, backward: Amount, plan: Plan) -> Amount:
    """Copies to the host and back that nothing hides; a gradient leaves when it is summed over data."""
    if plan.stack.overlap.host != "compute":
        return work.down + work.up
    exposed = maximum(work.longest_down, work.down - backward)
    return (exposed if gradients_hide(plan) else where(work.late > 0, work.down, exposed)) + work.up


def with_exposure(rows: Sequence[KernelTime], time: StageTime) -> tuple[KernelTime, ...]:
    """The rows of a stage, transfers with the seconds that nothing hides (spread evenly over those of one kind)."""
    exposed = time.exposed_shares
    return tuple(
        replace(row, exposed=row.seconds * exposed[transfer_kind(row)]) if is_transfer(row) and row.seconds else row
        for row in rows
    )
