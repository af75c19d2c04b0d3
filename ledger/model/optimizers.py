"""Optimizers: the states each keeps beside a weight, the work of an update, and the passes over gradients around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from ledger.model.operations import ZERO, Operation
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

# Passes over the local gradients beside the update: which copies each reads and writes.
PASSES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "copy": (("gradients",), ("master",)),  # 16-bit gradients to fp32
    "unscale": (("master",), ("master",)),  # divide by the loss scale, look for infinities
    "norm": (("master",), ()),
    "clip": (("master",), ("master",)),
    "cast": (("master",), ("weights",)),  # the updated master copy to the weights
    "zero": ((), ("gradients",)),
}


@dataclass(frozen=True)
class Implementation:
    """How an update is run: passes over its operands, and full-size temporaries.

    `passes` is the memory traffic in units of one fused update; `whole` and `largest` count temporaries as large as
    one state of all weights, or of the largest weight.
    """

    passes: sympy.Rational
    whole: int
    largest: int


IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "fused": Implementation(sympy.Rational(1), 0, 0),
    # 20 reads and writes of a weight's size where the fused kernel has 7 (torch/optim/adamw.py, _multi_tensor_adamw)
    "foreach": Implementation(sympy.Rational(20, 7), 1, 0),
    "loop": Implementation(sympy.Rational(20, 7), 0, 2),
}


@dataclass(frozen=True)
class Streaming(Operation):
    """A kernel over the state of many weights: `amount` bytes moved, `work` FLOPs."""

    amount: sympy.Expr = ZERO
    work: sympy.Expr = ZERO

    def traffic(self) -> sympy.Expr:
        """Bytes read and written."""
        return self.amount

    def vector(self) -> sympy.Expr:
        """FLOPs outside the matrix units."""
        return self.work
