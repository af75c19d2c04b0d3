"""The backward pass of a stretch of operations: their gradients in reverse, and what autograd and the layout add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ledger.model.collectives import Collective
from ledger.model.contraction import Contraction
from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation, differentiable, gradient
from ledger.model.tensors import Tensor


def backward(forward: Sequence[Operation]) -> tuple[Operation, ...]:
    """Gradients in reverse order, inputs gathered again, sums where a value was used twice, sums over split dims."""
    found: list[Operation] = []
    written: Counter[str] = Counter()
    regathered: set[str] = set()
    for operation in reversed(forward):
        found.extend(_gathered_again(operation, regathered))
        for step in operation.gradients():
            numbered = tuple(_numbered(tensor, written) for tensor in step.outputs)
            found.append(replace(step, outputs=numbered, pieces=operation.pieces))
            found.extend(_summed(step, numbered))
        found.extend(_partial_weights(operation))
    return tuple(found)


def _gathered_again(operation: Operation, done: set[str]) -> Iterator[Operation]:
    """Where the shard was saved instead of the gathered input, the weight's gradient needs it whole again."""
    if not isinstance(operation, Contraction) or not operation.saves:
        return
    used, kept = operation.inputs[0], operation.saves[0]
    if used.split == kept.split or used.name in done:
        return
    done.add(used.name)
    axis = next(axis for dim, axis in kept.split if (dim, axis) not in used.split)
    yield Collective(f"{used.name}.again", f"all_gather.{axis}", (kept,), (used,), collective="all_gather", axis=axis)


def _numbered(tensor: Tensor, written: Counter[str]) -> Tensor:
    """A second gradient of the same value is a tensor of its own until it is added."""
    written[tensor.name] += 1
    count = written[tensor.name]
    return tensor if count == 1 else replace(tensor, name=f"{tensor.name}.{count}")


def _summed(step: Operation, numbered: tuple[Tensor, ...]) -> Iterator[Operation]:
    for first, second in zip(step.outputs, numbered, strict=True):
        if first.name != second.name:
            yield Pointwise(f"{step.name}.sum", "elementwise", (first, second), (first,))


def _partial_weights(operation: Operation) -> Iterator[Operation]:
    """A weight that is whole on an axis over which its operand is split gets only part of its gradient there.

    Over the axes that cut the batch and its tokens, a unit's gradients are summed together, later.
    """
    operands = (*operation.inputs, *operation.outputs)
    axes = sorted({axis for tensor in operands if tensor.role == "activation" for _, axis in tensor.split})
    for weight in operation.inputs:
        if weight.role not in ("weight", "cast") or not differentiable(weight):
            continue
        held = {axis for _, axis in weight.split}
        for axis in axes:
            if axis not in ("data", "context", *held) and _sums_over(operation, weight, axis):
                part = gradient(weight)
                yield Collective(
                    f"{weight.name}.gradient_sum",
                    f"all_reduce.{axis}",
                    (part,),
                    (part,),
                    collective="all_reduce",
                    axis=axis,
                )


def _sums_over(operation: Operation, weight: Tensor, axis: str) -> bool:
    """Whether the gradient of this weight sums over a dim that the axis cuts."""
    own = {dim.name for dim in weight.dims}
    cut = {name for tensor in (*operation.inputs, *operation.outputs) for name, a in tensor.split if a == axis}
    return not isinstance(operation, Collective) and bool(cut - own) and not bool(cut & own)
