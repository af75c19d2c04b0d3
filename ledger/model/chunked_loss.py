"""The head and the loss over one part of the tokens after the other, so that few logits exist at a time.

Tensors are as large as those of the first part, which no later one exceeds; the last part may be shorter.

`chunked`: each part is a checkpoint, so that its logits are computed again in backward. `fused_linear`: forward
computes the gradients of the hidden states and of the head's weight along with the loss, and backward hands them on
(Liger-Kernel, ops/fused_linear_cross_entropy.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ledger.model import components, dtypes, moves
from ledger.model.causes import Purpose
from ledger.model.contraction import Contraction
from ledger.model.cross_entropy import InPlaceLoss, labels, loss
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation
from ledger.model.tape import Tape
from ledger.model.tensors import CeilDiv, Tensor
from ledger.spec.kernel_classes import COPY, CROSS_ENTROPY, ELEMENTWISE, NO_KERNEL, matmul
from ledger.spec.plan import Kernels, Model

REGION = "loss_chunk"  # what a chunked loss rebuilds
LOGITS = "batch seq d_model, vocab d_model -> batch seq vocab"


@dataclass(frozen=True)
class Cut(Operation):
    """Hidden states as parts of the sequence: views, whose gradients are put together when the last is there."""

    @property
    def runs(self) -> bool:
        """A view is no kernel."""
        return False

    def gradients(self) -> tuple[Operation, ...]:
        """One copy of the gradients of all parts, those that were there before and that of the first part."""
        part = self.output.gradient
        (whole,) = self.inputs[0].named("seq")
        (first,) = part.named("seq")
        rest = tuple(replace(dim, symbol=whole.symbol - first.symbol) if dim == first else dim for dim in part.dims)
        earlier = replace(part, name=f"{part.name}.earlier", dims=rest, earlier=True)
        return (Pointwise(f"{self.name}.gradient", COPY, (earlier, part), (self.inputs[0].gradient,)),)


@dataclass(frozen=True)
class Done(Contraction):
    """A contraction of the backward pass that forward runs: nothing is left of it for backward."""

    def learned(self) -> tuple[Tensor, ...]:
        """No gradient goes through it."""
        return ()

    def gradients(self) -> tuple[Operation, ...]:
        """Nothing: forward has run its contractions already."""
        return ()


@dataclass(frozen=True)
class DoneLoss(InPlaceLoss):
    """The loss of a part, whose gradient is used up in forward."""

    def learned(self) -> tuple[Tensor, ...]:
        """No gradient goes through it."""
        return ()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """Nothing is left for backward."""
        return ()


@dataclass(frozen=True)
class Buffer(Pointwise):
    """Zeros, to which a gradient is added part by part; nothing asks for a gradient of it."""

    def gradients(self) -> tuple[Operation, ...]:
        """Nothing: backward does not go through it."""
        return ()


@dataclass(frozen=True)
class HandedOn(Operation):
    """A gradient that forward computed is kept, and is what backward finds as the gradient of the one input."""

    @property
    def runs(self) -> bool:
        """Whether a kernel runs: none does, the tensor only gets another name."""
        return False

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient is the tensor that was saved."""
        return tuple(
            (tensor.gradient.name, made.storage) for tensor, made in zip(self.inputs, self.saves, strict=False)
        )


def _part_dims(hidden: Tensor, kernels: Kernels) -> tuple[Dim, Dim, Dim]:
    """The tokens of a sequence: all of them, those in a part, and those in the last part.

    Liger cuts rows of a micro-batch, whatever sequences they are of: a part has so many of each on average.
    """
    (seq,) = hidden.named("seq")
    tokens = hidden.local(seq)  # on one device
    count, batch, devices = symbol("loss_chunks"), symbol("batch"), seq.symbol / tokens
    if kernels.loss == "chunked":
        length = CeilDiv(tokens, count)
        last = tokens - (count - 1) * length
    else:
        rows = CeilDiv(batch * tokens, count) if kernels.loss_chunks else symbol("loss_rows")
        length, last = rows / batch, (batch * tokens - (count - 1) * rows) / batch
    return seq, replace(seq, symbol=length * devices), replace(seq, symbol=last * devices)


def written(tape: Tape, hidden: Tensor, model: Model) -> None:
    """Writes the head and the loss over parts of the normed hidden states (batch seq d_model)."""
    hidden = moves.everywhere(tape, hidden, "tensor")
    seq, first, last = _part_dims(hidden, tape.kernels)
    each = replace(tape, times=symbol("loss_chunks"), last_dim=(first, last))
    dims = tuple(first if dim == seq else dim for dim in hidden.dims)
    part = replace(hidden, name="head/part", dims=dims, view_of=hidden.storage, block="head")
    if tape.kernels.loss == "chunked":
        inner = each.inside(REGION)
        replace(tape, region=inner.region).record(Cut("head/parts", COPY, (hidden,), (part,)))
        loss(inner, components.logits(inner.of_block("head"), part, model), "eager")
        return
    _fused_linear(tape, each, (hidden, part), model)


def _fused_linear(tape: Tape, each: Tape, states: tuple[Tensor, Tensor], model: Model) -> None:
    """Logits, loss and both gradients of each part; what is left of it are the gradients alone."""
    hidden, part = states
    weight = tape.weight(components.table_of(model), "vocab d_model")
    collected = replace(hidden, name="head/hidden.collected", view_of="")
    summed = Tensor("head/weight.collected", weight.dims, weight.dtype, "activation", weight.split)
    for made, towards in ((collected, hidden.name), (summed, weight.name)):
        tape.record(Buffer(f"{made.name}.zeros", ELEMENTWISE, (), (made,), towards=towards))
    compute = tape.precision.compute
    left, right = each.cast(part, compute), each.cast(weight, compute)
    batch, seq, _ = part.dims
    logits = tape.activation("head/logits", (batch, seq, weight.dims[0]), tape.matmul_result, part.split)
    inside = replace(logits.gradient, view_of=logits.storage)
    result = replace(tape, of_loss=True).activation("cross_entropy/loss", (), "fp32")
    piece = replace(part, name="head/part.collected", view_of=collected.name)
    kernel = matmul(dtypes.rate(compute))
    each.record(Done("head/logits", kernel, (left, right), (logits,), einsum=LOGITS))
    each.record(
        DoneLoss("cross_entropy/loss", CROSS_ENTROPY, (logits, labels(tape, (batch, seq))), (result, inside), flops=8)
    )
    back = "batch seq vocab, vocab d_model -> batch seq d_model"
    each.record(Done("head/logits.input_gradient", kernel, (inside, right), (piece,), einsum=back, towards=hidden.name))
    sums = "batch seq d_model, batch seq vocab -> vocab d_model"
    last = Done("head/logits.weight_gradient", kernel, (left, inside), (summed,), einsum=sums, towards=weight.name)
    each.record(replace(last, purpose=Purpose.WEIGHT_GRADIENT))
    tape.record(HandedOn("head/hidden.gradient", NO_KERNEL, (hidden,), (collected,), (collected,), towards=hidden.name))
    tape.record(HandedOn("head/weight.gradient", NO_KERNEL, (weight,), (summed,), (summed,), towards=weight.name))
