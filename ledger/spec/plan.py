"""The plan: what a spec says, typed. Every part is frozen; sizes are integers, amounts are in SI base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, ClassVar

from ledger.spec.architecture import Group, Model, Norm
from ledger.spec.attention import Attention
from ledger.spec.components import ComponentStep, CustomPart
from ledger.spec.data import Data
from ledger.spec.documents import Documents
from ledger.spec.expectations import EXPECT, Expectation
from ledger.spec.feed_forward import MLP, Router, SharedExperts
from ledger.spec.hardware import DEVICE, Accelerator, Cluster, Curve, Host
from ledger.spec.headroom import DEFAULT, HEADROOM, Headroom
from ledger.spec.library import Library
from ledger.spec.operations import Operations, stood_in
from ledger.spec.optimizer import Optimizer
from ledger.spec.parallelism import Offload, Parallelism, Stages
from ledger.spec.parts import SPEC, TITLED, At, PartHeader, ValuesOf
from ledger.spec.precision import Precision
from ledger.spec.problems import Location, Problem
from ledger.spec.serve import Lengths, Serve
from ledger.spec.sources import Source
from ledger.spec.stack import Stack
from ledger.spec.stack_parts import Kernels, Overlap, Replay
from ledger.spec.structures import (
    NEEDED,
    OPTIONAL,
    SOURCED,
    AnyOf,
    KeyStated,
    ListOf,
    Needed,
    Row,
    Sourced,
    Values,
    members,
    quantity,
)
from ledger.spec.token_budget import PerParameter, TokensPerParameter
from ledger.spec.values import Choice, Date, Integer, Quantity, Size, String

__all__ = [
    "MLP",
    "Accelerator",
    "Assumptions",
    "Attention",
    "Cluster",
    "ComponentStep",
    "Curve",
    "CustomPart",
    "Data",
    "Expectation",
    "Group",
    "Kernels",
    "Lengths",
    "Lora",
    "Model",
    "Norm",
    "Offload",
    "Operations",
    "Optimizer",
    "Origin",
    "Overlap",
    "Parallelism",
    "Plan",
    "Precision",
    "Price",
    "Reading",
    "Recompute",
    "Replay",
    "Router",
    "Run",
    "Serve",
    "SharedExperts",
    "Stack",
    "Stages",
    "Train",
]
BATCH = Size(most=1_000_000_000)
PRICE_EXAMPLE = "{per_device_hour: 3 USD, date: 2026-05, source: your offer}"
DATE = Date()
LAYER_COUNT = Integer(1, 100_000)
TRAINED_NAMES = ListOf(String(), 1, unique=True)


@dataclass(frozen=True)
class Recompute:
    """The activations that backward rebuilds.

    `policy`: none, selective (attention core), full, components (those named), keep (all but results of named kernels),
    every (n-th layer), layers (the first n of a stage), segment (so many layers at once; 0: their square root). The
    stack says, not the plan: `rebuilds_to_end`: rebuilt stretches run to their end; `joined_parts`: parts of a layer in
    which what multiplies one input is one matrix.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What backward rebuilds: none | selective (the attention core) | full (every layer) | square_root | "
        "{every: n} | {layers: n} | {segment: n} | {components: [attention, mlp]} | {keep: [matmul, attention]}.",
        least=1,
        companion_keys={"matmuls": ("keep",)},
    )

    policy: Annotated[str, At(""), Choice("none", "selective", "full", "square_root"), "A policy."] = "none"
    every: Annotated[int, LAYER_COUNT, "Every n-th layer."] = 1
    keep: Annotated[
        tuple[str, ...],
        ListOf(Choice("matmul", "attention", "collective", "reduce_scatter", "all_to_all", "norm", "activation"), 1),
        "All is rebuilt but what these give.",
    ] = ()
    matmuls: Annotated[
        str,
        Choice("all", "every_second"),
        "With `keep: [matmul]`: whether every second projection of a layer is rebuilt (torchtitan).",
    ] = "all"
    components: Annotated[
        tuple[str, ...],
        ListOf(Choice("core", "attention", "mlp", "experts", "norm", "activation", "up_projection"), 1, unique=True),
        "These parts of each layer. Of `norm`, `activation` and `up_projection` the result goes too.",
    ] = ()
    layers: Annotated[
        int, LAYER_COUNT, "The first n layers of each stage, or of each of its chunks (Megatron-LM's `block`)."
    ] = 0
    segment: Annotated[
        int, LAYER_COUNT, "All layers, so many at once: one input is kept for each segment (Megatron-LM's `uniform`)."
    ] = 0
    rebuilds_to_end: bool = False
    reentrant: bool = False
    joined_parts: tuple[str, ...] = ()
    compiled: bool = False

    @classmethod
    def from_spec(cls, values: Values) -> Recompute:
        """The first policy that is stated (a rule refuses a second one); `square_root` is a segment of no length."""
        policy = next((name for name in ("every", "layers", "segment", "components", "keep") if name in values), "")
        if policy:
            stated = (policy, "matmuls") if policy == "keep" else (policy,)
            return cls(policy, **{name: values[name] for name in stated if name in values})
        word = values.get("policy", "none")
        return cls("segment") if word == "square_root" else cls(word)


ADAPTED = ("q", "k", "v", "qkv", "out", "gate", "up", "gate_up", "down", "q_latent", "kv_latent", "kv")
RANK = Size(most=100_000)


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters: which contractions have one (`q`, `up`, ...), their ranks, what drops out of their input."""

    rank: Annotated[
        int | Mapping[str, int],
        AnyOf((RANK, members(RANK, {name: f"Of `{name}`." for name in ADAPTED}))),
        "Width between the two factors: one for all targets, or `{q: 16, v: 8}`, whose keys are the targets (peft's "
        "`rank_pattern`)",
    ]
    targets: Annotated[
        tuple[str, ...],
        ListOf(Choice(*ADAPTED), 1, unique=True),
        "The matrices that have an adapter; needed where one rank is for all.",
        OPTIONAL,
    ] = ()
    dropout: Annotated[
        float,
        quantity("1", greatest=1, zero=True),
        "Share of its input that each adapter drops out, in a copy of its own (peft's `lora_dropout`).",
    ] = 0.0

    @classmethod
    def from_spec(cls, values: Values) -> Lora:
        """Ranks by target name the targets, where these are not stated besides."""
        rank = values["rank"]
        return cls(**({"targets": tuple(rank)} | values if isinstance(rank, Mapping) else values))

    def rank_of(self, target: str) -> int:
        """The rank of a target's adapter."""
        return self.rank if isinstance(self.rank, int) else self.rank[target]

    @property
    def largest(self) -> int:
        """The largest rank of any adapter."""
        return max(map(self.rank_of, self.targets), default=0)


@dataclass(frozen=True)
class Train:
    """The weights that are trained.

    `kind`: all, only those `names` say, all but the `frozen` ones, or lora (the adapters beside frozen weights).
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Which weights are trained: all | {only: [head]} | {frozen: [embedding]} | "
        "{lora: {rank: 16, targets: [q, v]}} | {lora: {rank: {q: 16, v: 8}}}.",
        least=1,
        most=1,
        extra=(
            Row(
                "only",
                TRAINED_NAMES,
                "Parts that are trained: `embedding`, `head`, `final_norm`, `attention`, a layer group, or a part of "
                "one (`decoder/mlp`).",
                "only",
            ),
            Row("frozen", TRAINED_NAMES, "Parts that are not trained.", "frozen"),
        ),
    )

    kind: Annotated[str, At(""), Choice("all"), "All of them."] = "all"
    names: tuple[str, ...] = ()
    lora: Annotated[Lora | None, "Low-rank adapters beside frozen weights."] = None

    @classmethod
    def from_spec(cls, values: Values) -> Train:
        """The kind is the key of the one entry."""
        kind = next(iter(values), "kind")
        return (
            cls() if kind == "kind" else cls("lora", lora=values[kind]) if kind == "lora" else cls(kind, values[kind])
        )


@dataclass(frozen=True)
class Origin:
    """The place where a value was written, and its publication (empty where the value is a choice)."""

    where: Location
    source: str = ""


@dataclass(frozen=True)
class Reading:
    """The origin of a plan: the text of its spec, `key=value` overrides, and the library of its parts."""

    source: Source
    overrides: tuple[str, ...]
    library: Library


@dataclass(frozen=True)
class Run:
    """The extent of a run: tokens in all, tokens per sequence, sequences per micro-batch and per step."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="How much is trained, and in what steps; batches in sequences, of which an image is one."
    )

    seq_len: Annotated[int, BATCH, "Tokens per sequence.", OPTIONAL]
    micro_batch: Annotated[int, BATCH, "Sequences that one replica works on at once.", OPTIONAL]
    global_batch: Annotated[int, BATCH, "Sequences per optimizer step, over all replicas.", OPTIONAL]
    tokens: Annotated[
        int | TokensPerParameter | None,
        AnyOf((quantity("tokens"), Sourced(PerParameter()))),
        "In the whole run: `15T tokens`, or `20 a parameter`: so many for each of the model's parameters, as the total "
        "`parameters` counts them (with those that are frozen, and with adapters).",
    ] = None
    images: Annotated[
        int | None,
        quantity("images"),
        "In the whole run of a model of images, each as often as it is seen: `300M images`.",
    ] = None
    documents: Annotated[Documents | None, OPTIONAL] = None
    source_len: Annotated[
        int, BATCH, "Tokens of a source that an encoder reads before each sequence; those of sound follow from it."
    ] = 0

    @property
    def token_count(self) -> int | None:
        """Tokens in all, None where the run has no end; ValueError before the parameters of the model are counted."""
        return self.tokens.count if isinstance(self.tokens, TokensPerParameter) else self.tokens


@dataclass(frozen=True)
class Price:
    """US dollars per device and hour, with the date of the offer and the device that it is for."""

    spec: ClassVar[PartHeader] = PartHeader(
        title="A price: an hour of a device",
        meaning=f"What one device costs, and who offers it: `{PRICE_EXAMPLE}`. "
        "A plan that states none takes the library's of its accelerator.",
        kind="price",
        companion_keys={"spec": ("price", SOURCED.key, "accelerator"), "per_device_hour": (SOURCED.key,)},
    )

    per_device_hour: Annotated[float, quantity("USD"), "`2.50 USD`."]
    date: Annotated[str, DATE, "Date of the offer: `2026-05-18`."]
    accelerator: Annotated[
        str,
        DEVICE,
        "The device that it is for: `h100-sxm`. In a plan that leaves it out, the one that the plan's file names.",
    ] = ""
    name: str = ""


@dataclass(frozen=True)
class Assumptions:
    """Assumptions that no measurement supports; `mfu` is that of the napkin estimate."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What nothing measured stands behind.", sourced=True, extra=stood_in("assumptions")
    )

    mfu: Annotated[float, quantity("1", least=1e-4, greatest=1), "Of the napkin estimate."] = 0.4
    price: Annotated[Price | None, OPTIONAL] = None
    headroom: Annotated[
        Headroom,
        Sourced(HEADROOM),
        "How much of a device's memory should stay free: a share (`10 %`), bytes (`8 GB`), `none`, or a level of the "
        "course: `minimum` 0, `typical` 10 GB, `production` 20 GB, `cloud` 40 GB.",
    ] = DEFAULT
    power_usage_effectiveness: Annotated[
        float, quantity("1", least=1, greatest=1000), "Site power over device power."
    ] = 1.0
    expert_imbalance: Annotated[
        Fraction,
        Sourced(Quantity("1", greatest=1000, exact=True, least=1)),
        "Tokens that the busiest device's experts get over the average, where experts are split over devices: `1.2`; 1 "
        "where not given.",
    ] = Fraction(1)
    learning_rate: Annotated[
        float,
        quantity("1", greatest=1000),
        "Its peak. It says which updates are below half the spacing of the number formats; no other figure reads it.",
    ] = 3e-4  # of Llama 2 7B and 13B (Touvron et al. 2023, arXiv 2307.09288, table 1)


@dataclass(frozen=True)
class Plan:
    """A plan of training or, where it states `serve`, of serving.

    `origins`: dotted paths (`run.micro_batch`, `accelerator.bandwidth`) to where each was given.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        title="A plan of training or serving",
        meaning="What is trained or served, on what, how it is laid out, what is assumed. Parts are named, inline, or "
        "`{base: NAME, ...}`.",
        extra=(replace(SPEC, needed=NEEDED), EXPECT),
    )

    name: str  # the file's stem, names the reports
    title: Annotated[str, At("plan"), TITLED, "The plan's title."]
    accelerator: Annotated[Accelerator, "The device: `h100-sxm`, or inline."]
    cluster: Annotated[Cluster, "`{devices: 1024, devices_per_node: 8}`, or a name."]
    model: Annotated[Model, "The model: `llama-3-70b`, inline, or a bare `{parameters: 70e9}`."]
    precision: Annotated[Precision, "A number format per role: `bf16-mixed`."]
    optimizer: Annotated[
        Optimizer,
        "What updates the weights: `adamw` where not given, another name, inline, or `{base: adamw, states: ...}`.",
        OPTIONAL,
    ]
    parallelism: Annotated[Parallelism, ValuesOf(Parallelism), OPTIONAL]
    recompute: Annotated[Recompute, Recompute.spec.meaning] = field(default=Recompute(), kw_only=True)
    stack: Annotated[Stack, "The software and its date: `pytorch-fsdp2-2025`, or `serving`, where not given.", OPTIONAL]
    kernels: Annotated[Kernels, ValuesOf(Kernels), OPTIONAL]
    run: Annotated[Run, ValuesOf(Run), Needed(unless=KeyStated("serve"))]
    assumptions: Annotated[Assumptions, Assumptions.spec.meaning] = field(default_factory=Assumptions)
    operations: Annotated[Operations, Operations.spec.meaning] = field(default_factory=Operations)
    data: Annotated[Data, Data.spec.meaning] = field(default_factory=Data)
    train: Annotated[Train, Train.spec.meaning] = field(default_factory=Train)
    serve: Annotated[Serve | None, Serve.spec.meaning, OPTIONAL] = None
    decision: Annotated[
        str,
        String(1, 300, r"\S"),
        "What the report is to decide, in the words of who asks: `Shall we reserve 1024 H100 from March to August?`.",
    ] = ""
    expect: tuple[Expectation, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    digest: str = ""  # sha256 of the plan's canonical content
    judged_digest: str = ""  # of what frameworks are asked about: neither names, prices, operations nor length count
    text: str = ""  # the spec as written
    warnings: tuple[Problem, ...] = ()  # what is legal but risky
    # What it was read from; none where it was made otherwise. Plans that say the same are the same.
    reading: Reading | None = field(default=None, compare=False, repr=False)

    @property
    def host(self) -> Host | None:
        """The host of each node: the cluster's, else that of the nodes that its accelerator is sold in."""
        sold = self.accelerator.host
        alike = sold is not None and sold.devices == self.cluster.devices_per_node
        return self.cluster.host or (sold if alike else None)
