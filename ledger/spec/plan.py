"""The plan: what a spec says, typed. Every part is frozen; sizes are integers, amounts are in SI base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ledger.spec.architecture import MLP, Attention, Custom, Group, Model, Norm, Router, Shared, Step
from ledger.spec.hardware import Accelerator, Cluster, Curve
from ledger.spec.optimizer import Optimizer
from ledger.spec.policies import (
    Kernels,
    Lora,
    Offload,
    Overlap,
    Parallelism,
    Precision,
    Recompute,
    Stack,
    Stages,
    Train,
)
from ledger.spec.problems import Location, Problem

__all__ = [
    "MLP",
    "Accelerator",
    "Assumptions",
    "Attention",
    "Cluster",
    "Curve",
    "Custom",
    "Expectation",
    "Group",
    "Kernels",
    "Lora",
    "Model",
    "Norm",
    "Offload",
    "Optimizer",
    "Origin",
    "Overlap",
    "Parallelism",
    "Plan",
    "Precision",
    "Price",
    "Recompute",
    "Router",
    "Run",
    "Shared",
    "Stack",
    "Stages",
    "Step",
    "Train",
]


@dataclass(frozen=True)
class Origin:
    """Where a value was written, and the publication it was taken from (empty where the value is a choice)."""

    where: Location
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
