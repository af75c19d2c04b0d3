"""The totals that others rely on: every key in SI base units, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.arithmetic.values import (
    Amount,
    divide,
    largest,
    largest_of,
    of_item,
    parts_of,
    real,
    truncate,
)
from ledger.books import calendar
from ledger.books.compiled_roles import CompiledRole, whole
from ledger.books.counts import CHECKPOINT, Totals, checkpoint, counters, flops, napkin, parameters, peak, reach
from ledger.books.intervals import MEMORY, known_as
from ledger.books.memory import quantised
from ledger.books.memory.outside import reserved
from ledger.books.memory.peak import Peak
from ledger.books.prices import curve, devices_of_a_host, host_work
from ledger.books.resources import stock
from ledger.books.serving.floor import weights_read
from ledger.books.spending import COPIED, HELD, HOST_TRAFFIC, ON_DRIVES, OTHERS, SWAPPED, TRAFFIC, UNIFIED
from ledger.books.time import StepTime
from ledger.model import dtypes
from ledger.model.offloading import keeps_on_host, updates_on_host, weights_on_host
from ledger.model.tensors import sized
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.plan import Plan


def totals(plan: Plan, books: Sequence[CompiledRole], peaks: Sequence[Peak], time: StepTime) -> dict[str, Amount]:
    """Every key that this plan has numbers for; `peaks` are those of the books."""
    found: dict[str, Amount] = {}
    model = whole(plan)
    found.update(parameters(model, books))
    spent = [book.spent for book in books]
    found.update(flops(plan, [(book.role.devices, book.spent) for book in books]))
    found.update(counters(plan, model))
    found.update(napkin(plan, model))
    found.update(checkpoint(plan, model))
    found.update(memory(plan, books, peaks))
    found.update(traffic(spent))
    if keeps_on_host(plan):
        found.update(host(plan, spent))
    found.update(times(plan, time, found))
    return found


def static(plan: Plan, book: CompiledRole) -> Totals:
    """State that persists on one device from step to step."""
    precision = plan.precision
    share, master = book.held("optimizer"), None if updates_on_host(plan) else precision.master
    here = 0 if weights_on_host(plan) else 1  # shards of gradients, on the device
    copies = sum(book.value(entry.amount * entry.times) for entry in quantised.kept(book.program, book.line))
    yield "memory.static.weights", book.value(book.stored_weights(plan)) + copies
    yield "memory.static.master", book.value(sized(master, share)) if master else 0
    yield "memory.static.gradients", here * book.value(sized(precision.gradients, book.held("gradients")))
    states = [entry for entry in book.ledger.entries if entry.resource == stock("optimizer")]
    yield "memory.static.optimizer", sum(book.value(entry.amount * entry.times) for entry in states)


def memory(plan: Plan, books: Sequence[CompiledRole], peaks: Sequence[Peak]) -> Totals:
    """State that persists, and what is alive at the peak, of the role with the highest."""
    worst = largest(peaks, lambda peak: peak.bytes)
    yield from parts_of(worst, books, lambda book: dict(static(plan, book))).items()
    for category, amount in parts_of(worst, peaks, lambda peak: peak.parts).items():
        yield f"memory.{category}", amount
    yield "memory.peak", of_item(worst, peaks, lambda peak: peak.bytes)
    pairs = tuple(zip(books, peaks, strict=True))
    needed = of_item(worst, pairs, lambda pair: reserved(plan, *pair))
    yield "memory.reserved", needed
    ends = MEMORY[known_as(plan)]
    yield "memory.reserved.low", truncate(needed * ends.low)
    yield "memory.reserved.high", truncate(needed * ends.high)
    yield "memory.capacity", plan.accelerator.memory
    yield from caches(plan)


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
    kept = sum(group.repeat * group.attention.cached * reach(group.attention, length) for group in plan.model.groups)
    written = [(group.repeat, part) for group in plan.model.groups for part in group.written.values()]
    states = sum(layers * (part.states("compute") + part.windows(plan.model.d_model)) for layers, part in written)
    seen = [(group.repeat, group.attention) for group in plan.model.groups if group.attention.recurrent]
    states += sum(layers * mixer.convolved * mixer.convolution for layers, mixer in seen)
    wide = sum(layers * mixer.heads * mixer.head_dim * mixer.state_size for layers, mixer in seen)
    wide += sum(layers * part.states("fp32") for layers, part in written)
    each = (kept + states) * dtypes.size(dtype) + wide * dtypes.size("fp32")
    return truncate(each * plan.run.micro_batch)


def traffic(spent: Sequence[Mapping[str, Amount]]) -> Totals:
    """Bytes and counts of each collective over each axis, and memory traffic: a device and step, of the worst role."""
    names = {TRAFFIC, *(name for mine in spent for name in mine)}
    for name in sorted(names - {*OTHERS}):
        yield name, largest_of(mine.get(name, 0) for mine in spent)


def host(plan: Plan, spent: Sequence[Mapping[str, Amount]]) -> Totals:
    """Host memory of a node full of the devices that need most; bytes over a device's link to it, in a step."""
    neighbours = devices_of_a_host(plan.cluster)

    def most(name: str) -> Amount:
        return largest_of(mine.get(name, 0) for mine in spent)

    yield HELD, neighbours * most(HELD)
    yield HOST_TRAFFIC, most(HOST_TRAFFIC)
    if plan.optimizer.pages:
        yield UNIFIED, most(UNIFIED)
    if plan.parallelism.offload.nvme and plan.host and plan.host.nvme:
        yield ON_DRIVES, neighbours * most(ON_DRIVES)
        yield "memory.nvme.capacity", plan.host.nvme.capacity
        for name in SWAPPED:
            yield name, most(name)
    if plan.host:
        yield "memory.host.capacity", plan.host.memory
        yield "time.host", host_work(plan, most(HOST_TRAFFIC)).seconds
    for name in COPIED.values():
        yield name, most(name)


def times(plan: Plan, time: StepTime, known: Mapping[str, Amount]) -> Totals:
    """Bounds and estimate of a step, rates, utilisation under each convention, and what the run takes and costs."""
    yield from bounds(time)
    yield from rates(plan, time.estimate)
    passes = divide(known["flops.model"], known["flops.forward"])  # 3 where every weight is trained
    yield "mfu", utilisation(plan, time.estimate, known["flops.unmasked"], passes)
    yield "mfu.causal", _of_peak(plan, time.estimate, known["flops.model"])
    yield "hfu", _of_peak(plan, time.estimate, known["flops.step"])
    if not plan.model.encodes:
        yield "prefill.time", time.forward
        yield "decode.time_per_token", decode(plan, known)
    yield from calendar.run(plan, time.estimate, lambda: known[CHECKPOINT])
    yield from calendar.ends(plan, time, lambda: known[CHECKPOINT])


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
    return _of_peak(plan, step, divide(passes * unmasked * plan.run.global_batch, plan.run.micro_batch))


def _of_peak(plan: Plan, step: Amount, work: Amount) -> Amount:
    return real(work) / (step * plan.cluster.devices * peak(plan))


def decode(plan: Plan, known: Mapping[str, Amount]) -> Amount:
    """Seconds for one token of each sequence of a micro-batch: the weights that one of them reaches and all that waits.

    A matrix-vector product is bound by memory, so this is bytes over the bandwidth that streaming kernels reach, on
    the devices of one tensor-parallel group at a time.
    """
    read = weights_read(plan) + known["kv_cache"]
    measured = curve(plan.accelerator, ELEMENTWISE)
    share = measured.parameters["b"] if measured else 1.0
    return read / (plan.parallelism.tensor * share * plan.accelerator.bandwidth)
