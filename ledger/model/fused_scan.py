"""A scan in kernels made for it: FLOPs of its parts, what passes between its kernels, chunks rebuilt in backward."""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from ledger.model.contraction import Contraction
from ledger.model.operations import Operation, differentiable, total
from ledger.model.tensors import Tensor, product


@dataclass(frozen=True)
class FusedScan(Operation):
    """Products within chunks and between them, in a few kernels that are called as one.

    `parts` are its contractions, of which backward runs those again that are `rebuilt`; `between` is what one of its
    kernels writes for another to read.
    """

    parts: tuple[Contraction, ...] = ()
    rebuilt: tuple[Contraction, ...] = ()
    between: tuple[Tensor, ...] = ()

    def useful(self) -> sympy.Expr:
        """The FLOPs that its masks leave."""
        return total(part.useful() for part in self.parts)

    def masked(self) -> sympy.Expr:
        """What tokens of a chunk would read of those after them."""
        return total(part.masked() for part in self.parts)

    def counted(self) -> sympy.Expr:
        """All of its products, masked or not."""
        return total(part.counted() for part in self.parts)

    def traffic(self) -> sympy.Expr:
        """Bytes: inputs and results once, and what passes between kernels twice."""
        return total((super().traffic(), *(product(2, tensor.bytes()) for tensor in self.between)))

    def gradients(self) -> tuple[Operation, ...]:
        """Kernels that rebuild what passed between those of forward, and give all gradients."""
        reads = (*self.saves, self.output.gradient)
        writes = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        return (ScanBackward(f"{self.name}.gradient", self.kernel.backward(), reads, writes, of=self),)


@dataclass(frozen=True)
class ScanBackward(Operation):
    """The backward kernels of a scan: both gradients of each product, and some products once more."""

    of: FusedScan = field(kw_only=True)

    def useful(self) -> sympy.Expr:
        """Twice the forward FLOPs, and what is rebuilt."""
        return total((product(2, self.of.useful()), self.redone()))

    def redone(self) -> sympy.Expr:
        """FLOPs of forward that run again."""
        return total(part.useful() for part in self.of.rebuilt)

    def masked(self) -> sympy.Expr:
        """The same of what masks throw away."""
        return total((product(2, self.of.masked()), *(part.masked() for part in self.of.rebuilt)))

    def counted(self) -> sympy.Expr:
        """The same of all products."""
        return total((product(2, self.of.counted()), *(part.counted() for part in self.of.rebuilt)))

    def traffic(self) -> sympy.Expr:
        """Bytes: what is read and written once, and what passes between kernels and its gradient twice each."""
        return total((super().traffic(), *(product(4, tensor.bytes()) for tensor in self.of.between)))
