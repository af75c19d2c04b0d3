"""Transfers of weights and gradients between devices that share them, how often and when; where gradients stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import sympy

from ledger.model.causes import OUTPUT, ROOT
from ledger.model.formats import trained_dtype
from ledger.model.fsdp_units import MODEL, FsdpUnit, fsdp_units, separate_ends
from ledger.model.operations import ONE
from ledger.model.sharding import ParameterCollective, Sharding, exchange, part_of
from ledger.model.tensors import Tensor
from ledger.spec.plan import Plan

if TYPE_CHECKING:
    from ledger.model.unit import Unit


Exchanged = tuple[str, sympy.Expr, str, ParameterCollective]  # set of weights, how many of them, phase, what


def collectives_of_rules(plan: Plan, sets: Sequence[FsdpUnit], sharding: Sharding) -> Iterator[Exchanged]:
    """Rule by rule: weights held split are gathered; gradients are summed over data, and scattered if held split."""
    for fsdp_unit in sets:
        for axis, part in fsdp_unit.over(sharding):
            yield from _gathers(plan, part, sharding, axis)
            yield from _reductions(plan, part, sharding, axis)


def _gathers(plan: Plan, fsdp_unit: FsdpUnit, sharding: Sharding, axis: str) -> Iterator[Exchanged]:
    """Gathers of weights held split, before each pass that does not find them gathered; else of updated ones, once."""
    if sharding.stage == 0:
        return
    amount = fsdp_unit.gathered_bytes(sharding, sent_dtype(plan))
    if not sharding.splits("weights"):
        amount = fsdp_unit.trained().gathered_bytes(sharding, sent_dtype(plan))
        if amount != 0:
            yield fsdp_unit.name, fsdp_unit.count, "optimizer", exchange("all_gather", axis, amount, per_step=True)
        return
    yield fsdp_unit.name, fsdp_unit.count, "forward", exchange("all_gather", axis, amount, per_step=False)
    if gathers_again(plan, fsdp_unit.name) and fsdp_unit.used_again:
        yield fsdp_unit.name, fsdp_unit.count, "backward", exchange("all_gather", axis, amount, per_step=False)


def _reductions(plan: Plan, fsdp_unit: FsdpUnit, sharding: Sharding, axis: str) -> Iterator[Exchanged]:
    """Whole gradients to every device, or to each its share; over copies of the shares, each share is summed again."""
    once, dtype, fsdp_unit = plan.parallelism.reduces_once, plan.precision.reduction, fsdp_unit.gradients()
    if not fsdp_unit.parts:
        return
    if sharding.stage == 0 or (sharding.stage < 3 and plan.stack.reduces == "all" and not sharding.replicated):
        amount = fsdp_unit.unpadded(dtype)
        yield fsdp_unit.name, fsdp_unit.count, "backward", exchange("all_reduce", axis, amount, per_step=once)
        return
    amount = fsdp_unit.gathered_bytes(sharding, dtype)
    yield fsdp_unit.name, fsdp_unit.count, "backward", exchange("reduce_scatter", axis, amount, per_step=once)
    if sharding.replicated:
        amount = fsdp_unit.share(sharding, dtype)
        summed = exchange("all_reduce", "replicate", amount, per_step=once, of=part_of(axis))
        yield fsdp_unit.name, fsdp_unit.count, "backward", summed


def sent_dtype(plan: Plan) -> str:
    """The dtype in which weights are gathered: FSDP casts its shares to that of the matmuls before."""
    return plan.precision.compute if plan.parallelism.zero == 3 else trained_dtype(plan)


def gathers_again(plan: Plan, name: str) -> bool:
    """Whether a set of weights is freed after forward, so that backward gathers it again.

    A head that moves by itself is not, since backward needs it at once (torchtitan, `apply_fsdp`).
    """
    reshard = plan.parallelism.reshard
    return name != OUTPUT and (reshard == "all" or (reshard == "layers" and name != ROOT))


def tied(weight: Tensor, dtype: str) -> Exchanged:
    """A tied embedding is held by both end stages, so its gradient is summed over the two."""
    amount = FsdpUnit(ROOT, ONE, ((ONE, (weight,)),)).unpadded(dtype)
    return ROOT, ONE, "backward", exchange("all_reduce", "pipeline", amount, per_step=True)


def weights_moved_together(plan: Plan, units: Sequence[Unit], sharding: Sharding) -> tuple[FsdpUnit, ...]:
    """The sets of weights that move as one on a device: of several layers where they are held split, else of each."""
    if not sharding.splits("weights"):
        return fsdp_units(units, 1)
    return fsdp_units(units, plan.parallelism.wrap, ends_apart(plan, units))


def ends_apart(plan: Plan, units: Sequence[Unit]) -> tuple[str, ...]:
    """The ends of the model that move by themselves, where weights are held split."""
    apart_ends = plan.stack.ends == "apart" and plan.parallelism.zero == 3 and plan.parallelism.wrap != MODEL
    return separate_ends(units) if apart_ends else ()


# --- where gradients are kept ---


def stays(plan: Plan) -> bool:
    """Whether gradients are there all the time: in a buffer of their own, or filled with zeros after each update."""
    return has_buffer(plan) or fills_gradients(plan)


def fills_gradients(plan: Plan) -> bool:
    """Whether gradients are zeroed in place (`zero_grad(set_to_none=False)`), so that backward adds to what is there.

    What is reduced out of a buffer is freed by the framework itself, and a buffer that it zeroes is zeroed once.
    """
    zeroed = has_buffer(plan) and "zero" in plan.stack.optimizer_passes
    return plan.optimizer.zero_grad == "fill" and not (drains(plan) or zeroed)


def has_buffer(plan: Plan) -> bool:
    """Whether gradients are added up in a buffer of their own that is never freed.

    Megatron-LM's `main_grad` (megatron/core/distributed/param_and_grad_buffer.py); any software that keeps them in
    another dtype than autograd writes them in needs one. Shares that are reduced out of a buffer have one as well.
    """
    apart = plan.stack.main_gradients or plan.precision.gradients != trained_dtype(plan)
    shares = plan.parallelism.zero == 3 and drains(plan)  # DeepSpeed's `grad_partitions_flat_buffer` (stage3.py)
    return shares or (apart and plan.parallelism.zero < 2)


def fuses(plan: Plan) -> bool:
    """Whether products add gradients of weights to those that stay (Megatron-LM, `gradient_accumulation_fusion`)."""
    return plan.stack.accumulation == "fused" and has_buffer(plan)


def waits(plan: Plan) -> bool:
    """Whether the gradients of a micro-batch wait, whole, until its backward is over, and are added then."""
    return plan.stack.accumulation == "after_backward" and plan.parallelism.zero < 3


def drains(plan: Plan) -> bool:
    """Whether gradients are copied into a buffer and reduced out of it, so that a rank is left with its share."""
    return plan.stack.reduction_buffer > 0 and plan.parallelism.data * plan.parallelism.context > 1


def copied_to_buckets(plan: Plan) -> bool:
    """Whether replicas reduce copies of all gradients (DistributedDataParallel without `gradient_as_bucket_view`)."""
    return plan.stack.buckets and plan.parallelism.zero == 0 and plan.parallelism.data * plan.parallelism.context > 1
