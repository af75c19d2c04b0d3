"""Operations that are bound by what they read and write: elementwise kernels, sums, norms, copies, lookups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.model.operations import Operation, differentiable, handed_on, total
from ledger.model.tensors import Tensor, product
from ledger.spec.kernel_classes import CAST, COPY, EMBEDDING, REDUCTION, KernelClass


@dataclass(frozen=True)
class Pointwise(Operation):
    """Elementwise operations, reductions, casts, copies and norms: bound by what they read and write.

    `flops` is per element of the largest operand. Backward reads what was saved and the gradients of the results, and
    writes the gradients of the inputs, by way of `scratch` temporaries as large as that of the first.
    """

    flops: int = 1
    backward_kernel: KernelClass | None = None
    scratch: int = 0

    def vector(self) -> sympy.Expr:
        """`flops` for each element of the result, or of the first operand where the result is a reduction of it."""
        return self._vector

    @cached_property
    def _vector(self) -> sympy.Expr:
        widest = max((*self.inputs[:1], *self.outputs[:1]), key=lambda tensor: len(tensor.dims))
        return product(self.flops, widest.elements())

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel that reads the saved tensors and the upstream gradient and writes the gradients of its inputs."""
        gradients = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        if not gradients or self.flops == 0:
            return ()
        saved = {tensor.storage: tensor for tensor in self.saves}
        reads = (*saved.values(), self.output.gradient)
        kernel = self.backward_kernel or self.kernel
        passing = tuple(replace(gradients[0], name=f"{self.name}.scratch.{index}") for index in range(self.scratch))
        writes = (*gradients, *passing)
        return (Pointwise(f"{self.name}.gradient", kernel, (*reads, *passing), writes, flops=2 * self.flops),)


@dataclass(frozen=True)
class Addition(Pointwise):
    """A sum: the gradient of an operand of the same shape and dtype is the upstream gradient, without a kernel."""

    def _has_shape_of_result(self, tensor: Tensor) -> bool:
        return tensor.dtype == self.output.dtype and tensor.elements() == self.output.elements()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradients of operands of the same shape and dtype, which need no kernel."""
        return handed_on(self, *[t for t in self.inputs if differentiable(t) and self._has_shape_of_result(t)])

    def gradients(self) -> tuple[Operation, ...]:
        """An operand of another dtype gets a cast of the upstream gradient, a smaller one a sum over the other dims."""
        upstream = self.output.gradient
        converted = [t for t in self.inputs if differentiable(t) and not self._has_shape_of_result(t)]
        return tuple(
            Pointwise(
                f"{self.name}.gradient" + (f".{index}" if index else ""),
                CAST if tensor.elements() == self.output.elements() else REDUCTION,
                (upstream,),
                (tensor.gradient,),
            )
            for index, tensor in enumerate(converted)
        )


@dataclass(frozen=True)
class DroppedAddition(Addition):
    """A residual addition that drops out its second operand on the way: only that operand's gradient is computed."""

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The residual stream's gradient is the upstream gradient."""
        return handed_on(self, *filter(differentiable, self.inputs[:1]))

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel, which reads the mask and writes the gradient of the update."""
        if not differentiable(self.inputs[1]):
            return ()
        reads, update = (*self.saves, self.output.gradient), self.inputs[1].gradient
        return (Pointwise(f"{self.name}.gradient", self.kernel, reads, (update,), flops=2),)


@dataclass(frozen=True)
class Weighed(Pointwise):
    """The product of a tensor and a smaller one, which is seen again along the dims that it lacks.

    Backward multiplies twice at full size, in the dtype of the result; then the smaller gradient is a sum.
    """

    def factors(self) -> tuple[tuple[Tensor, ...], ...]:
        """The factors that have a gradient, each with the other one."""
        return self.inputs, self.inputs[::-1]

    def gradients(self) -> tuple[Operation, ...]:
        """A product for each factor, and what makes it as large and as wide as the factor."""
        upstream = self.output.gradient
        products: list[Operation] = []
        conversions: list[Operation] = []
        for factor, partner in self.factors():
            gradient = factor.gradient
            exact = gradient.dtype == upstream.dtype and gradient.elements() == upstream.elements()
            full = gradient if exact else replace(upstream, name=f"{self.name}.scratch.{len(products)}")
            name = f"{self.name}.gradient.{len(products)}"
            products.append(Pointwise(name, self.kernel, (upstream, partner), (full,)))
            if not exact:
                kernel = CAST if gradient.elements() == upstream.elements() else REDUCTION
                conversions.append(Pointwise(f"{name}.{kernel}", kernel, (full,), (gradient,)))
        return (*products, *conversions)


@dataclass(frozen=True)
class Lookup(Operation):
    """A one-hot contraction done as a gather: no FLOPs, and only the rows that are asked for are read."""

    def traffic(self) -> sympy.Expr:
        """The indices and the rows are read, the rows written."""
        index, _ = self.inputs
        return total((index.bytes(), product(2, self.output.bytes())))

    def gradients(self) -> tuple[Operation, ...]:
        """A dense gradient: every row is written, the rows that were used are added to."""
        index, table = self.inputs
        if not differentiable(table):
            return ()
        reads = (index, self.output.gradient)
        return (Pointwise(f"{self.name}.gradient", EMBEDDING, reads, (table.gradient,)),)


@dataclass(frozen=True)
class WholeLookup(Lookup):
    """A lookup in rows that are split over devices, each of which writes the gradient of all rows, then takes its own.

    So DTensor's embedding runs (torch.distributed.tensor, embedding_dense_backward on the whole number of rows).
    """

    def gradients(self) -> tuple[Operation, ...]:
        """The dense gradient of every row, and the copy of this device's share."""
        index, table = self.inputs
        if not differentiable(table):
            return ()
        rows = replace(table.gradient, name=f"{self.name}.gradient.whole", split=())
        reads = (index, self.output.gradient)
        return (
            Pointwise(f"{self.name}.gradient", EMBEDDING, reads, (rows,)),
            Pointwise(f"{self.name}.gradient.share", COPY, (rows,), (table.gradient,)),
        )
