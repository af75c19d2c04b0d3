"""Optimizers: the states each keeps beside a weight, the work of an update, and the passes over gradients around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from ledger.model.tensors import Tensor, product


@dataclass(frozen=True)
class State:
    """One state: as large as the weight, or (`factored`) one row and one column of each matrix."""

    name: str
    factored: bool = False

    def elements(self, weight: Tensor) -> sympy.Expr:
        """Elements of this state for one weight on one device."""
        if not self.factored or len(weight.dims) < 2:
            return weight.elements()
        rows = product(*[weight.local(dim) for dim in weight.dims[: weight.lead]])
        columns = product(*[weight.local(dim) for dim in weight.dims[weight.lead :]])
        return sympy.Add(rows, columns)


@dataclass(frozen=True)
class Rule:
    """An update rule: its states, and the FLOPs it spends on one element."""

    name: str
    states: tuple[State, ...]
    flops: int
    source: str


OPTIMIZERS: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("sgd", (), 2, "Robbins and Monro 1951"),
        Rule("momentum", (State("momentum"),), 4, "Polyak 1964"),
        Rule("adagrad", (State("sum"),), 6, "Duchi et al. 2011"),
        Rule("rmsprop", (State("second_moment"),), 7, "Tieleman and Hinton 2012"),
        Rule("adam", (State("first_moment"), State("second_moment")), 12, "Kingma and Ba 2015"),
        Rule("adamw", (State("first_moment"), State("second_moment")), 14, "Loshchilov and Hutter 2019"),
        Rule("lion", (State("momentum"),), 8, "Chen et al. 2023"),
        Rule("adafactor", (State("second_moment", factored=True),), 12, "Shazeer and Stern 2018, algorithm 4"),
    )
}

# Work over the local gradients beside the update itself: (reads, writes) of gradients and of their fp32 copies.
PASSES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "copy": (("gradients",), ("fp32",)),  # 16-bit gradients to fp32
    "unscale": (("fp32",), ("fp32",)),  # divide by the loss scale, look for infinities
    "norm": (("fp32",), ()),
    "clip": (("fp32",), ("fp32",)),
    "cast": (("fp32",), ("weights",)),  # the updated master to the weights
    "zero": ((), ("gradients",)),
}
# Full-size temporaries of an update, in units of (one state of all weights, one state of the largest weight).
TEMPORARIES: Mapping[str, tuple[int, int]] = {"foreach": (1, 0), "fused": (0, 0), "loop": (0, 2)}
