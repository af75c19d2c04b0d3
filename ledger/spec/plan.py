"""The plan: what a spec says, typed. Every part is frozen; sizes are integers, amounts are in SI base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, ClassVar

from ledger.spec.architecture import Group, Model, Norm
from ledger.spec.attention import Attention
from ledger.spec.components import ComponentStep, Custom
from ledger.spec.documents import Documents
from ledger.spec.expectations import EXPECT, Expectation
from ledger.spec.feed_forward import MLP, Router, Shared
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
from ledger.spec.structures import NEEDED, OPTIONAL, SOURCED, AnyOf, KeyStated, Needed, Sourced, quantity
from ledger.spec.token_budget import PerParameter, TokensPerParameter
from ledger.spec.training import Lora, Recompute, Train
from ledger.spec.values import Date, Quantity, Size, String

__all__ = [
    "MLP",
    "Accelerator",
    "Assumptions",
    "Attention",
    "Cluster",
    "ComponentStep",
    "Curve",
    "Custom",
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
    "Shared",
    "Stack",
    "Stages",
    "Train",
]
BATCH = Size(most=1_000_000_000)
PRICE_EXAMPLE = "{per_device_hour: 3 USD, date: 2026-05, source: your offer}"
DATE = Date()


@dataclass(frozen=True)
class Origin:
    """Where a value was written, and the publication it was taken from (empty where the value is a choice)."""

    where: Location
    source: str = ""


@dataclass(frozen=True)
class Reading:
    """What a plan was read from: the text of its spec, `key=value` overrides, and the library of its parts."""

    source: Source
    overrides: tuple[str, ...]
    library: Library


@dataclass(frozen=True)
class Run:
    """How much is trained: tokens in all, tokens per sequence, sequences per micro-batch and per step."""

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
        beside={"spec": ("price", SOURCED.key, "accelerator"), "per_device_hour": (SOURCED.key,)},
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
    """What nothing measured stands behind; `mfu` is the napkin's."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What nothing measured stands behind.",
        sourced=True,
        extra=stood_in("assumptions"),
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
