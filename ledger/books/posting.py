"""Posting: each operation of a program becomes entries, one for each resource it spends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import sympy

from ledger.books import parameter_traffic
from ledger.books.entries import MICRO_BATCH, STEP, Entry
from ledger.books.memory.timeline import sequence
from ledger.books.parameter_traffic import ModuleFetches, by_module
from ledger.books.resources import (
    BATCH_COPIED,
    BATCH_READ,
    HOST_TRAFFIC,
    TRAFFIC,
    Resource,
    bytes_sent,
    flops,
    on_host,
    on_nvme,
    swapped,
)
from ledger.books.resources import copied as copied_over
from ledger.model import dtypes
from ledger.model.attention_cores import RingPass
from ledger.model.batch import copied_to, kept_ready, read_from_storage
from ledger.model.causes import ENDS, Cause, Purpose
from ledger.model.collectives import Collective, along
from ledger.model.dims import symbol
from ledger.model.exchanges import Exchanged, weights_moved_together
from ledger.model.offloading import (
    OF_ACTIVATIONS,
    OF_GRADIENTS,
    OF_WEIGHTS,
    Copied,
    HostHeld,
    activations_held_on_host,
    copies_of_activations,
    copies_of_weights,
    swaps,
    weights_held_on_host,
)
from ledger.model.operations import ONE, Operation
from ledger.model.optimizers import Value
from ledger.model.program import Program
from ledger.model.sharding import ParameterCollective
from ledger.model.unit import Unit
from ledger.model.update import Streaming, accumulations, update, update_collectives
from ledger.model.update import copies as copied_around
from ledger.spec.kernel_classes import ATTENTION, GROUPED
from ledger.spec.plan import Plan

CONTRACTION = "2 FLOPs for each point of the product of all dims (2mkn)"
TWO_OF_FOUR = f"{CONTRACTION}, of which sparse tensor cores leave every second out"
CAUSAL = "the points a causal mask leaves, (S+1)/2S of the square"
MASKED = "computed, then thrown away by the mask"
CROWDED = "rows of the busiest device beyond the average, or what pads experts to their capacity"
READ_AND_WRITTEN = "each operand is read once and the result written once"
HOST_SUM = "each micro-batch adds its gradients to those before, in host memory"
HOST_UPDATE = (
    "the update on the host: each gradient read once, each weight and state read and written (DeepSpeed 0.19.8, "
    "csrc/includes/cpu_adam.h, Step_AVX)"
)
SWAP = (
    "an optimizer on drives: gradients, weights and states written and read once a step (Rajbhandari et al. 2021, "
    "ZeRO-Infinity; DeepSpeed 0.19.8, partitioned_optimizer_swapper.py)"
)
HOST_LINK = {
    OF_GRADIENTS: "gradients that the host's update reads, in their dtype (Ren et al. 2021, ZeRO-Offload)",
    OF_WEIGHTS: "weights that the host's update has written, in the dtype in which they are held",
    OF_ACTIVATIONS: "what a layer saves for backward, each storage once: it leaves after forward and comes back before",
}
BATCH_LINK = "the host's copy of a micro-batch, beside the step before: ids and labels int64, pixels fp32"
STORAGE = "the samples of a micro-batch, each read once by the devices of its replica together"
COLLECTIVE = {
    "all_gather": "held split and used whole: a gather; bytes of its output",
    "reduce_scatter": "contracted over a split dim, result held split: a reduce-scatter; bytes of its input",
    "all_reduce": "contracted over a split dim: a reduction; bytes of its input",
    "all_to_all": "parts to the devices that need them whole (tokens, heads, matrices), or back; bytes of the busiest",
    "send": "to the next device: the residual stream of a pipeline, blocks of a ring",
}
OF_EXPERTS = (
    "tokens to their experts, or back: all from every device of `tensor`, as in torchtitan; bytes of the busiest"
)


def flows(program: Program, plan: Plan, value: Value) -> Iterator[Entry]:
    """Everything one device spends in a step. `value` tells which side of a matrix is the shorter."""
    yield from of_units(program.units, plan)
    yield from _marked_as_sharing(of_exchanges(program, plan, value))
    yield from of_sends(program.sends)
    yield from _marked_as_sharing(of_update(program, plan, value))
    yield from _marked_as_sharing(of_host(program, plan))
    yield from of_host_activations(program.units)
    yield from of_weights_on_host(program, plan, value)
    yield from of_units_on_host(program.units, plan)


def of_sharing(program: Program, plan: Plan, value: Value) -> Iterator[Entry]:
    """What a device spends on weights that it shares: their transfers and copies, sums of gradients, the update.

    It is a fact of a stage, not of its layers: buckets and queues go across them.
    """
    yield from _marked_as_sharing(of_exchanges(program, plan, value))
    yield from _marked_as_sharing(of_update(program, plan, value))
    yield from _marked_as_sharing(of_host(program, plan))


def _marked_as_sharing(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries, marked as spent on sharing weights."""
    return (replace(entry, shares=True) for entry in entries)


def of_units(units: Sequence[Unit], plan: Plan) -> Iterator[Entry]:
    """What the passes of each unit compute and send: for every micro-batch."""
    for unit in units:
        yield from of_phase(unit, "forward", unit.forward, plan)
        yield from of_phase(unit, "recompute", unit.saving.again, plan)
        yield from of_phase(unit, "backward", unit.backward, plan)
    yield from of_batches(units, plan)


def of_batches(units: Sequence[Unit], plan: Plan) -> Iterator[Entry]:
    """The batch on its way to a device: copied from its host, and read from storage where a plan says its bytes."""
    for unit, part in copied_to(units, plan):
        cause, times = Cause(unit.name, f"batch/{part.name}"), _times_in_step(unit.count, MICRO_BATCH)
        yield Entry(cause, BATCH_COPIED, "forward", part.expression(), times, BATCH_LINK, MICRO_BATCH)
    for unit, amount in read_from_storage(units, plan):
        cause, times = Cause(unit.name, "batch/storage"), _times_in_step(unit.count, MICRO_BATCH)
        yield Entry(cause, BATCH_READ, "forward", amount, times, STORAGE, MICRO_BATCH)


def of_exchanges(program: Program, plan: Plan, value: Value) -> Iterator[Entry]:
    """Transfers of weights and gradients between the devices that share them."""
    late = update_collectives(plan, program.units, program.sharding)
    moved = (
        _module_calls(program, plan, value)
        if by_module(plan)
        else parameter_traffic.parameter_collectives(program, plan, value)
    )
    for unit_name, count, phase, transfer in (*moved, *late):
        per = STEP if transfer.per_step else MICRO_BATCH
        yield _transfer_entry(transfer.cause(unit_name), phase, transfer, count, per)


def _module_calls(program: Program, plan: Plan, value: Value) -> Iterator[Exchanged]:
    """The calls in which modules gather weights and gradients are reduced, in place of those of whole layers."""
    groups = [group.name for group in plan.model.groups]
    counts = [sum(int(value(unit.count)) for unit in program.units if unit.group == group) for group in groups]
    layers = tuple(sequence(program, plan, counts, value))
    yield from (call for call in program.exchanges if call[3].axis != "data" or call[3].collective == "all_reduce")
    yield from ModuleFetches(program, plan, value, layers).exchanges()


def of_sends(sends: Iterable[tuple[sympy.Expr, str, Collective]]) -> Iterator[Entry]:
    """Transfers between the stages of a pipeline."""
    for count, phase, send in sends:
        yield _transfer_entry(send.cause("pipeline"), phase, send, count, MICRO_BATCH)


def of_update(program: Program, plan: Plan, value: Value) -> Iterator[Entry]:
    """Gradients added up, copies around what weights held split send, and the update."""
    for unit_name, count, adding in accumulations(plan, program.units, program.sharding):
        cause = adding.cause(unit_name)
        if adding.on_host:
            times = _times_in_step(count, MICRO_BATCH)
            yield Entry(cause, HOST_TRAFFIC, "backward", adding.traffic(), times, HOST_SUM, MICRO_BATCH, adding)
        else:
            yield from _kernel_entries(cause, "backward", adding, count, MICRO_BATCH)
    moved = weights_moved_together(plan, program.units, program.sharding)
    for name, count, phase, once, copy in copied_around(plan, moved, program.sharding):
        yield from _kernel_entries(copy.cause(name), phase, copy, count, STEP if once else MICRO_BATCH)
    for unit_name, times, step in update(plan, program.units, program.sharding, value):
        if isinstance(step, Streaming) and step.on_host:
            cause, moved_there = step.cause(unit_name), step.traffic()
            yield Entry(cause, HOST_TRAFFIC, "optimizer", moved_there, times, HOST_UPDATE, STEP, step)
        else:
            yield from _kernel_entries(step.cause(unit_name), "optimizer", step, times, STEP)
    for direction, amount in swaps(plan, program.units, program.sharding, value).items():
        yield Entry(Cause("optimizer", f"swap.{direction}"), swapped(direction), "optimizer", amount, ONE, SWAP)


def of_host(program: Program, plan: Plan) -> Iterator[Entry]:
    """Weights and gradients that move over the link to the host."""
    yield from _host_link_entries(copies_of_weights(plan, program.units, program.sharding))


def of_host_activations(units: Sequence[Unit]) -> Iterator[Entry]:
    """Activations that move over the link to the host."""
    yield from _host_link_entries(copies_of_activations(units))


def of_weights_on_host(program: Program, plan: Plan, value: Value) -> Iterator[Entry]:
    """What host memory holds of weights, and of what updates them."""
    yield from _host_entries(weights_held_on_host(plan, program.units, program.sharding, value))


def of_units_on_host(units: Sequence[Unit], plan: Plan) -> Iterator[Entry]:
    """What host memory holds of activations, and of batches that are ready."""
    yield from _host_entries(activations_held_on_host(units))
    yield from _host_entries(kept_ready(units, plan))


def _host_entries(things: Iterable[HostHeld]) -> Iterator[Entry]:
    for thing in things:
        resource = on_nvme(thing.category) if thing.place == "nvme" else on_host(thing.category)
        yield Entry(thing.cause, resource, "step", thing.amount, thing.count, thing.why)


def _host_link_entries(copied: Iterable[Copied]) -> Iterator[Entry]:
    """What moves over the link between a device and its host."""
    for unit_name, count, copy in copied:
        per = STEP if copy.per_step else MICRO_BATCH
        cause, resource, times = Cause(unit_name, copy.name), copied_over(copy.direction), _times_in_step(count, per)
        yield Entry(cause, resource, copy.phase, copy.amount, times, HOST_LINK[copy.of], per, copy)


def of_phase(unit: Unit, phase: str, operations: Sequence[Operation], plan: Plan) -> Iterator[Entry]:
    """What one pass of a unit computes, moves and sends."""
    for operation in operations:
        per = STEP if once(operation, plan) else MICRO_BATCH
        for times, run in operation.occurrences():
            count, cause = unit.count * times, run.cause(unit.name)
            if isinstance(run, Collective):
                share = narrowed(plan, unit, run)
                moved = [_transfer_entry(cause, phase, run, count, per)]
                for step in along(run, operations, unit.name, plan):
                    moved.extend(_kernel_entries(step.cause(unit.name), phase, step, count, per))
                yield from (replace(entry, amount=entry.amount * share) for entry in moved)
            else:
                yield from _kernel_entries(cause, phase, run, count, per)


def once(operation: Operation, plan: Plan) -> bool:
    """Whether a step has an operation but once, not each of its micro-batches.

    DTensor sums gradients of weights that it holds whole as backward goes; modules of a framework's own leave them to
    the end (Megatron-LM, `_allreduce_layernorm_grads`; nanotron, `sync_tied_weights_gradients`).
    """
    late = plan.stack.tensor_parallel == "explicit" and operation.purpose is Purpose.GRADIENT_SUM
    return operation.once or late


def narrowed(plan: Plan, unit: Unit, moved: Collective) -> sympy.Expr:
    """The share of a transfer's bytes that is sent: a layer's quantised operands are narrower than what they were."""
    recipe = plan.precision.matmul
    if recipe is None or recipe.gathers == "original" or unit.name in ENDS:
        return ONE
    gathers = moved.collective == "all_gather" and moved.axis == "tensor" and dtypes.size(moved.inputs[0].dtype) > 1
    ratio = dtypes.size(recipe.format) / dtypes.size(plan.precision.compute)
    return sympy.Rational(ratio.numerator, ratio.denominator) if gathers else ONE


def _times_in_step(count: sympy.Expr, per: str) -> sympy.Expr:
    return count * symbol("micro_batches") if per == MICRO_BATCH else count


def _kernel_entries(cause: Cause, phase: str, operation: Operation, count: sympy.Expr, per: str) -> Iterator[Entry]:
    """Matmul FLOPs, those a mask throws away, vector FLOPs and memory traffic of one kernel."""
    useful, redone, masked = operation.useful(), operation.redone(), operation.masked()
    dtype, family = matmul_dtype(operation), operation.kernel.family
    causal = masked and family != GROUPED
    basis = CAUSAL if causal or family == ATTENTION else CONTRACTION if operation.run_share() == ONE else TWO_OF_FOUR
    amounts: list[tuple[Resource, str, sympy.Expr, str]] = [
        (flops("matmul", dtype), phase, useful - redone if redone else useful, basis),
        (flops("matmul", dtype), "recompute", redone, "scores that the backward kernel rebuilds"),
        (flops("masked", dtype), phase, masked, CROWDED if family == GROUPED else MASKED),
        (flops("repeated", dtype), phase, operation.repeated(), "done by every device of an axis alike"),
        (flops("vector"), phase, operation.vector(), "operations of one element times elements"),
        (TRAFFIC, phase, operation.traffic(), READ_AND_WRITTEN),
    ]
    pieces, times = operation.pieces, _times_in_step(count, per)
    if pieces != ONE:
        amounts = [(resource, when, amount / pieces, why) for resource, when, amount, why in amounts]
        times = times * pieces
    for resource, when, amount, why in amounts:
        if amount:
            yield Entry(cause, resource, when, amount, times, why, per, operation)


def matmul_dtype(operation: Operation) -> str:
    """The dtype whose matrix rate prices an operation."""
    return dtypes.rate(operation.inputs[0].dtype) if operation.inputs else ""


def _transfer_entry(
    cause: Cause, phase: str, moved: Collective | ParameterCollective, count: sympy.Expr, per: str
) -> Entry:
    resource = bytes_sent(moved.collective, moved.axis)
    times = _times_in_step(count, per) * (moved.rounds if isinstance(moved, RingPass) else 1)
    to_experts = (moved.collective, moved.axis) == ("all_to_all", "expert")
    basis = OF_EXPERTS if to_experts else COLLECTIVE[moved.collective]
    return Entry(cause, resource, phase, moved.payload(), times, basis, per, moved)
