"""The software of a plan: kernels, what may hide behind what, what the host spends, how the allocator reserves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from ledger.spec.engine import Engine
from ledger.spec.parts import At, Nested, PartHeader
from ledger.spec.stack_parts import Defaults, Kernels, Overlap, Replay
from ledger.spec.structures import ListOf, Row, Values, quantity
from ledger.spec.values import YEAR, Choice, Date, Integer, String

HOST_TIME = quantity("s", zero=True)
RATIO = quantity("1", least=0.01, greatest=100)

# Where the fields of a replay stood before they were a part of their own.
REPLAYED = ("allocator.expandable", "allocator.recorded", "gather_buffers", "recounts", "transfers", "update")


@dataclass(frozen=True)
class Stack:
    """One software stack at one date: kernels, overlaps, launch cost, allocator; sizes in B, times in s."""

    spec: ClassVar[PartHeader] = PartHeader(
        title="A software stack at one date",
        kind="stack",
        inline=False,
        groups={
            "launch": Nested("What the host spends on what it launches.", sourced=True),
            "launch.beside": Nested(
                "Kernels of a layer that no operation of the plan stands for (copies into other layouts, lengths of "
                "sequences)."
            ),
            "allocator": Nested("How device memory is reserved, and what lies outside the allocator.", sourced=True),
        },
        extra=(
            Row("launch.beside.forward", Integer(0), "How many in forward.", "beside.0", default=0),
            Row("launch.beside.backward", Integer(0), "How many in backward.", "beside.1", default=0),
        ),
        replaced_keys={
            "launch.graphs": "where CUDA graphs take the host out, write `launch: {per_operation: 0 s}`",
            **dict.fromkeys(REPLAYED, "write it under `replay`, as in `replay: {recorded: true}`"),
        },
    )

    name: str
    title: str
    date: Annotated[str, Date(pattern=YEAR), "Date of the software: `2025-06` or `2025-06-30`."]
    framework: Annotated[str, String(least=1), "What it is a stack of: `Megatron-Core`."] = ""
    version: Annotated[str, String(least=1), "Which version, of which parts: `0.16, Transformer Engine 2.11`."] = ""
    kernels: Annotated[Kernels, "Which implementation serves each part, where a plan does not say."] = field(
        default_factory=Kernels
    )
    overlap: Annotated[Overlap, "What may hide behind what."] = field(default_factory=Overlap)
    compiled: Annotated[bool, "Whether chains of elementwise operations run as one kernel."] = False
    launch: Annotated[float, At("launch.per_operation"), HOST_TIME, "Host time per operation: `18 us`."] = 0.0
    blocking: Annotated[
        bool,
        At("launch.blocking"),
        "Whether the host waits for each kernel before it launches the next (CUDA_LAUNCH_BLOCKING=1).",
    ] = False
    check: Annotated[
        float,
        At("launch.check"),
        HOST_TIME,
        "Host time of one message, of which a collective needs four for each rank but the first where hosts compare "
        "what they are about to run (`TORCH_DISTRIBUTED_DEBUG=DETAIL`).",
    ] = 0.0
    matmul_level: Annotated[float, RATIO, "This stack's matmul rate over the calibrated library's."] = 1.0
    quantised_level: Annotated[float, RATIO, "The same of products of quantised operands."] = 1.0
    context: Annotated[
        int,
        At("allocator.context"),
        quantity("B", zero=True),
        "What CUDA context, NCCL and cuBLAS hold outside the allocator.",
    ] = 0
    workspace: Annotated[
        int,
        At("allocator.workspace"),
        quantity("B", zero=True),
        "What its matmuls keep for themselves as a tensor (Transformer Engine's workspace of cuBLAS).",
    ] = 0
    streams: Annotated[
        int,
        At("allocator.streams"),
        Integer(0, 1000),
        "Streams that products of many experts run on, each with such a workspace of its own.",
    ] = 0
    fragmentation: Annotated[
        float, At("allocator.fragmentation"), RATIO, "Reserved over allocated memory, at least 1."
    ] = 1.0
    accumulation: Annotated[
        str,
        Choice("add", "fused", "after_backward"),
        "Gradients of micro-batches: added by a kernel of their own, fused into the matmul, or kept in the weights' "
        "dtype until backward is over, and added then.",
    ] = "add"
    checkpoint: Annotated[
        str,
        Choice("early_stop", "reentrant", "whole"),
        "How what is recomputed is rebuilt: until the last saved tensor is back (torch.utils.checkpoint with "
        "`use_reentrant=False`), or to its end (Megatron-LM's and DeepSpeed's CheckpointFunction; `whole`: "
        "torch.utils.checkpoint with `early_stop=False`).",
    ] = "early_stop"
    tensor_parallel: Annotated[
        str,
        Choice("dtensor", "explicit"),
        "What splits layers: PyTorch's DTensor, or modules of the framework's own that keep the sequence outermost "
        "(Megatron-LM, nanotron).",
    ] = "dtensor"
    embedding: Annotated[
        str,
        Choice("all_rows", "own_rows"),
        "What of a split embedding has a gradient where DTensor splits the sequence: the whole vocabulary, of which a "
        "device then takes its part (DTensor's own), or the rows that it has (torchtitan since 2026).",
    ] = "all_rows"
    projections: Annotated[
        str,
        Choice("apart", "attention", "joined"),
        "Whether queries, keys and values, and gate and up, are products of a matrix each, or of one (Megatron-Core's "
        "`linear_qkv` and `linear_fc1`), or only those of attention (torchtitan's `wqkv`): gradients of what they read "
        "need no sums then.",
    ] = "apart"
    held_inputs: Annotated[
        bool,
        "Whether what a part of a layer reads is there until that part returns, though nothing saves it: frames of "
        "Python hold their arguments.",
    ] = False
    product_frames: Annotated[
        bool,
        "Whether a product with its gather or scatter is one function of autograd, forward and backward: what it reads "
        "and makes is there until it returns, and the gradient of what it gathered is scattered before gradients of "
        "weights are computed (Transformer Engine's Linear and LayerNormLinear, Megatron-LM's head).",
    ] = False
    rotary_tables: Annotated[
        str,
        Choice("shared", "each_layer"),
        "Complex rotations: one table for all layers, or one that each layer keeps, of which it takes the rows of its "
        "positions anew, which backward reads (torchtitan since 2026).",
    ] = "shared"
    gathered_logits: Annotated[
        bool,
        "Whether devices that split the vocabulary gather the logits before the loss (torchtitan's "
        "`disable_loss_parallel`), or take it of their own part (torch's `loss_parallel`, Megatron-LM).",
    ] = False
    shifted_logits: Annotated[
        bool,
        "Whether an eager loss takes a copy of the fp32 logits without the last position, while the model's output "
        "holds them (transformers 4.38), or shifts the labels.",
    ] = False
    buckets: Annotated[
        bool,
        "Whether gradients are reduced in buckets that are a second copy of all of them (DistributedDataParallel "
        "without `gradient_as_bucket_view`).",
    ] = False
    reduction_buffer: Annotated[
        int,
        Integer(0),
        "Elements of the buffer that gradients are copied into as backward has them, and reduced from when it is full "
        "(DeepSpeed's `reduce_bucket_size`); 0: there is none.",
    ] = 0
    main_gradients: Annotated[
        bool, "Whether gradients are added up in one buffer that is never freed (Megatron-LM's `main_grad`)."
    ] = False
    split_values: Annotated[
        bool,
        "Whether values are copied out of a joint projection whose queries and keys were rotated into tensors of their "
        "own, so that it is freed (Transformer Engine's `get_qkv_layout` makes all three contiguous).",
    ] = False
    dummy_gradients: Annotated[
        bool,
        "With fused accumulation: whether autograd is given one tensor of each shape of weight in place of gradients, "
        "which is never freed (Transformer Engine's `get_dummy_wgrad`).",
    ] = False
    expert_rows: Annotated[
        str,
        Choice("sorted", "mapped"),
        "How rows of tokens reach their experts: sorted by indices of rows (transformers, torchtitan), or moved by "
        "maps of all tokens and experts, each device those of its own part of the sequence (Megatron-Core's all-to-all "
        "dispatcher with Transformer Engine's permutation, `moe_permute_fusion`).",
    ] = "sorted"
    latent_rotary: Annotated[
        str,
        Choice("joined", "in_place"),
        "What a fused rotation of latent attention writes: heads put together of both parts, or queries in place, and "
        "keys and values apart (Megatron-Core's `fused_mla_yarn_rope_apply`).",
    ] = "joined"
    head_buffer: Annotated[
        bool,
        "Tensor parallelism with `sequence: regather`: the head's input is gathered into a buffer that lasts "
        "(Megatron-Core's `GlobalMemoryBuffer`).",
    ] = False
    loss_sums: Annotated[
        str,
        Choice("apart", "joined", "gathered"),
        "What the loss of a split vocabulary exchanges of each token: its largest value, sum and target, a reduction "
        "each; `joined`: the last two in one (Megatron-Core's fused loss); `gathered`: all three in one gather "
        "(Transformer Engine's).",
    ] = "apart"
    gathers: Annotated[
        str,
        Choice("in_place", "copied"),
        "ZeRO 1 and 2: updated weights are gathered into the weights themselves, or copied through buffers as large "
        "as all of them.",
    ] = "in_place"
    reduces: Annotated[
        str,
        Choice("share", "all"),
        "ZeRO 1 and 2: each device gets the sum of its share of the gradients, or of all of them and keeps its share.",
    ] = "share"
    unshard: Annotated[
        str,
        Choice("views", "copied", "modules"),
        "ZeRO 3: gathered weights are used where they arrive (FSDP1's flat parameters), or copied out of the buffer "
        "(FSDP2); or each module gathers its own, and those that follow ahead (DeepSpeed).",
    ] = "views"
    prefetch: Annotated[
        int,
        Integer(0),
        "With `unshard: modules`: elements that a module gathers ahead in one call (DeepSpeed's "
        "`stage3_prefetch_bucket_size`).",
    ] = 0
    live_parameters: Annotated[
        int,
        Integer(0),
        "With `unshard: modules`: elements that are there beyond which nothing is gathered ahead (DeepSpeed's "
        "`stage3_max_live_parameters`).",
    ] = 0
    reuse_distance: Annotated[
        int,
        Integer(0),
        "With `unshard: modules`: weights stay where a module within so many elements of the next modules has them "
        "(DeepSpeed's `stage3_max_reuse_distance`).",
    ] = 0
    persistent: Annotated[
        int,
        Integer(0),
        "With `unshard: modules`: a weight of no more elements is there whole from update to update (DeepSpeed's "
        "`stage3_param_persistence_threshold`).",
    ] = 0
    transfer_channels: Annotated[
        int, Integer(0, 1000), "Multiprocessors that a transfer holds while it runs beside compute (NCCL's channels)."
    ] = 0
    ends: Annotated[
        str,
        Choice("root", "apart"),
        "ZeRO 3: embedding and head move together with the root, which stays gathered for a whole pass, or apart, "
        "each by itself; tied ones are always left to the root.",
    ] = "root"
    engine: Annotated[Engine, Engine.spec.meaning] = field(default_factory=Engine)
    replay: Annotated[Replay, Replay.spec.meaning] = field(default_factory=Replay)
    defaults: Annotated[Defaults, Defaults.spec.meaning] = field(default_factory=Defaults)
    scored_on: Annotated[
        tuple[str, ...],
        ListOf(String(least=1), unique=True),
        "Devices on which whole published runs of it were scored: estimates of its steps have errors that are known.",
    ] = ()
    beside: tuple[int, int] = (0, 0)  # kernels of a layer's forward and backward that no operation stands for
    call: Annotated[
        float,
        At("launch.beside.each"),
        HOST_TIME,
        "Host time of one of them: a call without autograd, views or hooks around it.",
    ] = 0.0
    optimizer_passes: Annotated[
        tuple[str, ...],
        ListOf(Choice("copy", "unscale", "norm", "clip", "cast", "zero")),
        "Passes over the gradients beside the update.",
    ] = ()
    norm_dtype: Annotated[
        str,
        Choice("", "fp32", "fp64"),
        "The dtype of the copy of each gradient that the pass `norm` is taken of; empty: of the gradient as it is.",
    ] = ""
    scatter_sends: Annotated[
        bool, "Whether a pipeline stage sends each tensor-parallel rank its share only, gathered again within the node."
    ] = False
    overlap_tax: Annotated[
        float,
        quantity("1", greatest=1, zero=True),
        "Share of a hidden transfer's time that the compute beside it loses.",
    ] = 0.0
    judge: Annotated[
        str,
        Choice("pytorch", "megatron-core", "deepspeed", "torchtitan"),
        "What `ledger verify` asks about plans of this software: PyTorch with transformers' models, or the framework "
        "itself. No figure of a plan depends on it.",
    ] = "pytorch"
    source: str = ""

    @classmethod
    def from_spec(cls, values: Values) -> Stack:
        """Kernels that no operation stands for are a pair, of forward and backward."""
        extra_kernels = (values.pop("beside.0", 0), values.pop("beside.1", 0))
        return cls(**(values | {"beside": extra_kernels}))


UNSTATED_STACK = Stack("", "", "")  # what software does of which nothing is said
