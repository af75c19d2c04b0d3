"""A precision: a number format per role, and what is kept narrower than it was computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from ledger.spec.parts import DTYPE, At, PartHeader, PartOf
from ledger.spec.recipe import Recipe, Stored
from ledger.spec.structures import OPTIONAL, Values, members
from ledger.spec.values import Choice

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
        """As a spec says it."""
        stated = ((part, getattr(self, part)) for part in ("base", "experts", *PARTS))
        return self.every or f"{{{', '.join(f'{part}: {dtype}' for part, dtype in stated if dtype)}}}"

    @classmethod
    def from_spec(cls, given: Values) -> WeightFormats:
        """One format is that of every part."""
        return cls.alike(given["every"]) if "every" in given else cls(**given)

    @classmethod
    def alike(cls, dtype: str) -> WeightFormats:
        """All parts in one format."""
        return cls(*(dtype,) * 6)

    @property
    def is_stored_only(self) -> bool:
        """Whether matrices of the layers are brought back to another format to be multiplied."""
        return self.base in STORED_ONLY

    def filled(self, activations: str) -> WeightFormats:
        """The same with every part stated: as `base`, or as what flows between operations where that is of matrices.

        So transformers loads what bitsandbytes leaves alone (`dtype` of from_pretrained).
        """
        rest = activations if self.is_stored_only or self.base in NARROW else self.base
        parts = {name: getattr(self, name) or rest for name in PARTS}
        experts = "" if self.experts == self.base else self.experts
        same = {self.base, *parts.values()} == {self.base} and not experts
        return replace(self, **parts, experts=experts, every=self.base if same else "")

    def narrowed(self, dtype: str) -> WeightFormats:
        """The same where what can be multiplied as it is has this dtype."""
        return (
            replace(WeightFormats.alike(dtype), base=self.base, every="") if self.is_stored_only else self.alike(dtype)
        )


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
    matmul: Annotated[Recipe | None, OPTIONAL] = None
    stored: Annotated[
        tuple[Stored, ...],
        members(PartOf(Stored), STORED, sourced=True),
        "16-bit activations that wait for backward in a narrower format than they were computed in, by the part of a "
        "layer that saves them.",
    ] = ()

    @classmethod
    def from_spec(cls, given: Values) -> Precision:
        """Each part that is stored in a narrower format goes by its key."""
        stored = given.get("stored", {})
        named = tuple(replace(stored[part], part=part) for part in STORED if part in stored)
        weights = given["weights"].filled(given["activations"])
        return cls(**(given | {"stored": named, "weights": weights}))

    @property
    def multiplies(self) -> str:
        """The dtype that most matmuls multiply in."""
        return self.matmul.format if self.matmul else self.compute
