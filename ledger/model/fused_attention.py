"""Attention in one kernel each way: FLOPs of its parts, only external traffic, scores rebuilt in backward."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import sympy

from ledger.model.contraction import Contraction
from ledger.model.operations import ONE, ZERO, Matmul, Operation, differentiable, total
from ledger.model.tensors import product


@dataclass(frozen=True)
class FusedAttention(Operation):
    """Scores, softmax and context in one kernel: FLOPs of its parts, only external traffic.

    `parts` are the two contractions inside; a kernel that skips masked blocks runs only `density` of them. The
    backward kernel rebuilds the scores, so it runs five contractions, of which one is redone work. `slowest` is what
    the busiest device does over the average, where a cut sequence leaves them unequal shares of a mask. `packed`: each
    document of a sequence is a square of its own.
    """

    parts: tuple[Contraction, ...] = ()
    skips: bool = True  # masked blocks are not computed
    density: sympy.Expr = ONE
    slowest: sympy.Expr = ONE
    packed: bool = False

    def spent(self) -> sympy.Expr:
        """What the busiest device runs, for which the others wait."""
        return product(self.slowest, super().spent())

    def useful(self) -> sympy.Expr:
        """The FLOPs of both contractions that the mask leaves."""
        return total(part.useful() for part in self.parts)

    def masked(self) -> sympy.Expr:
        """Nothing where masked blocks are skipped."""
        return ZERO if self.skips else total(part.masked() for part in self.parts)

    def counted(self) -> sympy.Expr:
        """Both contractions over the full square."""
        return total(part.counted() for part in self.parts)

    def shape(self) -> Matmul:
        """The scores: batch of (queries x head_dim) by (head_dim x keys); documents are one of the batch each."""
        square = self.parts[0].shape()
        if not self.packed:
            return square
        return replace(square, batch=square.batch * square.m / square.n, m=square.n)

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel of five contractions."""
        reads = (*self.saves, self.output.gradient)
        writes = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        name = f"{self.name}.gradient"
        return (AttentionBackward(name, self.kernel.backward(), reads, writes, of=self),)


@dataclass(frozen=True)
class AttentionBackward(Operation):
    """The backward kernel of fused attention: the gradients of both contractions, and the scores once more."""

    of: FusedAttention = field(kw_only=True)

    def spent(self) -> sympy.Expr:
        """What the busiest device runs."""
        return product(self.of.slowest, super().spent())

    def useful(self) -> sympy.Expr:
        """Twice the forward FLOPs, and the scores."""
        return total((product(2, self.of.useful()), self.redone()))

    def redone(self) -> sympy.Expr:
        """FLOPs of the scores, which backward computes again instead of keeping them."""
        return self.of.parts[0].useful()

    def masked(self) -> sympy.Expr:
        """Nothing where masked blocks are skipped."""
        if self.of.skips:
            return ZERO
        return total((product(2, self.of.masked()), self.of.parts[0].masked()))

    def counted(self) -> sympy.Expr:
        """Five contractions over the full square."""
        return total((product(2, self.of.counted()), self.of.parts[0].counted()))

    def shape(self) -> Matmul:
        """The shape that prices the kernel: that of the contraction of queries and keys."""
        return self.of.shape()
