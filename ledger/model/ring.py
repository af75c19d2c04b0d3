"""Attention around a ring: every device keeps its queries, and blocks of keys and values come by, one after another.

Forward and backward each send a device's keys and values on until all have seen them; in backward their gradients
travel with them, in fp32, one step further, back home (torch.distributed.tensor.experimental, ring attention).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import sympy

from ledger.model.collectives import Collective
from ledger.model.dims import symbol
from ledger.model.elementwise import Addition, Pointwise
from ledger.model.fused_attention import AttentionBackward, FusedAttention
from ledger.model.operations import ONE, Operation, total
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor, product
from ledger.spec.kernel_classes import CAST, ELEMENTWISE, KernelClass

AXIS = "context"


@dataclass(frozen=True)
class Pass(Collective):
    """Tensors sent to the next device of the ring, `rounds` times for each layer."""

    rounds: sympy.Expr = ONE

    def payload(self) -> sympy.Expr:
        """What one round sends."""
        return total(tensor.bytes() for tensor in self.inputs)


@dataclass(frozen=True)
class RingAttention(FusedAttention):
    """The kernel on one block after another; `merged` is what all of them add up to, which backward reads."""

    merged: Tensor = field(kw_only=True)

    def traffic(self) -> sympy.Expr:
        """Each block is read with all queries, and has a result of its own."""
        return product(self.pieces, total(tensor.bytes() for tensor in (*self.inputs[:3], *self.outputs)))

    def gradients(self) -> tuple[Operation, ...]:
        """Blocks come by again, each with the sums of its gradients so far."""
        wanted = self.inputs[:3]
        blocks = _passed(self.inputs[1:3], "again")
        parts = tuple(replace(tensor.gradient, name=f"{tensor.name}.gradient.block") for tensor in wanted)
        sums = tuple(replace(part, name=f"{part.name}.sum", dtype="fp32") for part in parts)
        home = _passed(sums[1:], "home")
        (attention,) = super().gradients()
        if not isinstance(attention, AttentionBackward):
            raise TypeError(f"{attention.name} is no backward of attention")
        reads = (*attention.inputs, self.merged, *blocks)
        return (
            _pass(f"{self.name}.again", self.inputs[1:3], blocks, symbol(AXIS) - 1),
            RingBackward(attention.name, attention.kernel, reads, parts, of=self, blocks=blocks),
            Accumulation(f"{self.name}.accumulate", ELEMENTWISE, (*parts, *sums), sums),
            _pass(f"{self.name}.return", sums[1:], home, symbol(AXIS)),
            Pointwise(
                f"{self.name}.gradient.cast", CAST, (sums[0], *home), tuple(tensor.gradient for tensor in wanted)
            ),
        )


@dataclass(frozen=True)
class RingBackward(AttentionBackward):
    """The backward kernel on one block after another, of keys and values that have come by again."""

    blocks: tuple[Tensor, ...] = field(kw_only=True)

    def traffic(self) -> sympy.Expr:
        """Each block is read with all that was saved, and has gradients of its own."""
        reads = [tensor for tensor in self.inputs if tensor not in self.blocks]
        return product(self.pieces, total(tensor.bytes() for tensor in (*reads, *self.outputs)))


@dataclass(frozen=True)
class Accumulation(Pointwise):
    """Gradients of each block, added up in fp32."""

    def traffic(self) -> sympy.Expr:
        """A block's gradients are read, the sums read and written, for every block."""
        return product(self.pieces, super().traffic())


@dataclass(frozen=True)
class Merge(Addition):
    """Results of blocks, put together by the sums of their rows: an fp32 result is read and written for each."""

    def traffic(self) -> sympy.Expr:
        """For all blocks but the first."""
        block = self.inputs[0]
        return product(self.pieces, total((block.bytes(), product(8, block.elements()))))

    def vector(self) -> sympy.Expr:
        """For all blocks but the first."""
        return product(self.pieces, super().vector())


def around(tape: Tape, attention: FusedAttention) -> Tensor:
    """The kernel's result over the whole sequence, from keys and values of which every device has a block."""
    blocks = _passed(attention.inputs[1:3], "passed")
    tape.record(_pass(f"{attention.name}.pass", attention.inputs[1:3], blocks, symbol(AXIS) - 1))
    out, *extras = attention.outputs
    part = replace(out, name=f"{out.name}.block")
    saves = tuple(tensor for tensor in attention.saves if tensor != out)
    given = {name: getattr(attention, name) for name in ("parts", "skips", "density", "slowest")}
    inputs, outputs = (*attention.inputs, *blocks), (part, *extras)
    ring = RingAttention(attention.name, attention.kernel, inputs, outputs, saves, **given, merged=out)
    tape.repeated(symbol(AXIS)).record(ring)
    merge = Merge(f"{attention.name}.merge", ELEMENTWISE, (part,), (out,), (out,), flops=6)
    return tape.repeated(symbol(AXIS) - 1).record(merge)


def _passed(tensors: tuple[Tensor, ...], how: str) -> tuple[Tensor, ...]:
    """What arrives from the device before."""
    return tuple(replace(t, name=f"{t.name}.{how}", role="statistic", view_of="") for t in tensors)


def _pass(name: str, tensors: tuple[Tensor, ...], got: tuple[Tensor, ...], rounds: sympy.Expr) -> Pass:
    """No gradient flows along: what is sent are bytes."""
    sent = tuple(replace(tensor, role="statistic") for tensor in tensors)
    return Pass(name, KernelClass("send"), sent, got, collective="send", axis=AXIS, rounds=rounds)
