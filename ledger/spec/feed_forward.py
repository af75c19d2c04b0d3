"""The feed-forward part of a layer, as a spec states it: plain, gated, experts, or steps of its author's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from ledger.spec.parts import PartHeader, PartOf
from ledger.spec.structures import NEEDED, OPTIONAL, Fields, KeyStated, ListOf, MappingOf, Needed, Row, Values, quantity
from ledger.spec.values import Choice, Integer, Size, String

LOWER_NAME = "^[a-z][a-z0-9_]*$"
IS_CUSTOM = KeyStated("kind", "custom")
NEEDED_OF_EXPERTS = Needed(when=KeyStated("kind", "experts"))
GIVEN = ("batch", "seq", "d_model")  # dims that every layer has
STEPS = ("einsum", "activation", "multiply", "add")  # what a step of a custom component may do
TWO_RESULTS = ListOf(String(), 2, 2)


@dataclass(frozen=True)
class Router:
    """How tokens choose experts: a score for each, of which the `top_k` largest count."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="How tokens choose experts.")

    scores: Annotated[
        str,
        Choice("softmax", "softmax_of_chosen", "sigmoid", "sigmoid_of_chosen"),
        "Scores of all experts, or of the chosen ones alone (GPT-OSS, Llama 4).",
    ] = "softmax"
    normalize: Annotated[bool, "Whether the chosen scores are made to add up to one."] = False
    dtype: Annotated[str, Choice("compute", "fp32"), "What the router's matmul runs in (DeepSeek: fp32)."] = "compute"
    weights: Annotated[
        str,
        Choice("fp32", "input"),
        "The dtype in which chosen scores weigh results: fp32, or that of the layer's input (Qwen).",
    ] = "fp32"
    bias: Annotated[bool, "Whether the router has a bias."] = False
    groups: Annotated[
        int, Size(most=1_000_000), "Groups of experts, of which a token uses the best few (DeepSeek)."
    ] = 1
    scales: Annotated[
        str,
        Choice("output", "input"),
        "What the chosen scores multiply: what experts give, or what they read (Llama 4).",
    ] = "output"
    auxiliary_loss: Annotated[
        bool,
        "Whether a loss for the even use of experts is added (Switch Transformer), from the logits of all layers.",
    ] = False


@dataclass(frozen=True)
class Shared:
    """Experts that every token uses: `count` of width `d_ff`, as one gated MLP."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Experts that every token uses.")

    d_ff: Annotated[int, Size(most=100_000_000), "Width of one."]
    count: Annotated[int, Size(most=100_000), "How many; they run as one MLP. 1 where not given."] = 1
    gated: Annotated[bool, "Whether a learned gate scales their result (Qwen2-MoE)."] = False


@dataclass(frozen=True)
class ComponentStep:
    """One step of a custom component: `kind` is einsum, activation, multiply or add; `of` names what it is from."""

    spec: ClassVar[PartHeader] = PartHeader(
        beside={"weight": ("einsum",), "bias": ("einsum",)},
        extra=tuple(Row(key, TWO_RESULTS, "Two results, element by element.", key) for key in ("multiply", "add")),
    )

    name: Annotated[
        str, String(pattern=LOWER_NAME), "What the result goes by, and the last part of its account.", OPTIONAL
    ]
    kind: str
    of: Annotated[
        tuple[str, ...],
        ListOf(String(), 1, 2),
        "Results it is computed from; the one before where not given.",
        OPTIONAL,
    ]
    einsum: Annotated[str, "`batch seq d_model, latent d_model -> batch seq latent`."] = ""
    weight: Annotated[str, "The einsum's second operand, where it is a weight."] = ""
    bias: Annotated[str, "A weight that the same kernel adds."] = ""
    activation: Annotated[str, Choice("silu", "gelu", "gelu_tanh", "relu", "relu2"), "A nonlinearity."] = ""

    @classmethod
    def from_spec(cls, given: Values) -> ComponentStep:
        """What it does is the key it has; `custom` gives it the name and the results that it does not state."""
        kind = next((kind for kind in STEPS if kind in given), "")
        pair = {key: given.pop(key) for key in ("multiply", "add") if key in given}
        return cls(**({"name": "", "kind": kind, "of": ()} | given | ({"of": pair[kind]} if kind in pair else {})))


@dataclass(frozen=True)
class Custom:
    """A component of its author's own: sizes of its dims, dims of its weights, its steps, and which axis cuts what."""

    dims: tuple[tuple[str, int], ...]
    weights: tuple[tuple[str, tuple[str, ...]], ...]
    steps: tuple[ComponentStep, ...]
    split: tuple[tuple[str, tuple[str, ...]], ...] = ()


def custom(
    dims: Mapping[str, int],
    weights: Mapping[str, str],
    steps: tuple[ComponentStep, ...],
    split: Mapping[str, tuple[str, ...]],
) -> Custom:
    """The component; a step is from the one before, and named by what it does, where it does not say."""
    named: list[ComponentStep] = []
    for step in steps:
        name = step.name or f"{step.kind}_{len(named) + 1}"
        before = named[-1].name if named else "x"
        named.append(replace(step, name=name, of=step.of or (before,)))
    pairs = tuple((name, tuple(axes.split())) for name, axes in weights.items())
    return Custom(tuple(dims.items()), pairs, tuple(named), tuple(split.items()))


# Fields of a custom component, which stand among those of the feed-forward part.
CUSTOM_ROWS = (
    Row(
        "dims",
        MappingOf(Integer(1, 100_000_000), 1, "^[a-z][a-z0-9_]+$"),
        "Of a custom component: its own dims with their sizes, `{latent: 512}`. `batch`, `seq` and `d_model` are "
        "there.",
        "dims",
        Needed(when=IS_CUSTOM),
    ),
    Row(
        "weights",
        MappingOf(String(pattern="^[a-z][a-z0-9_]*( [a-z][a-z0-9_]*)*$"), 1, LOWER_NAME),
        "Of a custom component: its weights by the names of their dims, `{w_down: latent d_model}`.",
        "weights",
        Needed(when=IS_CUSTOM),
    ),
    Row(
        "steps",
        ListOf(PartOf(ComponentStep), 1),
        "Of a custom component: what it does, in order, from `x` (batch seq d_model) to a result of that shape.",
        "steps",
        Needed(when=IS_CUSTOM),
    ),
    Row(
        "split",
        Fields((Row("tensor", ListOf(String(), 1, unique=True), "Dims that tensor parallelism cuts.", "tensor"),)),
        "Of a custom component: which of its dims tensor parallelism cuts, `{tensor: [latent]}`.",
        "split",
    ),
)


@dataclass(frozen=True)
class MLP:
    """The feed-forward part. Of `experts`, each of width `d_ff`, a token uses `top_k`; `custom` has its own steps."""

    spec: ClassVar[PartHeader] = PartHeader(extra=CUSTOM_ROWS)

    d_ff: Annotated[
        int, Size(most=100_000_000), "Width of the hidden layer, of one expert.", Needed(unless=IS_CUSTOM)
    ] = 0
    kind: Annotated[
        str,
        Choice("plain", "gated", "experts", "custom"),
        "`plain`: up, activation, down. `gated`: gate and up, product, down. `experts`: many gated ones, of which a "
        "token uses a few. `custom`: its own steps.",
        NEEDED,
    ] = "gated"
    activation: Annotated[
        str,
        Choice("silu", "gelu", "gelu_tanh", "relu", "relu2", "clamped_swiglu"),
        "The nonlinearity; `clamped_swiglu` (GPT-OSS) is of experts alone.",
        Needed(unless=IS_CUSTOM),
    ] = "silu"
    bias: Annotated[bool, "Whether the projections have biases."] = False
    fused_gate_up: Annotated[bool, "Whether one projection gives gate and up (Phi-3, GLM-4)."] = False
    experts: Annotated[int, Size(most=1_000_000), "Experts that a token can be sent to.", NEEDED_OF_EXPERTS] = 0
    top_k: Annotated[int, Size(most=1_000_000), "Experts that one token uses.", NEEDED_OF_EXPERTS] = 0
    router: Annotated[Router, OPTIONAL] = field(default_factory=Router)
    shared: Annotated[Shared | None, OPTIONAL] = None
    capacity_factor: Annotated[
        Fraction | None,
        quantity("1", greatest=1000, exact=True),
        "Tokens an expert takes over its even share, padded to that (GShard); without it an expert takes all that "
        "come.",
    ] = None
    custom: Custom | None = None

    @classmethod
    def from_spec(cls, given: Values) -> MLP:
        """A component of its author's own has steps, and no activation beside theirs."""
        own = {row.attribute: given.pop(row.attribute, {}) for row in CUSTOM_ROWS}
        steps: dict[str, Any] = {"custom": custom(**own)} if own["steps"] else {}
        return cls(**({"activation": ""} | given | steps))

    @property
    def shared_d_ff(self) -> int:
        """Width of all shared experts together."""
        return self.shared.d_ff * self.shared.count if self.shared else 0
