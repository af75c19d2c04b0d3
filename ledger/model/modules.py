"""Modules and their parameters, as frameworks name them."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHT, BIAS = "weight", "bias"


@dataclass(frozen=True)
class Module:
    """A part of a `component` that multiplies, norms or looks up: `attention/q`, `mlp_norm/norm`.

    `of_layer`: a norm of the layer itself, not one inside attention. `adapter`: a low-rank factor beside another one.
    """

    component: str
    name: str
    of_layer: bool = False
    adapter: bool = False

    def __str__(self) -> str:
        """As operations, targets of adapters and rules of optimizers name it."""
        return f"{self.component}/{self.name}"


@dataclass(frozen=True)
class Parameter:
    """A tensor that a module learns; one that is the module itself (attention sinks) has no kind.

    `elementwise`: it multiplies element by element, as that of a norm does, and is no matrix whatever its dims are.
    """

    module: Module
    kind: str = WEIGHT
    elementwise: bool = False

    def __str__(self) -> str:
        """As state dictionaries name it: `attention/q.weight`."""
        return f"{self.module}.{self.kind}" if self.kind else str(self.module)
