"""The totals that others rely on: every key in SI base units, computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ledger.arithmetic.values import Amount, divide, floor, largest, largest_of, of_item, parts_of, real, truncate
from ledger.books import calendar
from ledger.books.compiled_roles import CompiledRole, whole
from ledger.books.counts import (
    CHECKPOINT,
    PER_DEVICE,
    Totals,
    checkpoint,
    counters,
    flops,
    napkin,
    of_model,
    peak,
    per_device,
    reach,
)
from ledger.books.memory import holdings
from ledger.books.memory.outside import reserved, workspaces_of
from ledger.books.memory.peak import Peak
from ledger.books.prices import curve, devices_of_a_host, host_work
from ledger.books.resources import stock
from ledger.books.serving.floor import weights_read
from ledger.books.step_sums import COPIED, HELD, HOST_TRAFFIC, ON_DRIVES, OTHERS, STEP_TRAFFIC, SWAPPED, UNIFIED
from ledger.books.time import DATA, MEMORY, StepTime, evidence_on_stack
from ledger.model import dtypes
from ledger.model.batch import data_time, keeps_ready
from ledger.model.offloading import keeps_on_host, updates_on_host, weights_on_host
from ledger.model.tensors import sized
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class StageFigures:
    """What totals need of one role: how many devices play it, what each of them spends and holds.

    `spent`: what it spends in a step by the total that this is part of; `static`: bytes that last from step to step;
    `parameters`: those that it holds; `reserved`: bytes that the driver reports at its peak.
    """

    devices: Amount
    spent: Mapping[str, Amount]
    static: Mapping[str, Amount]
    parameters: Amount
    peak: Peak
    reserved: Amount


def figures(plan: Plan, book: CompiledRole, peak: Peak) -> StageFigures:
    """What totals need of a compiled role; `peak` is its own."""
    return StageFigures(
        devices=book.role.devices,
        spent=book.spent,
        static=dict(static(plan, book)),
        parameters=per_device(book),
        peak=peak,
        reserved=reserved(plan, peak, workspaces_of(book)),
    )


class StepFigures(Protocol):
    """What totals are made of: a plan, what its stages spend and hold, and its step."""

    @property
    def plan(self) -> Plan:
        """The plan, whose sizes may be arrays."""

    @property
    def stages(self) -> Sequence[StageFigures]:
        """What each role spends and holds."""

    @property
    def time(self) -> StepTime:
        """The step with its bounds."""

    @property
    def step(self) -> Amount:
        """Seconds of a step."""


@dataclass(frozen=True)
class PlanFigures:
    """The figures of one plan."""

    plan: Plan
    stages: Sequence[StageFigures]
    time: StepTime

    @property
    def step(self) -> Amount:
        """Seconds of a step."""
        return self.time.estimate


def totals(counted: Mapping[str, Amount], of: StepFigures) -> dict[str, Amount]:
    """Every key that a plan has numbers for; `counted` are those of its model alone."""
    amounts: dict[str, Amount] = dict(counted)
    for part in PARTS.values():
        amounts.update(part(of, amounts))
    return amounts


def counts(plan: Plan) -> dict[str, Amount]:
    """The totals that follow from the model and one micro-batch alone, whatever the layout."""
    model = whole(plan)
    amounts: dict[str, Amount] = {}
    for part in (of_model(model), counters(plan, model), napkin(plan, model), checkpoint(plan, model), caches(plan)):
        amounts.update(part)
    return amounts


def work(plan: Plan, stages: Sequence[StageFigures]) -> Totals:
    """Matmul FLOPs of the whole job."""
    yield from flops(plan, [(stage.devices, stage.spent) for stage in stages])


def static(plan: Plan, book: CompiledRole) -> Totals:
    """State that persists on one device from step to step."""
    precision = plan.precision
    share, master = book.held_elements("optimizer"), None if updates_on_host(plan) else precision.master
    here = 0 if weights_on_host(plan) else 1  # shards of gradients, on the device
    copies = sum(
        book.value(entry.amount * entry.times) for entry in holdings.quantised_copies(book.program, book.timeline)
    )
    yield "memory.static.weights", book.value(book.stored_weights(plan)) + copies
    yield "memory.static.master", book.value(sized(master, share)) if master else 0
    yield "memory.static.gradients", here * book.value(sized(precision.gradients, book.held_elements("gradients")))
    states = [entry for entry in book.ledger.entries if entry.resource == stock("optimizer")]
    yield "memory.static.optimizer", sum(book.value(entry.amount * entry.times) for entry in states)


def states(stages: Sequence[StageFigures]) -> Totals:
    """State of the role with the highest peak, and parameters of the one that holds most."""
    yield PER_DEVICE, largest_of(stage.parameters for stage in stages)
    yield from parts_of(worst(stages), stages, lambda stage: stage.static).items()


def worst(stages: Sequence[StageFigures]) -> Amount:
    """The place of the role with the highest peak."""
    return largest(stages, lambda stage: stage.peak.bytes)


def categories(stages: Sequence[StageFigures]) -> Totals:
    """What is alive at the peak, by category, of the role with the highest."""
    for category, amount in parts_of(worst(stages), stages, lambda stage: stage.peak.parts).items():
        yield f"memory.{category}", amount


def memory(plan: Plan, stages: Sequence[StageFigures]) -> Totals:
    """The peak, and what the driver reports then, of the role with the highest."""
    place = worst(stages)
    yield "memory.peak", of_item(place, stages, lambda stage: stage.peak.bytes)
    needed = of_item(place, stages, lambda stage: stage.reserved)
    yield "memory.reserved", needed
    ends = MEMORY[evidence_on_stack(plan)]
    yield "memory.reserved.low", floor(needed * ends.low)
    yield "memory.reserved.high", floor(needed * ends.high)
    yield "memory.capacity", plan.accelerator.memory


def caches(plan: Plan) -> Totals:
    """Keys and values of a decoder; what sees sequences in both directions has no cache."""
    if not plan.model.encodes:
        yield "kv_cache", kv_cache(plan)


def kv_cache(plan: Plan) -> Amount:
    """Keys, values and states of a micro-batch, as far as layers look back, in the dtype that matmuls write.

    States of recurrences are in fp32, those that are written out as they say, and windows of convolutions as matmuls.
    """
    dtype = plan.precision.compute if plan.precision.autocast else plan.precision.activations
    length = plan.run.seq_len
    cached = sum(group.repeat * group.attention.cached * reach(group.attention, length) for group in plan.model.groups)
    written = [(group.repeat, part) for group in plan.model.groups for part in group.written.values()]
    states = sum(layers * (part.states("compute") + part.windows(plan.model.d_model)) for layers, part in written)
    recurrent = [(group.repeat, group.attention) for group in plan.model.groups if group.attention.recurrent]
    states += sum(layers * mixer.convolved * mixer.convolution for layers, mixer in recurrent)
    wide = sum(layers * mixer.heads * mixer.head_dim * mixer.state_size for layers, mixer in recurrent)
    wide += sum(layers * part.states("fp32") for layers, part in written)
    sequence_bytes = (cached + states) * dtypes.size(dtype) + wide * dtypes.size("fp32")
    return truncate(sequence_bytes * plan.run.micro_batch)


def traffic(spent: Sequence[Mapping[str, Amount]]) -> Totals:
    """Bytes and counts of each collective over each axis, and memory traffic: a device and step, of the worst role."""
    names = {STEP_TRAFFIC, *(name for role_spent in spent for name in role_spent)}
    for name in sorted(names - {*OTHERS}):
        yield name, largest_of(role_spent.get(name, 0) for role_spent in spent)


def host(plan: Plan, stages: Sequence[StageFigures], earlier: Mapping[str, Amount]) -> Totals:
    """Host memory of a node full of the devices that need most; bytes over a device's link to it, in a step.

    A checkpoint that is written beside training is there too, until storage has it.
    """
    staged = plan.operations.stages
    if not (keeps_on_host(plan) or keeps_ready(plan) or staged):
        return
    neighbours, spent = devices_of_a_host(plan.cluster), [stage.spent for stage in stages]

    def most(name: str) -> Amount:
        return largest_of(role_spent.get(name, 0) for role_spent in spent)

    copy = calendar.staged_on_host(plan, lambda: earlier[CHECKPOINT]) if staged else 0
    yield HELD, neighbours * most(HELD) + copy
    if plan.host:
        yield "memory.host.capacity", plan.host.memory
    if not keeps_on_host(plan):  # what is there takes no work of the host's, and no copies of a device
        return
    yield HOST_TRAFFIC, most(HOST_TRAFFIC)
    if plan.optimizer.pages:
        yield UNIFIED, most(UNIFIED)
    if plan.parallelism.offload.nvme and plan.host and plan.host.nvme:
        yield ON_DRIVES, neighbours * most(ON_DRIVES)
        yield "memory.nvme.capacity", plan.host.nvme.capacity
        for name in SWAPPED.values():
            yield name, most(name)
    if plan.host:
        yield "time.host", host_work(plan, most(HOST_TRAFFIC)).seconds
    for name in COPIED.values():
        yield name, most(name)


def times(plan: Plan, time: StepTime, earlier: Mapping[str, Amount]) -> Totals:
    """Bounds and estimate of a step, and utilisation under each convention."""
    yield from bounds(time)
    passes = divide(earlier["flops.model"], earlier["flops.forward"])  # 3 where every weight is trained
    yield "mfu", utilisation(plan, time.estimate, earlier["flops.unmasked"], passes)
    yield "mfu.causal", _share_of_peak(plan, time.estimate, earlier["flops.model"])
    yield "hfu", _share_of_peak(plan, time.estimate, earlier["flops.step"])
    if not plan.model.encodes:
        yield "prefill.time", time.forward
        yield "decode.time_per_token", decode(plan, earlier)
    if plan.data.waits(plan.model):
        yield "time.data", data_time(plan)
        yield "time.data.wait", time.parts[DATA]
    yield from calendar.ends(plan, time, lambda: earlier[CHECKPOINT])


def of_run(plan: Plan, step: Amount, earlier: Mapping[str, Amount]) -> Totals:
    """Rates, and what the run takes and costs, which follow from the seconds of a step."""
    yield from rates(plan, step)
    yield from calendar.run(plan, step, lambda: earlier[CHECKPOINT])


# The parts of a plan's totals in the order in which they follow from each other; they are given those before.
Part = Callable[[StepFigures, Mapping[str, Amount]], Totals]
PARTS: Mapping[str, Part] = {
    "work": lambda of, _: work(of.plan, of.stages),
    "states": lambda of, _: states(of.stages),
    "categories": lambda of, _: categories(of.stages),
    "memory": lambda of, _: memory(of.plan, of.stages),
    "traffic": lambda of, _: traffic([stage.spent for stage in of.stages]),
    "host": lambda of, earlier: host(of.plan, of.stages, earlier),
    "of_run": lambda of, earlier: of_run(of.plan, of.step, earlier),
    "times": lambda of, earlier: times(of.plan, of.time, earlier),
}


def bounds(time: StepTime) -> Totals:
    """A step, its bounds and its parts."""
    yield "time.floor", time.floor
    yield "time.roofline", time.roofline
    yield "time.step", time.estimate
    yield "time.step.low", time.low
    yield "time.step.high", time.high
    yield "time.serial", time.serial
    yield "time.compute", time.compute
    yield "time.comm", time.communication
    yield "time.exposed", time.exposed
    yield "time.bubble", time.bubble
    yield "time.optimizer", time.optimizer


def rates(plan: Plan, step: Amount) -> Totals:
    """Tokens a second of the whole job, and of each device, from the seconds of a step; images of a model of such."""
    rate = plan.run.global_batch * plan.run.seq_len / step
    yield "tokens_per_second", rate
    yield "tokens_per_second_per_device", rate / plan.cluster.devices
    if plan.model.image:
        yield "images_per_second", plan.run.global_batch / step


def utilisation(plan: Plan, step: Amount, unmasked: Amount, passes: Amount) -> Amount:
    """The share of the peak that the model's FLOPs are, as if no mask were causal: those of a micro-batch's forward."""
    return _share_of_peak(plan, step, divide(passes * unmasked * plan.run.global_batch, plan.run.micro_batch))


def _share_of_peak(plan: Plan, step: Amount, work: Amount) -> Amount:
    return real(work) / (step * plan.cluster.devices * peak(plan))


def decode(plan: Plan, earlier: Mapping[str, Amount]) -> Amount:
    """Seconds for one token of each sequence of a micro-batch: the weights that one of them reaches and all that waits.

    A matrix-vector product is bound by memory, so this is bytes over the bandwidth that streaming kernels reach, on
    the devices of one tensor-parallel group at a time.
    """
    read = weights_read(plan) + earlier["kv_cache"]
    measured = curve(plan.accelerator, ELEMENTWISE)
    share = measured.parameters["b"] if measured else 1.0
    return read / (plan.parallelism.tensor * share * plan.accelerator.bandwidth)
