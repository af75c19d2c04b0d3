"""What backward rebuilds, and which weights are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.spec.parts import At, PartHeader
from ledger.spec.structures import OPTIONAL, AnyOf, ListOf, Row, Values, members, quantity
from ledger.spec.values import Choice, Integer, Size, String

LAYER_COUNT = Integer(1, 100_000)
TRAINED_NAMES = ListOf(String(), 1, unique=True)


@dataclass(frozen=True)
class Recompute:
    """What backward rebuilds.

    `policy`: none, selective (attention core), full, components (those named), keep (all but results of named kernels),
    every (n-th layer), layers (the first n of a stage), segment (so many layers at once; 0: their square root).
    The stack says, not the plan: `whole`: rebuilt stretches run to their end; `joined`: parts of a layer in which
    what multiplies one input is one matrix.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What backward rebuilds: none | selective (the attention core) | full (every layer) | square_root | "
        "{every: n} | {layers: n} | {segment: n} | {components: [attention, mlp]} | {keep: [matmul, attention]}.",
        least=1,
        beside={"matmuls": ("keep",)},
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
        int,
        LAYER_COUNT,
        "All layers, so many at once: one input is kept for each segment (Megatron-LM's `uniform`).",
    ] = 0
    whole: bool = False
    reentrant: bool = False
    joined: tuple[str, ...] = ()
    compiled: bool = False

    @classmethod
    def from_spec(cls, given: Values) -> Recompute:
        """The first policy that is stated (a rule refuses a second one); `square_root` is a segment of no length."""
        policy = next((name for name in ("every", "layers", "segment", "components", "keep") if name in given), "")
        if policy:
            stated = (policy, "matmuls") if policy == "keep" else (policy,)
            return cls(policy, **{name: given[name] for name in stated if name in given})
        word = given.get("policy", "none")
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
    def from_spec(cls, given: Values) -> Lora:
        """Ranks by target name the targets, where these are not stated besides."""
        rank = given["rank"]
        return cls(**({"targets": tuple(rank)} | given if isinstance(rank, Mapping) else given))

    def rank_of(self, target: str) -> int:
        """The rank of a target's adapter."""
        return self.rank if isinstance(self.rank, int) else self.rank[target]

    @property
    def largest(self) -> int:
        """The largest rank of any adapter."""
        return max(map(self.rank_of, self.targets), default=0)


@dataclass(frozen=True)
class Train:
    """Which weights are trained.

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
    def from_spec(cls, given: Values) -> Train:
        """The one entry says which kind it is."""
        kind = next(iter(given), "kind")
        return cls() if kind == "kind" else cls("lora", lora=given[kind]) if kind == "lora" else cls(kind, given[kind])
