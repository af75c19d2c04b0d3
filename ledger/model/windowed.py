"""Steps of a custom component that read channels: convolutions, batch norm, pooling and means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledger.model.dims import Dim
from ledger.model.operations import ONE
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, Tensor
from ledger.spec.kernel_classes import COPY, NORM_BACKWARD, NORM_FORWARD, REDUCTION
from ledger.spec.plan import ComponentStep
from ledger.spec.windows import roles, sides, terms, unpadded, window

if TYPE_CHECKING:
    from ledger.model.custom import Written


def convolution(tape: Tape, written: Written, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """The product of a tensor's windows with a filter; the tensor is copied first unless it lies as PyTorch reads it.

    Zeros that stand before a dim alone are written into a copy, since PyTorch pads alike at both ends.
    """
    found = roles(step.einsum)
    if found is None:
        raise TypeError(f"{step.einsum} is no convolution")
    (x,), einsum = operands, step.einsum
    read = terms(einsum)[0]
    names = dict(zip(read, (each.name for each in x.dims), strict=True))
    order = tuple(names[index] for index in (*found.operand, *filter(window, read)))
    if written.component.pads(step):
        x, einsum = _padded(tape, written, step, x), unpadded(einsum)
    elif written.laid[step.of[0]] != order:
        x = tape.pointwise(f"{written.module(step)}.copy", x, kernel=COPY, add=True)
    bias = written.weight(tape, step.bias) if step.bias else None
    over = tuple(written.dims[one.over] for one in found.windows)
    written.laid[step.name] = found.result
    weight = written.weight(tape, step.weight)
    return tape.contract(written.module(step), einsum, x, weight, bias=bias, sizes=over)


def _padded(tape: Tape, written: Written, step: ComponentStep, x: Tensor) -> Tensor:
    """A copy with zeros at the ends of what is read through windows."""
    pads = iter(written.component.pads(step))
    dims = []
    for index, each in zip(terms(step.einsum)[0], x.dims, strict=True):
        zeros = sum(next(pads)) if window(index) else 0
        dims.append(Dim(f"{each.name}_padded", each.symbol + zeros, each.suffix) if zeros else each)
    return tape.pointwise(f"{written.module(step)}.padded", x, dims=tuple(dims), kernel=COPY, add=True)


def batch_norm(tape: Tape, written: Written, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """One kernel over all but the channels: it saves what it reads and the statistics of this batch.

    Running statistics and a count of batches are there all the time, and no part of a gradient (torch, BatchNorm).
    """
    (x,), name = operands, str(written.module(step))
    weights = [written.weight(tape, step.weight), written.weight(tape, step.bias)]
    channels = weights[0].dims
    wide = [Tensor(f"{name}.{kind}", channels, weights[0].dtype, BUFFER) for kind in ("running_mean", "running_var")]
    count = Tensor(f"{name}.batches", (Dim("one", ONE),), "int64", BUFFER)
    statistics = [Tensor(f"{name}.{kind}", channels, "fp32", "statistic") for kind in ("mean", "rstd")]
    written.laid[step.name] = written.laid[step.of[0]]
    return tape.inside("norm").pointwise(
        name,
        x,
        *weights,
        *wide,
        count,
        dtype=x.dtype,
        kernel=NORM_FORWARD,
        backward_kernel=NORM_BACKWARD,
        flops=7,
        saves=[x],
        extras=statistics,
    )


def largest(tape: Tape, written: Written, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """The largest in each window: what is read is saved, and the place of each result, in int64."""
    (x,), name = operands, str(written.module(step))
    dims = _reduced(written, step, x, step.max)
    places = Tensor(f"{name}.places", dims, "int64", "statistic", x.split)
    return tape.pointwise(name, x, dims=dims, kernel=REDUCTION, saves=[x], extras=[places])


def mean(tape: Tape, written: Written, step: ComponentStep, operands: Sequence[Tensor]) -> Tensor:
    """The mean over dims, which saves nothing, or in each window, which saves what it reads."""
    (x,), through = operands, any(map(window, sides(step.mean)[0]))
    dims = _reduced(written, step, x, step.mean)
    return tape.pointwise(str(written.module(step)), x, dims=dims, kernel=REDUCTION, saves=[x] if through else [])


def _reduced(written: Written, step: ComponentStep, x: Tensor, pattern: str) -> tuple[Dim, ...]:
    """The dims of the result, which lie as those that were read."""
    read, out = sides(pattern)
    kept = {index: over.over if (over := window(index)) else index for index in read}
    names = {each.name: kept[index] for each, index in zip(x.dims, read, strict=True)}
    written.laid[step.name] = tuple(names[name] for name in written.laid[step.of[0]] if names[name] in out)
    there = {each.name: each for each in x.dims}
    return tuple(written.dims.get(name) or there[name] for name in out)
