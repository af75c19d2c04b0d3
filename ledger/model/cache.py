"""Products of a pass that serves: keys and values wait in a cache, and weights are read as they are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from ledger.model import dtypes
from ledger.model.contraction import Contraction, Grouped
from ledger.model.dims import Dim, symbol
from ledger.model.formats import scale_bytes
from ledger.model.operations import ONE, total
from ledger.model.tensors import Tensor, product, rational
from ledger.spec.kernel_classes import DECODE


@dataclass(frozen=True)
class KeyValueCache:
    """The format of what waits, and whether a pass decodes: one new token a sequence, or as many as drafts give."""

    dtype: str
    decodes: bool = False


@dataclass(frozen=True)
class StoredProduct(Contraction):
    """A contraction that reads its weight as it is stored, scales with it, and brings it back within the kernel.

    Of a pruned weight, sparse tensor cores leave the products with zeros out.
    """

    def run_share(self) -> sympy.Expr:
        """The share of the products that the kernel runs."""
        pruned = self.inputs[1].packed
        return rational(1 - pruned.share) if pruned and pruned.skips else ONE

    def useful(self) -> sympy.Expr:
        """FLOPs: 2 x the products that are run, of which every copy does its share."""
        return product(self.run_share(), super().useful())

    def masked(self) -> sympy.Expr:
        """FLOPs that are run on points which the mask throws away."""
        return product(self.run_share(), super().masked())

    def repeated(self) -> sympy.Expr:
        """FLOPs that the other devices of `copies` run on the same result."""
        return product(self.run_share(), super().repeated())

    def traffic(self) -> sympy.Expr:
        """Bytes: both operands and the result once, and the scales beside the weight."""
        weight = self.inputs[1]
        return total((super().traffic(), *scale_bytes(weight.dtype, weight)))


@dataclass(frozen=True)
class StoredGroups(StoredProduct, Grouped):
    """A contraction of groups of rows, each with a matrix of its own, that reads its weights as they are stored."""


def as_served(plain: Contraction, cache: KeyValueCache) -> Contraction:
    """A product as serving runs it: only experts that a token reaches are read, and what is quantised as it is."""
    left, weight, *biases = plain.inputs
    kernel = replace(plain.kernel, pass_=DECODE) if cache.decodes else plain.kernel
    if weight.role != "weight":
        return replace(plain, kernel=kernel)
    inputs = (
        left,
        *(weight_of_reached_experts(tensor) if tensor.role == "weight" else tensor for tensor in (weight, *biases)),
    )
    if not (dtypes.is_stored_only(weight.dtype) or weight.packed):
        return replace(plain, kernel=kernel, inputs=inputs)
    kind = StoredGroups if isinstance(plain, Grouped) else StoredProduct
    return kind(
        plain.name, kernel, inputs, plain.outputs, einsum=plain.einsum, density=plain.density, copies=plain.copies
    )


def weight_of_reached_experts(weight: Tensor) -> Tensor:
    """A weight as far as the tokens of a pass read it: of experts, those that one of them is sent to."""
    dims = tuple(Dim(d.name, symbol("hit", d.suffix), d.suffix) if d.name == "experts" else d for d in weight.dims)
    return weight if dims == weight.dims else replace(weight, name=f"{weight.name}.reached", dims=dims)
