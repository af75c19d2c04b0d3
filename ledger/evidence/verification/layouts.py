"""Which of a plan's layouts PyTorch can be asked about, and why not the others."""

from __future__ import annotations

from ledger.evidence.reference_model import APART
from ledger.evidence.sharded_step import Sharding
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

# Axes along which no judge runs a step yet, and why.
UNJUDGED = {
    "pipeline": "a stage waits for others, and the judge runs one rank",
    "context": "keys and values come from other ranks, and the judge's attention reads its own",
    "expert": "tokens go to the ranks that the router chooses, and fake tensors hold no choice",
}

# Kernels that the judge has, by what they serve; more losses where one device holds the whole vocabulary.
BUILT = {
    "attention": ("flash", "efficient", "cudnn", "math", "eager"),
    "norm": ("fused", "eager"),
    "activation": ("fused", "fused_gated", "eager"),
    "residual": ("eager",),
    "loss": ("eager",),
    "weighing": ("results", "activation"),
    "router": ("eager", "fused"),
}


def unbuilt(plan: Plan) -> str:
    """The kernels of a plan that PyTorch and transformers do not have; empty where they have all."""
    losses = () if sharded(plan) else APART
    missing = [
        f"kernels.{name} = {kernel}"
        for name, kernels in BUILT.items()
        if (kernel := getattr(plan.kernels, name)) not in (*kernels, *(losses if name == "loss" else ()))
    ]
    return f"{', '.join(missing)}: the judge has PyTorch's and transformers' own kernels" if missing else ""


def sharding(plan: Plan) -> Sharding:
    """The mesh of the judge's rank, and how FSDP2 moves weights and gradients on it."""
    layout = plan.parallelism
    return Sharding(
        data=layout.data // layout.replicate,
        tensor=layout.tensor,
        replicate=layout.replicate,
        reshard=layout.reshard,
        wrap=layout.wrap,
        reduce="step" if layout.reduces_once else "micro_batch",
        micro_batches=micro_batches(plan),
        ends=plan.stack.ends,
    )


def sharded(plan: Plan) -> bool:
    """Whether a plan's step is that of one rank among several."""
    return plan.cluster.devices > 1


def unjudged(plan: Plan) -> str:
    """Why no step of this plan can be run; empty where it can."""
    if reason := unbuilt(plan):
        return reason
    layout = plan.parallelism
    if layout.offload:
        return f"parallelism.offload = {', '.join(layout.offload)}: the judge's device is its host"
    for axis, reason in UNJUDGED.items():
        if getattr(layout, axis) > 1:
            return f"parallelism.{axis} = {getattr(layout, axis)}: {reason}"
    if sharded(plan) and layout.data == 1 and plan.precision.autocast:
        return (
            f"{plan.precision.name} without FSDP2: a rank runs on fake CPU tensors, and the CPU's autocast is another"
        )
    if layout.data > 1 and layout.zero != 3:
        return f"parallelism.zero = {layout.zero}: the judge shards with fully_shard, which is ZeRO-3"
    if layout.tensor > 1 and layout.sequence != "save_gathered":
        return f"parallelism.sequence = {layout.sequence}: DTensor splits the sequence and keeps what it gathered"
    if sharded(plan) and plan.precision.stored:
        return "precision.stored: the judge's rank keeps what is saved as it is"
    if sharded(plan) and plan.kernels.loss in APART:
        return f"kernels.loss = {plan.kernels.loss}: the judge's rank has the loss of transformers"
    return ""
