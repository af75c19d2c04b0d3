"""The loss: cross-entropy whole or in parts, and further tokens that are predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import sympy

from ledger.model import components, dtypes
from ledger.model import tape as moves
from ledger.model.causes import Module, Parameter, Purpose
from ledger.model.collectives import Collective
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.norms import norm
from ledger.model.operations import Operation
from ledger.model.recompute import POLICIES, SavedActivations
from ledger.model.tape import Tape
from ledger.model.tensors import CeilDiv, Tensor
from ledger.spec.kernel_classes import COPY, CROSS_ENTROPY, ELEMENTWISE, LOSS, NO_KERNEL, REDUCTION, KernelClass, matmul
from ledger.spec.loss_chunks import CHUNKED_LOSSES
from ledger.spec.plan import Kernels, Model, Recompute

if TYPE_CHECKING:
    from ledger.model.unit import Unit


@dataclass(frozen=True)
class SplitLogSoftmax(Pointwise):
    """Log-softmax over a split vocabulary, whose gradient PyTorch spells out: (one-hot + exp(result)) x upstream.

    So one more tensor of the logits' size exists than in the fused kernel (torch.distributed.tensor.parallel.loss).
    """

    def gradients(self) -> tuple[Operation, ...]:
        """Probabilities are written out before they join the upstream gradient."""
        logs, gradients = self.output, (self.inputs[0].gradient,)
        shares = replace(logs, name=f"{self.name}.probabilities")
        reads = (logs, logs.gradient, shares)
        return (
            Pointwise(shares.name, ELEMENTWISE, (logs,), (shares,), flops=4),
            Pointwise(f"{self.name}.gradient", ELEMENTWISE, reads, gradients, flops=2),
        )


@dataclass(frozen=True)
class Replicated(Collective):
    """A tensor gathered by devices that then all do the same with it: backward copies a device's own part.

    torch.distributed.tensor, placement_types.py: `_to_replicate_tensor`, and `_replicate_to_shard` for the gradient.
    """

    def gradients(self) -> tuple[Operation, ...]:
        """A copy of this device's part of the upstream gradient."""
        gradient, upstream = self.inputs[0].gradient, self.output.gradient
        part = replace(gradient, name=f"{upstream.name}.part", view_of=upstream.storage)
        return (Pointwise(f"{self.name}.gradient", COPY, (part,), (gradient,)),)


@dataclass(frozen=True)
class KernelWithoutGradient(Pointwise):
    """A kernel inside an operation that has a gradient as a whole."""

    def learned(self) -> tuple[Tensor, ...]:
        """No gradient flows through it by itself."""
        return ()

    def gradients(self) -> tuple[Operation, ...]:
        """No operation: the operation that it is inside of has the gradient."""
        return ()


@dataclass(frozen=True)
class InPlaceLoss(Pointwise):
    """Softmax, loss and the gradient of the logits in one kernel, the gradient written over the logits.

    Backward has nothing left to do but to scale it by one (Liger-Kernel and Transformer Engine, cross_entropy.py).
    """

    def gradients(self) -> tuple[Operation, ...]:
        """No operation: forward has left the gradient where the logits were."""
        return ()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient is in the storage of the logits."""
        return ((self.inputs[0].gradient.name, self.inputs[0].storage),)


@dataclass(frozen=True)
class InPlaceSoftmax(Pointwise):
    """Softmax that is kept for backward, which turns it into the gradient where it stands.

    `_VocabParallelCrossEntropy` of Megatron-LM, over the logits in fp32 themselves, and `_ShardedCrossEntropy` of
    nanotron, over a copy of them.
    """

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel over the softmax: less one at the target, times the upstream gradient."""
        reads = (*self.saves, self.output.gradient)
        return (Pointwise(f"{self.name}.gradient", self.kernel, reads, (self.inputs[0].gradient,), flops=2),)

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient is in the storage of the softmax."""
        return ((self.inputs[0].gradient.name, self.outputs[1].storage),)


@dataclass(frozen=True)
class LossWithGradient(Pointwise):
    """Softmax, loss and the gradient of the logits in one kernel, the gradient kept in fp32 until backward reads it.

    Transformer Engine since 2.18 (transformer_engine/pytorch/cross_entropy.py).
    """

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel that scales what forward has left, and writes it in the dtype of the logits."""
        reads = (*self.saves, self.output.gradient)
        return (Pointwise(f"{self.name}.gradient", self.kernel, reads, (self.inputs[0].gradient,), flops=1),)


@dataclass(frozen=True)
class Shifted(Pointwise):
    """A copy of the logits without those of the last position, beside the logits that the model's output holds.

    transformers 4.38, modeling_llama.py: `logits[..., :-1, :].contiguous()`, of logits that CausalLMOutput keeps.
    """

    def gradients(self) -> tuple[Operation, ...]:
        """The gradient of the copy, put into zeros for all positions."""
        (logits,) = self.inputs
        return (Pointwise(f"{self.name}.gradient", self.kernel, (self.output.gradient,), (logits.gradient,)),)


def loss(tape: Tape, logits: Tensor, kind: str = "") -> Tensor:
    """Cross-entropy of the next token or of a class; a split vocabulary needs the sums of its three reductions."""
    inside = replace(tape, of_loss=True)
    logits = _gather_logits(inside, logits) if tape.stack.gathered_logits else logits
    return LOSSES[kind or tape.kernels.loss](inside, logits, labels(tape, logits.dims[:-1]))


def _gather_logits(tape: Tape, logits: Tensor) -> Tensor:
    """The logits of all rows on every device, by way of a copy: the vocabulary is not outermost in memory."""
    for axis in _vocabulary_axes(logits):
        name = f"{logits.name}.all_gather"
        split = tuple(pair for pair in logits.split if pair[1] != axis)
        gathered = replace(logits.on(split, f"{logits.name}.gathered"), of_loss=True)
        copy = replace(gathered, name=f"{name}.copy")
        kernel, outputs = KernelClass("all_gather"), (gathered, copy)
        gather = Replicated(name, kernel, (logits,), outputs, collective="all_gather", axis=axis, copied=True)
        logits = tape.record(replace(gather, block=logits.block))
    return logits


def labels(tape: Tape, dims: tuple[Dim, ...]) -> Tensor:
    """The token that each position is to predict, or the class of each image."""
    return Tensor("cross_entropy/labels.index", dims, "int64", "index", tape.layout.inputs, of_loss=True)


def _eager_loss(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Logits in fp32, their log-softmax, and its gradient, each as large as the vocabulary is wide."""
    logits = tape.cast(logits, tape.precision.logits)
    if tape.stack.shifted_logits and len(logits.dims) > 2:
        shifted = tape.activation("cross_entropy/shifted_logits", logits.dims, logits.dtype, logits.split)
        logits = tape.record(Shifted(shifted.name, COPY, (logits,), (shifted,), (logits,)))
    logs = tape.activation("cross_entropy/log_softmax", logits.dims, logits.dtype, logits.split)
    if _vocabulary_axes(logits):
        _split_log_softmax(tape, logits, logs)
    else:
        tape.record(Pointwise(logs.name, CROSS_ENTROPY, (logits,), (logs,), (logs,), flops=5))
    total = Tensor("cross_entropy/weight", (Dim("one", sympy.Integer(1)),), "fp32", "statistic", of_loss=True)
    saves = [logs, targets]
    return tape.pointwise("cross_entropy/nll", logs, targets, dims=(), kernel=LOSS, saves=saves, extras=[total])


def _split_log_softmax(tape: Tape, logits: Tensor, logs: Tensor) -> None:
    """The steps of a log-softmax one by one, since every device needs the maximum and the sum of all."""
    largest, sums, below = (
        _row_statistic(tape, logits, f"cross_entropy/{name}") for name in ("maximum", "sum", "target")
    )
    shifted, powers = (
        replace(logits, name=f"cross_entropy/{name}", role="statistic", view_of="")
        for name in ("shifted", "exponentials")
    )
    tape.record(KernelWithoutGradient(f"{largest.name}.row", REDUCTION, (logits,), (largest,)))
    largest = _sum_over_axes(tape, largest, logits)
    tape.record(KernelWithoutGradient(shifted.name, ELEMENTWISE, (logits, largest), (shifted,), flops=1))
    tape.record(KernelWithoutGradient(powers.name, ELEMENTWISE, (shifted,), (powers,), flops=1))
    tape.record(KernelWithoutGradient(f"{sums.name}.row", REDUCTION, (powers,), (sums,), flops=1))
    sums = _sum_over_axes(tape, sums, logits)
    tape.record(SplitLogSoftmax(logs.name, CROSS_ENTROPY, (logits, shifted, sums), (logs,), (logs,), flops=2))
    _sum_over_axes(tape, below, logits)


def _row_statistic(tape: Tape, logits: Tensor, name: str) -> Tensor:
    """A statistic of one number for each token."""
    return Tensor(name, logits.dims[:-1], "fp32", "statistic", tape.layout.inputs, of_loss=True)


def _sum_over_axes(tape: Tape, part: Tensor, logits: Tensor) -> Tensor:
    """A statistic summed over the devices that each have a part of the vocabulary."""
    for axis in _vocabulary_axes(logits):
        part = moves.all_reduce_over(tape, part, axis)
    return part


def _fused_loss(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """One kernel on the logits as the head wrote them, over which it writes their gradient."""
    _write_vocabulary_sums(tape, logits)
    results = tape.activation("cross_entropy/loss", (), "fp32"), replace(logits.gradient, view_of=logits.storage)
    return tape.record(InPlaceLoss(results[0].name, CROSS_ENTROPY, (logits, targets), results, (logits,), flops=8))


def _fused_loss_apart(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """One kernel on the logits as the head wrote them, and a gradient in fp32 of its own."""
    _write_vocabulary_sums(tape, logits)
    gradient = replace(logits, name="cross_entropy/gradient", dtype="fp32", view_of="")
    results = tape.activation("cross_entropy/loss", (), "fp32"), gradient
    reads = (logits, targets)
    return tape.record(LossWithGradient(results[0].name, CROSS_ENTROPY, reads, results, (gradient,), flops=8))


def _softmax_in_place(tape: Tape, logits: Tensor, targets: Tensor, *, apart: bool = False) -> Tensor:
    """Logits in fp32 that become their softmax, or have it `apart`; it becomes their gradient."""
    logits = tape.cast(logits, tape.precision.logits)
    _write_vocabulary_sums(tape, logits)
    result = tape.activation("cross_entropy/loss", (), "fp32")
    inside = "" if apart else logits.storage
    shares = replace(logits, name="cross_entropy/softmax", role="activation", view_of=inside)
    saves = (shares, targets)
    return tape.record(InPlaceSoftmax(result.name, CROSS_ENTROPY, (logits, targets), (result, shares), saves, flops=8))


def _compiled_loss(tape: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """The loss as Inductor compiles it: fp32 inside its kernels alone, so that the head's own logits are saved."""
    _write_vocabulary_sums(tape, logits)
    result = tape.activation("cross_entropy/loss", (), "fp32")
    sums = _row_statistic(tape, logits, "cross_entropy/logsumexp")
    return tape.record(
        Pointwise(result.name, CROSS_ENTROPY, (logits, targets), (result, sums), (logits, targets, sums), flops=8)
    )


LOSSES: Mapping[str, Callable[[Tape, Tensor, Tensor], Tensor]] = {
    "eager": _eager_loss,
    "fused": _fused_loss,
    "fused_apart": _fused_loss_apart,
    "softmax_in_place": _softmax_in_place,
    "softmax_apart": partial(_softmax_in_place, apart=True),
    "compiled": _compiled_loss,
}


def _vocabulary_axes(logits: Tensor) -> list[str]:
    return sorted({axis for dim, axis in logits.split if dim == "vocab"})


# What a device sends of each token where the vocabulary is split, and how many numbers that is.
SUMS: Mapping[str, Mapping[str, int]] = {
    "apart": {"maximum": 1, "sum": 1, "target": 1},
    "joined": {"maximum": 1, "sum_and_target": 2},  # megatron/core/fusions/fused_cross_entropy.py
    "gathered": {"statistics": 3},  # transformer_engine/common/triton/cross_entropy.py, online_softmax_kernel
}


def _write_vocabulary_sums(tape: Tape, logits: Tensor) -> None:
    """Each device has a part of every row: its largest value, its sum and its target are put together."""
    for name, numbers in SUMS[tape.stack.loss_sums].items() if _vocabulary_axes(logits) else ():
        row = _row_statistic(tape, logits, f"cross_entropy/{name}")
        part = replace(row, dims=(*row.dims, Dim("numbers", sympy.Integer(numbers)))) if numbers > 1 else row
        if tape.stack.loss_sums == "gathered":
            for axis in _vocabulary_axes(logits):
                ranks = Dim("ranks", symbol(axis))
                statistics = replace(part, dims=(ranks, *part.dims), split=(("ranks", axis), *part.split))
                moves.all_gather_along(tape, statistics, axis)
        else:
            _sum_over_axes(tape, part, logits)


# --- the loss in chunks ---

REGION = "loss_chunk"  # what a chunked loss rebuilds
LOGITS = "batch seq d_model, vocab d_model -> batch seq vocab"


@dataclass(frozen=True)
class SequenceParts(Operation):
    """Hidden states as parts of the sequence: views, whose gradients are put together when the last is there."""

    @property
    def runs(self) -> bool:
        """False: a view is no kernel."""
        return False

    def gradients(self) -> tuple[Operation, ...]:
        """One copy of the gradients of all parts, those that were there before and that of the first part."""
        part = self.output.gradient
        (sequence,) = self.inputs[0].named("seq")
        (first,) = part.named("seq")
        earlier_dims = tuple(
            replace(dim, symbol=sequence.symbol - first.symbol) if dim == first else dim for dim in part.dims
        )
        earlier = replace(part, name=f"{part.name}.earlier", dims=earlier_dims, earlier=True)
        return (Pointwise(f"{self.name}.gradient", COPY, (earlier, part), (self.inputs[0].gradient,)),)


@dataclass(frozen=True)
class ForwardGradient(Contraction):
    """A contraction of the backward pass that forward runs: nothing is left of it for backward."""

    def learned(self) -> tuple[Tensor, ...]:
        """No gradient goes through it."""
        return ()

    def gradients(self) -> tuple[Operation, ...]:
        """No operation: forward has run its contractions already."""
        return ()


@dataclass(frozen=True)
class DoneLoss(InPlaceLoss):
    """The loss of a part, whose gradient is used up in forward."""

    def learned(self) -> tuple[Tensor, ...]:
        """No gradient goes through it."""
        return ()

    def shared(self) -> tuple[tuple[str, str], ...]:
        """No gradient is left for backward."""
        return ()


@dataclass(frozen=True)
class Buffer(Pointwise):
    """Zeros, to which a gradient is added part by part; nothing asks for a gradient of it."""

    def gradients(self) -> tuple[Operation, ...]:
        """No operation: backward does not go through it."""
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
            (tensor.gradient.name, saved.storage) for tensor, saved in zip(self.inputs, self.saves, strict=False)
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


def write_chunked_loss(tape: Tape, hidden: Tensor, model: Model) -> None:
    """Writes the head and the loss over parts of the normed hidden states (batch seq d_model)."""
    hidden = moves.all_gather_along(tape, hidden, "tensor")
    seq, first, last = _part_dims(hidden, tape.kernels)
    chunk_tape = replace(tape, times=symbol("loss_chunks"), last_dim=(first, last))
    dims = tuple(first if dim == seq else dim for dim in hidden.dims)
    part = replace(hidden, name="head/part", dims=dims, view_of=hidden.storage, block="head")
    if tape.kernels.loss == "chunked":
        inner = chunk_tape.inside(REGION)
        replace(tape, region=inner.region).record(SequenceParts("head/parts", COPY, (hidden,), (part,)))
        loss(inner, components.logits(inner.of_block("head"), part, model), "eager")
        return
    _write_fused_linear(tape, chunk_tape, (hidden, part), model)


def _write_fused_linear(tape: Tape, chunk_tape: Tape, states: tuple[Tensor, Tensor], model: Model) -> None:
    """Logits, loss and both gradients of each part; what is left of it are the gradients alone."""
    hidden, part = states
    weight = tape.weight(components.table_of(model), "vocab d_model")
    collected = replace(hidden, name="head/hidden.collected", view_of="")
    summed = Tensor("head/weight.collected", weight.dims, weight.dtype, "activation", weight.split)
    for buffer, towards in ((collected, hidden.name), (summed, weight.name)):
        tape.record(Buffer(f"{buffer.name}.zeros", ELEMENTWISE, (), (buffer,), towards=towards))
    compute = tape.precision.compute
    left, right = chunk_tape.cast(part, compute), chunk_tape.cast(weight, compute)
    batch, seq, _ = part.dims
    logits = tape.activation("head/logits", (batch, seq, weight.dims[0]), tape.matmul_result, part.split)
    inside = replace(logits.gradient, view_of=logits.storage)
    result = replace(tape, of_loss=True).activation("cross_entropy/loss", (), "fp32")
    piece = replace(part, name="head/part.collected", view_of=collected.name)
    kernel = matmul(dtypes.rate(compute))
    chunk_tape.record(ForwardGradient("head/logits", kernel, (left, right), (logits,), einsum=LOGITS))
    chunk_tape.record(
        DoneLoss("cross_entropy/loss", CROSS_ENTROPY, (logits, labels(tape, (batch, seq))), (result, inside), flops=8)
    )
    back = "batch seq vocab, vocab d_model -> batch seq d_model"
    chunk_tape.record(
        ForwardGradient(
            "head/logits.input_gradient", kernel, (inside, right), (piece,), einsum=back, towards=hidden.name
        )
    )
    sums = "batch seq d_model, batch seq vocab -> vocab d_model"
    last = ForwardGradient(
        "head/logits.weight_gradient", kernel, (left, inside), (summed,), einsum=sums, towards=weight.name
    )
    chunk_tape.record(replace(last, purpose=Purpose.WEIGHT_GRADIENT))
    tape.record(HandedOn("head/hidden.gradient", NO_KERNEL, (hidden,), (collected,), (collected,), towards=hidden.name))
    tape.record(HandedOn("head/weight.gradient", NO_KERNEL, (weight,), (summed,), (summed,), towards=weight.name))


# --- predictions of further tokens ---

UNIT = "multi_token"
LAYER = "predicting_layer"  # the region of all but norm, head and loss


def write_further_tokens(tape: Tape, hidden: Tensor, model: Model) -> None:
    """Writes one prediction, from the residual stream (batch seq d_model) to its loss."""
    inner = tape.inside(LAYER)
    tokens = components.token_rows(inner)
    stream = norm(inner, Module("hidden_norm", "norm", of_layer=True), hidden, model.norm)
    ahead = norm(inner, Module("token_norm", "norm", of_layer=True), tokens, model.norm)
    batch, seq, d_model = stream.dims
    two, result = Dim("two", sympy.Integer(2)), Dim("d_out", d_model.symbol)
    joining = inner.of_block("projection")
    both = joining.concatenate("projection/joined", [stream, ahead], (batch, seq, two, d_model))
    einsum = "batch seq two d_model, d_out two d_model -> batch seq d_out"
    narrow = joining.linear(Module("projection", "projection"), einsum, both, sizes=(result, two))
    x = inner.view(narrow, "batch seq d_model", "projection/stream")
    last = components.layer(inner, x, model.groups[-1], model)
    normed = components.final_norm(tape, last, model)
    if tape.kernels.loss in CHUNKED_LOSSES:
        write_chunked_loss(tape, normed, model)
    else:
        loss(tape, components.logits(tape, normed, model))


def saved_by_predictions(operations: Sequence[Operation], recompute: Recompute) -> SavedActivations:
    """The tensors that predictions save: of their layer by the policy, of their head and loss as of the model's own."""
    parts = {"selective": ("core",), "components": recompute.components, "none": (), "every": (), "layers": ()}
    inside = parts.get(recompute.policy, (LAYER,))
    return POLICIES["components"](operations, replace(recompute, components=(*inside, REGION)))


def own_weights(weights: Sequence[Tensor], model: Model) -> tuple[Tensor, ...]:
    """The weights that predictions have of their own: embedding and head are the model's."""
    shared = (Parameter(components.TOKENS), Parameter(components.table_of(model)))
    return tuple(weight for weight in weights if weight.parameter not in shared)


def backward_of_predictions(unit: Unit, hidden: Tensor, model: Model) -> Iterator[Operation]:
    """The backward pass of the predictions, whose gradients of what the model shares are added to those that are there.

    The head's weight has a gradient from the model's own loss, the embedding (unless it is the same) gets its first
    here, and the residual stream has one from the final norm.
    """
    gradients = {weight.parameter: weight.gradient for weight in unit.weights}
    head, stream = gradients[Parameter(components.table_of(model))], hidden.gradient
    tokens, part_of_head = gradients[Parameter(components.TOKENS)], replace(head, name=f"{head.name}.part")
    for step in unit.backward:
        apart = part_of_head if not step.adds_to else head  # a product that adds its result makes none of its own
        outputs = tuple(
            apart if tensor.name == head.name else _in_other_unit(tensor) if tensor.name == tokens.name else tensor
            for tensor in step.outputs
        )
        yield replace(step, outputs=outputs)
        for total, part in zip(step.outputs, outputs, strict=True):
            if part.name == part_of_head.name:
                yield Pointwise(f"{step.name}.shared", ELEMENTWISE, (total, part), (part,))
    earlier = replace(stream, name=f"{stream.name}.earlier", earlier=True)
    total = replace(stream, name=f"{stream.name}.whole")
    yield Pointwise("hidden.gradient.sum", ELEMENTWISE, (earlier, stream), (total,))


def _in_other_unit(gradient: Tensor) -> Tensor:
    """A gradient in the storage of another unit, which has all that there is of it until then."""
    return replace(gradient, view_of=f"{gradient.name}.held")
