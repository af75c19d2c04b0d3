"""The layout of a plan over devices: degrees of the mesh, sharding, stages, and what lives on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import Annotated, ClassVar

from ledger.spec.parts import At, PartHeader
from ledger.spec.structures import NEEDED, OPTIONAL, AnyOf, DerivedType, Fields, ListOf, Row, Values, quantity
from ledger.spec.values import Choice, Integer, Size, degree

MOST_STAGES = 256  # of a pipeline, four times those of any published run: each kind of stage is priced
CHUNK_LAYERS = Integer(0, 100_000)
HOSTED = ("optimizer", "weights", "activations")
STAGE_ENDS = Choice("shared", "layer", "own")
EVERY_SO_MANY = Fields((Row("every", degree(), "Layers whose weights move together.", "every", NEEDED),))


@dataclass(frozen=True)
class Stages:
    """Layers of the chunks of a pipeline, where they differ: `each` of them, or those of the `first` and `last`."""

    spec: ClassVar[PartHeader] = PartHeader(least=1)

    each: Annotated[tuple[int, ...], At(""), ListOf(CHUNK_LAYERS, 1, 100_000), "Layers of each."] = ()
    first: Annotated[int | None, CHUNK_LAYERS, "Layers of the first."] = None
    last: Annotated[int | None, CHUNK_LAYERS, "Layers of the last."] = None
    ends: str = "shared"


@dataclass(frozen=True)
class Offload:
    """The kinds of things that live in host memory, and of how many layers of a stage, from its first on.

    `optimizer` is its states and master weights, `weights` what ZeRO 3 gathers and all that updates it, `activations`
    what layers save for backward; 0 layers: all of them.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        least=1,
        extra=(
            Row(
                "optimizer",
                Choice(True, "nvme"),
                "Master weights and optimizer states; `nvme`: on the drives of the node, with gradients, where each "
                "step reads and writes them (ZeRO-Infinity).",
                "optimizer",
            ),
            Row("weights", Choice(True), "Shards of weights, with their gradients and states.", "weights"),
        ),
    )

    kinds: Annotated[tuple[str, ...], At(""), ListOf(Choice(*HOSTED), 1, unique=True), "What lives there."] = ()
    layers: Annotated[
        int,
        At("activations"),
        AnyOf((Choice(True, means={True: 0}), Integer(1, 100_000))),
        "All layers (true), or so many of each stage, from its first on.",
    ] = 0
    nvme: bool = False  # what updates weights is on drives

    @classmethod
    def from_spec(cls, values: Values) -> Offload:
        """A list of kinds, or a mapping that may say of how many layers."""
        keys = {"layers": "activations"}
        kinds = values.get("kinds", tuple(keys.get(name, name) for name in values))
        return cls(kinds, values.get("layers", 0), values.get("optimizer") == "nvme")

    def __contains__(self, kind: object) -> bool:
        """Whether a kind of thing lives there."""
        return kind in self.kinds

    def __bool__(self) -> bool:
        """Whether anything lives in host memory."""
        return bool(self.kinds)

    def __str__(self) -> str:
        """The kinds in words."""
        activations = f"activations of {self.layers} layers" if self.layers else "activations"
        words = {"activations": activations, "optimizer": "optimizer on NVMe" if self.nvme else "optimizer"}
        return ", ".join(words.get(kind, kind) for kind in self.kinds)


@dataclass(frozen=True)
class Parallelism:
    """Degrees of the mesh axes. devices = data x tensor x pipeline x context; expert subdivides data x context."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Degrees of the mesh: devices = data x tensor x pipeline x context. What `data` does not say is the "
        "rest.",
        extra=(
            Row(
                "ends",
                STAGE_ENDS,
                "Embedding and head share the stages at the ends with their even number of layers, count as one layer "
                "each, or have a stage of their own.",
                "stages.ends",
                default="shared",
            ),
        ),
    )

    data: Annotated[
        int,
        degree(),
        "Replicas that split the batch; the devices that the other degrees leave, where not given.",
        OPTIONAL,
    ] = 1
    tensor: Annotated[int, degree(), "Devices that split heads, hidden and vocabulary."] = 1
    pipeline: Annotated[int, Size(1, MOST_STAGES), "Stages that split the layers."] = 1
    context: Annotated[int, degree(), "Devices that split the sequence."] = 1
    expert: Annotated[int, degree(), "Devices that split the experts; subdivides data x context."] = 1
    zero: Annotated[
        int,
        Choice(0, 1, 2, 3),
        "What is held split over data x context: 1 optimizer, 2 and gradients, 3 and weights (FSDP).",
    ] = 0
    sequence: Annotated[
        str,
        Choice("off", "save_gathered", "regather"),
        "Sequence parallelism; whether backward keeps the gathered input or gathers it again.",
    ] = "off"
    interleave: Annotated[int, degree(), "Chunks of layers per pipeline stage."] = 1
    replicate: Annotated[
        int, degree(), "Hybrid sharding: copies of what ZeRO splits. replicate x shard = data x context.", OPTIONAL
    ] = 1
    shard: Annotated[int, degree(), "Devices that split one copy: data x context / replicate where not given."] = 0
    reshard: Annotated[
        str,
        Choice(True, False, "all", "layers", "none", means={True: "all", False: "none"}),
        "Which gathered weights ZeRO 3 frees after forward: all (or true), none (or false), or those of `layers` but "
        "not of the root, which is FSDP2's default.",
    ] = "all"
    wrap: Annotated[
        int,
        AnyOf(
            (
                Choice("layer", "model", means={"layer": 1, "model": 0}),
                DerivedType(EVERY_SO_MANY, lambda values: values["every"]),
            )
        ),
        "What ZeRO 3 gathers and reduces as one: each layer (where not given), the whole model, or {every: n} layers.",
    ] = 1
    reduce: Annotated[
        str,
        Choice("micro_batch", "step"),
        "When gradients are reduced: with each micro-batch (where not given, from ZeRO 2 on) or once a step.",
    ] = ""
    bucket: Annotated[
        int, quantity("B"), "Gradients that replicas without ZeRO reduce together: 25 MiB where not given."
    ] = 0
    offload: Annotated[
        Offload,
        "What lives in host memory: `optimizer` is master weights and optimizer states, which the host updates; "
        "`weights` are shards that ZeRO 3 gathers, with their gradients and states (FSDP2's CPUOffloadPolicy); "
        "`activations` are what layers save for backward. A list, or `{activations: 8}` for those of so many layers.",
    ] = Offload()
    schedule: Annotated[
        str,
        Choice("gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_h2", "dual_pipe"),
        "The order of forward and backward work in a pipeline. 1f1b where not given, interleaved where `interleave` "
        "is above 1.",
    ] = ""
    stages: Annotated[
        Stages,
        "Layers of each stage, or of each of its chunks: a list, or `{first: 7, last: 7}` with the rest even. All "
        "even where not given.",
    ] = Stages()
    context_exchange: Annotated[
        str,
        Choice("all_gather", "ring", "all_to_all"),
        "How attention sees a sequence that `context` cuts: keys and values gathered, passed around a ring, or heads "
        "cut instead (Ulysses).",
    ] = "all_gather"
    context_balance: Annotated[
        str,
        Choice("zigzag", "none"),
        "Whether each context rank has an early and a late part of the sequence, so that a causal mask leaves all the "
        "same work.",
    ] = "zigzag"

    @classmethod
    def from_spec(cls, values: Values) -> Parallelism:
        """The ends of the stages stand beside them."""
        ends = values.pop("stages.ends", None)
        stages = values.get("stages", Stages())
        return cls(**(values | ({"stages": replace(stages, ends=ends)} if ends else {})))

    def cutting(self, dim: str) -> tuple[str, int]:
        """The axis that splits a dim of operations, and its degree: of several that could, the last one in use."""
        axes = [name for name, axis in AXES.items() if dim in axis.cuts]
        used = [name for name in axes if len(axes) == 1 or getattr(self, name) > 1]
        axis = (used or axes)[-1]
        return axis, getattr(self, axis)

    @property
    def replica(self) -> int:
        """Devices that share one replica of the batch: the product of all axes but `data`."""
        degrees: Iterator[int] = (getattr(self, axis) for axis in MULTIPLIED if axis != "data")
        return reduce(mul, degrees)

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


# --- axes of the mesh ---


@dataclass(frozen=True)
class Axis:
    """An axis over which devices share work: the `letter` of its degree, which a field of `Parallelism` states.

    `exposed` names what it sends and nothing hides. `cuts`: the dims that it splits where they are computed with.
    `sees_same_tokens`: all its devices see the same tokens. `subdivides_data`: it subdivides data x context, and
    multiplies to no further devices.
    """

    letter: str
    meaning: str
    exposed: str
    cuts: tuple[str, ...] = ()
    sees_same_tokens: bool = False
    subdivides_data: bool = False


AXES: Mapping[str, Axis] = {
    "data": Axis("dp", "data-parallel degree", "weight and gradient transfers not hidden"),
    "tensor": Axis(
        "tp",
        "tensor-parallel degree",
        "tensor-parallel transfers not hidden",
        cuts=("heads", "kv_heads", "qkv_heads", "d_ff", "shared_d_ff", "vocab"),
        sees_same_tokens=True,
    ),
    "pipeline": Axis("pp", "pipeline stages", "sends between stages"),
    "context": Axis("cp", "context-parallel degree", "context-parallel transfers not hidden"),
    "expert": Axis(
        "ep",
        "expert-parallel degree, within data x context",
        "tokens to and from experts not hidden",
        cuts=("experts",),
        subdivides_data=True,
    ),
}
# From the innermost, whose devices are neighbours, to the outermost.
INNERMOST_FIRST = ("tensor", "context", "expert", "data", "pipeline")
MULTIPLIED = tuple(name for name, axis in AXES.items() if not axis.subdivides_data)  # to the number of devices
