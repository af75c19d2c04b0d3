"""Where gradients are kept between the matmul that makes them and the update that uses them."""

from __future__ import annotations

from ledger.model.formats import trained_dtype
from ledger.spec.plan import Plan


def stays(plan: Plan) -> bool:
    """Whether gradients are added up in a buffer of their own that is never freed.

    Megatron-LM's `main_grad` (megatron/core/distributed/param_and_grad_buffer.py); any software that keeps them in
    another dtype than autograd writes them in needs one. Shares that are reduced out of a buffer have one as well.
    """
    apart = plan.stack.main_gradients or plan.precision.gradients != trained_dtype(plan)
    shares = plan.parallelism.zero == 3 and drains(plan)  # DeepSpeed's `grad_partitions_flat_buffer` (stage3.py)
    return shares or (apart and plan.parallelism.zero < 2)


def fuses(plan: Plan) -> bool:
    """Whether products add gradients of weights to those that stay (Megatron-LM, `gradient_accumulation_fusion`)."""
    return plan.stack.accumulation == "fused" and stays(plan)


def waits(plan: Plan) -> bool:
    """Whether the gradients of a micro-batch wait, whole, until its backward is over, and are added then."""
    return plan.stack.accumulation == "after_backward" and plan.parallelism.zero < 3


def drains(plan: Plan) -> bool:
    """Whether gradients are copied into a buffer and reduced out of it, so that a rank is left with its share."""
    return plan.stack.reduction_buffer > 0 and plan.parallelism.data * plan.parallelism.context > 1


def copied_to_buckets(plan: Plan) -> bool:
    """Whether replicas reduce copies of all gradients (DistributedDataParallel without `gradient_as_bucket_view`)."""
    return plan.stack.buckets and plan.parallelism.zero == 0 and plan.parallelism.data * plan.parallelism.context > 1
