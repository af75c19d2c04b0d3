"""How a plan trains: number formats, layout, what is rebuilt, what is trained, kernels, and the software."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.spec.recipe import Recipe, Stored


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
    stored: tuple[Stored, ...] = ()  # what waits for backward in a narrower format than it was computed in

    @property
    def multiplies(self) -> str:
        """The dtype that most matmuls multiply in."""
        return self.matmul.format if self.matmul else self.compute


@dataclass(frozen=True)
class Stages:
    """Layers of the chunks of a pipeline, where they differ: `each` of them, or those of the `first` and `last`.

    `ends`: embedding and head are `shared` with the layers of their chunks, count as one `layer` each, or have their
    `own` chunk.
    """

    each: tuple[int, ...] = ()
    first: int | None = None
    last: int | None = None
    ends: str = "shared"


@dataclass(frozen=True)
class Offload:
    """What lives in host memory: the kinds of it by name, and of how many layers of a stage, from its first on.

    `optimizer` is its states and master weights, `weights` what ZeRO 3 gathers and all that updates it, `activations`
    what layers save for backward; 0 layers: all of them.
    """

    kinds: tuple[str, ...] = ()
    layers: int = 0

    def __contains__(self, kind: object) -> bool:
        """Whether a kind of thing lives there."""
        return kind in self.kinds

    def __bool__(self) -> bool:
        """Whether anything does."""
        return bool(self.kinds)

    def __str__(self) -> str:
        """The kinds in words."""
        some = f"activations of {self.layers} layers" if self.layers else "activations"
        return ", ".join(some if kind == "activations" else kind for kind in self.kinds)


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
    offload: Offload = Offload()
    schedule: str = ""  # a row of PIPELINES (ledger/model/pipelines.py); empty: what `scheduled` says
    stages: Stages = Stages()
    context_exchange: str = "all_gather"  # | ring | all_to_all: how attention sees a sequence that is cut
    context_balance: str = "zigzag"  # | none: whether the ranks of a cut sequence share a causal mask evenly

    @property
    def updates_on_host(self) -> bool:
        """Whether the update runs on the host: where its states live there, or the weights themselves."""
        return "optimizer" in self.offload or "weights" in self.offload

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
    every (n-th layer), layers (the first n of a stage), segment (so many layers at once; 0: their square root).
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

    attention: str = (
        "flash"  # flash | flash_repeated | flash3 | triton | efficient | cudnn | math | eager | cudnn_grouped | ...
    )
    norm: str = "fused"  # fused | eager
    activation: str = "fused"  # fused | fused_gated (with the product of a gated MLP) | eager
    rotary: str = "eager"  # fused | eager
    residual: str = "eager"  # fused: dropout and residual addition in one kernel | eager
    loss: str = "eager"  # eager | fused (gradient in place of the logits) | softmax_in_place | compiled | chunked | ...
    loss_chunks: int = 0  # parts of a sequence for `chunked` and `fused_linear`; 0: as the kernel chooses
    optimizer: str = "foreach"  # foreach | fused | loop
    experts: str = "grouped_mm"  # or batched_mm (a copy of its expert for each token), eager (a loop), dense (all run)
    weighing: str = (
        "results"  # where scores multiply: results of experts, or `activation`, in the kernel before the last product
    )
    router: str = "eager"  # an fp32 router casts its operands and saves the casts | fused: it saves them as they are


@dataclass(frozen=True)
class Overlap:
    """What may hide behind what, a rule per kind of communication: `none`, or the work that covers it."""

    tensor: str = "none"  # none | weight_gradient (in backward only) | matmul (the contraction it feeds or follows)
    data: str = "backward"  # none | backward (of earlier layers) | replicas (the same, but for sharded optimizers)
    gather: str = "layer"  # none | layer (the next unit's gather behind this unit's compute)
    pipeline: str = "none"  # none | compute
    context: str = "attention"  # none | attention (the blocks of a ring behind the attention of the block before)
    expert: str = (
        "none"  # none | shared (behind the shared experts) | micro_batch (behind another micro-batch's compute)
    )
    host: str = "none"  # none | compute (copies to the host and back behind the layers that run meanwhile)


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
    check: float = 0.0  # host seconds of a message, where hosts compare collectives before they run them
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
    reduces: str = "share"  # ZeRO 1 sums the share of the gradients that a device updates, or `all` of them
    unshard: str = "views"  # weights that ZeRO 3 gathered are used as they arrive, or `copied` out of it
    transfer_channels: int = 0  # multiprocessors that a transfer beside compute holds
    ends: str = "root"  # FSDP leaves embedding and head to the root, or wraps them `apart`
    expandable: bool = False  # the allocator's segments grow in place
    recorded: bool = False  # what a collective used is free once the device is past it, not once the host is
    gather_buffers: bool = False  # sequences are gathered into two buffers that last, one for gradients
    beside: tuple[int, int] = (0, 0)  # kernels of a layer's forward and backward that no operation stands for
    call: float = 0.0  # host seconds of one of them
    update: str = "by_weight"  # or over one `flat` tensor of all gradients of a device, and one of each state
    recounts: bool = False  # peaks are counted anew before the update, so that what is printed is of the update
    transfers: str = "ordered"  # stages know the shapes of what they get, or hosts have `waited` for every one
    optimizer_passes: tuple[str, ...] = ()  # passes over the gradients beside the update: unscale, norm, clip, copy
    scatter_sends: bool = False  # stages send tensor-parallel shares, gathered again within the node
    overlap_tax: float = 0.0  # share of a hidden transfer's time that the compute beside it loses
    source: str = ""
