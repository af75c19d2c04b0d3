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

    @property
    def is_norm(self) -> bool:
        """Whether it norms: `attention_norm/norm`, `attention/q_norm`."""
        return self.name.endswith("norm")

    def __str__(self) -> str:
        """As operations, targets of adapters and rules of optimizers name it."""
        return f"{self.component}/{self.name}"


@dataclass(frozen=True)
class Parameter:
    """A tensor that a module learns; one that is the module itself (attention sinks) has no kind."""

    module: Module
    kind: str = WEIGHT

    def __str__(self) -> str:
        """As state dictionaries name it: `attention/q.weight`."""
        return f"{self.module}.{self.kind}" if self.kind else str(self.module)
