"""What a plan says in torchtitan's own words: the fields of its configurations, and why it cannot say the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ledger.lab.verification.layouts import missing_kernels
from ledger.model.schedule import micro_batches
from ledger.spec.architecture import FOREIGN_PARTS
from ledger.spec.plan import Group, Plan

Fields = dict[str, Any]

BUILT = {
    "attention": ("varlen",),
    "norm": ("fused",),
    "activation": ("fused",),
    "rotary": ("complex",),
    "residual": ("eager",),
    "loss": ("eager",),
    "optimizer": ("fused", "foreach", "loop"),
}
ATTENTION = "varlen"
BACKEND = "partial_dtensor"  # the default, spmd_types, shards plain tensors, which fully_shard of PyTorch 2.13 does not
IMPLEMENTATIONS = {"fused": "fused", "foreach": "foreach", "loop": "for-loop"}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW"}
RESHARD = {"all": "default", "layers": "default", "none": "never"}  # its last layers stay gathered
CHECKPOINTS = ("none", "full", "keep")


def parallelism(plan: Plan) -> Fields:
    """The plan's mesh as fields of torchtitan's ParallelismConfig."""
    layout = plan.parallelism
    return {
        "spmd_backend": BACKEND,
        "data_parallel_replicate_degree": layout.replicate,
        "data_parallel_shard_degree": layout.data // layout.replicate,
        "fsdp_reshard_after_forward": RESHARD[layout.reshard],
        "tensor_parallel_degree": layout.tensor,
        "enable_sequence_parallel": layout.sequence != "off",
        "context_parallel_degree": layout.context,
    }


def training(plan: Plan) -> Fields:
    """What torchtitan's TrainingConfig takes of a plan: batches in sequences, lengths in tokens, dtypes."""
    return {
        "local_batch_size": plan.run.micro_batch,
        "seq_len": plan.run.seq_len,
        "mixed_precision_param": TYPES[plan.precision.compute],
        "mixed_precision_reduce": TYPES[plan.precision.reduction],
        "dtype": TYPES[plan.precision.weights.every],
        "disable_cuda_graphs": True,
    }


TYPES = {"bf16": "bfloat16", "fp32": "float32"}


def refusal(plan: Plan) -> str:
    """Why torchtitan cannot be asked about a plan; empty where it can."""
    return next((reason for refuse in REFUSALS if (reason := refuse(plan))), "")


def _kernels(plan: Plan) -> str:
    missing = missing_kernels(plan, BUILT)
    return f"{missing}: torchtitan's layers have kernels of their own" if missing else ""


def _layout(plan: Plan) -> str:
    layout = plan.parallelism
    if layout.zero != 3 and layout.data * layout.context > 1:
        return f"parallelism.zero = {layout.zero}: torchtitan shards with fully_shard, which is ZeRO-3"
    if layout.reduces_once and micro_batches(plan) > 1:
        return "parallelism.reduce = step: torchtitan reduces gradients with every micro-batch"
    if layout.wrap != 1 or plan.stack.ends != "apart":
        return f"parallelism.wrap = {layout.wrap}, stack.ends = {plan.stack.ends}: its units are layers and ends"
    if layout.offload:
        return f"parallelism.offload = {layout.offload}: the judge's ranks have no host apart"
    if layout.tensor > 1 and layout.sequence == "regather":
        return "parallelism.sequence = regather: torchtitan keeps what it gathered"
    if layout.pipeline > 1:
        return f"parallelism.pipeline = {layout.pipeline}: the judge runs ranks that have every layer"
    if layout.context > 1:
        return "parallelism.context: torchtitan's attention over ranks is FlexAttention, which is compiled"
    return ""


def _precision(plan: Plan) -> str:
    precision = plan.precision
    if precision.matmul or precision.stored or precision.master:
        return f"precision = {precision.name}: the judge runs torchtitan in bf16 and fp32"
    if precision.reduction != "fp32" or precision.compute not in TYPES or precision.weights.every not in TYPES:
        return f"precision = {precision.name}: fully_shard computes in bf16 or fp32 and reduces in fp32"
    return ""


def _training(plan: Plan) -> str:
    if plan.train.kind != "all":
        return f"train = {plan.train.kind}: the judge trains all weights"
    if plan.optimizer.name not in OPTIMIZERS:
        return f"optimizer = {plan.optimizer.name}: the judge has {', '.join(OPTIMIZERS)}"
    if plan.recompute.policy not in CHECKPOINTS:
        return f"recompute = {plan.recompute.policy}: torchtitan has full, and what is kept by operator"
    return ""


def _foreign_parts(plan: Plan) -> Iterator[str]:
    """The parts of a model that torchtitan's Llama 3 does not have, a sentence each."""
    described = plan.model
    if described.bare:
        yield "only a parameter count is known"
        return
    for name in described.stated(
        (*FOREIGN_PARTS, "scale_embedding", "head_bias", "head_softcap", "learned_positions", "tied")
    ):
        yield f"model.{name}: torchtitan's Llama 3 is built without it"
    if described.embedding_dropout or described.residual_dropout or described.norm.kind != "rms":
        yield "model.norm, model.residual: torchtitan's Llama 3 has RMSNorm and no dropout"
    if len(described.groups) > 1:
        yield "model.layers: torchtitan's Llama 3 has layers of one kind"
    for group in described.groups:
        yield from _foreign_layers(group)


def _foreign_layers(group: Group) -> Iterator[str]:
    attention, mlp = group.attention, group.mlp
    if group.norms != "pre" or group.residual != "sequential":
        yield f"model.layers.{group.name}: norms before each part, one part after the other"
    for name in (
        "bidirectional",
        "window",
        "chunk",
        "softcap",
        "sinks",
        "temperature",
        "qkv_bias",
        "out_bias",
        "dropout",
    ):
        if getattr(attention, name):
            yield f"model.layers.{group.name}.attention.{name}: torchtitan's Llama 3 has none"
    if attention.kind != "grouped_query" or attention.qk_norm != "none" or attention.rotary != 1:
        yield f"model.layers.{group.name}.attention: kind = {attention.kind}, qk_norm = {attention.qk_norm}"
    if mlp.kind != "gated" or mlp.activation != "silu" or mlp.bias or mlp.fused_gate_up:
        yield f"model.layers.{group.name}.mlp: torchtitan's Llama 3 has SwiGLU"


REFUSALS: tuple[Callable[[Plan], str], ...] = (
    lambda plan: next(_foreign_parts(plan), ""),
    *(_kernels, _layout, _precision, _training),
)
