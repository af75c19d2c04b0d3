"""Weights, optimizer states and activations in host memory, and the copies of them between host and device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import sympy

from ledger.model.causes import Cause, HostTransfer
from ledger.model.dims import symbol
from ledger.model.exchanges import fills_gradients, gathers_again, weights_moved_together
from ledger.model.formats import share_dtype, trained_dtype
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.operations import total
from ledger.model.optimizers import Value, states, trained_weights
from ledger.model.quantised import STAYING
from ledger.model.schedule import micro_batches
from ledger.model.sharding import Sharding
from ledger.model.tensors import Tensor, sized
from ledger.model.unit import Unit
from ledger.spec.plan import Plan

OPTIMIZER, WEIGHTS = "optimizer", "weights"
PAGED = "paged"  # what is in unified memory, as a category of host memory
DOWN, UP = "down", "up"  # to the host, and back
OF_GRADIENTS, OF_WEIGHTS, OF_ACTIVATIONS = "gradients", "weights", "activations"
STAY = ("table", "cast", STAYING)  # roles of what others than the layer hold as well, so that it stays on the device


@dataclass(frozen=True)
class HostCopy:
    """A copy between a device and its host: `amount` bytes of a kind of thing, `down` to the host or `up`."""

    of: str
    direction: str
    phase: str
    amount: sympy.Expr
    per_step: bool = True

    @property
    def name(self) -> str:
        """The kind of thing that moves and its direction: `weights.up`."""
        return f"{self.of}.{self.direction}"

    @property
    def transfer(self) -> HostTransfer:
        """The transfer over the link between host and device that this copy is."""
        return HostTransfer(self.of, self.direction)


@dataclass(frozen=True)
class HostHeld:
    """Bytes in host memory for one device, of `count` layers; `category` is what they would be on the device.

    `place`: `host` or, on drives, `nvme`.
    """

    cause: Cause
    category: str
    amount: sympy.Expr
    count: sympy.Expr
    why: str
    place: str = "host"


Copied = tuple[str, sympy.Expr, HostCopy]  # whose, how many of them, what


def updates_on_host(plan: Plan) -> bool:
    """Whether master weights and optimizer states live in host memory, where the update then runs."""
    return plan.parallelism.updates_on_host


def weights_on_host(plan: Plan) -> bool:
    """Whether shards of weights and gradients live there too, and come for each gather (FSDP2's CPUOffloadPolicy)."""
    return WEIGHTS in plan.parallelism.offload


def sums_on_host(plan: Plan) -> bool:
    """Whether gradients are added to those in host memory, of micro-batches or zeros, so that each copy is waited for.

    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `foreach_reduce`: `non_blocking` without `grad` alone.
    """
    several = micro_batches(plan) > 1 and not plan.parallelism.reduces_once
    return weights_on_host(plan) and (fills_gradients(plan) or several)


def leaving(unit: Unit) -> tuple[Tensor, ...]:
    """The tensors that wait for backward in host memory, each storage once; none of a unit that stays on the device."""
    return tuple(tensor for tensor in unit.saving.saved if tensor.role not in STAY) if unit.hosted else ()


def copies_of_weights(plan: Plan, units: Sequence[Unit], sharding: Sharding) -> Iterator[Copied]:
    """The copies of weights and gradients over the link between host and device."""
    if weights_on_host(plan):
        yield from _unit_copies(plan, units, sharding)
    elif updates_on_host(plan):
        yield from _update_copies(plan, units, sharding)


def copies_of_activations(units: Sequence[Unit]) -> Iterator[Copied]:
    """The copies of what layers save for backward: down after forward, up before backward."""
    for unit in units:
        amount = total(tensor.bytes() for tensor in leaving(unit))
        yield unit.name, unit.count, HostCopy(OF_ACTIVATIONS, DOWN, "forward", amount, per_step=False)
        yield unit.name, unit.count, HostCopy(OF_ACTIVATIONS, UP, "backward", amount, per_step=False)


def _update_copies(plan: Plan, units: Sequence[Unit], sharding: Sharding) -> Iterator[Copied]:
    """Once a step: this device's share of gradients goes down layer by layer, that of the updated weights comes up."""
    precision = plan.precision
    for name, count, weights in weights_by_unit(tuple(units)):
        elements = total(sharding.held_elements("optimizer", weight) for weight in weights if not weight.frozen)
        yield name, count, HostCopy(OF_GRADIENTS, DOWN, "backward", sized(precision.gradients, elements))
        yield name, count, HostCopy(OF_WEIGHTS, UP, "optimizer", sized(trained_dtype(plan), elements))


def _unit_copies(plan: Plan, units: Sequence[Unit], sharding: Sharding) -> Iterator[Copied]:
    """Set by set: this device's share comes up before each gather, as it is held, and that of the gradients goes down.

    It is cast to the dtype of the gather on the device, and gradients to theirs before they leave.
    """
    precision = plan.precision
    for fsdp_unit in weights_moved_together(plan, units, sharding):
        share = fsdp_unit.stored_share(sharding, precision)
        yield fsdp_unit.name, fsdp_unit.count, HostCopy(OF_WEIGHTS, UP, "forward", share, per_step=False)
        if gathers_again(plan, fsdp_unit.name) and fsdp_unit.used_again:
            yield fsdp_unit.name, fsdp_unit.count, HostCopy(OF_WEIGHTS, UP, "backward", share, per_step=False)
        reduced = fsdp_unit.gradients().share(sharding, precision.gradients)
        once = plan.parallelism.reduces_once
        yield fsdp_unit.name, fsdp_unit.count, HostCopy(OF_GRADIENTS, DOWN, "backward", reduced, per_step=once)


def weights_held_on_host(plan: Plan, units: Sequence[Unit], sharding: Sharding, value: Value) -> Iterator[HostHeld]:
    """The stocks in host memory for a device: weights, and what updates them."""
    if weights_on_host(plan):
        for unit, count, weights in weights_by_unit(tuple(units)):
            for weight in weights:
                amount = sized(share_dtype(plan.precision, weight), sharding.held_elements("weights", weight))
                yield HostHeld(Cause(unit, weight.name), "weights", amount, count, "the share that each gather reads")
    if updates_on_host(plan):
        place = "nvme" if plan.parallelism.offload.nvme else "host"
        yield from (replace(stock, place=place) for stock in _updated_on_host(plan, units, sharding, value))
    elif plan.optimizer.pages:
        yield from _paged_states(plan, units, sharding, value)


def swaps(plan: Plan, units: Sequence[Unit], sharding: Sharding, value: Value) -> dict[str, sympy.Expr]:
    """Bytes that a step reads from drives and writes to them, of an optimizer that lives there: all of it, both ways.

    DeepSpeed 0.19.8, runtime/swap_tensor/partitioned_optimizer_swapper.py: gradients are written as they are reduced
    and read for the update, weights and states read for it and written after it.
    """
    if not plan.parallelism.offload.nvme:
        return {}
    amount = total(stock.amount * stock.count for stock in _updated_on_host(plan, units, sharding, value))
    return {"read": amount, "write": amount}


def _paged_states(plan: Plan, units: Sequence[Unit], sharding: Sharding, value: Value) -> Iterator[HostHeld]:
    """States in unified memory: PyTorch's allocator knows nothing of them, and the host has room for all of them.

    bitsandbytes 0.50, optim/optimizer.py, `get_state_buffer`: from 100,000 elements on, by cudaMallocManaged.
    """
    for updated in trained_weights(plan.optimizer, tuple(units)):
        for state in states(updated, sharding, plan.precision, value):
            if state.paged:
                title = f"{state.name.replace('_', ' ')} of {updated.rule.title}"
                why = f"{title}: pages that a full device leaves to the host"
                cause = Cause(updated.unit, updated.weight.name, state=state.name)
                yield HostHeld(cause, PAGED, state.bytes(), updated.count, why)


def keeps_on_host(plan: Plan) -> bool:
    """Whether anything of a plan may be in host memory."""
    return bool(plan.parallelism.offload) or plan.optimizer.pages


def activations_held_on_host(units: Sequence[Unit]) -> Iterator[HostHeld]:
    """The stocks of activations in host memory for a device when it is fullest."""
    for unit in units:
        for tensor in leaving(unit):
            flying = unit.count * symbol("in_flight", unit.suffix)
            why = "saved for backward: each storage once, of every micro-batch in flight"
            yield HostHeld(Cause(unit.name, tensor.name), "activations", tensor.bytes(), flying, why)


def _updated_on_host(plan: Plan, units: Sequence[Unit], sharding: Sharding, value: Value) -> Iterator[HostHeld]:
    """The stocks that the update reads and writes in host memory: weights, their gradients in its dtype, states.

    The copy is the master weights where there are any; a gradient is kept in the dtype of what it updates.
    """
    precision = plan.precision
    dtype = precision.master or trained_dtype(plan)
    for updated in trained_weights(plan.optimizer, tuple(units)):
        unit, weight, count = updated.unit, updated.weight, updated.count
        amount = sized(dtype, sharding.held_elements("optimizer", weight))
        if precision.master or not weights_on_host(plan):
            copy = "master copy" if precision.master else "the copy of the weights that the update writes"
            yield HostHeld(Cause(unit, weight.name), "master", amount, count, copy)
        why = "gradients where the update reads them, in the dtype of what it updates"
        yield HostHeld(Cause(unit, weight.gradient.name), "gradients", amount, count, why)
        for state in states(updated, sharding, precision, value):
            why = f"{state.name.replace('_', ' ')} of {updated.rule.title}"
            yield HostHeld(Cause(unit, weight.name, state=state.name), "optimizer", state.bytes(), count, why)
