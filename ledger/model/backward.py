"""The backward pass of a stretch of operations: their gradients in reverse, and what autograd and the layout add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ledger.model.causes import Purpose
from ledger.model.collectives import Collective, collective
from ledger.model.contraction import Contraction
from ledger.model.elementwise import Pointwise
from ledger.model.operations import ONE, Operation, differentiable
from ledger.model.projections import is_joined
from ledger.model.quantised import Quantise
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ELEMENTWISE


def backward(forward: Sequence[Operation], *, joined: Collection[str] = ()) -> tuple[Operation, ...]:
    """Gradients in reverse order, inputs gathered again, sums where a value was used twice, sums over split dims.

    `joined`: parts of a layer in which weights that multiply one input are one matrix, whose product gives the
    gradient of that input whole.
    """
    found: list[Operation] = []
    apart, written = _summed_apart(forward), Counter[str]()
    whole: set[str] = set()
    regathered: set[str] = set()
    for operation in reversed(forward):
        if not any(map(differentiable, operation.learned())):
            continue
        first = len(found)
        found.extend(_gathered_again(operation, regathered))
        new = (step for step in operation.gradients() if not (isinstance(step, Quantise) and _made(step, written)))
        steps = tuple(replace(step, times=operation.times, last_dim=operation.last_dim) for step in new)
        if (
            is_joined(operation, joined)
            and isinstance(operation, Contraction)
            and operation.learned()[1].role in ("weight", "cast")
        ):
            steps = tuple(replace(step, joined=True) if _of_input(step, operation, whole) else step for step in steps)
        if operation.times != ONE:
            found.extend(each for step in steps for each in _added(step, operation))
            found[first:] = (_belonging(step, operation) for step in found[first:])
            continue
        for step in steps:
            numbered = step.outputs if step.joined else tuple(_numbered(t, written, apart) for t in step.outputs)
            found.append(replace(step, outputs=numbered, pieces=operation.pieces * step.pieces))
        for step in steps:  # autograd adds up when all gradients of an operation are there
            if not step.joined:
                found.extend(_summed(step, written, apart))
        found.extend(_partial_weights(operation))
        found[first:] = (_belonging(step, operation) for step in found[first:])
    return tuple(found)


def _of_input(step: Operation, operation: Contraction, whole: set[str]) -> bool:
    """Whether a product adds to the gradient of an input that another part of the same matrix has given."""
    name = operation.learned()[0].gradient.name
    if step.output.name != name:
        return False
    given = name in whole
    whole.add(name)
    return given


def _belonging(step: Operation, operation: Operation) -> Operation:
    """A step of the backward pass in the region of the operation that it is for, and in its block if it is no transfer.

    A transfer is in the block that makes what it moves, or what it moves the gradient of.
    """
    block = step.block if isinstance(step, Collective) else operation.block
    return replace(step, block=block, region=operation.region, forward=operation.name)


def _made(copies: Quantise, written: Counter[str]) -> bool:
    """Whether an operation after this one has needed the same copies, and so made them."""
    return all(written[tensor.name] for tensor in copies.outputs)


def _gathered_again(operation: Operation, done: set[str]) -> Iterator[Operation]:
    """Where the shard was saved instead of the gathered input, the weight's gradient needs it whole again."""
    if not isinstance(operation, Contraction) or not operation.saves or not differentiable(operation.learned()[1]):
        return
    used, kept = operation.gathered_again, operation.saves[0]
    if used.split == kept.split or used.name in done:
        return
    done.add(used.name)
    axis = next(axis for dim, axis in kept.split if (dim, axis) not in used.split)
    again = collective(f"{used.name}.again", "all_gather", axis, kept, used)
    yield replace(again, purpose=Purpose.GATHERED_AGAIN)


def _summed_apart(forward: Sequence[Operation]) -> Counter[str]:
    """How many gradients are summed for each value that tensor-parallel devices use whole, where more than one is.

    Autograd adds in place but for tensor subclasses (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace), and
    what DTensor gathered is one.
    """
    saved = {tensor.name for op in forward for tensor in op.saves}  # Megatron-LM, with kernels of its own, saves shards
    shared = {
        op.output.name
        for op in forward
        if isinstance(op, Collective)
        and (op.collective, op.axis) == ("all_gather", "tensor")
        and op.output.name in saved
    }
    wanted = {tensor.gradient.name for op in forward for tensor in op.outputs if tensor.name in shared}
    written = Counter(t.name for op in forward for step in op.gradients() for t in step.outputs if t.name in wanted)
    return Counter({name: count for name, count in written.items() if count > 1})


def _added(step: Operation, operation: Operation) -> Iterator[Operation]:
    """What runs again and again adds the gradient of each weight to the sum of those before.

    Autograd adds the second to the first out of place, since that is a view of the product's result.
    """
    weights = {tensor.gradient.name for tensor in operation.inputs if tensor.role == "weight"}
    parts = tuple(replace(t, name=f"{t.name}.part") if t.name in weights else t for t in step.outputs)
    yield replace(step, outputs=parts)
    for whole, part in zip(step.outputs, parts, strict=True):
        if whole.name != part.name:
            name = f"{step.name}.sum"
            earlier = replace(whole, name=f"{whole.name}.earlier", earlier=True)
            often = {"times": operation.times, "last_dim": operation.last_dim}
            yield Pointwise(name, ELEMENTWISE, (earlier, part), (whole,), **often)


def _numbered(tensor: Tensor, written: Counter[str], apart: Counter[str]) -> Tensor:
    """A second gradient of the same value is a tensor of its own until it is added."""
    written[tensor.name] += 1
    count = written[tensor.name]
    return tensor if count == 1 and tensor.name not in apart else replace(tensor, name=f"{tensor.name}.{count}")


def _summed(step: Operation, written: Counter[str], apart: Counter[str]) -> Iterator[Operation]:
    """The sum so far and the gradient that was just written, in place of the first or in a tensor of its own."""
    for tensor in step.outputs:
        count = written[tensor.name]
        if count == 1:
            continue
        last = replace(tensor, name=f"{tensor.name}.{count}")
        before, after = tensor, tensor
        if tensor.name in apart:
            before = replace(tensor, name=f"{tensor.name}.1" if count == 2 else f"{tensor.name}.sum{count - 1}")
            after = tensor if count == apart[tensor.name] else replace(tensor, name=f"{tensor.name}.sum{count}")
        yield Pointwise(f"{step.name}.sum", ELEMENTWISE, (before, last), (after,))


def _partial_weights(operation: Operation) -> Iterator[Operation]:
    """A weight that is whole on an axis over which its operand is split gets only part of its gradient there.

    Over the axes that cut the batch and its tokens, a unit's gradients are summed together, later.
    """
    operands = (*operation.inputs, *operation.outputs)
    axes = sorted({axis for tensor in operands if tensor.role == "activation" for _, axis in tensor.split})
    for weight in operation.learned():
        if weight.role not in ("weight", "cast") or not differentiable(weight):
            continue
        held = {axis for _, axis in weight.split}
        for axis in axes:
            if axis not in ("data", "context", *held) and _sums_over(operation, weight, axis):
                part = weight.gradient
                summed = collective(f"{weight.name}.gradient_sum", "all_reduce", axis, part, part)
                yield replace(summed, purpose=Purpose.GRADIENT_SUM)


def _sums_over(operation: Operation, weight: Tensor, axis: str) -> bool:
    """Whether the gradient of this weight sums over a dim that the axis cuts."""
    own = {dim.name for dim in weight.dims}
    cut = {name for tensor in (*operation.inputs, *operation.outputs) for name, a in tensor.split if a == axis}
    return not isinstance(operation, Collective) and bool(cut - own) and not bool(cut & own)
