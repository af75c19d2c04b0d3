"""The model of a plan: groups of layers, each with its attention, its feed-forward part and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from ledger.spec import parts
from ledger.spec.attention import SHARE, SOFTCAP, Attention
from ledger.spec.components import CUSTOM_ROWS, LOWER_NAME, NONLINEARITIES, CustomPart, custom
from ledger.spec.expectations import EXPECT
from ledger.spec.feed_forward import MLP
from ledger.spec.parts import At, PartHeader, PartOf
from ledger.spec.structures import NEEDED, AnyStated, KeyStated, ListOf, Needed, Row, Values
from ledger.spec.values import Choice, Flag, Integer, Quantity, Size, String

MEANINGS = {
    "dims": "Its own dims with their sizes, `{wide: 64, rows: 56}`; of one like another, those that differ.",
    "weights": "Its weights by the names of their dims, `{w_into: narrow wide tall broad}`.",
    "steps": "What it does, in order, from `x` to its result.",
}
WRITTEN = Needed(unless=KeyStated("like"))
TERM = String(pattern="^[a-z][a-z0-9_]*( [a-z][a-z0-9_]*)*$")
INPUT = Row("input", TERM, "Dims of what it starts from, `batch` first: `batch wide rows columns`.", "input", WRITTEN)
LIKE = Row("like", String(pattern=LOWER_NAME), "The group whose input, weights and steps it has, by its name.", "like")


@dataclass(frozen=True)
class Block:
    """The spec of a layer that is written out whole, which becomes a `Custom`."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="A whole layer as its author writes it, in place of `attention` and `mlp`: dims, weights, and steps "
        "from `x`, norms and additions among them. `{like: stage_2, dims: {...}}` has the steps of another group.",
        extra=(
            INPUT,
            LIKE,
            *(
                replace(row, needed=WRITTEN if row.key != "dims" else NEEDED, meaning=MEANINGS[row.key])
                for row in CUSTOM_ROWS
                if row.key in MEANINGS
            ),
        ),
    )

    @classmethod
    def from_spec(cls, values: Values) -> CustomPart:
        """The steps with their dims; those of a block like another one are not known yet."""
        steps = custom(values["dims"], values.get("weights", {}), values.get("steps", ()), {})
        return replace(steps, takes=tuple(values.get("input", "").split()), like=values.get("like", ""))


def alike(groups: Iterable[Any]) -> tuple[Any, ...]:
    """The groups with the steps of those that they are like, with their own sizes; what names none stays as it is."""
    groups = tuple(groups)
    templates = {group.name: group.block for group in groups if group.block and not group.block.like}
    completed = []
    for group in groups:
        template = templates.get(group.block.like) if group.block else None
        if template is None:
            completed.append(group)
        else:
            sizes = {**dict(template.dims), **dict(group.block.dims)}
            block = replace(template, dims=tuple(sizes.items()), like=group.block.like)
            completed.append(replace(group, block=block))
    return tuple(completed)


# --- sound: frames of a spectrogram, which two convolutions make tokens of ---

TAPS = 3  # frames that a convolution sees at once (Radford et al. 2022, section 2.2)
STRIDE = 2  # of the second one


@dataclass(frozen=True)
class Sound:
    """Frames of a spectrogram, which two convolutions of three frames make tokens of, one for every two frames."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What the encoder reads in place of tokens: `{bands: 128, frames: 3000}`. Two convolutions over three "
        "frames each, the second with stride 2, make a token of every two frames; fixed positions are added (Whisper)."
    )

    bands: Annotated[int, Size(most=1_000_000), "Bands of the mel spectrogram, numbers of a frame."]
    frames: Annotated[int, Size(most=100_000_000), "Frames of a sample: 3000 of 30 seconds, 10 ms each."]

    @property
    def tokens(self) -> int:
        """Tokens of the source that the frames become."""
        return (self.frames - 1) // STRIDE + 1


# --- images ---

PIXELS = Size(most=1_000_000)


@dataclass(frozen=True)
class Image:
    """An image cut into square patches, each a token of its sequence, behind a class token that no patch makes.

    Without patches, as a stem reads it, an image is one token.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What a model of images reads in place of tokens: `{height: 224, width: 224, channels: 3, patch: 16}`. "
        "Each patch is a token of the sequence, after a learned class token; the head reads the class token. A model "
        "with a `stem` has no patches: the stem reads pixels, and an image counts as one token."
    )

    height: Annotated[int, PIXELS, "Pixels from top to bottom."]
    width: Annotated[int, PIXELS, "Pixels from left to right."]
    channels: Annotated[int, Size(most=100_000), "Numbers of a pixel: 3 of a colour image."]
    patch: Annotated[int, PIXELS, "Pixels along an edge of a patch; none where a stem reads the image."] = 0

    @property
    def patches(self) -> int:
        """Patches of an image, those that it holds whole."""
        return (self.height // self.patch) * (self.width // self.patch) if self.patch else 0

    @property
    def tokens(self) -> int:
        """Tokens of the sequence that an image becomes: its patches and the class token, or one."""
        return self.patches + 1


# Fields of a model that only transformers' classes have, not the decoders of other frameworks.
FOREIGN_PARTS = (
    *("predictions", "embedding_multiplier", "embedding_norm", "image", "stem", "classes", "token_types", "head_scale"),
    *("head_transform", "residual_scale", "residual_dtype", "sound", "encoder_groups", "head_input_scale"),
    *("positions_each",),
)
MOST_LAYERS = 2_000  # of a model, ten times those of any that was trained: time grows with them
MOST_GROUPS = 64  # kinds of layers of one model; each has books of its own
NEEDED_OF_LAYERS = Needed(unless=KeyStated("parameters"))  # of a model that is no bare count
NEEDED_OF_PARTS = Needed(unless=KeyStated("block"))  # of a layer that is not written out whole
NEEDED_OF_TEXT = Needed(unless=AnyStated((KeyStated("parameters"), KeyStated("image"))))


@dataclass(frozen=True)
class Norm:
    """The norm of a model, before or after each part of a layer and before the head."""

    kind: Annotated[str, Choice("rms", "layer"), "RMSNorm or LayerNorm.", NEEDED] = "rms"
    bias: Annotated[bool, "Whether a LayerNorm has a bias."] = False
    unit_offset: Annotated[bool, "Gemma's `1 + weight`."] = False
    wide: Annotated[
        bool,
        "Whether a norm written in Python multiplies by its weight in fp32 (OLMo 2, GPT-OSS); a LayerNorm is written "
        "in Python where this says so (Cohere).",
    ] = False
    scales_input: Annotated[
        bool, "Whether an RMSNorm written in Python multiplies its input by 1/rms as it is, not the copy in fp32 (T5)."
    ] = False
    final: Annotated[bool, "Whether there is one before the head (BERT has none)."] = True
    final_dropout: Annotated[Fraction, SHARE, "Dropout after the last norm of a decoder, and of an encoder (T5)."] = (
        Fraction(0)
    )


NO_MLP = MLP(kind="none", activation="")


@dataclass(frozen=True)
class Group:
    """A group of `repeat` equal layers."""

    name: Annotated[str, At("group"), String(pattern=LOWER_NAME), "The group's name, first part of its accounts."]
    repeat: Annotated[int, Size(most=MOST_LAYERS), "Layers in the group."]
    attention: Annotated[Attention, "Sizes and kind of attention.", NEEDED_OF_PARTS] = field(default_factory=Attention)
    mlp: Annotated[MLP, "The feed-forward part.", NEEDED_OF_PARTS] = NO_MLP
    block: Annotated[CustomPart | None, PartOf(Block), Block.spec.meaning] = None
    norms: Annotated[
        str,
        Choice("pre", "post", "sandwich", "shared", "residual"),
        "One norm before each part, one after (OLMo 2), one before and one after (Gemma-2), one that both parallel "
        "parts read (Falcon, Phi, Cohere), or one of the stream after each addition (BERT).",
    ] = "pre"
    reads: Annotated[
        str,
        Choice("sequence", "source"),
        "What its layers see: the sequence whose tokens are predicted, or the source that goes before it "
        "(`run.source_len`), of which they are the encoder (T5, Whisper).",
    ] = "sequence"
    cross_attention: Annotated[
        bool,
        "Whether tokens attend to what the encoder gives too, between attention and feed-forward part, by heads of "
        "the same number and width (T5, Whisper).",
    ] = False
    residual: Annotated[
        str, Choice("sequential", "parallel"), "`parallel`: attention and MLP read the same stream (GPT-NeoX)."
    ] = "sequential"

    @property
    def encodes_source(self) -> bool:
        """Whether it is of an encoder, whose sequence is the source."""
        return self.reads == "source"

    @property
    def crossing(self) -> Attention:
        """The attention to an encoder's result: sizes as in self-attention, all tokens seen, no positions."""
        return replace(self.attention, bidirectional=True, relative_buckets=0, rotary=Fraction(0), window=None)

    @property
    def written(self) -> dict[str, CustomPart]:
        """The parts of a layer that its author wrote out, by name."""
        parts = {"attention": self.attention.custom, "mlp": self.mlp.custom, "block": self.block}
        return {name: custom for name, custom in parts.items() if custom}


@dataclass(frozen=True)
class Model:
    """Layer groups between an embedding and a head: of tokens, or of images and classes; or a bare parameter count.

    `order`: names of groups that take turns in this pattern, over and over; empty: one group follows the other.
    `predictions`: further tokens predicted, each by a layer of the last group's kind (DeepSeek-V3).
    """

    spec: ClassVar[PartHeader] = PartHeader(
        title="A model: embedding, layer groups, output head",
        meaning="A model of text or of images from its sizes, or a bare parameter count.",
        kind="model",
        groups={
            "embedding": parts.Nested("The table of tokens, and that of positions."),
            "head": parts.Nested("The output head."),
            "multi_token": parts.Nested(
                "Multi-token prediction (DeepSeek-V3): a projection of hidden state and embedding, a layer of the last "
                "group's kind, the model's own embedding and head, a loss."
            ),
        },
        extra=(
            Row("alternating", Flag(), "Whether groups take turns layer by layer (Gemma-2).", "alternating"),
            EXPECT,
        ),
    )

    name: str
    title: str
    parameters: Annotated[
        int | None,
        Quantity("parameters"),
        "A bare count, `70e9` or `70B parameters`, in place of layers: only what follows from it is reported.",
    ] = None
    d_model: Annotated[int, Size(most=10_000_000), "Width of the residual stream.", NEEDED_OF_LAYERS] = 0
    vocab: Annotated[int, Size(most=1_000_000_000), "Rows of the embedding, padding included.", NEEDED_OF_TEXT] = 0
    image: Annotated[Image | None, Image.spec.meaning] = None
    stem: Annotated[
        CustomPart | None,
        PartOf(Block),
        "What a model of blocks makes of an image before the first of them, in steps as a block has them.",
    ] = None
    sound: Annotated[Sound | None, Sound.spec.meaning] = None
    groups: Annotated[
        tuple[Group, ...],
        At("layers"),
        ListOf(PartOf(Group), 1, MOST_GROUPS),
        "Groups of equal layers, in order.",
        NEEDED_OF_LAYERS,
    ] = ()
    norm: Annotated[Norm, "The norm of every part, and the final one."] = field(default_factory=Norm)
    tied: Annotated[bool, At("embedding.tied"), "Whether the output head uses the embedding's weight."] = False
    learned_positions: Annotated[
        int, At("embedding.learned_positions"), Size(), "Rows of a learned position table; none where not given."
    ] = 0
    positions_each: Annotated[
        bool, At("embedding.positions_each"), "Whether rows of that table are looked up for each sequence (Whisper)."
    ] = False
    scale_embedding: Annotated[bool, At("embedding.scale"), "Whether embeddings are multiplied by sqrt(d_model)."] = (
        False
    )
    embedding_multiplier: Annotated[
        float | None, At("embedding.multiplier"), SOFTCAP, "Embeddings are multiplied by it (Granite)."
    ] = None
    token_types: Annotated[
        int, At("embedding.types"), Size(), "Rows of a table of token types (BERT); none where not given."
    ] = 0
    embedding_norm: Annotated[bool, At("embedding.norm"), "Whether embeddings are normed (BERT)."] = False
    classes: Annotated[
        int, At("head.classes"), Integer(2, 1_000_000_000), "Classes that the head of a model of images tells apart."
    ] = 0
    head_bias: Annotated[bool, At("head.bias"), "Whether the output head has a bias."] = False
    head_softcap: Annotated[
        float | None, At("head.softcap"), SOFTCAP, "Logits pass through cap * tanh(logit / cap)."
    ] = None
    head_scale: Annotated[float | None, At("head.scale"), SOFTCAP, "Logits are multiplied by it (Cohere, Granite)."] = (
        None
    )
    head_transform: Annotated[
        str,
        At("head.transform"),
        Choice(*NONLINEARITIES),
        "Activation of a projection that stands before the head with a norm after it (BERT); none where not given.",
    ] = ""
    head_input_scale: Annotated[
        bool, At("head.scale_input"), "Whether what the head reads is divided by sqrt(d_model) (T5)."
    ] = False
    residual_scale: Annotated[
        float | None, SOFTCAP, "What a part of a layer gives is multiplied by it before it is added (Granite)."
    ] = None
    residual_dtype: Annotated[
        str,
        Choice("compute", "fp32"),
        "The dtype of the residual stream: that of a layer's results, or fp32 whatever they are in (Mamba-2).",
    ] = "compute"
    embedding_dropout: Annotated[Fraction, At("embedding.dropout"), SHARE, "Dropout after the embedding."] = Fraction(0)
    residual_dropout: Annotated[Fraction, SHARE, "Dropout before each residual addition."] = Fraction(0)
    max_seq_len: Annotated[int, Size(), "Longest sequence the model was made for; not stated where not given."] = 0
    order: Annotated[
        tuple[str, ...],
        ListOf(String(pattern="^([1-9][0-9]{0,4} )?[a-z][a-z0-9_]*$"), 1, 1000),
        "The pattern in which groups take turns, over and over until their layers are used up: `[5 local, global]` "
        "(Gemma-3).",
    ] = ()
    predictions: Annotated[
        int, At("multi_token.depth"), Integer(1, 64), "Further tokens predicted, by one layer each.", NEEDED
    ] = 0

    def stated(self, names: Iterable[str]) -> Iterator[str]:
        """The fields and parts among `names` in which the model differs from one whose spec does not state them."""
        defaults = {row.name: row.default for row in fields(self)}
        return (name for name in names if getattr(self, name) != defaults.get(name, ()))

    @classmethod
    def from_spec(cls, values: Values) -> Model:
        """A bare count has no layers; `5 local` in the order of groups stands for five layers of `local`."""
        if "parameters" in values:
            return cls(values["name"], values["title"], values["parameters"])
        counted = [entry.rpartition(" ") for entry in values.get("order", ())]
        order = tuple(name for count, _, name in counted for _ in range(int(count or 1)))
        if values.pop("alternating", False):
            order = tuple(group.name for group in values["groups"])
        return cls(**(values | {"order": order, "groups": alike(values["groups"])}))

    @property
    def layers(self) -> tuple[Group, ...]:
        """The group of every layer, from the embedding to the head."""
        if not self.order:
            return tuple(group for group in self.groups for _ in range(group.repeat))
        by_name = {group.name: group for group in self.groups}
        pattern = [by_name[name] for name in self.order]
        return tuple(pattern[layer % len(pattern)] for layer in range(sum(group.repeat for group in self.groups)))

    def group_of(self, unit: str) -> Group:
        """The group whose layers are of this unit; the first where none is."""
        return next((group for group in self.groups if group.name == unit), self.groups[0])

    @property
    def encoder_groups(self) -> tuple[Group, ...]:
        """The groups of the encoder, of a model that has one before its decoder."""
        return tuple(group for group in self.groups if group.encodes_source)

    @property
    def encodes(self) -> bool:
        """Whether tokens see those after them, so that no token is made from a cache of those before it."""
        later = (part.sees_later for group in self.groups for part in group.written.values())
        return self.image is not None or any(group.attention.bidirectional for group in self.groups) or any(later)

    @property
    def attends(self) -> bool:
        """Whether tokens meet in a kernel of attention: neither in a scan alone, nor in blocks written out."""
        return any(not (group.block or group.attention.recurrent) for group in self.groups)

    @property
    def of_blocks(self) -> bool:
        """Whether its layers are written out whole, each group's between dims of its own."""
        return any(group.block for group in self.groups)

    @property
    def bare(self) -> bool:
        """Whether only a parameter count is known."""
        return not self.groups
