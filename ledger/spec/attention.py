"""The attention of a layer, as a spec states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

from ledger.arithmetic.values import truncate
from ledger.spec.components import CUSTOM_ROWS, IS_CUSTOM, CustomPart, take_custom_part
from ledger.spec.parts import PartHeader
from ledger.spec.structures import OPTIONAL, AnyStated, KeyStated, Needed, Values, quantity
from ledger.spec.values import Choice, KeyOf, Number, Size


@dataclass(frozen=True)
class RecurrentState:
    """A matrix for each head, of `head_dim` by `size` elements in fp32, and the convolution before it."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Of a recurrence (`mamba2`, `gated_delta`): the state of each head, in fp32 whatever weights are in."
    )

    size: Annotated[int, Size(most=65_536), "Width of a head's state: of B and C, or of keys and queries."]
    groups: Annotated[int, Size(most=100_000), "Groups of heads that share B and C, or keys and queries."] = 1
    chunk: Annotated[int, Size(most=1_000_000), "Tokens of a chunk; between chunks only states are handed on."] = 256
    convolution: Annotated[int, Size(most=1000), "Tokens that the causal convolution before the scan sees."] = 4
    convolution_bias: Annotated[bool, "Whether that convolution has a bias."] = False


SHARE = quantity("1", greatest=1, zero=True, exact=True)
SOFTCAP = Number(1e-6, 1_000_000)
IS_LATENT = KeyStated("kind", "latent")
HAS_OTHER_WIDTHS = AnyStated((IS_LATENT, IS_CUSTOM))

# Forms of rotation whose result is put together from parts, whatever share of a head is rotated.
JOINED_FORMS = ("half_tables", "joined_halves", "repeated_pairs")


@dataclass(frozen=True)
class AttentionKind:
    """A kind of attention, by the fields that it has: all below but the `foreign` ones.

    `expanded`: keys and values of every head are made of a narrow vector, which tensor parallelism leaves whole.
    `recurrent`: no token sees another one, but a state of all before it.
    """

    foreign: tuple[str, ...]
    expanded: bool = False
    recurrent: bool = False


LATENT_SIZES = ("q_rank", "kv_rank", "nope_head_dim", "rope_head_dim", "v_head_dim")
# What only scores of tokens with each other have.
OF_SCORES = (
    *("kv_heads", "fused_qkv", "rotary", "window", "softcap", "dropout", "softmax"),
    *("rotary_form", "rotary_base", "qk_norm", "sinks", "temperature", "chunk"),
)
# What encoders and decoders of text and of sound have.
OF_ENCODERS = ("relative_buckets", "key_bias", "scaled", "masked")
RECURRENT = AttentionKind((*LATENT_SIZES, *OF_SCORES, *OF_ENCODERS, "bidirectional"), recurrent=True)
ATTENTION_KINDS: Mapping[str, AttentionKind] = {
    "grouped_query": AttentionKind((*LATENT_SIZES, "state")),
    "gated": AttentionKind((*LATENT_SIZES, *OF_ENCODERS, "fused_qkv", "state")),
    "custom": AttentionKind(
        (*LATENT_SIZES, *OF_SCORES, *OF_ENCODERS, "heads", "head_dim", "qkv_bias", "out_bias", "state")
    ),
    "latent": AttentionKind(
        ("kv_heads", "head_dim", "fused_qkv", "rotary", "qk_norm", "state", *OF_ENCODERS), expanded=True
    ),
    "mamba2": RECURRENT,
    "gated_delta": RECURRENT,
}
IS_RECURRENT = AnyStated(tuple(KeyStated("kind", kind) for kind, row in ATTENTION_KINDS.items() if row.recurrent))


@dataclass(frozen=True)
class Attention:
    """Multi-head (kv_heads = heads), grouped-query, multi-query or latent attention; sizes of one layer.

    `head_dim` is the width of a query; latent attention makes it of a part without positions and a rotated one.
    """

    spec: ClassVar[PartHeader] = PartHeader(extra=CUSTOM_ROWS)

    heads: Annotated[int, Size(most=100_000), "Query heads.", Needed(unless=IS_CUSTOM)] = 0
    kv_heads: Annotated[
        int, Size(most=100_000), "Key and value heads; as many as `heads` where not given.", OPTIONAL
    ] = 0
    head_dim: Annotated[
        int, Size(most=65_536), "Width of one head: often `d_model / heads`.", Needed(unless=HAS_OTHER_WIDTHS)
    ] = 0
    qkv_bias: Annotated[bool, "Whether the projections into it, as q, k and v, have biases."] = False
    key_bias: Annotated[
        bool, "Whether that of keys has one where those of queries and values have (Whisper's has not)."
    ] = True
    out_bias: Annotated[bool, "Whether the output projection has a bias."] = False
    fused_qkv: Annotated[bool, "Whether one projection gives q, k and v (GPT-2, GPT-NeoX)."] = False
    rotary: Annotated[Fraction, SHARE, "Share of head_dim that is rotated; 0: none."] = Fraction(0)
    window: Annotated[int | None, Size(), "Sliding window in tokens."] = None
    bidirectional: Annotated[bool, "Whether tokens see those after them too (BERT)."] = False
    masked: Annotated[
        bool,
        "Whether eager attention adds a mask to scores also where tokens see all others, of which some may be padding "
        "(Whisper adds none).",
    ] = True
    softcap: Annotated[float | None, SOFTCAP, "Scores pass through cap * tanh(score / cap)."] = None
    dropout: Annotated[Fraction, SHARE, "Dropout on attention probabilities."] = Fraction(0)
    softmax: Annotated[
        str,
        Choice("fp32", "input", "unconverted"),
        "What eager attention computes its softmax in: fp32, or the dtype of its input (GPT-2), `unconverted` until it "
        "multiplies values, also where autocast makes it wide (T5, Whisper).",
    ] = "fp32"
    kind: Annotated[
        str,
        KeyOf(ATTENTION_KINDS),
        "Multi-head, grouped-query and multi-query attention are one kind; in `gated` a sigmoid multiplies the "
        "result of each head, and its projection is a second half of that of queries (Qwen3-Next); `latent` expands "
        "keys and values from a narrow vector (DeepSeek-V2); `mamba2` scans a state of each head along the sequence "
        "instead, `gated_delta` by the gated delta rule (Qwen3-Next); `custom` has its own steps.",
    ] = "grouped_query"
    q_rank: Annotated[
        int,
        Size(most=1_000_000),
        "Latent attention: width of the latent that queries come from; without it they come from the residual stream.",
    ] = 0
    kv_rank: Annotated[
        int,
        Size(most=1_000_000),
        "Latent attention: width of the latent that keys and values come from.",
        Needed(when=IS_LATENT),
    ] = 0
    nope_head_dim: Annotated[
        int, Size(most=65_536), "Latent attention: part of a query or key without positions.", Needed(when=IS_LATENT)
    ] = 0
    rope_head_dim: Annotated[
        int,
        Size(most=65_536),
        "Latent attention: rotated part of a query or key; all heads share that of the key.",
        Needed(when=IS_LATENT),
    ] = 0
    v_head_dim: Annotated[
        int, Size(most=65_536), "Latent attention: width of a head's values.", Needed(when=IS_LATENT)
    ] = 0
    rotary_form: Annotated[
        str,
        Choice(
            "halves", "wide_halves", "joined_halves", "half_tables", "pairs", "wide_pairs", "repeated_pairs", "complex"
        ),
        "How rotation is written out: halves of a head (Llama; the default), the same in fp32 (OLMo 2) or put beside a "
        "rest that may be empty (Phi-3), each apart with tables of half the width (GPT-OSS), even and odd numbers "
        "(DeepSeek-V3; the default of latent attention), the same in fp32 (Cohere) or with tables that each layer "
        "widens (GLM-4), complex numbers in fp32 (DeepSeek-V2, Llama 4).",
        OPTIONAL,
    ] = "halves"
    rotary_base: Annotated[
        int, Size(), "Base of the rotation's wavelengths; groups with another base have tables of their own."
    ] = 0
    qk_norm: Annotated[
        str,
        Choice("none", "head", "heads", "all", "unweighted"),
        "Norms of queries and keys: of each head (Qwen3), of each head with weights of its own (Cohere), over all "
        "heads (OLMo 2), or of each head after rotation and without a weight (Llama 4).",
    ] = "none"
    sinks: Annotated[bool, "Whether each head has a learned logit beside its scores (GPT-OSS)."] = False
    temperature: Annotated[bool, "Whether queries grow with their position (Llama 4, layers without rotation)."] = False
    chunk: Annotated[
        int | None, Size(), "Tokens see those before them in their own chunk of so many only (Llama 4)."
    ] = None

    relative_buckets: Annotated[
        int,
        Size(most=1_000_000),
        "Rows of a table of biases by distance, a number for each head, which the first layer of an encoder or a "
        "decoder has and all its layers add to their scores (T5); none where not given.",
    ] = 0
    scaled: Annotated[
        str,
        Choice("scores", "queries"),
        "What is multiplied by 1 / sqrt(head_dim): scores, or queries, which are then copied with keys and values to "
        "stand head by head (Whisper).",
    ] = "scores"
    state: Annotated[RecurrentState | None, Needed(when=IS_RECURRENT)] = None
    custom: CustomPart | None = None

    @classmethod
    def from_spec(cls, values: Values) -> Attention:
        """The attention; key-value heads are as many as query heads, and latent widths add up, where not stated."""
        kind = ATTENTION_KINDS[values.get("kind", cls.kind)]
        expanded = kind.expanded
        widths = values.get("nope_head_dim", 0) + values.get("rope_head_dim", 0)
        derived = {
            "kv_heads": 0 if kind.recurrent else values.get("heads", 0),
            "head_dim": widths,
            "rotary_form": "pairs" if expanded else "halves",
        }
        custom_fields = take_custom_part(values)
        return cls(**(derived | values | custom_fields))

    @property
    def expanded(self) -> bool:
        """Whether keys and values of every head are made of a narrow vector."""
        return ATTENTION_KINDS[self.kind].expanded

    @property
    def recurrent(self) -> bool:
        """Whether each token reads a state of those before it, whatever their number is."""
        return ATTENTION_KINDS[self.kind].recurrent

    @property
    def state_size(self) -> int:
        """Width of the state of a head."""
        return self.state.size if self.state else 0

    @property
    def state_groups(self) -> int:
        """Groups of heads that share what is written to and read from their states."""
        return self.state.groups if self.state else 0

    @property
    def scan_chunk(self) -> int:
        """Tokens of a chunk of the scan."""
        return self.state.chunk if self.state else 0

    @property
    def convolution(self) -> int:
        """Tokens that the convolution before the scan sees."""
        return self.state.convolution if self.state else 0

    @property
    def convolved(self) -> int:
        """Channels of the convolution before the scan: of the values of all heads, and of B and C of all groups."""
        return self.heads * self.head_dim + 2 * self.state_groups * self.state_size if self.state else 0

    @property
    def split_heads(self) -> dict[str, int]:
        """The heads that tensor parallelism splits, by the field that counts them."""
        if self.custom or self.recurrent or not self.heads:
            return {}
        return {"heads": self.heads} if self.expanded else {"heads": self.heads, "kv_heads": self.kv_heads}

    def heads_over(self, devices: int, *, copies: bool) -> dict[str, int]:
        """The heads to split over so many devices; with `copies`, devices beyond the key-value heads hold copies.

        As engines that serve do: vLLM's QKVParallelLinear (`num_kv_head_replicas`), TensorRT-LLM's `Attention`.
        """
        heads = self.split_heads
        shared = heads.get("kv_heads", 0)
        copied = copies and 0 < shared < devices and devices % shared == 0
        return {**heads, "kv_heads": devices} if copied else heads

    @property
    def matrices(self) -> tuple[str, ...]:
        """The projections by name."""
        if self.custom:
            return ()
        if self.recurrent:
            return ("in", "out") if self.kind == "mamba2" else ("in", "in_gates", "out")
        if self.expanded:
            return (*(("q_latent",) if self.q_rank else ()), "q", "kv_latent", "kv", "out")
        return ("qkv", "out") if self.fused_qkv else ("q", "k", "v", "out")

    @property
    def copies_queries(self) -> bool:
        """Whether queries are copied or put together from parts, which leaves heads before positions."""
        turned = self.rotary > 0 and self.rotary_form in JOINED_FORMS
        return self.expanded or 0 < self.rotary < 1 or turned or self.scaled == "queries"

    @property
    def rotary_dim(self) -> int:
        """Width of the rotated part of one head."""
        width: int = truncate(self.rotary * self.head_dim)
        return width

    @property
    def cached(self) -> int:
        """Elements that a decoder keeps for each token: keys and values, or the latent and the rotated part."""
        if self.custom:
            return self.custom.cached
        if self.recurrent:
            return 0
        return self.kv_rank + self.rope_head_dim if self.expanded else 2 * self.kv_heads * self.head_dim
