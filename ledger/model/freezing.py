"""Weights that are not trained: no gradient flows into them, nor into what is computed from such values alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ledger.model.contraction import Contraction
from ledger.model.convolution import Convolution
from ledger.model.elementwise import Pointwise
from ledger.model.operations import Operation, differentiable
from ledger.model.quantised import Quantised
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.plan import Train


def fixed(train: Train, group: str) -> Callable[[Tensor], bool]:
    """Whether a weight of a group stays as it is. Names are of parts or groups: `attention`, `decoder/mlp`, `head`."""

    def named(weight: Tensor) -> bool:
        inside = (weight.name, weight.parameter.module.component) if weight.parameter else (weight.name,)
        return any(name in train.names for name in (group, *inside, *(f"{group}/{one}" for one in inside)))

    def adapter(weight: Tensor) -> bool:
        return weight.parameter is not None and weight.parameter.module.adapter

    rules: dict[str, Callable[[Tensor], bool]] = {
        "all": lambda _: False,
        "only": lambda weight: not named(weight),
        "frozen": named,
        "lora": lambda weight: not adapter(weight),
    }
    return rules[train.kind]


def frozen(operations: Sequence[Operation], still: Callable[[Tensor], bool]) -> tuple[Operation, ...]:
    """The same operations where some weights, and the values that are still when they enter, have no gradient.

    A result of such values alone has none either, and what only their gradients would read is not saved.
    """
    known: set[str] = set()
    weights = {tensor for operation in operations for tensor in operation.inputs if tensor.role == "weight"}
    left_out = {weight.name for weight in weights if still(weight)}
    kept = (op for op in operations if op.towards not in left_out and op.towards not in known)
    return tuple(_marked(operation, known, still) for operation in kept)


def _marked(operation: Operation, known: set[str], still: Callable[[Tensor], bool]) -> Operation:
    def mark(tensor: Tensor) -> Tensor:
        stays = tensor.frozen or tensor.storage in known or (tensor.role == "weight" and still(tensor))
        return replace(tensor, frozen=True) if stays else tensor

    operation = _with(operation, tuple(map(mark, operation.inputs)), operation.outputs, operation.saves)
    if isinstance(operation, Quantised):
        operation = operation.of(tuple(map(mark, operation.originals)))
    known |= {tensor.storage for tensor in operation.inputs if tensor.frozen}
    if not any(map(differentiable, operation.learned())):
        known |= {tensor.storage for tensor in operation.outputs}
    saves = tuple(mark(tensor) for tensor in operation.saves)
    operation = _with(operation, operation.inputs, tuple(map(mark, operation.outputs)), saves)
    return _with(operation, operation.inputs, operation.outputs, tuple(_needed(operation)))


def _with(
    operation: Operation, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], saves: tuple[Tensor, ...]
) -> Operation:
    """The operation with these tensors; itself where they are its own, as in a model whose weights are all trained."""
    if (operation.inputs, operation.outputs, operation.saves) == (inputs, outputs, saves):
        return operation
    return replace(operation, inputs=inputs, outputs=outputs, saves=saves)


def _needed(operation: Operation) -> Iterator[Tensor]:
    """What autograd really saves: an operand of a product is kept for the gradient of the other one alone."""
    if not any(map(differentiable, operation.learned())):
        return
    others: dict[str, bool] = {}
    product = isinstance(operation, Pointwise) and operation.kernel == ELEMENTWISE and len(operation.inputs) == 2
    if (isinstance(operation, Contraction) and not isinstance(operation, Convolution)) or product:
        left, right = operation.inputs[:2]
        others = {left.storage: differentiable(right), right.storage: differentiable(left)}
        if left.storage == right.storage:
            others = {}
    if isinstance(operation, Quantised):
        others = operation.needed()
    for place, tensor in enumerate(operation.saves):
        # what a contraction saves first stands for its first operand, be it the shard that this is gathered from
        stands = isinstance(operation, Contraction) and not isinstance(operation, Quantised) and place == 0
        name = operation.inputs[0].storage if stands else tensor.storage
        if others.get(name, True):
            yield tensor
