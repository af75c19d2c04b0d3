"""The plan: what a spec says, typed. Every part is frozen; sizes are integers, amounts are in SI base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ledger.spec.optimizer import Optimizer as Optimizer  # noqa: PLC0414 - a part of a plan like those below
from ledger.spec.problems import Location, Problem
from ledger.spec.recipe import Recipe

# --- where a value comes from -------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """Where a value was written, and the publication it was taken from (empty where the value is a choice)."""

    where: Location
    source: str = ""


# --- hardware -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A fitted price: `form` names the formula, `parameters` its constants (seconds, B/s, ratios), `error` its MAPE.

    `what` is the kernel class it prices (`matmul.bf16`, `attention.flash.forward`, `norm`, `all_reduce`, ...);
    `ranks` the group size of a collective's fit (0: any), `head_dim` of an attention fit (0: any);
    `regime` is `burst` or `sustained`; `region` where the fit holds.
    """

    what: str
    form: str
    parameters: Mapping[str, float]
    error: float
    regime: str
    source: str
    bias: float = 0.0
    held_out: str = ""
    region: str = ""
    ranks: int = 0
    head_dim: int = 0


@dataclass(frozen=True)
class Accelerator:
    """A price list: dense peaks in FLOP/s per matmul dtype, bandwidths in B/s, sizes in B, power in W."""

    name: str
    title: str
    peak: Mapping[str, float]  # "bf16" -> dense FLOP/s; "fp32" is without tensor cores, "tf32" with
    vector: float  # FLOP/s of fp32 arithmetic outside the matrix units
    bandwidth: float
    memory: int  # as the driver reports it
    memory_labelled: int  # as the label says (80e9 for an 80 GB card)
    l2: int
    multiprocessors: int
    scaleup_bandwidth: float  # one way, per device; 0 where devices of a node share only PCIe
    scaleup_domain: int
    host_bandwidth: float  # one way
    power: float
    aliases: tuple[str, ...] = ()
    calibration: tuple[Curve, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """How many devices there are and what joins them. `scaleout_bandwidth` is one way, per device, in B/s."""

    devices: int
    devices_per_node: int
    scaleout_bandwidth: float
    scaleout_latency: float = 0.0  # seconds per rank of a ring that crosses nodes
    scaleout_efficiency: float = 1.0
    failure_rate: float = 0.0  # failures per device and second; 0: not stated
    name: str = ""


# --- the model ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Norm:
    """`kind` is `rms` or `layer`; `bias` only with `layer`; `unit_offset` is Gemma's `1 + weight`.

    `wide`: where it is written in Python, the weight is multiplied before the result is narrowed (OLMo 2, GPT-OSS).
    """

    kind: str = "rms"
    bias: bool = False
    unit_offset: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Attention:
    """Multi-head (kv_heads = heads), grouped-query, multi-query or latent attention; sizes of one layer.

    `head_dim` is the width of a query; latent attention makes it of a part without positions and a rotated one.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    fused_qkv: bool = False  # one projection for q, k and v (GPT-2, GPT-NeoX), so one tensor holds all three
    rotary: Fraction = Fraction(0)  # fraction of head_dim that is rotated; 0: no rotary positions
    window: int | None = None  # sliding window in tokens
    softcap: float | None = None
    dropout: Fraction = Fraction(0)  # on attention probabilities
    softmax: str = "fp32"  # eager attention computes its softmax in fp32, or in the dtype of its `input` (GPT-2)
    kind: str = "grouped_query"  # or latent
    q_rank: int = 0  # latent: width of the latent that queries come from; 0: they come from the residual stream
    kv_rank: int = 0  # latent: width of the latent that keys and values come from
    nope_head_dim: int = 0
    rope_head_dim: int = 0
    v_head_dim: int = 0  # latent: width of a head's values
    # halves | wide_halves (OLMo 2) | half_tables (GPT-OSS) | pairs (DeepSeek-V3) | complex (DeepSeek-V2, Llama 4)
    rotary_form: str = "halves"
    rotary_base: int = 0  # layers of another base have tables of their own; 0: not stated
    # head (Qwen3) | all (OLMo 2): queries and keys are normed, head by head or over all heads; unweighted (Llama 4):
    # head by head, without a weight, after rotation
    qk_norm: str = "none"
    sinks: bool = False  # a learned logit a head beside the scores (GPT-OSS)
    temperature: bool = False  # queries grow with their position (Llama 4)
    chunk: int | None = None  # tokens see those before them in their own chunk only (Llama 4)

    @property
    def joined(self) -> bool:
        """Whether queries are put together from a rotated part and a rest, which leaves heads before positions."""
        return self.kind == "latent" or 0 < self.rotary < 1 or (self.rotary > 0 and self.rotary_form == "half_tables")

    @property
    def rotary_dim(self) -> int:
        """Width of the rotated part of one head."""
        return int(self.rotary * self.head_dim)

    @property
    def cached(self) -> int:
        """Elements that a decoder keeps for each token: keys and values, or the latent and the rotated part."""
        return self.kv_rank + self.rope_head_dim if self.kind == "latent" else 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Router:
    """How tokens choose experts: a score for each, of which the `top_k` largest count.

    `scores` is `softmax` (over all experts), `softmax_of_chosen` or `sigmoid`; `dtype` is what its matmul runs in,
    `weights` the dtype in which chosen scores go on: fp32, or that of the layer's `input`.
    """

    scores: str = "softmax"
    normalize: bool = False  # the chosen scores are made to add up to one
    dtype: str = "compute"  # compute | fp32
    weights: str = "fp32"  # fp32 | input
    bias: bool = False
    groups: int = 1  # of experts, of which each token uses the best few (DeepSeek)
    auxiliary_loss: bool = False  # a loss for even use, from the logits of all layers


@dataclass(frozen=True)
class Shared:
    """Experts that every token uses: `count` of width `d_ff`, as one gated MLP; `gated`: scaled by a learned gate."""

    d_ff: int
    count: int = 1
    gated: bool = False


@dataclass(frozen=True)
class Step:
    """One step of a custom component: `kind` is einsum, activation, multiply or add; `of` names what it is from."""

    name: str
    kind: str
    of: tuple[str, ...]
    einsum: str = ""
    weight: str = ""
    bias: str = ""
    activation: str = ""


@dataclass(frozen=True)
class Custom:
    """A component of its author's own: sizes of its dims, dims of its weights, its steps, and which axis cuts what."""

    dims: tuple[tuple[str, int], ...]
    weights: tuple[tuple[str, tuple[str, ...]], ...]
    steps: tuple[Step, ...]
    split: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class MLP:
    """`kind` is `plain` (up, activation, down), `gated` (gate and up, product, down), `experts` or `custom` (its steps).

    Of `experts`, each of width `d_ff`, a token uses `top_k`. With a `capacity_factor` an expert takes so many times its
    even share of tokens, padded to that; without one it takes all that come.
    """

    d_ff: int
    kind: str = "gated"
    activation: str = "silu"  # silu | gelu | gelu_tanh | relu | clamped_swiglu (experts alone)
    bias: bool = False
    experts: int = 0
    top_k: int = 0
    router: Router = field(default_factory=Router)
    shared: Shared | None = None
    capacity_factor: Fraction | None = None
    custom: Custom | None = None

    @property
    def shared_d_ff(self) -> int:
        """Width of all shared experts together."""
        return self.shared.d_ff * self.shared.count if self.shared else 0


@dataclass(frozen=True)
class Group:
    """`repeat` equal layers. `norms`: `pre`, `post` (OLMo 2), `sandwich` (before and after each part, Gemma-2), or
    `shared` (one that parallel attention and MLP both read: Falcon, Phi, Cohere).
    """

    name: str
    repeat: int
    attention: Attention
    mlp: MLP
    norms: str = "pre"
    residual: str = "sequential"  # or "parallel": attention and MLP read the same stream (GPT-NeoX)


@dataclass(frozen=True)
class Model:
    """A decoder: embedding, layer groups, final norm, output head; or a bare parameter count.

    `order`: names of groups that take turns in this pattern, over and over; empty: one group follows the other.
    """

    name: str
    title: str
    parameters: int | None = None  # only for a bare model: a count and nothing else
    d_model: int = 0
    vocab: int = 0
    groups: tuple[Group, ...] = ()
    norm: Norm = field(default_factory=Norm)
    tied: bool = False
    learned_positions: int = 0  # rows of a learned position table; 0: none
    scale_embedding: bool = False
    head_bias: bool = False
    head_softcap: float | None = None
    embedding_dropout: Fraction = Fraction(0)
    residual_dropout: Fraction = Fraction(0)
    max_seq_len: int = 0
    order: tuple[str, ...] = ()
    predictions: int = 0  # further tokens predicted, each by a layer of the last group's kind (DeepSeek-V3)

    @property
    def bare(self) -> bool:
        """Whether only a parameter count is known."""
        return not self.groups


# --- policies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Precision:
    """A dtype per role. `master` is None where the optimizer updates the weights themselves.

    `autocast`: weights are kept in `weights` and cast to `compute` where a matmul uses them, as torch.autocast does.
    """

    name: str
    weights: str
    gradients: str
    master: str | None
    states: str
    compute: str  # dtype of matmul operands
    activations: str  # dtype of what flows between operations where there is no autocast
    reduction: str  # dtype of data-parallel gradient reduction
    softmax: str = "fp32"
    logits: str = "fp32"  # dtype in which the loss is computed
    autocast: bool = False
    matmul: Recipe | None = None  # how operands of matmuls with weights are quantised

    @property
    def multiplies(self) -> str:
        """The dtype that most matmuls multiply in."""
        return self.matmul.format if self.matmul else self.compute


@dataclass(frozen=True)
class Stages:
    """Layers of the chunks of a pipeline, where they are not all alike: `each` of them, or those of the `first` and `last`.

    `ends`: embedding and head are `shared` with the layers of their chunks, count as one `layer` each, or have their
    `own` chunk.
    """

    each: tuple[int, ...] = ()
    first: int | None = None
    last: int | None = None
    ends: str = "shared"


@dataclass(frozen=True)
class Parallelism:
    """Degrees of the mesh axes. devices = data x tensor x pipeline x context; expert subdivides data x context."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    zero: int = 0
    sequence: str = "off"  # off | save_gathered | regather
    interleave: int = 1
    replicate: int = 1  # hybrid sharding: copies of what ZeRO splits, within data x context
    shard: int = 0  # devices that split one copy; 0: not stated, data x context / replicate
    reshard: str = "all"  # sets of weights that ZeRO 3 frees after forward: all | layers (the root stays) | none
    wrap: int = 1  # layers whose weights ZeRO 3 moves as one; 0: the whole model
    reduce: str = ""  # gradients are reduced with every micro_batch or once a step; empty: what `reduces_once` says
    bucket: int = 0  # bytes of gradients that replicas reduce together; 0: as torch's DistributedDataParallel does
    offload: tuple[str, ...] = ()  # what lives in host memory: optimizer, weights, activations
    schedule: str = ""  # a row of PIPELINES (ledger/model/pipelines.py); empty: what `scheduled` says
    stages: Stages = Stages()
    context_exchange: str = "all_gather"  # | ring | all_to_all: how attention sees a sequence that is cut
    context_balance: str = "zigzag"  # | none: whether the ranks of a cut sequence share a causal mask evenly

    @property
    def reduces_once(self) -> bool:
        """Whether gradients are reduced once a step: where nothing is said, if every device holds all of them."""
        return self.reduce == "step" or (not self.reduce and self.zero < 2)

    @property
    def scheduled(self) -> str:
        """The schedule by name: the stated one, else 1F1B, interleaved where a device has several chunks."""
        return self.schedule or ("interleaved" if self.interleave > 1 else "1f1b")


@dataclass(frozen=True)
class Recompute:
    """What backward rebuilds.

    `policy`: none, selective (attention core), full, components (those named), keep (all but results of named kernels),
    every (n-th layer), layers (the first n of a stage), segment (so many layers at once; 0: square root of their number).
    """

    policy: str = "none"
    every: int = 1
    keep: tuple[str, ...] = ()
    matmuls: str = "all"  # or every_second: of the matmuls that are kept, only the odd ones
    components: tuple[str, ...] = ()
    layers: int = 0
    segment: int = 0


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters: their rank, and the contractions that have one (`q`, `up`, ...)."""

    rank: int
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Train:
    """Which weights are trained.

    `kind`: all, only those `names` say, all but the `frozen` ones, or lora (the adapters beside frozen weights).
    """

    kind: str = "all"
    names: tuple[str, ...] = ()
    lora: Lora | None = None

    @property
    def rank(self) -> int:
        """The rank of the adapters; 0: there are none."""
        return self.lora.rank if self.lora else 0


@dataclass(frozen=True)
class Kernels:
    """Which implementation serves each part; each saves and moves what the real one does."""

    attention: str = "flash"  # flash | flash3 | efficient | cudnn | math | eager | cudnn_grouped | fused_softmax
    norm: str = "fused"  # fused | eager
    activation: str = "fused"  # fused | fused_gated (with the product of a gated MLP) | eager
    rotary: str = "eager"  # fused | eager
    residual: str = "eager"  # fused: dropout and residual addition in one kernel | eager
    loss: str = "eager"  # eager | fused (gradient in place of the logits) | softmax_in_place | compiled | chunked | ...
    loss_chunks: int = 0  # parts of a sequence for `chunked` and `fused_linear`; 0: as the kernel chooses
    optimizer: str = "foreach"  # foreach | fused | loop
    experts: str = "grouped_mm"  # grouped_mm | batched_mm (a copy of its expert for each token) | eager (a loop)


@dataclass(frozen=True)
class Overlap:
    """What may hide behind what, a rule per kind of communication: `none`, or the work that covers it."""

    tensor: str = "none"  # none | weight_gradient (in backward only) | matmul (the contraction it feeds or follows)
    data: str = "backward"  # none | backward (gradient reduction behind the backward of earlier layers)
    gather: str = "layer"  # none | layer (the next unit's gather behind this unit's compute)
    pipeline: str = "none"  # none | compute
    context: str = "attention"  # none | attention (the blocks of a ring behind the attention of the block before)
    expert: str = (
        "none"  # none | shared (behind the shared experts) | micro_batch (behind another micro-batch's compute)
    )


@dataclass(frozen=True)
class Stack:
    """One software stack at one date: kernels, overlaps, launch cost, allocator; sizes in B, times in s."""

    name: str
    title: str
    date: str
    kernels: Kernels
    overlap: Overlap
    compiled: bool = False  # chains of elementwise operations run as one kernel
    graphs: bool = False  # CUDA graphs: no launch cost on the host
    launch: float = 0.0  # host seconds per operation, eager
    matmul_level: float = 1.0  # ratio of this stack's matmul rate to the calibrated library's
    context: int = 0  # bytes the CUDA context, NCCL and cuBLAS hold outside the allocator
    fragmentation: float = 1.0  # reserved over allocated
    accumulation: str = "add"  # gradients of micro-batches: a kernel each, `fused` into the matmul, or `after_backward`
    tensor_parallel: str = "dtensor"  # or "explicit": modules of its own, with the sequence as the outermost dim
    buckets: bool = False  # gradients are reduced in buckets that are a second copy of all of them
    main_gradients: bool = False  # gradients are added up in one buffer, which is never freed
    gathers: str = (
        "in_place"  # updated weights are gathered into the weights, or `copied` through buffers of all of them
    )
    expandable: bool = False  # the allocator's segments grow in place
    optimizer_passes: tuple[str, ...] = ()  # passes over the gradients beside the update: unscale, norm, clip, copy
    scatter_sends: bool = False  # stages send tensor-parallel shares, gathered again within the node
    overlap_tax: float = 0.0  # share of a hidden transfer's time that the compute beside it loses
    source: str = ""


@dataclass(frozen=True)
class Run:
    """How much is trained: tokens in all, tokens per sequence, sequences per micro-batch and per step."""

    seq_len: int
    micro_batch: int
    global_batch: int
    tokens: int | None = None


@dataclass(frozen=True)
class Price:
    """US dollars per device and hour, with the date of the offer."""

    per_device_hour: float
    date: str


@dataclass(frozen=True)
class Assumptions:
    """What nothing measured stands behind; `mfu` is the napkin's."""

    mfu: float = 0.4
    price: Price | None = None
    headroom: str = "production"  # minimum | production | typical | cloud
    checkpoint_interval: float | None = None  # s
    checkpoint_cost: float | None = None  # s
    restart_time: float | None = None  # s
    power_usage_effectiveness: float = 1.0
    expert_imbalance: Fraction = Fraction(1)  # tokens of the busiest device over the average, where experts are split


@dataclass(frozen=True)
class Expectation:
    """An assertion in the input: total `key` equals `value` within the relative `tolerance`."""

    key: str
    value: float
    tolerance: float = 0.0
    source: str = ""


@dataclass(frozen=True)
class Plan:
    """A training plan. `origins`: dotted paths (`run.micro_batch`, `accelerator.bandwidth`) to where each was given."""

    name: str  # the file's stem, names the reports
    title: str
    accelerator: Accelerator
    cluster: Cluster
    model: Model
    precision: Precision
    optimizer: Optimizer
    parallelism: Parallelism
    recompute: Recompute
    stack: Stack
    kernels: Kernels
    run: Run
    assumptions: Assumptions = field(default_factory=Assumptions)
    train: Train = field(default_factory=Train)
    expect: tuple[Expectation, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    digest: str = ""  # sha256 of the plan's canonical content
    text: str = ""  # the spec as written
    warnings: tuple[Problem, ...] = ()  # what is legal but risky
