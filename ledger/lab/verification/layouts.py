"""Which of a plan's layouts PyTorch can be asked about, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.lab.observed.ranks import DdpRank, ShardedRank
from ledger.lab.reference.model import SEPARATE_LOSSES
from ledger.model.exchanges import copied_to_buckets
from ledger.model.schedule import micro_batches
from ledger.model.units import compute_precision
from ledger.spec.plan import Plan

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


def missing_kernels_reason(plan: Plan) -> str:
    """The kernels of a plan that PyTorch and transformers do not have; empty where they have all."""
    missing = missing_kernels(
        plan, BUILT if has_several_ranks(plan) else {**BUILT, "loss": (*BUILT["loss"], *SEPARATE_LOSSES)}
    )
    return f"{missing}: the judge has PyTorch's and transformers' own kernels" if missing else ""


def missing_kernels(plan: Plan, built: Mapping[str, Sequence[str]]) -> str:
    """The kernels of a plan that are not among those built, as a plan states them; empty where all are."""
    named = {name: getattr(plan.kernels, name) for name in built}
    return ", ".join(f"kernels.{name} = {kernel}" for name, kernel in named.items() if kernel not in built[name])


def judged_mesh(plan: Plan) -> ShardedRank:
    """The mesh of the judge's rank, and how FSDP2 moves weights and gradients on it."""
    layout = plan.parallelism
    return ShardedRank(
        data=layout.data * layout.context // layout.replicate,
        tensor=layout.tensor,
        replicate=layout.replicate,
        reshard=layout.reshard,
        wrap=layout.wrap,
        reduce="step" if layout.reduces_once else "micro_batch",
        micro_batches=micro_batches(plan),
        ends=plan.stack.ends,
        gathered_logits=plan.stack.gathered_logits,
        offload="weights" in layout.offload,
        expert=layout.expert,
        arriving=plan.assumptions.expert_imbalance,
        context=layout.context,
        exchange=layout.context_exchange,
        balanced=layout.context_balance == "zigzag",
    )


def replicas(plan: Plan) -> DdpRank:
    """The judge's ranks where each has all weights."""
    layout = plan.parallelism
    return DdpRank(layout.data, layout.bucket, layout.reduces_once, micro_batches(plan))


def has_several_ranks(plan: Plan) -> bool:
    """Whether a plan's step is that of one rank among several."""
    return plan.cluster.devices > 1


def unhosted(plan: Plan) -> str:
    """Why what lives in host memory cannot be judged; empty where it can."""
    layout, policy = plan.parallelism, plan.recompute.policy
    if not layout.offload:
        return ""
    said = f"parallelism.offload = {layout.offload}"
    if "optimizer" in layout.offload and "weights" not in layout.offload:
        return f"{said}: torch.optim keeps its states where the weights are"
    if layout.tensor > 1 or copied_to_buckets(plan):
        return f"{said}: the judge's ranks have a host apart under FSDP2 alone"
    if layout.offload.layers:
        return f"{said}: the judge has moments for all layers of a group"
    if "activations" in layout.offload and policy not in ("none", "full"):
        return f"{said} with recompute = {policy}: what it keeps of a layer is not saved by autograd"
    if "activations" in layout.offload and compute_precision(plan).autocast:
        return f"{said} under autocast: its casts of weights are saved as well"
    return ""


def unjudged(plan: Plan) -> str:
    """Why no step of this plan can be run; empty where it can."""
    asked = (missing_kernels_reason, unhosted, _split_parts, _unsplit_weights, _tensor_form, _rank_limits)
    return next((reason for reason in (ask(plan) for ask in asked) if reason), "")


def _split_parts(plan: Plan) -> str:
    """Why the judge's ranks cannot have these parts of a sequence or of a layer's experts; empty where they can."""
    layout = plan.parallelism
    degrees = {"context": layout.context, "expert": layout.expert}
    split = ", ".join(f"parallelism.{axis} = {degree}" for axis, degree in degrees.items() if degree > 1)
    if split and layout.zero != 3:
        return f"{split} with zero = {layout.zero}: the judge has parts under FSDP2 alone"
    if layout.expert == 1:
        return ""
    if plan.kernels.weighing == "activation":
        return f"{split} with kernels.weighing = activation: rows reach the judge's experts without their scores"
    if layout.wrap != 1 or plan.stack.ends == "apart":
        condition = f"wrap = {layout.wrap}" if layout.wrap != 1 else "stack.ends = apart"
        return f"{split} with {condition}: the judge's layers are told what to gather ahead, one by one"
    if layout.offload:
        return f"{split} with offload: the judge's experts have no host"
    return ""


def _unsplit_weights(plan: Plan) -> str:
    """Why weights that FSDP2 does not split cannot be judged; empty where they can."""
    layout = plan.parallelism
    if layout.data > 1 and layout.zero != 3 and not copied_to_buckets(plan):
        return f"parallelism.zero = {layout.zero}: {_unsharded(plan)}"
    if copied_to_buckets(plan) and layout.tensor > 1:
        return f"parallelism.zero = 0 with tensor = {layout.tensor}: DistributedDataParallel takes no DTensor"
    return ""


def _unsharded(plan: Plan) -> str:
    if plan.parallelism.zero == 0:
        return "stack.buckets = false, and the judge's replicas are DistributedDataParallel, which has buckets"
    return "the judge shards with fully_shard, which is ZeRO-3, or not at all"


def _tensor_form(plan: Plan) -> str:
    """Why tensor parallelism in another form than DTensor's cannot be judged; empty where it can."""
    layout = plan.parallelism
    if layout.tensor > 1 and layout.sequence != "save_gathered":
        return f"parallelism.sequence = {layout.sequence}: DTensor splits the sequence and keeps what it gathered"
    return ""


def _rank_limits(plan: Plan) -> str:
    """Why one rank among several cannot be asked; empty where it can."""
    if not has_several_ranks(plan):
        return ""
    layout = plan.parallelism
    if plan.precision.autocast and (layout.data * layout.context == 1 or layout.zero == 0):
        name = plan.precision.name
        return f"{name} without FSDP2: a rank runs on fake CPU tensors, and the CPU's autocast is another"
    if plan.precision.stored:
        return "precision.stored: the judge's rank keeps what is saved as it is"
    if plan.kernels.loss in SEPARATE_LOSSES:
        return f"kernels.loss = {plan.kernels.loss}: the judge's rank has the loss of transformers"
    return ""
