"""Parts of a stack: kernels, overlap, values for a replay of its allocator, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from ledger.spec.parts import PartHeader
from ledger.spec.structures import MappingOf
from ledger.spec.values import Anything, Choice, Size, String


@dataclass(frozen=True)
class Kernels:
    """The implementation of each part; each saves and moves what the real one does."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Which implementation serves each part; overrides the stack's.", sourced=True
    )

    attention: Annotated[
        str,
        Choice(
            *("flash", "flash_repeated", "flash3", "varlen", "triton", "efficient"),
            *("cudnn", "cudnn_grouped", "math", "eager", "fused_softmax"),
        ),
        "The kernel of attention's core: FlashAttention 2, the same with keys and values copied for every query head, "
        "FlashAttention 3, the second over packed documents (torch's `varlen_attn`), the one in Triton, torch's "
        "memory-efficient one, cuDNN's, the same with grouped heads, "
        "plain operators, those of a framework, or a fused softmax between products (Megatron-LM).",
    ] = "flash"
    norm: Annotated[
        str,
        Choice("fused", "eager", "operators"),
        "One kernel; `eager`: as modules in Python, RMSNorm operator by operator, LayerNorm by PyTorch's one kernel; "
        "`operators`: LayerNorm operator by operator too.",
    ] = "fused"
    activation: Annotated[
        str,
        Choice("fused", "fused_gated", "eager"),
        "One kernel, one with the product of a gated MLP, or operator by operator.",
    ] = "fused"
    rotary: Annotated[
        str,
        Choice("fused", "eager", "complex"),
        "One kernel, or operator by operator; `complex`: pairs as complex numbers in fp32, whatever the model's form.",
    ] = "eager"
    residual: Annotated[str, Choice("fused", "eager"), "`fused`: dropout and residual addition in one kernel."] = (
        "eager"
    )
    loss: Annotated[
        str,
        Choice(
            "eager", "fused", "fused_apart", "softmax_in_place", "softmax_apart", "compiled", "chunked", "fused_linear"
        ),
        "`fused`: one kernel that leaves the gradient in place of the logits; `fused_apart`: one that writes it in "
        "fp32 beside them (Transformer Engine since 2.18); `softmax_in_place`: fp32 logits "
        "that become their softmax, and that the gradient (Megatron-LM); `softmax_apart`: the same in a copy of them "
        "(nanotron); `compiled`: Inductor, without fp32 logits; "
        "`chunked`: head and loss over parts of the sequence, rebuilt in backward; `fused_linear`: the same, with the "
        "gradients computed in forward (Liger).",
    ] = "eager"
    loss_chunks: Annotated[
        int, Size(2, 1_000_000), "Parts of a sequence for `chunked` and `fused_linear`; as the kernel chooses."
    ] = 0
    optimizer: Annotated[
        str, Choice("foreach", "fused", "loop"), "The implementation of the update, of those the optimizer has."
    ] = "foreach"
    experts: Annotated[
        str,
        Choice("grouped_mm", "batched_mm", "eager", "dense"),
        "`grouped_mm`: one kernel over tokens sorted by expert; `batched_mm`: each token with a copy of its expert's "
        "weights; `eager`: a loop over experts; `dense`: all experts on all tokens, as transformers runs Llama 4.",
    ] = "grouped_mm"
    weighing: Annotated[
        str,
        Choice("results", "activation"),
        "Where the scores of a token's experts multiply: their `results`, where tokens are put together again, or the "
        "`activation` before the last product (Megatron-Core, weighted SwiGLU).",
    ] = "results"
    router: Annotated[
        str,
        Choice("eager", "fused"),
        "Of a router in fp32: `eager` casts its operands and saves the casts; `fused` saves them as they are "
        "(Megatron-Core, RouterGatingLinearFunction).",
    ] = "eager"
    scan: Annotated[
        str,
        Choice("fused", "eager"),
        "Of recurrences: kernels that rebuild in backward what a chunk has (mamba_ssm, flash-linear-attention), or "
        "operators over chunks, as transformers runs them without those.",
    ] = "fused"


@dataclass(frozen=True)
class Overlap:
    """Overlap, a rule for each kind of communication: `none`, or the work that it may hide behind."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="What may hide behind what.", sourced=True)

    tensor: Annotated[
        str,
        Choice("none", "weight_gradient", "userbuffers", "matmul"),
        "Tensor-parallel communication behind the matmul it feeds or follows; that of column-parallel gradients behind "
        "weight gradients, and the rest as before (`userbuffers`) or not at all (`weight_gradient`).",
    ] = "none"
    data: Annotated[
        str,
        Choice("none", "backward", "replicas"),
        "Gradient reduction behind the backward of earlier layers, always or only where the optimizer is not sharded "
        "(`replicas`).",
    ] = "backward"
    gather: Annotated[str, Choice("none", "layer"), "The next unit's weights behind this unit's compute."] = "layer"
    pipeline: Annotated[str, Choice("none", "compute"), "Pipeline sends behind compute."] = "none"
    context: Annotated[
        str, Choice("none", "attention"), "The next block of a ring behind the attention of this one."
    ] = "attention"
    expert: Annotated[
        str,
        Choice("none", "shared", "micro_batch"),
        "Tokens to and from experts behind the shared experts, or behind what another micro-batch computes.",
    ] = "none"
    host: Annotated[
        str, Choice("none", "compute"), "Copies to host memory and back behind the layers that run meanwhile."
    ] = "none"
    update: Annotated[
        str, Choice("none", "backward"), "The update on the host behind the backward of earlier layers."
    ] = "none"


@dataclass(frozen=True)
class Replay:
    """Values that only a replay of the allocator's requests reads (ledger/lab/replay), and no formula of a plan."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What a replay of the allocator's requests reads, and no figure of a plan.", sourced=True
    )

    expandable: Annotated[
        bool, "Whether segments grow in place (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."
    ] = False
    recorded: Annotated[
        bool,
        "Whether what a collective used is marked with its stream (Tensor.record_stream), so that it is free once the "
        "device is past the collective, not once the host is (c10d before PyTorch 2.2; asynchronous ones before 2.8).",
    ] = False
    gather_buffers: Annotated[
        bool,
        "Tensor parallelism with `sequence: regather`: sequences are gathered into two buffers that last, one of them "
        "for gradients (nanotron's MemoryBuffer).",
    ] = False
    recounts: Annotated[
        bool,
        "Whether peaks are counted anew before the update (torch.cuda.reset_peak_memory_stats), so that the memory it "
        "prints is what was reserved then.",
    ] = False
    transfers: Annotated[
        str,
        Choice("ordered", "waited"),
        "Pipeline stages know the shapes of what they are sent, or hosts send them first, and wait for the device with "
        "every one.",
    ] = "ordered"
    update: Annotated[
        str,
        Choice("by_weight", "flat"),
        "Weights are updated with their own gradients and states, or one flat tensor of all that a device updates, "
        "which gradients are copied into.",
    ] = "by_weight"


@dataclass(frozen=True)
class Defaults:
    """Defaults of the software where the description of a published run is silent; a plan states all of it."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What the software does where a published run does not say; no plan reads it.", sourced=True
    )

    formats: Annotated[
        Mapping[str, Any],
        MappingOf(Anything()),
        "The precision that it takes for each word for a dtype: `bf16`, `fp8`.",
    ] = field(default_factory=dict, hash=False)
    recompute: Annotated[
        Mapping[str, Any], MappingOf(Anything()), "What its own words for recompute mean, beside none and full."
    ] = field(default_factory=dict, hash=False)
    plan: Annotated[
        Mapping[str, Any], MappingOf(Anything()), "Paths of a plan, such as `parallelism.sequence: regather`."
    ] = field(default_factory=dict, hash=False)
    ungated: Annotated[
        str,
        String(),
        "Family (`specs/spellings/family.yaml`) of models without a gated feed-forward part, where none is named.",
    ] = ""
    unfused: Annotated[
        str, String(), "Its `kernels.attention` where a run says that it has no FlashAttention; `math` where not given."
    ] = ""
    compiled: Annotated[str, String(), "The stack that is the same software under torch.compile."] = ""
    stages: Annotated[
        str,
        Choice("even", "by_matmuls"),
        "Layers of pipeline stages: as many in each, or as much of the matmuls, those of the head counted (nanotron).",
    ] = "even"
