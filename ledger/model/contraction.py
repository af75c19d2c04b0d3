"""Contractions: an einsum over named dims, whose FLOPs, traffic, shape and gradients all follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.model.causes import Purpose
from ledger.model.dims import symbol
from ledger.model.elementwise import Pointwise
from ledger.model.operations import ONE, ZERO, Matmul, Operation, differentiable
from ledger.model.tensors import Tensor, product
from ledger.spec.kernel_classes import REDUCTION
from ledger.spec.windows import Term, names, terms, window


@dataclass(frozen=True)
class Contraction(Operation):
    """An einsum of two operands over named dims: 2 FLOPs for each point of the product of all dims.

    A dim may be read through a window (`(2*h+r-1)`): it is a convolution, whose tensors are as large as they are, and
    whose points are those of the dims that the window is made of. A third input is a bias that the same kernel adds.
    `density` is the share of the points that the result needs (causal masks); the kernel runs them all. `copies` are
    the axes all of whose devices do this same work.
    """

    einsum: str = ""
    density: sympy.Expr = ONE
    copies: tuple[str, ...] = ()

    def terms(self) -> tuple[Term, Term, Term]:
        """The indices of both operands and of the result."""
        return terms(self.einsum)

    def sizes(self) -> Mapping[str, sympy.Expr]:
        """Every dim's size on one device."""
        return self._sizes

    @cached_property
    def _sizes(self) -> Mapping[str, sympy.Expr]:
        first, second, out = self.terms()
        sizes: dict[str, sympy.Expr] = {}
        for term, tensor in ((first, self.inputs[0]), (second, self.inputs[1])):
            for name, dim in zip(term, tensor.dims, strict=True):
                size = tensor.local(dim)
                if name not in sizes or len(size.free_symbols) > len(sizes[name].free_symbols):
                    sizes[name] = size  # where one operand is split and the other not, the split size
        through = [index for index in (*first, *second, *out) if window(index)]
        if through:  # a dim of a window may stand alone in the result only
            sizes = {name: self.output.local(dim) for name, dim in zip(out, self.output.dims, strict=True)} | sizes
            sizes = {name: size for name, size in sizes.items() if name not in through}
        return sizes

    def points(self) -> sympy.Expr:
        """The size of the product of all dims."""
        return self._points

    @cached_property
    def _points(self) -> sympy.Expr:
        return product(*self.sizes().values())

    def counted(self) -> sympy.Expr:
        """2 x the product of all dims."""
        return product(2, self.points())

    def useful(self) -> sympy.Expr:
        """2 x the product of all dims x the density of the mask, of which every copy does its share."""
        return self._useful

    @cached_property
    def _useful(self) -> sympy.Expr:
        every = product(2, self.points(), self.density)
        return every / self._degree() if self.copies else every

    def masked(self) -> sympy.Expr:
        """Matmul FLOPs on points that the mask throws away."""
        return product(2, self.points(), 1 - self.density) if self.density != ONE else ZERO

    def repeated(self) -> sympy.Expr:
        """Matmul FLOPs that the other devices of `copies` spend on the same result."""
        return product(2, self.points(), self.density, 1 - 1 / self._degree()) if self.copies else ZERO

    def _degree(self) -> sympy.Expr:
        return product(*[symbol(axis) for axis in self.copies])

    @property
    def gathered_again(self) -> Tensor:
        """The operand that backward gathers where a share of it was kept."""
        return self.inputs[0]

    def shape(self) -> Matmul:
        """Batch dims are in all three terms, k in both operands only, m and n in one operand and the result.

        A convolution is the product of its windows (an implicit GEMM).
        """
        return self._shape

    @cached_property
    def _shape(self) -> Matmul:
        first, second, out = map(names, self.terms())
        size = self.sizes()

        def extent(keep: Iterable[str]) -> sympy.Expr:
            return product(*[size[name] for name in keep])

        return Matmul(
            batch=extent(d for d in out if d in first and d in second),
            m=extent(d for d in out if d not in second),
            n=extent(d for d in out if d not in first),
            k=extent(d for d in first if d in second and d not in out),
        )

    def gradients(self) -> tuple[Operation, ...]:
        """The two other contractions of the same three tensors."""
        first, second, out = (" ".join(names) for names in self.terms())
        left, right = self.inputs[:2]
        upstream = self.output.gradient
        products: list[Operation] = []
        if differentiable(left):
            products.append(self.gradient_product(f"{out}, {second} -> {first}", (upstream, right), left, "input"))
        if differentiable(right):
            which = "weight" if right.role in ("weight", "cast") else "other"
            products.append(self.gradient_product(f"{first}, {out} -> {second}", (left, upstream), right, which))
        products.extend(
            Pointwise(f"{self.name}.bias_gradient", REDUCTION, (upstream,), (bias.gradient,))
            for bias in self.inputs[2:]
            if differentiable(bias)
        )
        return tuple(products)

    def gradient_product(self, einsum: str, operands: tuple[Tensor, Tensor], of: Tensor, which: str) -> Contraction:
        """The product that gives the gradient of an operand: of the `input`, of a `weight`, of an `other` tensor."""
        kind = Grouped if isinstance(self, Grouped) else Contraction
        return kind(
            f"{self.name}.{which}_gradient",
            self.kernel,
            operands,
            (of.gradient,),
            purpose=Purpose.WEIGHT_GRADIENT if which == "weight" else Purpose.RESULT,
            einsum=einsum,
            density=self.density,
            copies=self.copies,
        )


@dataclass(frozen=True)
class Grouped(Contraction):
    """Many products of equal shape in one kernel, each of the rows (`slots`) of one expert with its own matrix."""

    def shape(self) -> Matmul:
        """The shape of a batched product; how many rows a group has sets its speed."""
        return replace(super().shape(), group=self.sizes()["slots"])
