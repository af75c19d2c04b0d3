"""How operands of matrix products are quantised: formats, scales, layouts, what is kept, and what is left alone."""

from __future__ import annotations

from dataclasses import dataclass

HALF = ("bf16", "fp16")  # formats of 16 bits
WHOLE = (0, 0)  # of a block: one scale for the tensor
ROW = (1, 0)  # one scale for what is contracted of a row


@dataclass(frozen=True)
class Stored:
    """A `part` of a layer (a region, as recompute names it) whose saved activations wait for backward in `format`.

    `block` as in `Recipe`: what shares an fp32 scale along a row; None where values are cast and have none.
    """

    part: str
    format: str
    block: tuple[int, int] | None = None


@dataclass(frozen=True)
class Recipe:
    """A recipe of one library. Blocks are (kept, contracted) elements that share a scale; 0 is all of them.

    `history`: values of the largest magnitude that each tensor keeps (delayed scaling); 0: scales of the moment.
    `tensor_scale`: dtype of a further scale of the whole tensor, if there is one.
    `padded`: rows of scales, and scales of a row, come in such multiples.
    `layouts`: `both` where the products of backward need a second copy of an operand, `one` where the same bytes serve.
    `saves`: whether backward keeps the `quantised` operands or the `original` ones.
    `weights`: whether their copies are `kept` or made `anew` in each pass.
    `keep` names what is not quantised: parts of accounts, or layer groups.
    """

    format: str
    gradient: str
    scale: str
    activation_block: tuple[int, int] = WHOLE
    weight_block: tuple[int, int] = WHOLE
    tensor_scale: str = ""
    padded: tuple[int, int] = (1, 1)
    history: int = 0
    layouts: str = "both"
    saves: str = "quantised"
    weights: str = "kept"
    keep: tuple[str, ...] = ()
    gathers: str = "original"  # or `quantised`: what tensor parallelism gathers for its products

    def leaves(self, account: str, group: str = "") -> bool:
        """Whether a contraction stays as it is: `head`, `mlp/down`, `router`, or all of a layer group."""
        parts = account.split("/")
        return any(name in (group, account, parts[0], parts[-1]) for name in self.keep if name)

    @property
    def by_rows(self) -> bool:
        """Whether each row, or column, of an operand has a scale of its own."""
        return ROW in (self.activation_block, self.weight_block)

    def reads(self, copies: frozenset[str]) -> int:
        """How often a tensor is read to make its `row` copy, its `column` copy, or both.

        Once more where the scale of all of it is found first. A row's own scale is found while the row is on the chip;
        those of columns are found in one pass and applied in another (torchao, a kernel for each direction).
        """
        if self.by_rows:
            return ("row" in copies) + 2 * ("column" in copies)
        found_first = self.history == 0 and WHOLE in (self.activation_block, self.weight_block)
        return 2 if found_first or self.tensor_scale else 1
