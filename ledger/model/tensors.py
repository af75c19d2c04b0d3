"""Tensors over named dimensions, as one device holds them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import sympy

from ledger.model import dtypes
from ledger.model.causes import Parameter
from ledger.model.dims import Dim, symbol
from ledger.spec.precision import Pruning

Split = tuple[tuple[str, str], ...]
BUFFER = "buffer"  # role: what a layer keeps all the time beside its weights
SHARED = "shared"  # role: what one unit gives and layers of others read
REMEMBERED = "remembered"  # role: what a layer keeps of its last pass until the next, saved for backward or not


class CeilDiv(sympy.Function):  # type: ignore[misc]  # sympy has no types
    """`ceil(a / b)`, exact on integers: the rows of the largest shard when `a` rows are cut into `b`."""

    nargs = 2

    @classmethod
    def eval(cls, rows: Any, shards: Any) -> sympy.Expr | None:
        """Evaluates on integers only; stays symbolic otherwise."""
        if shards == 1:
            return sympy.sympify(rows)
        if isinstance(rows, sympy.Integer) and isinstance(shards, sympy.Integer):
            return sympy.Integer(-(-int(rows) // int(shards)))
        return None


def product(*factors: Any) -> sympy.Expr:
    """The product of symbols and numbers."""
    return sympy.Mul(*[factor if isinstance(factor, sympy.Expr) else sympy.sympify(factor) for factor in factors])


@lru_cache(maxsize=1 << 16)
def sized(dtype: str, elements: Any) -> sympy.Expr:
    """Bytes of so many elements."""
    return product(rational(dtypes.size(dtype)), elements)


def rational(amount: Fraction) -> sympy.Rational:
    """A fraction as a factor of formulas."""
    return sympy.Rational(amount.numerator, amount.denominator)


@dataclass(frozen=True)
class Tensor:
    """`split` lists which dims are cut over which mesh axes; `lead` how many dims make up torch's dimension 0.

    Two tensors with the same `storage` are one allocation. `role` is weight, cast (of a weight), activation, gradient,
    statistic, mask, table, buffer, remembered, shared or index. `parameter`: which weight it is, or the gradient or a
    copy of.
    `scales`: of a quantised copy, whether the blocks that share one lie along its `row` or its `column`. `earlier`:
    what was there of a gradient, which it is added to. `of_loss`: what the loss makes of scores of the vocabulary.
    `block`: the part of a layer that makes it, attention or mlp. `narrow`: of a weight, the format of copies that are
    all there is of it. `kept_before`: of what enters a layer, whether the layer that made it saves it for itself.
    `packed`: of a weight whose zeros take no bytes, how it was pruned.
    """

    name: str
    dims: tuple[Dim, ...]
    dtype: str
    role: str = "activation"
    split: Split = ()
    lead: int = 1
    view_of: str = ""
    frozen: bool = False  # no gradient flows into it
    parameter: Parameter | None = None
    scales: str = ""
    earlier: bool = False
    of_loss: bool = False
    block: str = ""
    narrow: str = ""
    kept_before: bool = False
    packed: Pruning | None = None

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.dims, self.dtype, self.role, self.split, self.view_of, self.frozen))

    def __hash__(self) -> int:
        return self._hash

    @property
    def storage(self) -> str:
        """The identity of the allocation behind this tensor."""
        return self.view_of or self.name

    def local(self, dim: Dim) -> sympy.Expr:
        """The size of a dimension on one device."""
        degrees = [symbol(axis) for name, axis in self.split if name == dim.name]
        return dim.symbol / product(*degrees) if degrees else dim.symbol

    @cached_property
    def _elements(self) -> sympy.Expr:
        return product(*[self.local(dim) for dim in self.dims])

    @cached_property
    def _bytes(self) -> sympy.Expr:
        if self.packed is None:
            return sized(self.dtype, self._elements)
        rows = product(*[self.local(dim) for dim in self.dims[: self.lead]])
        element = self.packed.packed_bytes(dtypes.size(self.dtype))
        return product(rational(element), self._elements) + product(self.packed.row_bytes, rows)

    @cached_property
    def gradient(self) -> Tensor:
        """The gradient of this tensor, in its dtype, with its dims and split."""
        name = f"{self.name}.gradient"
        return replace(self, name=name, role="gradient", view_of="", frozen=False, kept_before=False)

    def elements(self) -> sympy.Expr:
        """Elements on one device: a product of dims."""
        return self._elements

    def bytes(self) -> sympy.Expr:
        """Bytes on one device."""
        return self._bytes

    def sharded(self, degree: sympy.Expr) -> sympy.Expr:
        """Elements of the largest shard when dimension 0 is cut by rows over `degree` devices, as FSDP2 cuts it."""
        rows = product(*[self.local(dim) for dim in self.dims[: self.lead]])
        columns = product(*[self.local(dim) for dim in self.dims[self.lead :]])
        return product(CeilDiv(rows, degree), columns)

    def on(self, split: Split, name: str = "") -> Tensor:
        """The tensor under another split; a new name makes it another allocation."""
        return replace(self, split=split, name=name or self.name, view_of="" if name else self.view_of)

    def named(self, *names: str) -> tuple[Dim, ...]:
        """The dims of these names, in this order."""
        table = {dim.name: dim for dim in self.dims}
        return tuple(table[name] for name in names)


# --- the two sides of a model that has an encoder before its decoder ---

SOURCE, SOURCE_LENGTH, CROSS = "source", "source_seq", "cross_attention"


@dataclass(frozen=True)
class Side:
    """The sequence that is as long as the table of symbols says of `length`, and what earlier units give to its layers.

    `encoded`: what the encoder gave; `bias`: what the first layer of this side made for the scores of all, None there.
    `attention`: the component that attention is written as: to tokens of its own, or to those of the encoder.
    """

    length: str = "seq"
    encoded: Tensor | None = None
    bias: Tensor | None = None
    attention: str = "attention"

    @property
    def is_source(self) -> bool:
        """Whether it is the encoder's."""
        return self.length == SOURCE_LENGTH

    def named(self, component: str) -> str:
        """A component or a table that both sides have, told from that of the other one."""
        return f"{SOURCE}_{component}" if self.is_source else component
