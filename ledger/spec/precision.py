"""A precision: a number format per role, and what is kept narrower than it was computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from ledger.spec.parts import DTYPE, PartHeader, PartOf
from ledger.spec.recipe import Recipe, Stored
from ledger.spec.structures import OPTIONAL, Values, members
from ledger.spec.values import Choice

STORED = {
    "core": "What attention saves: queries, keys, values and what its kernel gives.",
    "activation": "What the nonlinearity of a feed-forward part saves.",
}


@dataclass(frozen=True)
class Precision:
    """A dtype per role. `master` is None where the optimizer updates the weights themselves.

    `autocast`: weights are kept in `weights` and cast to `compute` where a matmul uses them, as torch.autocast does.
    """

    spec: ClassVar[PartHeader] = PartHeader(title="A precision: a number format per role", kind="precision")

    name: str
    weights: Annotated[str, DTYPE, "What the layers' weights are kept in."]
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
    softmax: Annotated[str, DTYPE, "What attention's softmax is computed in."] = "fp32"
    logits: Annotated[str, DTYPE, "What the loss is computed in."] = "fp32"
    autocast: Annotated[
        bool, "Whether weights are cast to `compute` where a matmul uses them, as torch.autocast does."
    ] = False
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
        return cls(**(given | {"stored": named}))

    @property
    def multiplies(self) -> str:
        """The dtype that most matmuls multiply in."""
        return self.matmul.format if self.matmul else self.compute
