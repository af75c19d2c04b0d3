"""How operands of matrix products are quantised: formats, scales, layouts, what is kept, and what is left alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.spec.parts import At, Nested, PartHeader
from ledger.spec.structures import NEEDED, OPTIONAL, AnyOf, ListOf, Values
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
    def from_spec(cls, given: Values) -> Stored:
        """The part is the key that it stands under."""
        return cls("", **given)


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
        str,
        At("scales.dtype"),
        Choice("fp32", "e8m0", "fp8_e4m3"),
        "Of a scale; fp32 where not given.",
        OPTIONAL,
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
        tuple[int, int],
        At("scales.padded"),
        SIDES,
        "Rows of scales, and scales of a row, come in multiples of these.",
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
    def from_spec(cls, given: Values) -> Recipe:
        """Gradients are quantised as the rest is, and scales are kept in fp32, where nothing else is said."""
        return cls(**({"gradient": given["format"], "scale": "fp32"} | given))

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
        """How often a tensor is read to make its `row` copy, its `column` copy, or both.

        Once more where the scale of all of it is found first. A row's own scale is found while the row is on the chip;
        those of columns are found in one pass and applied in another (torchao, a kernel for each direction).
        """
        if self.by_rows:
            return ("row" in copies) + 2 * ("column" in copies)
        found_first = self.history == 0 and WHOLE_TENSOR in (self.activation_block, self.weight_block)
        return 2 if found_first or self.tensor_scale else 1
