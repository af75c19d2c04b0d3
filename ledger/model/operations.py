"""Operations of one device: what each computes, moves and saves, and the operations that are its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.model.causes import Cause, Purpose
from ledger.model.dims import Dim
from ledger.model.tensors import SHARED, Tensor, product, sized
from ledger.spec.kernel_classes import KernelClass

ZERO = sympy.Integer(0)
ONE = sympy.Integer(1)


def total(terms: Iterable[sympy.Expr]) -> sympy.Expr:
    """The sum of many terms in one step."""
    return sympy.Add(*terms)


@dataclass(frozen=True)
class Matmul:
    """The shape of a batched matrix product on one device, for pricing: `batch` of (m x k) by (k x n)."""

    batch: sympy.Expr
    m: sympy.Expr
    n: sympy.Expr
    k: sympy.Expr
    group: sympy.Expr = ONE  # rows of one group, where groups of rows run in one kernel


@dataclass(frozen=True)
class Operation:
    """One kernel on one device. `name` is `component/operation`; `kernel` is the class that prices it.

    `saves` is what autograd keeps from forward to backward; `saves_output` says whether any of it is an output, so that
    rebuilding it means running this operation, not only the ones before it. `block` is the part of a layer that it
    belongs to: attention or mlp, each with the norm before it; of a transfer, the part that makes what it moves. A step
    of the backward pass names the operation of the `forward` pass that it is for, and has its region.
    """

    name: str
    kernel: KernelClass
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    saves: tuple[Tensor, ...] = ()
    region: tuple[str, ...] = ()  # parts that recompute can name, from the outermost in: attention, core
    pieces: sympy.Expr = ONE  # kernels that do this work between them, each an equal part
    times: sympy.Expr = ONE  # how often it runs in a pass, each time on tensors of this size
    last_dim: tuple[Dim, Dim] | None = None  # a dim, and what it is in the last of those times
    towards: str = ""  # the tensor whose gradient it computes, where forward does that
    once: bool = False  # per step, not per micro-batch (the cast of a weight that is kept for the whole step)
    block: str = ""
    purpose: Purpose = Purpose.RESULT
    forward: str = ""
    continues_product: bool = False  # part of a product that another operation has begun: its result is there
    adds_to: str = ""  # dtype of a sum that is there, to which it adds its result instead of writing it

    @property
    def output(self) -> Tensor:
        """The result that later operations read; others (statistics, scales) are kept for backward alone."""
        return self.outputs[0]

    @property
    def saves_output(self) -> bool:
        """Whether something saved only exists once this operation has run."""
        written = {tensor.storage for tensor in self.outputs}
        return any(tensor.storage in written for tensor in self.saves)

    @property
    def runs(self) -> bool:
        """Whether there is a kernel or a transfer behind it."""
        return True

    def occurrences(self) -> tuple[tuple[sympy.Expr, Operation], ...]:
        """The runs of a pass: how often, and on tensors of which sizes; those of the last run may be smaller."""
        if self.last_dim is None:
            return ((self.times, self),)
        inputs, outputs, saves = (
            _replace_dim(tensors, *self.last_dim) for tensors in (self.inputs, self.outputs, self.saves)
        )
        last = replace(self, name=f"{self.name}.last", inputs=inputs, outputs=outputs, saves=saves)
        return ((self.times - ONE, self), (ONE, last))

    def in_all(self, amount: Callable[[Operation], sympy.Expr]) -> sympy.Expr:
        """An amount of a kernel, summed over all times that it runs in a pass."""
        return total(times * amount(run) for times, run in self.occurrences())

    def cause(self, unit: str) -> Cause:
        """The cause of this operation's entries, in a unit."""
        return Cause(unit, self.name, self.block, self.region, self.purpose)

    def useful(self) -> sympy.Expr:
        """Matmul FLOPs that the result needs, each by one device: masked scores and repeated work are not counted."""
        return ZERO

    def repeated(self) -> sympy.Expr:
        """Matmul FLOPs that the other devices of an axis spend on the same result."""
        return ZERO

    def masked(self) -> sympy.Expr:
        """Matmul FLOPs spent on scores that a mask throws away."""
        return ZERO

    def redone(self) -> sympy.Expr:
        """Matmul FLOPs of `useful` that repeat work of the forward pass."""
        return ZERO

    def spent(self) -> sympy.Expr:
        """Matmul FLOPs that this kernel runs on this device."""
        return total((self.useful(), self.masked(), self.repeated()))

    def run_share(self) -> sympy.Expr:
        """The share of its matmul FLOPs, zeros counted, that the kernel runs: others are of weights that are zero."""
        return ONE

    def counted(self) -> sympy.Expr:
        """Matmul FLOPs as torch's FlopCounterMode counts them: no discount for masks."""
        return ZERO

    def vector(self) -> sympy.Expr:
        """FLOPs outside the matrix units."""
        return ZERO

    def traffic(self) -> sympy.Expr:
        """Each operand is read once and the result written once; a sum that it adds to is read and written."""
        return self._traffic

    @cached_property
    def _traffic(self) -> sympy.Expr:
        untouched = self.untouched()
        written = () if self.adds_to else self.outputs
        amounts = [tensor.bytes() for tensor in (*self.inputs, *written) if tensor not in untouched]
        sums = product(2, sized(self.adds_to, self.output.elements())) if self.adds_to else ZERO
        return total((*amounts, sums))

    def accumulation_bytes(self) -> sympy.Expr:
        """Bytes by which adding to a sum moves more than writing the result would."""
        if not self.adds_to:
            return ZERO
        return product(2, sized(self.adds_to, self.output.elements())) - self.output.bytes()

    def untouched(self) -> tuple[Tensor, ...]:
        """Operands that are only there while it runs, neither read nor written."""
        return ()

    def passing(self) -> tuple[Tensor, ...]:
        """Results that are gone once it has run."""
        return ()

    def shape(self) -> Matmul | None:
        """The matrix product behind it, where there is one."""
        return None

    def gradients(self) -> tuple[Operation, ...]:
        """The operations of the backward pass that this one gives rise to, in execution order."""
        return ()

    def learned(self) -> tuple[Tensor, ...]:
        """The tensors that gradients may flow into."""
        return self.inputs

    def shared(self) -> tuple[tuple[str, str], ...]:
        """Gradients of inputs that are no allocation of their own, each with the storage it is in."""
        return ()


def _replace_dim(tensors: tuple[Tensor, ...], old: Dim, new: Dim) -> tuple[Tensor, ...]:
    """Tensors with another dim in place of one of theirs."""
    return tuple(replace(tensor, dims=tuple(new if dim == old else dim for dim in tensor.dims)) for tensor in tensors)


def handed_on(operation: Operation, *inputs: Tensor) -> tuple[tuple[str, str], ...]:
    """Inputs whose gradient is the upstream gradient itself."""
    upstream = operation.output.gradient.name
    return tuple((tensor.gradient.name, upstream) for tensor in inputs)


def differentiable(tensor: Tensor) -> bool:
    """Whether a gradient flows into this tensor."""
    return tensor.role in ("activation", "weight", "cast", SHARED) and not tensor.frozen
