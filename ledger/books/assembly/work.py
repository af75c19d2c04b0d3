"""What a stage does in a step, in seconds, before anything is put in order: sums, which add up over units.

A unit (a layer of a group, an end of the model) computes and sends the same however its weights are shared. What
sharing them takes is a fact of the stage, since buckets and queues go across its layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ledger.arithmetic.values import Amount, largest_of, maximum, minimum
from ledger.books.entries import MICRO_BATCH, STEP
from ledger.books.overlap import (
    Comparisons,
    comparisons,
    computes,
    host_calls,
    is_transfer,
    kinds_behind_any_kernel,
    launches,
    on_host,
    overlapped_seconds,
    total_seconds,
    transfer_kind,
)
from ledger.books.results import KernelTime
from ledger.books.step_sums import StepSums, step_sums
from ledger.model.causes import ROOT, HostTransfer, Purpose
from ledger.model.offloading import DOWN, OF_ACTIVATIONS, OF_GRADIENTS, UP, sums_on_host
from ledger.model.schedule import micro_batches
from ledger.spec.parallelism import INNERMOST_FIRST
from ledger.spec.plan import Plan

HOST, PIPELINE = "host", "pipeline"  # what moves while no unit runs
TRANSFERS = tuple(axis for axis in INNERMOST_FIRST if axis != PIPELINE)  # what moves while a unit runs
PASSES = {"forward": ("forward",), "backward": ("recompute", "backward")}
PassOf = tuple[str, str]  # forward or backward, and the unit
Copies = Mapping[str, tuple[Amount, Amount]]


@dataclass(frozen=True)
class UnitWork:
    """What a unit does in one pass of one micro-batch, before weights and gradients hide.

    `device`: seconds of kernels, of which `rebuilt` recompute and `weight_gradients` give gradients of weights.
    `host_seconds`: seconds that the host needs to launch them, `host_sums` those in which it adds gradients up.
    `exposed`: seconds of transfers by kind that no kernel of the unit hides, `overlapped` those that one does.
    `copies`: by direction of the link to the host, all copies and those chained to a transfer between devices;
    `blocking`: copies that nothing hides.
    """

    device: Amount = 0.0
    rebuilt: Amount = 0.0
    weight_gradients: Amount = 0.0
    host_seconds: Amount = 0.0
    host_sums: Amount = 0.0
    exposed: Mapping[str, Amount] = field(default_factory=lambda: dict.fromkeys(TRANSFERS, 0.0))
    overlapped: Amount = 0.0
    copies: Copies = field(default_factory=dict)
    blocking: Amount = 0.0

    def times(self, count: Amount) -> UnitWork:
        """The work of so many units like this one, one after the other."""
        return UnitWork(
            self.device * count,
            self.rebuilt * count,
            self.weight_gradients * count,
            self.host_seconds * count,
            self.host_sums * count,
            {kind: seconds * count for kind, seconds in self.exposed.items()},
            self.overlapped * count,
            {direction: (seconds * count, chained * count) for direction, (seconds, chained) in self.copies.items()},
            self.blocking * count,
        )

    def plus(self, other: UnitWork) -> UnitWork:
        """The work of two units, one after the other."""
        return UnitWork(
            self.device + other.device,
            self.rebuilt + other.rebuilt,
            self.weight_gradients + other.weight_gradients,
            self.host_seconds + other.host_seconds,
            self.host_sums + other.host_sums,
            {kind: self.exposed[kind] + other.exposed[kind] for kind in TRANSFERS},
            self.overlapped + other.overlapped,
            {
                direction: _copies_sum(self.copies, other.copies, direction)
                for direction in {**self.copies, **other.copies}
            },
            self.blocking + other.blocking,
        )


def _copies_sum(copies: Copies, further: Copies, direction: str) -> tuple[Amount, Amount]:
    first, second = copies.get(direction, (0.0, 0.0)), further.get(direction, (0.0, 0.0))
    return first[0] + second[0], first[1] + second[1]


@dataclass(frozen=True)
class StepWork:
    """What a stage does once a step: transfers in seconds, the longest of those that may hide, and kernels.

    `reduced`: gradients after backward, `gathered`: weights after the update, `down` and `up`: copies to the host and
    back, `host_update`: the host's work in its own memory. `late`: 0 where no gradients are reduced once a step.
    `compared`: the collectives that hosts compare first. `computed`: seconds of kernels by phase, `update` those of the
    optimizer.
    """

    reduced: Amount = 0.0
    longest: Amount = 0.0
    gathered: Amount = 0.0
    down: Amount = 0.0
    longest_down: Amount = 0.0
    up: Amount = 0.0
    host_update: Amount = 0.0
    late: Amount = 0
    compared: Comparisons = field(default_factory=dict)
    computed: Mapping[str, Amount] = field(default_factory=dict)
    update: Amount = 0.0

    def times(self, count: Amount) -> StepWork:
        """The work of so many units like this one."""
        return StepWork(
            self.reduced * count,
            self.longest,
            self.gathered * count,
            self.down * count,
            self.longest_down,
            self.up * count,
            self.host_update * count,
            self.late,
            {call: (longest, calls * count) for call, (longest, calls) in self.compared.items()},
            {phase: seconds * count for phase, seconds in self.computed.items()},
            self.update * count,
        )

    def plus(self, other: StepWork) -> StepWork:
        """The work of this stage and another together."""
        compared = dict(self.compared)
        for call, (longest, further_calls) in other.compared.items():
            before, calls = compared.get(call, (0.0, 0))
            # calls: 0 where a layout of several has no such call
            compared[call] = maximum(before, longest), calls + further_calls
        phases = {**self.computed, **other.computed}
        return StepWork(
            self.reduced + other.reduced,
            maximum(self.longest, other.longest),
            self.gathered + other.gathered,
            self.down + other.down,
            maximum(self.longest_down, other.longest_down),
            self.up + other.up,
            self.host_update + other.host_update,
            maximum(self.late, other.late),
            compared,
            {phase: self.computed.get(phase, 0.0) + other.computed.get(phase, 0.0) for phase in phases},
            self.update + other.update,
        )


@dataclass(frozen=True)
class StageWork:
    """What one stage does in a step: its units' own work and that of sharing their weights, by pass and unit.

    `once`: what is done once a step; `send`: the longest transfer to another stage, in seconds; `sums`: what all its
    kernels and transfers add up to.
    """

    units: Mapping[PassOf, UnitWork]
    sharing: Mapping[PassOf, UnitWork]
    once: StepWork
    send: Amount
    sums: StepSums

    def passes(self, plan: Plan) -> Iterator[tuple[PassOf, UnitWork]]:
        """All work of each unit in each pass."""
        for key in {**self.units, **self.sharing}:
            yield key, _combined_work(self.units.get(key, NOTHING), self.sharing.get(key, NOTHING), plan)


NOTHING = UnitWork()


def _combined_work(unit_work: UnitWork, sharing: UnitWork, plan: Plan) -> UnitWork:
    """A unit's own work and that of sharing its weights; some transfers also hide behind kernels of the latter."""
    work = unit_work.plus(sharing)
    if sharing is NOTHING:
        return work
    exposed, overlapped = dict(work.exposed), work.overlapped
    for kind in kinds_behind_any_kernel(plan.stack.overlap):
        further = minimum(unit_work.exposed[kind], sharing.device)
        exposed[kind] = exposed[kind] - further
        overlapped = overlapped + further
    return replace(work, exposed=exposed, overlapped=overlapped)


def stage_work(rows: Sequence[KernelTime], plan: Plan) -> StageWork:
    """What the priced kernels and transfers of a stage add up to."""
    unit_rows, sharing = ([row for row in rows if row.shares is shares] for shares in (False, True))
    of_units, of_sharing = dict(unit_works(unit_rows, plan)), dict(unit_works(sharing, plan))
    return StageWork(of_units, of_sharing, step_work(rows, plan), longest_send(rows), step_sums(rows))


def unit_works(rows: Sequence[KernelTime], plan: Plan) -> Iterator[tuple[PassOf, UnitWork]]:
    """The work of each unit in each pass of one micro-batch."""
    recurring = [row for row in rows if row.per == MICRO_BATCH and transfer_kind(row) != PIPELINE]
    for name, phases in PASSES.items():
        of_unit: dict[str, list[KernelTime]] = defaultdict(list)
        for row in recurring:
            if row.when in phases:
                of_unit[row.cause.unit].append(row)
        yield from (((name, unit), _unit_work(name, unit, kernels, plan)) for unit, kernels in of_unit.items())


def _unit_work(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> UnitWork:
    count = micro_batches(plan)

    def seconds(chosen: Iterable[KernelTime]) -> Amount:
        return sum(row.seconds * row.times for row in chosen) / count

    compute = [row for row in rows if computes(row)]
    exposed = {
        kind: seconds(row for row in rows if is_transfer(row) and transfer_kind(row) == kind) for kind in TRANSFERS
    }
    overlapped = 0.0
    for kind, sheltered in overlapped_seconds(name, rows, plan):
        exposed[kind] -= sheltered / count
        overlapped += sheltered / count
    copied = [row for row in rows if is_transfer(row) and transfer_kind(row) == HOST]
    waits = unit == ROOT or plan.stack.overlap.host == "none"
    # a copy of a gradient that is added to another one on the host is waited for
    added = HostTransfer(OF_GRADIENTS, DOWN)
    blocking = [row for row in copied if waits or (sums_on_host(plan) and row.kind == added)]
    overlapping = [row for row in copied if row not in blocking]
    hosts = launches(rows, plan)
    if not any(row.shares for row in rows):
        hosts += host_calls(name, unit, rows, plan)
    return UnitWork(
        device=seconds(compute),
        rebuilt=seconds(row for row in compute if row.when == "recompute"),
        weight_gradients=seconds(row for row in compute if row.cause.purpose is Purpose.WEIGHT_GRADIENT),
        host_seconds=hosts / count,
        host_sums=seconds(row for row in rows if on_host(row)),
        exposed=exposed,
        overlapped=overlapped,
        copies={
            direction: (seconds(moved), seconds(_chained_copies(moved)))
            for direction, moved in _by_direction(overlapping)
        },
        blocking=seconds(blocking),
    )


def _by_direction(copied: Sequence[KernelTime]) -> Iterator[tuple[str, list[KernelTime]]]:
    """Copies by their direction, if there are any: each direction of the link works by itself."""
    for direction in (DOWN, UP):
        rows = [row for row in copied if isinstance(row.kind, HostTransfer) and row.kind.direction == direction]
        if rows:
            yield direction, rows


def _chained_copies(copied: Sequence[KernelTime]) -> Iterator[KernelTime]:
    """Copies that feed or follow a transfer between devices: those of weights and of gradients."""
    return (row for row in copied if isinstance(row.kind, HostTransfer) and row.kind.of != OF_ACTIVATIONS)


def step_work(rows: Sequence[KernelTime], plan: Plan) -> StepWork:
    """The kernels and transfers that run once a step, added up."""
    once = [row for row in rows if row.per == STEP]
    moved = [row for row in once if is_transfer(row) and transfer_kind(row) != HOST]
    copied = [row for row in once if is_transfer(row) and transfer_kind(row) == HOST]
    late, down = ([row for row in transfers if row.when != "optimizer"] for transfers in (moved, copied))
    computed: dict[str, Amount] = defaultdict(float)
    for row in once:
        if computes(row) and row.when != "optimizer":
            computed[row.when] += row.seconds * row.times
    return StepWork(
        reduced=total_seconds(late),
        longest=largest_of(row.seconds for row in late),
        gathered=total_seconds(row for row in moved if row.when == "optimizer"),
        down=total_seconds(down),
        longest_down=largest_of(row.seconds for row in down),
        up=total_seconds(row for row in copied if row.when == "optimizer"),
        host_update=total_seconds(row for row in once if on_host(row)),
        late=len(late),
        compared=comparisons(once, plan),
        computed=dict(computed),
        update=total_seconds(row for row in rows if row.when == "optimizer" and computes(row)),
    )


def longest_send(rows: Iterable[KernelTime]) -> Amount:
    """Seconds of the longest transfer to another stage."""
    return largest_of(row.seconds for row in rows if transfer_kind(row) == PIPELINE)
