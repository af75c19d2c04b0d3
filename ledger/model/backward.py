"""The backward pass of operations: gradients in reverse, what autograd and the layout add; frozen weights; fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import sympy

from ledger.model.causes import Purpose
from ledger.model.collectives import Collective, collective
from ledger.model.contraction import Contraction
from ledger.model.elementwise import Lookup, Pointwise
from ledger.model.operations import ONE, Operation, differentiable, total
from ledger.model.quantised import Quantise, Quantised, is_joined
from ledger.model.tape import Convolution
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import (
    CROSS_ENTROPY,
    DROPOUT,
    ELEMENTWISE,
    EMBEDDING,
    NORM_BACKWARD,
    NORM_FORWARD,
    SOFTMAX,
)
from ledger.spec.plan import Train


def backward(forward: Sequence[Operation], *, joined: Collection[str] = ()) -> tuple[Operation, ...]:
    """Gradients in reverse order, inputs gathered again, sums where a value was used twice, sums over split dims.

    `joined`: parts of a layer in which weights that multiply one input are one matrix, whose product gives the
    gradient of that input whole.
    """
    result: list[Operation] = []
    apart, written = _apart_gradient_counts(forward), Counter[str]()
    given_inputs: set[str] = set()
    regathered: set[str] = set()
    for operation in reversed(forward):
        if not any(map(differentiable, operation.learned())):
            continue
        first = len(result)
        result.extend(_gather_again(operation, regathered))
        steps = tuple(
            replace(step, times=operation.times, last_dim=operation.last_dim)
            for step in operation.gradients()  # without copies that an operation after this one has needed, and so made
            if not (isinstance(step, Quantise) and all(written[copy.name] for copy in step.outputs))
        )
        if (
            is_joined(operation, joined)
            and isinstance(operation, Contraction)
            and operation.learned()[1].role in ("weight", "cast")
        ):
            steps = tuple(
                replace(step, continues_product=True)
                if _adds_to_input_gradient(step, operation, given_inputs)
                else step
                for step in steps
            )
        if operation.times != ONE:
            result.extend(addition for step in steps for addition in _accumulate(step, operation))
            result[first:] = (_in_region_of(step, operation) for step in result[first:])
            continue
        for step in steps:
            numbered = (
                step.outputs
                if step.continues_product
                else tuple(_number_gradient(t, written, apart) for t in step.outputs)
            )
            result.append(replace(step, outputs=numbered, pieces=operation.pieces * step.pieces))
        for step in steps:  # autograd adds up when all gradients of an operation are there
            if not step.continues_product:
                result.extend(_sum_gradients(step, written, apart))
        result.extend(_sum_partial_gradients(operation))
        result[first:] = (_in_region_of(step, operation) for step in result[first:])
    return tuple(result)


def _adds_to_input_gradient(step: Operation, operation: Contraction, given_inputs: set[str]) -> bool:
    """Whether a product adds to the gradient of an input that another part of the same matrix has given."""
    name = operation.learned()[0].gradient.name
    if step.output.name != name:
        return False
    is_second = name in given_inputs
    given_inputs.add(name)
    return is_second


def _in_region_of(step: Operation, operation: Operation) -> Operation:
    """A step of the backward pass in the region of the operation that it is for, and in its block if it is no transfer.

    A transfer is in the block that makes what it moves, or what it moves the gradient of.
    """
    block = step.block if isinstance(step, Collective) else operation.block
    return replace(step, block=block, region=operation.region, forward=operation.name)


def _gather_again(operation: Operation, done: set[str]) -> Iterator[Operation]:
    """The gather for a weight's gradient of an input of which the shard was saved instead of the gathered tensor."""
    if not isinstance(operation, Contraction) or not operation.saves or not differentiable(operation.learned()[1]):
        return
    used, shard = operation.gathered_again, operation.saves[0]
    if used.split == shard.split or used.name in done:
        return
    done.add(used.name)
    axis = next(axis for dim, axis in shard.split if (dim, axis) not in used.split)
    again = collective(f"{used.name}.again", "all_gather", axis, shard, used)
    yield replace(again, purpose=Purpose.GATHERED_AGAIN)


def _apart_gradient_counts(forward: Sequence[Operation]) -> Counter[str]:
    """The number of gradients that are summed for each value that tensor-parallel devices use whole, if several.

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
    gradients = {tensor.gradient.name for op in forward for tensor in op.outputs if tensor.name in shared}
    written = Counter(t.name for op in forward for step in op.gradients() for t in step.outputs if t.name in gradients)
    return Counter({name: count for name, count in written.items() if count > 1})


def _accumulate(step: Operation, operation: Operation) -> Iterator[Operation]:
    """The steps by which what runs again and again adds the gradient of each weight to the sum of those before.

    Autograd adds the second to the first out of place, since that is a view of the product's result.
    """
    weights = {tensor.gradient.name for tensor in operation.inputs if tensor.role == "weight"}
    parts = tuple(replace(t, name=f"{t.name}.part") if t.name in weights else t for t in step.outputs)
    yield replace(step, outputs=parts)
    for gradient, part in zip(step.outputs, parts, strict=True):
        if gradient.name != part.name:
            name = f"{step.name}.sum"
            earlier = replace(gradient, name=f"{gradient.name}.earlier", earlier=True)
            often = {"times": operation.times, "last_dim": operation.last_dim}
            yield Pointwise(name, ELEMENTWISE, (earlier, part), (gradient,), **often)


def _number_gradient(tensor: Tensor, written: Counter[str], apart: Counter[str]) -> Tensor:
    """A second gradient of the same value is a tensor of its own until it is added."""
    written[tensor.name] += 1
    count = written[tensor.name]
    return tensor if count == 1 and tensor.name not in apart else replace(tensor, name=f"{tensor.name}.{count}")


def _sum_gradients(step: Operation, written: Counter[str], apart: Counter[str]) -> Iterator[Operation]:
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


def _sum_partial_gradients(operation: Operation) -> Iterator[Operation]:
    """A weight that is whole on an axis over which its operand is split gets only part of its gradient there.

    Over the axes that cut the batch and its tokens, a unit's gradients are summed together, later.
    """
    if isinstance(operation, Collective):
        return
    operands = (*operation.inputs, *operation.outputs)
    axes = {axis for tensor in operands if tensor.role == "activation" for _, axis in tensor.split}
    for weight in operation.learned():
        if weight.role not in ("weight", "cast") or not differentiable(weight):
            continue
        weight_dims, part = {dim.name for dim in weight.dims}, weight.gradient
        for axis in sorted(axes - {"data", "context", *(axis for _, axis in weight.split)}):
            cut = {name for tensor in operands for name, cut_over in tensor.split if cut_over == axis}
            if cut and not cut & weight_dims:  # the gradient sums over a dim that the axis cuts
                summed = collective(f"{weight.name}.gradient_sum", "all_reduce", axis, part, part)
                yield replace(summed, purpose=Purpose.GRADIENT_SUM)


# --- weights that are not trained ---


def is_frozen_weight(train: Train, group: str) -> Callable[[Tensor], bool]:
    """Whether a weight of a group stays as it is. Names are of parts or groups: `attention`, `decoder/mlp`, `head`."""

    def named(weight: Tensor) -> bool:
        inside = (weight.name, weight.parameter.module.component) if weight.parameter else (weight.name,)
        return any(name in train.names for name in (group, *inside, *(f"{group}/{part}" for part in inside)))

    def adapter(weight: Tensor) -> bool:
        return weight.parameter is not None and weight.parameter.module.adapter

    rules: dict[str, Callable[[Tensor], bool]] = {
        "all": lambda _: False,
        "only": lambda weight: not named(weight),
        "frozen": named,
        "lora": lambda weight: not adapter(weight),
    }
    return rules[train.kind]


def with_frozen_weights(operations: Sequence[Operation], still: Callable[[Tensor], bool]) -> tuple[Operation, ...]:
    """The operations where some weights, and the values that are still when they enter, have no gradient.

    A result of such values alone has none either, and what only their gradients would read is not saved.
    """
    untrained: set[str] = set()
    weights = {tensor for operation in operations for tensor in operation.inputs if tensor.role == "weight"}
    left_out = {weight.name for weight in weights if still(weight)}
    trained = (op for op in operations if op.towards not in left_out and op.towards not in untrained)
    return tuple(_freeze(operation, untrained, still) for operation in trained)


def _freeze(operation: Operation, untrained: set[str], still: Callable[[Tensor], bool]) -> Operation:
    def mark(tensor: Tensor) -> Tensor:
        stays = tensor.frozen or tensor.storage in untrained or (tensor.role == "weight" and still(tensor))
        return replace(tensor, frozen=True) if stays else tensor

    operation = _replace_tensors(operation, tuple(map(mark, operation.inputs)), operation.outputs, operation.saves)
    if isinstance(operation, Quantised):
        operation = operation.of(tuple(map(mark, operation.originals)))
    untrained |= {tensor.storage for tensor in operation.inputs if tensor.frozen}
    if not any(map(differentiable, operation.learned())):
        untrained |= {tensor.storage for tensor in operation.outputs}
    saves = tuple(mark(tensor) for tensor in operation.saves)
    operation = _replace_tensors(operation, operation.inputs, tuple(map(mark, operation.outputs)), saves)
    return _replace_tensors(operation, operation.inputs, operation.outputs, tuple(_needed_saves(operation)))


def _replace_tensors(
    operation: Operation, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], saves: tuple[Tensor, ...]
) -> Operation:
    """The operation with these tensors; itself where they are its own, as in a model whose weights are all trained."""
    if (operation.inputs, operation.outputs, operation.saves) == (inputs, outputs, saves):
        return operation
    return replace(operation, inputs=inputs, outputs=outputs, saves=saves)


def _needed_saves(operation: Operation) -> Iterator[Tensor]:
    """The tensors that autograd saves: an operand of a product is kept for the gradient of the other one alone."""
    if not any(map(differentiable, operation.learned())):
        return
    is_needed: dict[str, bool] = {}
    product = isinstance(operation, Pointwise) and operation.kernel == ELEMENTWISE and len(operation.inputs) == 2
    if (isinstance(operation, Contraction) and not isinstance(operation, Convolution)) or product:
        left, right = operation.inputs[:2]
        if left.storage != right.storage:
            is_needed = {left.storage: differentiable(right), right.storage: differentiable(left)}
    if isinstance(operation, Quantised):
        is_needed = operation.needed()
    for place, tensor in enumerate(operation.saves):
        # what a contraction saves first stands for its first operand, be it the shard that this is gathered from
        stands = isinstance(operation, Contraction) and not isinstance(operation, Quantised) and place == 0
        name = operation.inputs[0].storage if stands else tensor.storage
        if is_needed.get(name, True):
            yield tensor


# --- fused elementwise operations ---

# Where a run holds one of these, it is priced like it: reductions set the pace of the kernel they are fused into.
LEADING = (CROSS_ENTROPY, SOFTMAX, NORM_BACKWARD, NORM_FORWARD, DROPOUT)


@dataclass(frozen=True)
class Fused(Pointwise):
    """A run of elementwise operations as one kernel: what lies between them never leaves the chip."""

    parts: tuple[Operation, ...] = ()

    def vector(self) -> sympy.Expr:
        """The FLOPs of all parts."""
        return total(part.vector() for part in self.parts)


def fuse_elementwise(operations: Sequence[Operation], lasting_tensors: Iterable[Tensor] = ()) -> tuple[Operation, ...]:
    """Consecutive elementwise operations become one; what is `kept`, or used later, is still written."""
    lasting = {tensor.storage for tensor in lasting_tensors} | {operations[-1].output.storage} if operations else set()
    result: list[Operation] = []
    runs = [tuple(run) for _, run in groupby(operations, key=_is_fusible)]
    for index, run in enumerate(runs):
        if len(run) == 1 or not _is_fusible(run[0]):
            result.extend(run)
            continue
        later = {tensor.storage for after in runs[index + 1 :] for op in after for tensor in op.inputs}
        result.append(_fuse_run(run, lasting | later))
    return tuple(result)


def _is_fusible(operation: Operation) -> bool:
    return isinstance(operation, Pointwise) and not isinstance(operation, Lookup) and operation.kernel != EMBEDDING


def _fuse_run(run: Sequence[Operation], needed: set[str]) -> Fused:
    written = {tensor.storage: tensor for op in run for tensor in op.outputs}
    inputs = {t.storage: t for op in run for t in op.inputs if t.storage not in written}
    outputs = tuple(tensor for name, tensor in written.items() if name in needed) or run[-1].outputs
    kernel = next((kind for kind in LEADING if any(op.kernel == kind for op in run)), ELEMENTWISE)
    saves = {t.storage: t for op in run for t in op.saves}
    last = run[-1]
    name = f"{last.name}.fused" if len({op.name for op in run}) > 1 else last.name
    return Fused(
        name,
        kernel,
        tuple(inputs.values()),
        outputs,
        tuple(saves.values()),
        region=last.region,
        block=last.block,
        forward=last.forward,
        parts=tuple(run),
    )


def kernels(
    operations: Sequence[Operation], lasting_tensors: Iterable[Tensor], *, compiled: bool
) -> Iterator[Operation]:
    """The kernels that run: the operations themselves, or what a compiler makes of them."""
    yield from fuse_elementwise(operations, lasting_tensors) if compiled else operations
