"""The feed-forward part of a layer, as a spec states it: plain, gated, experts, or steps of its author's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, ClassVar

from ledger.spec.components import CUSTOM_ROWS, IS_CUSTOM, NONLINEARITIES, CustomPart, take_custom_part
from ledger.spec.parts import PartHeader
from ledger.spec.structures import NEEDED, OPTIONAL, AnyStated, KeyStated, Needed, Values, quantity
from ledger.spec.values import Choice, Size

SHARE = quantity("1", greatest=1, zero=True, exact=True)
HAS_NO_SIZES = AnyStated((IS_CUSTOM, KeyStated("kind", "none")))
NEEDED_OF_EXPERTS = Needed(when=KeyStated("kind", "experts"))


@dataclass(frozen=True)
class Router:
    """The choice of experts by a token: a score for each, of which the `top_k` largest count."""

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
        bool, "Whether a loss for the even use of experts is added (Switch Transformer), from the logits of all layers."
    ] = False


@dataclass(frozen=True)
class SharedExperts:
    """Experts that every token uses: `count` of width `d_ff`, as one gated MLP."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Experts that every token uses.")

    d_ff: Annotated[int, Size(most=100_000_000), "Width of one."]
    count: Annotated[int, Size(most=100_000), "How many; they run as one MLP. 1 where not given."] = 1
    gated: Annotated[bool, "Whether a learned gate scales their result (Qwen2-MoE)."] = False


@dataclass(frozen=True)
class MLP:
    """The feed-forward part. Of `experts`, each of width `d_ff`, a token uses `top_k`; `custom` has its own steps."""

    spec: ClassVar[PartHeader] = PartHeader(extra=CUSTOM_ROWS)

    d_ff: Annotated[
        int, Size(most=100_000_000), "Width of the hidden layer, of one expert.", Needed(unless=HAS_NO_SIZES)
    ] = 0
    kind: Annotated[
        str,
        Choice("plain", "gated", "experts", "custom", "none"),
        "`plain`: up, activation, down. `gated`: gate and up, product, down. `experts`: many gated ones, of which a "
        "token uses a few. `custom`: its own steps. `none`: a layer has a mixer alone, and one norm (Mamba-2).",
        NEEDED,
    ] = "gated"
    activation: Annotated[
        str,
        Choice(*NONLINEARITIES, "clamped_swiglu"),
        "The nonlinearity; `clamped_swiglu` (GPT-OSS) is of experts alone.",
        Needed(unless=HAS_NO_SIZES),
    ] = "silu"
    bias: Annotated[bool, "Whether the projections have biases."] = False
    dropout: Annotated[Fraction, SHARE, "Dropout of what the last projection reads (T5)."] = Fraction(0)
    fused_gate_up: Annotated[bool, "Whether one projection gives gate and up (Phi-3, GLM-4)."] = False
    experts: Annotated[int, Size(most=1_000_000), "Experts that a token can be sent to.", NEEDED_OF_EXPERTS] = 0
    top_k: Annotated[int, Size(most=1_000_000), "Experts that one token uses.", NEEDED_OF_EXPERTS] = 0
    router: Annotated[Router, OPTIONAL] = field(default_factory=Router)
    shared: Annotated[SharedExperts | None, OPTIONAL] = None
    capacity_factor: Annotated[
        Fraction | None,
        quantity("1", least=1e-3, greatest=1000, exact=True),
        "Tokens an expert takes over its even share, padded to that (GShard); without it an expert takes all that "
        "come.",
    ] = None
    custom: CustomPart | None = None

    @classmethod
    def from_spec(cls, values: Values) -> MLP:
        """A component of its author's own has steps, and no activation beside theirs."""
        custom_fields = take_custom_part(values)
        return cls(**{"activation": "", **values, **custom_fields})

    @property
    def shared_d_ff(self) -> int:
        """Width of all shared experts together."""
        return self.shared.d_ff * self.shared.count if self.shared else 0
