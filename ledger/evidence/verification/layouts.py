"""Which of a plan's layouts PyTorch can be asked about, and why not the others."""

from __future__ import annotations

from ledger.evidence.sharded_step import Sharding
from ledger.spec.plan import Plan

# Axes along which no judge runs a step yet, and why.
UNJUDGED = {
    "pipeline": "a stage waits for others, and the judge runs one rank",
    "context": "keys and values come from other ranks, and the judge's attention reads its own",
    "expert": "tokens go to the ranks that the router chooses, and fake tensors hold no choice",
}


def sharding(plan: Plan) -> Sharding:
    """The mesh of the judge's rank for a plan that FSDP2 shards."""
    layout = plan.parallelism
    return Sharding(data=layout.data // layout.replicate, tensor=layout.tensor, replicate=layout.replicate)


def sharded(plan: Plan) -> bool:
    """Whether a plan's step is that of one rank among several."""
    return plan.cluster.devices > 1


def unjudged(plan: Plan) -> str:
    """Why no step of this layout can be run; empty where it can."""
    layout = plan.parallelism
    for axis, reason in UNJUDGED.items():
        if getattr(layout, axis) > 1:
            return f"parallelism.{axis} = {getattr(layout, axis)}: {reason}"
    if sharded(plan) and layout.zero != 3:
        return f"parallelism.zero = {layout.zero}: the judge shards with fully_shard, which is ZeRO-3"
    if layout.tensor > 1 and layout.sequence != "save_gathered":
        return f"parallelism.sequence = {layout.sequence}: DTensor splits the sequence and keeps what it gathered"
    if plan.run.global_batch != layout.data * plan.run.micro_batch:
        return "several micro-batches a step: the judge runs one"
    return ""
