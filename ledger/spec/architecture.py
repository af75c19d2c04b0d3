"""What a plan trains: a model as groups of layers, each with its attention, its feed-forward part and their sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


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

    def reach(self, tokens: int) -> int:
        """Of `tokens`, how many a query attends to but for the causal mask, and a decoder keeps."""
        return min(tokens, self.chunk or tokens, self.window or tokens)


@dataclass(frozen=True)
class Router:
    """How tokens choose experts: a score for each, of which the `top_k` largest count.

    `scores` is `softmax` (over all experts), `softmax_of_chosen`, `sigmoid` or `sigmoid_of_chosen`; `dtype` is what its
    matmul runs in, `weights` the dtype in which chosen scores go on: fp32, or that of the layer's `input`; `scales`
    what they multiply: what experts give (`output`), or what they read.
    """

    scores: str = "softmax"
    normalize: bool = False  # the chosen scores are made to add up to one
    dtype: str = "compute"  # compute | fp32
    weights: str = "fp32"  # fp32 | input
    bias: bool = False
    groups: int = 1  # of experts, of which each token uses the best few (DeepSeek)
    scales: str = "output"  # output | input (Llama 4)
    auxiliary_loss: bool = False  # a loss for even use, from the logits of all layers


@dataclass(frozen=True)
class Shared:
    """Experts that every token uses: `count` of width `d_ff`, as one gated MLP; `gated`: scaled by a learned gate."""

    d_ff: int
    count: int = 1
    gated: bool = False


GIVEN = ("batch", "seq", "d_model")  # dims that every layer has
STEPS = ("einsum", "activation", "multiply", "add")  # what a step of a custom component may do


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
    """`kind` is `plain` (up, activation, down), `gated` (gate and up, product, down), `experts`, `custom` (its steps).

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
    """`repeat` equal layers.

    `norms`: `pre`, `post` (OLMo 2), `sandwich` (before and after each part, Gemma-2), or `shared` (one that parallel
    attention and MLP both read: Falcon, Phi, Cohere).
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
    def layers(self) -> tuple[Group, ...]:
        """The group of every layer, from the embedding to the head."""
        if not self.order:
            return tuple(group for group in self.groups for _ in range(group.repeat))
        named = {group.name: group for group in self.groups}
        pattern = [named[name] for name in self.order]
        return tuple(pattern[layer % len(pattern)] for layer in range(sum(group.repeat for group in self.groups)))

    @property
    def bare(self) -> bool:
        """Whether only a parameter count is known."""
        return not self.groups
