"""An optimizer as its spec states it: what it keeps beside each weight, and how its update runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from ledger.spec.parts import DTYPE, At, PartHeader, PartOf
from ledger.spec.structures import NEEDED, OPTIONAL, AnyOf, DerivedType, ListOf, MappingOf, Values, members, quantity
from ledger.spec.values import Choice, Integer, String

# The kinds of weights that a rule may treat apart: matrices of the embedding and the head, matrices and vectors of all.
WEIGHT_KINDS = ("ends", "matrices", "vectors")
DEFAULT = "default"  # the dtype that the precision gives to states
STATE_SHAPES = ("whole", "rows", "columns", "factored", "heads", "one")
STATE_SHAPE = Choice(*STATE_SHAPES)
STATE_DTYPE = Choice(DEFAULT, "fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "e8m0")
NEAREST = "nearest"
ROUNDING = Choice(NEAREST, "stochastic", "compensated")
ROUNDING_MEANING = (
    "`nearest`, which loses a change below half the spacing of the format; `stochastic`, at random up or down, so that "
    "the mean is right; `compensated`, where what rounding took is added in the next step (Kahan)."
)
STATE_DTYPE_MEANING = "A number format; `default`: the precision's for states."


@dataclass(frozen=True)
class Scales:
    """`block` elements share one scale of `dtype`; a tensor with fewer than `smallest` elements is kept in fp32."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Elements that share one scale.")

    block: Annotated[int, Integer(1, 1_000_000), "Elements of a block; the last block of a tensor may be short."]
    dtype: Annotated[str, STATE_DTYPE, STATE_DTYPE_MEANING]
    smallest: Annotated[
        int, Integer(0, 1_000_000_000), "Tensors with fewer elements are kept in fp32, without scales."
    ] = 0


def for_all(shape: str) -> dict[str, str]:
    """One shape for every kind of weight."""
    return dict.fromkeys(WEIGHT_KINDS, shape)


@dataclass(frozen=True)
class OptimizerState:
    """One state. `shapes` by kind of weight or by the name of one; a kind that is not listed has no such state.

    A factored state of a vector is whole.
    """

    spec: ClassVar[PartHeader] = PartHeader(sourced=True)

    shapes: Annotated[
        Mapping[str, str],
        At("shape"),
        AnyOf(
            (DerivedType(STATE_SHAPE, for_all), MappingOf(STATE_SHAPE, 1, "^(ends|matrices|vectors|[a-z_]+/[a-z_]+)$"))
        ),
        "One for all weights (`whole` where not given), or by kind of weight or name of one (`attention/q`); a kind "
        "that is not listed has no such state. As large as the weight (`whole`), or one number a row, a column, a row "
        "and a column (`factored`), a head, or a weight (`one`).",
    ] = field(default_factory=lambda: for_all("whole"))
    dtype: Annotated[str, STATE_DTYPE, STATE_DTYPE_MEANING] = DEFAULT
    scales: Annotated[Scales | None, OPTIONAL] = None
    decay: Annotated[
        float | None,
        quantity("1", greatest=1),
        "What a step leaves of it before the gradient's part is added: `0.999`; 1 of a sum. Not known where not given.",
    ] = None
    rounding: Annotated[str, ROUNDING, f"How it is rounded to its format: {ROUNDING_MEANING}"] = NEAREST
    paged: Annotated[
        int,
        Integer(0, 1_000_000_000),
        "Of tensors with at least so many elements it is in unified memory, which pages to the host where a device is "
        "full (bitsandbytes' paged optimizers); 0: of none.",
    ] = 0


@dataclass(frozen=True)
class Temporary:
    """A tensor that exists while a weight is updated, of a shape as states have, or `gram` (its shorter side squared).

    A copy of the gradient exists only where the gradient has not that dtype already.
    """

    shape: Annotated[
        str,
        Choice("whole", "rows", "columns", "factored", "gram"),
        "As of a state; `gram`: the shorter side of a matrix, squared.",
    ] = "whole"
    dtype: Annotated[str, STATE_DTYPE, STATE_DTYPE_MEANING] = DEFAULT
    copies: Annotated[bool, "The gradient in this dtype: not there where the gradient has it already."] = False
    gathered: Annotated[bool, "Of the whole weight, also where its states are held split."] = False


@dataclass(frozen=True)
class Implementation:
    """One way to run an update: `passes` over operands of a weight's size (0: each is read once and written once).

    `together`: temporaries are of all weights at once, else of one weight after another.
    """

    spec: ClassVar[PartHeader] = PartHeader(sourced=True)

    passes: Annotated[
        int,
        Integer(1, 1000),
        "Reads and writes of operands as large as a weight, where they are more than one of each.",
    ] = 0
    temporaries: Annotated[
        tuple[Temporary, ...], ListOf(PartOf(Temporary)), "Alive together at the fullest instant of the update."
    ] = ()
    left: Annotated[
        tuple[Temporary, ...], ListOf(PartOf(Temporary)), "What a loop still holds of the weight before."
    ] = ()
    together: bool = False


@dataclass(frozen=True)
class NewtonSchulz:
    """Iterations that bring a matrix near an orthogonal one, each three products of matrices in `dtype`."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="The update of a matrix is brought near an orthogonal one by products of matrices."
    )

    iterations: Annotated[int, Integer(1, 99), "Each is three products."]
    dtype: Annotated[str, DTYPE, "What the products multiply."]


UPDATES = {
    "foreach": "One kernel after another, each over lists of all weights.",
    "fused": "One kernel for the whole update.",
    "loop": "Weight after weight.",
}


@dataclass(frozen=True)
class Optimizer:
    """An update rule for weights of the kinds in `weights`; the others are updated by `otherwise`."""

    spec: ClassVar[PartHeader] = PartHeader(
        title="An optimizer: what it keeps beside each weight, and how its update runs", kind="optimizer"
    )

    name: Annotated[str, String(least=1), "What `otherwise` goes by; filled in when the name is resolved."] = "adamw"
    title: str = ""
    states: Annotated[
        Mapping[str, OptimizerState],
        MappingOf(PartOf(OptimizerState)),
        "What is kept from step to step, by name.",
        NEEDED,
    ] = field(default_factory=dict)
    flops: Annotated[
        int,
        Integer(1, 10_000),
        "Arithmetic operations of an update on one element, outside products of matrices.",
        NEEDED,
    ] = 0
    update: Annotated[
        Mapping[str, Implementation],
        members(PartOf(Implementation), UPDATES),
        "The implementations there are, as `kernels.optimizer` names them.",
        NEEDED,
    ] = field(default_factory=dict)
    weights: Annotated[
        tuple[str, ...],
        ListOf(Choice(*WEIGHT_KINDS), 1, unique=True),
        "The kinds of weights that this rule updates; all where not given. `otherwise` names the rule for the rest. "
        "ends: matrices of embedding and head; matrices: those of the layers; vectors: norms and biases.",
    ] = WEIGHT_KINDS
    otherwise: Annotated[Optimizer | None, "The optimizer of the weights that this one does not update."] = None
    newton_schulz: Annotated[NewtonSchulz | None, OPTIONAL] = None
    rounding: Annotated[
        str, ROUNDING, f"How updated weights are rounded to the format that they are kept in: {ROUNDING_MEANING}"
    ] = NEAREST
    step: Annotated[
        float | None,
        quantity("1", greatest=1000),
        "An update over the learning rate, as the root of the mean square of its elements: `1` where each is a sign. "
        "Not given where gradients or weights set it too.",
    ] = None
    zero_grad: Annotated[
        str,
        Choice("free", "fill"),
        "What becomes of gradients after an update: freed, so that backward makes them anew "
        "(`zero_grad(set_to_none=True)`), or filled with zeros, so that they last through forward too and every "
        "backward adds to them (`set_to_none=False`).",
    ] = "free"
    source: str = ""

    @classmethod
    def from_spec(cls, values: Values) -> Optimizer:
        """Foreach works on all weights at once; what has no title goes by its name."""
        update = {name: replace(update, together=name == "foreach") for name, update in values["update"].items()}
        return cls(**(values | {"update": update, "title": values["title"] or values["name"]}))

    def implementations(self) -> tuple[str, ...]:
        """The values of `kernels.optimizer`: implementations of this rule, and of the one for the other weights."""
        further = self.otherwise.implementations() if self.otherwise else ()
        return tuple(dict.fromkeys((*self.update, *further)))

    @property
    def shaped_states(self) -> tuple[str, ...]:
        """States of a matrix that are not as large as it: what they take follows from its rows and columns."""
        return tuple(name for name, state in self.states.items() if state.shapes.get("matrices", "whole") != "whole")

    @property
    def pages(self) -> bool:
        """Whether this rule, or the one for the other weights, keeps states in unified memory."""
        others_page = self.otherwise.pages if self.otherwise else False
        return others_page or any(state.paged for state in self.states.values())

    @property
    def citation(self) -> str:
        """The publication of the rule itself, without what is said of its implementations."""
        return self.source.partition(";")[0]
