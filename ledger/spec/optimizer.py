"""An optimizer as its spec states it: what it keeps beside each weight, and how its update runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The kinds of weights that a rule may treat apart: matrices of the embedding and the head, matrices and vectors of all.
KINDS = ("ends", "matrices", "vectors")
DEFAULT = "default"  # the dtype that the precision gives to states


@dataclass(frozen=True)
class Scales:
    """`block` elements share one scale of `dtype`; a tensor with fewer than `smallest` elements is kept in fp32."""

    block: int
    dtype: str
    smallest: int = 0


@dataclass(frozen=True)
class State:
    """One state. `shapes` by kind of weight or by the name of one: whole, rows, columns, factored (both), heads, one.

    A kind that is not listed has no such state. A factored state of a vector is whole.
    """

    shapes: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KINDS, "whole"))
    dtype: str = DEFAULT
    scales: Scales | None = None


@dataclass(frozen=True)
class Temporary:
    """A tensor that exists while a weight is updated, of a shape as states have, or `gram` (its shorter side squared).

    `copies`: it is the gradient in another dtype, and exists only where the gradient has not that dtype already.
    `gathered`: it is of the whole weight where states are held split.
    """

    shape: str = "whole"
    dtype: str = DEFAULT
    copies: bool = False
    gathered: bool = False


@dataclass(frozen=True)
class Implementation:
    """How an update runs: `passes` over operands of a weight's size (0: each is read once and written once).

    `temporaries` are alive together at the fullest instant; `together`: of all weights at once, else of one weight
    after another, and then `left` is what the weight before has left behind.
    """

    passes: int = 0
    temporaries: tuple[Temporary, ...] = ()
    left: tuple[Temporary, ...] = ()
    together: bool = False


@dataclass(frozen=True)
class NewtonSchulz:
    """Iterations that bring a matrix near an orthogonal one, each three products of matrices in `dtype`."""

    iterations: int
    dtype: str


@dataclass(frozen=True)
class Optimizer:
    """An update rule for weights of the kinds in `weights`; the others are updated by `otherwise`.

    `flops` are arithmetic operations on one element, outside products of matrices.
    """

    name: str = "adamw"
    title: str = ""
    states: Mapping[str, State] = field(default_factory=dict)
    flops: int = 0
    update: Mapping[str, Implementation] = field(default_factory=dict)
    weights: tuple[str, ...] = KINDS
    otherwise: Optimizer | None = None
    newton_schulz: NewtonSchulz | None = None
    source: str = ""

    def implementations(self) -> tuple[str, ...]:
        """What `kernels.optimizer` may say: the implementations of this rule, and of the one for the other weights."""
        others = self.otherwise.implementations() if self.otherwise else ()
        return tuple(dict.fromkeys((*self.update, *others)))
