"""A precision: a number format per role, and what is kept narrower than it was computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, ClassVar

from ledger.spec.parts import DTYPE, At, Nested, PartHeader, PartOf
from ledger.spec.structures import NEEDED, OPTIONAL, AnyOf, ListOf, Values, members, quantity
from ledger.spec.values import Choice, Integer, String

HALF = ("bf16", "fp16")  # formats of 16 bits
WHOLE_TENSOR = (0, 0)  # of a block: one scale for the tensor
WHOLE_ROW = (1, 0)  # one scale for what is contracted of a row
NARROW_FORMAT = Choice("fp8_e4m3", "fp8_e5m2", "e2m1")
SIDES = ListOf(Integer(1, 65_536), 2, 2)
SCALE_BLOCK = AnyOf((Choice("tensor", "row", means={"tensor": WHOLE_TENSOR, "row": WHOLE_ROW}), SIDES))
SHARES = "the whole tensor, what is contracted of a row, or a block of so many kept and so many contracted elements."


@dataclass(frozen=True)
class Stored:
    """A `part` of a layer (a region, as recompute names it) whose saved activations wait for backward in `format`.

    `block`: (kept, contracted) elements that share an fp32 scale; None where values are cast and have none.
    """

    spec: ClassVar[PartHeader] = PartHeader(sourced=True)

    part: str
    format: Annotated[str, Choice("fp8_e4m3", "fp8_e5m2", "e5m6"), "What is kept until backward."]
    block: Annotated[
        tuple[int, int] | None,
        SCALE_BLOCK,
        f"What shares an fp32 scale; without it, values are cast and have none: {SHARES}",
    ] = None

    @classmethod
    def from_spec(cls, values: Values) -> Stored:
        """The part is the key that it stands under."""
        return cls("", **values)


@dataclass(frozen=True)
class Recipe:
    """A recipe of one library. Blocks are (kept, contracted) elements that share a scale; 0 is all of them."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Operands of matmuls with weights are quantised, by a kernel of their own each.",
        sourced=True,
        groups={"scales": Nested("What shares a scale, and what scales are kept in.", NEEDED, sourced=True)},
    )

    format: Annotated[str, NARROW_FORMAT, "Of activations and weights, without scales."]
    gradient: Annotated[str, NARROW_FORMAT, "Of upstream gradients; `format` where not given.", OPTIONAL]
    scale: Annotated[
        str, At("scales.dtype"), Choice("fp32", "e8m0", "fp8_e4m3"), "Of a scale; fp32 where not given.", OPTIONAL
    ]
    activation_block: Annotated[
        tuple[int, int], At("scales.activations"), SCALE_BLOCK, f"What shares a scale of an activation: {SHARES}"
    ] = WHOLE_TENSOR
    weight_block: Annotated[
        tuple[int, int], At("scales.weights"), SCALE_BLOCK, f"What shares a scale of a weight: {SHARES}"
    ] = WHOLE_TENSOR
    tensor_scale: Annotated[
        str, At("scales.tensor"), Choice("fp32"), "Of a further scale of the whole tensor; none where not given."
    ] = ""
    padded: Annotated[
        tuple[int, int], At("scales.padded"), SIDES, "Rows of scales, and scales of a row, come in multiples of these."
    ] = (1, 1)
    history: Annotated[
        int,
        At("scales.history"),
        Integer(1, 1_000_000),
        "Delayed scaling: largest magnitudes kept of each tensor. Without it, scales are those of the moment.",
    ] = 0
    layouts: Annotated[
        str,
        Choice("both", "one"),
        "`both`: backward multiplies a second copy, transposed or scaled along the other side; `one`: the same bytes "
        "serve.",
    ] = "both"
    saves: Annotated[str, Choice("quantised", "original"), "What backward keeps of the operands."] = "quantised"
    weights: Annotated[
        str,
        Choice("kept", "only", "anew", "gathered"),
        "Whether quantised weights last beside those that they are made of, or instead of them (`only`: "
        "`fp8_param_gather` of Megatron-Core), or are made in each pass; `gathered`: with ZeRO 3, of this device's "
        "share, before it is gathered (torchao's `enable_fsdp_float8_all_gather`).",
    ] = "kept"
    turned: Annotated[
        str,
        Choice("kept", "anew"),
        "Whether the second layout of weights lasts with the first, or backward makes it of that each time.",
    ] = "kept"
    keep: Annotated[
        tuple[str, ...],
        ListOf(String(least=1), unique=True),
        "What is not quantised: components (`head`), operations (`router`, `mlp/down`) or layer groups.",
    ] = ()
    quantised_again: Annotated[
        tuple[str, ...],
        ListOf(String(least=1), unique=True),
        "Operations whose input backward quantises again, since it is kept in 16 bits anyway (`attention/out`).",
    ] = ()
    gathers: Annotated[
        str,
        Choice("original", "quantised"),
        "Whether tensor parallelism gathers operands before or after they are quantised.",
    ] = "original"

    scaled: Annotated[
        str,
        Choice("matmul", "after"),
        "Where products of backward get the scales of their operands: in the matmul, or in a pass over what it wrote.",
    ] = "matmul"

    @classmethod
    def from_spec(cls, values: Values) -> Recipe:
        """Gradients are quantised as the rest is, and scales are kept in fp32, where nothing else is said."""
        return cls(**({"gradient": values["format"], "scale": "fp32"} | values))

    def leaves(self, *names: str) -> bool:
        """Whether what goes by any of these names stays as it is: a layer group, `head`, `mlp/down`, `router`."""
        return any(name in names for name in self.keep if name)

    @property
    def lasts(self) -> bool:
        """Whether quantised weights last from micro-batch to micro-batch, or come with each gather."""
        return self.weights != "anew"

    @property
    def turns(self) -> bool:
        """Whether backward makes a second layout of weights of the one that lasts."""
        anew = self.turned == "anew" or self.weights == "gathered"
        return self.lasts and anew and self.layouts == "both"

    @property
    def by_rows(self) -> bool:
        """Whether each row, or column, of an operand has a scale of its own."""
        return WHOLE_ROW in (self.activation_block, self.weight_block)

    def reads(self, copies: frozenset[str]) -> int:
        """The number of times that a tensor is read to make its `row` copy, its `column` copy, or both.

        Once more where the scale of all of it is found first. A row's own scale is found while the row is on the chip;
        those of columns are found in one pass and applied in another (torchao, a kernel for each direction).
        """
        if self.by_rows:
            return ("row" in copies) + 2 * ("column" in copies)
        found_first = self.history == 0 and WHOLE_TENSOR in (self.activation_block, self.weight_block)
        return 2 if found_first or self.tensor_scale else 1


STORED = {
    "core": "What attention saves: queries, keys, values and what its kernel gives.",
    "activation": "What the nonlinearity of a feed-forward part saves.",
}

STORED_ONLY = ("nf4", "nf4_double", "int8", "int4")  # formats that matrices are brought back from to be multiplied
NARROW = ("fp8_e4m3", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4")  # formats of matrices alone, where parts are stated
PARTS = ("adapters", "norms", "embedding", "head")  # of a model, beside the matrices of its layers
LAYER_FORMAT = Choice(*DTYPE.options, *STORED_ONLY)
CACHE_FORMAT = Choice(*DTYPE.options, "int8", "int4")


@dataclass(frozen=True)
class WeightFormats:
    """A format for each part of a model: the matrices of its layers, what is no matrix, its two ends, its adapters.

    `every` is the format where all parts have the same one, and empty where they differ.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What weights are kept in: one format for all of them, or one by part: {base: nf4, adapters: bf16}. "
        "Parts that are left out are kept as `base` is; where that is only stored (nf4, int8), or has fewer than 16 "
        "bits, in `activations`."
    )

    base: Annotated[
        str,
        LAYER_FORMAT,
        "Matrices of the layers. nf4: 4 bits and an fp32 scale for 64 of them; nf4_double: those scales in 8 bits, "
        "with an fp32 scale for 256 of them; int8: a byte, and an fp32 scale a row; int4: 4 bits, with an fp16 scale "
        "and a zero point for 128 of them (AWQ, GPTQ).",
    ]
    adapters: Annotated[str, DTYPE, "Low-rank adapters.", OPTIONAL] = ""
    norms: Annotated[str, DTYPE, "Norms, biases and whatever else of a layer is no matrix.", OPTIONAL] = ""
    embedding: Annotated[str, DTYPE, "The embedding, and the head where that is the same matrix.", OPTIONAL] = ""
    head: Annotated[str, DTYPE, "The head.", OPTIONAL] = ""
    every: Annotated[str, At(""), DTYPE, "One format for all weights."] = ""
    experts: Annotated[
        str, LAYER_FORMAT, "Matrices of experts, where these are kept in another format than `base`.", OPTIONAL
    ] = ""

    def __str__(self) -> str:
        """The formats as a spec writes them."""
        stated = ((part, getattr(self, part)) for part in ("base", "experts", *PARTS))
        return self.every or f"{{{', '.join(f'{part}: {dtype}' for part, dtype in stated if dtype)}}}"

    @classmethod
    def from_spec(cls, values: Values) -> WeightFormats:
        """One format is that of every part."""
        return cls.alike(values["every"]) if "every" in values else cls(**values)

    @classmethod
    def alike(cls, dtype: str) -> WeightFormats:
        """All parts in one format."""
        return cls(*(dtype,) * 6)

    @property
    def is_stored_only(self) -> bool:
        """Whether matrices of the layers are brought back to another format to be multiplied."""
        return self.base in STORED_ONLY

    def filled(self, activations: str) -> WeightFormats:
        """The formats with every part stated: as `base`, or as activations where only matrices have the format `base`.

        So transformers loads what bitsandbytes leaves alone (`dtype` of from_pretrained).
        """
        default = activations if self.is_stored_only or self.base in NARROW else self.base
        parts = {name: getattr(self, name) or default for name in PARTS}
        experts = "" if self.experts == self.base else self.experts
        is_uniform = {self.base, *parts.values()} == {self.base} and not experts
        return replace(self, **parts, experts=experts, every=self.base if is_uniform else "")

    def narrowed(self, dtype: str) -> WeightFormats:
        """The formats with this dtype for all that can be multiplied as it is."""
        return (
            replace(WeightFormats.alike(dtype), base=self.base, every="") if self.is_stored_only else self.alike(dtype)
        )


TWO_OF_FOUR, ANYWHERE = "2:4", "unstructured"


@dataclass(frozen=True)
class Pruning:
    """Weights of matrices of the layers, experts among them, that are zero: which share, where, and who gains from it.

    `storage` and `kernel` follow from the pattern where a spec does not say them: sparse tensor cores multiply 2:4.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Serving: weights of matrices of the layers that are zero: {pattern: 2:4}, or {share: 50 %}."
    )

    pattern: Annotated[
        str,
        Choice(ANYWHERE, TWO_OF_FOUR),
        "Where zeros are: `2:4`, two of every four neighbours of a row, or anywhere.",
    ] = ANYWHERE
    share: Annotated[Fraction, quantity("1", greatest=1, exact=True), "Weights that are zero: `50 %`.", OPTIONAL] = (
        Fraction(1, 2)
    )
    storage: Annotated[
        str,
        Choice("dense", "packed"),
        "`dense`: zeros are stored as any weight. `packed`: only what is kept, with its place: 2 bits in 2:4 (PTX ISA, "
        "`mma.sp`), else 16 bits, and 32 bits a row (as CSR). `packed` for a sparse kernel, where nothing is said.",
        OPTIONAL,
    ] = "dense"
    kernel: Annotated[
        str,
        Choice("dense", "sparse"),
        "`dense`: multiplies zeros too; packed weights are unpacked before. `sparse`: reads packed weights; in 2:4 it "
        "runs half the products at `accelerator.sparse_peak`, else it unpacks them on the chip and multiplies all "
        "(Xia et al. 2023, Flash-LLM, arXiv 2309.10285). `sparse` for 2:4, where nothing is said.",
        OPTIONAL,
    ] = "dense"

    @classmethod
    def from_spec(cls, values: Values) -> Pruning:
        """A 2:4 pattern is for kernels that gain from it, and those read packed weights, where nothing else is said."""
        kernel = values.get("kernel", "sparse" if values.get("pattern") == TWO_OF_FOUR else "dense")
        storage = values.get("storage", "packed" if kernel == "sparse" else "dense")
        return cls(**(values | {"kernel": kernel, "storage": storage}))

    def __str__(self) -> str:
        """The pruning as a spec states it."""
        share = "" if self.pattern == TWO_OF_FOUR else f"share: {float(self.share):.4g}, "
        return f"{{pattern: {self.pattern}, {share}storage: {self.storage}, kernel: {self.kernel}}}"

    @property
    def packed(self) -> bool:
        """Whether zeros take no bytes."""
        return self.storage == "packed"

    @property
    def skips(self) -> bool:
        """Whether products with zeros are left out: on sparse tensor cores."""
        return self.pattern == TWO_OF_FOUR and self.kernel == "sparse"

    @property
    def unpacks(self) -> bool:
        """Whether a kernel of its own writes packed weights out, zeros among them, before they are multiplied."""
        return self.packed and self.kernel == "dense"

    def packed_bytes(self, size: Fraction) -> Fraction:
        """Bytes of an element that takes `size` bytes unpruned: what is kept, and where each stands.

        Among four neighbours, or in its row.
        """
        place = Fraction(2 if self.pattern == TWO_OF_FOUR else 16, 8)
        return (1 - self.share) * (size + place)

    @property
    def row_bytes(self) -> int:
        """Bytes that say where a row begins."""
        return 0 if self.pattern == TWO_OF_FOUR else 4


@dataclass(frozen=True)
class Precision:
    """A dtype per role. `master` is None where the optimizer updates the weights themselves.

    `autocast`: weights are kept in `weights` and cast to `compute` where a matmul uses them, as torch.autocast does.
    """

    spec: ClassVar[PartHeader] = PartHeader(title="A precision: a number format per role", kind="precision")

    name: str
    weights: Annotated[WeightFormats, "What weights are kept in: one format, or one for each part of the model."]
    gradients: Annotated[str, DTYPE, "What gradients are kept in."]
    master: Annotated[
        str | None,
        Choice("none", "fp32", "bf16", "fp16", means={"none": None}),
        "The optimizer's own copy of the weights; `none`: it updates the weights themselves.",
    ]
    states: Annotated[str, DTYPE, "What the optimizer's states are kept in."]
    compute: Annotated[str, DTYPE, "What matmuls multiply."]
    activations: Annotated[str, DTYPE, "What flows between operations, where there is no autocast."]
    reduction: Annotated[str, DTYPE, "What data-parallel gradients are added in."]
    softmax: Annotated[
        str,
        Choice("fp32"),
        "What kernels of attention compute its softmax in, which is fp32; of plain operators a model says it: "
        "`attention.softmax`.",
    ] = "fp32"
    logits: Annotated[str, DTYPE, "What the loss is computed in."] = "fp32"
    autocast: Annotated[
        bool, "Whether weights are cast to `compute` where a matmul uses them, as torch.autocast does."
    ] = False
    cache: Annotated[
        str,
        CACHE_FORMAT,
        "Serving: what keys and values wait in for later tokens; what matmuls write, where not given.",
    ] = ""
    pruned: Annotated[Pruning | None, OPTIONAL] = None
    matmul: Annotated[Recipe | None, OPTIONAL] = None
    stored: Annotated[
        tuple[Stored, ...],
        members(PartOf(Stored), STORED, sourced=True),
        "16-bit activations that wait for backward in a narrower format than they were computed in, by the part of a "
        "layer that saves them.",
    ] = ()

    @classmethod
    def from_spec(cls, values: Values) -> Precision:
        """Each part that is stored in a narrower format goes by its key."""
        stored = values.get("stored", {})
        named = tuple(replace(stored[part], part=part) for part in STORED if part in stored)
        weights = values["weights"].filled(values["activations"])
        return cls(**(values | {"stored": named, "weights": weights}))

    @property
    def multiplies(self) -> str:
        """The dtype that most matmuls multiply in."""
        return self.matmul.format if self.matmul else self.compute
