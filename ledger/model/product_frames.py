"""Products that are functions of autograd: frames hold what they read and make, and gradients are scattered early."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from ledger.model.causes import Purpose
from ledger.model.collectives import Collective
from ledger.model.contraction import Contraction, Grouped
from ledger.model.operations import Operation
from ledger.model.quantised import Quantise, Quantised, is_projection, matrix
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import NORM

AXIS = "tensor"


def scattered_first(steps: Sequence[Operation], forward: Sequence[Operation]) -> tuple[Operation, ...]:
    """Backward with each gradient of a weight, and what only that reads, after its input's gradient is scattered."""
    readers = {op.name: op.learned()[0].gradient.name for op in forward if isinstance(op, Contraction)}
    reordered: list[Operation] = []
    for step in steps:
        reordered.append(step)
        if _is_scatter(step):
            gradient = step.inputs[0].name
            late = _late_steps([op for op in reordered if readers.get(op.forward) == gradient])
            reordered = [op for op in reordered if id(op) not in late] + [op for op in reordered if id(op) in late]
    return tuple(reordered)


def held_by_products(
    forward: Sequence[Operation], backward: Sequence[Operation], joined: Collection[str]
) -> FrameLifetimes:
    """The storages that frames of products hold, forward and backward; `joined` as in `quantised.matrix`."""
    pairs = [*_forward_frames(forward), *_weight_gradient_frames(forward, backward, joined)]
    copied = {copy.storage: op.inputs[0] for op in forward if isinstance(op, Quantise) for copy in op.outputs}
    pairs += [pair for step in backward if _is_scatter(step) for pair in _scatter_frames(step, backward, copied)]
    frees_by_storage: dict[str, frozenset[str]] = {}
    for storage, until in pairs:
        frees_by_storage[storage] = frees_by_storage.get(storage, frozenset()) | until
    return tuple(frees_by_storage.items())


def _forward_frames(forward: Sequence[Operation]) -> Iterator[tuple[str, frozenset[str]]]:
    """Operands of a product, and their quantised copies, which are there until its result is put together over devices.

    So are the share that it gathers, and the statistics of the norm before it. Products of experts put nothing together
    (transformer_engine/pytorch/module/grouped_linear.py).
    """
    makers = {tensor.storage: op for op in forward for tensor in op.outputs}
    moved = {op.inputs[0].storage for op in forward if isinstance(op, Collective) and not op.output.view_of}
    for product in filter(is_projection, forward):
        joins = product.output.storage in moved and not isinstance(product, Grouped)
        until = product.output if joins else product.inputs[0]
        for tensor in _operands_in_frame(product, makers):
            yield tensor.storage, frozenset({until.storage})


def _operands_in_frame(product: Operation, makers: Mapping[str, Operation]) -> Iterator[Tensor]:
    """The first operand of a product, what it is a copy of or gathered from, and with a norm's result all it gives."""
    yield product.inputs[0]
    if isinstance(product, Quantised):
        yield from product.originals[:1]
    source = makers.get(product.inputs[0].storage)
    if isinstance(source, Collective):
        yield source.inputs[0]
        source = makers.get(source.inputs[0].storage)
    if source is not None and source.kernel.family == NORM:
        yield from source.outputs


def _weight_gradient_frames(
    forward: Sequence[Operation], backward: Sequence[Operation], joined: Collection[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Operands of the gradients of one matrix, all of which are there until the weight's gradient is."""
    matrices = {op.name: matrix(op, joined) for op in forward if is_projection(op)}
    again = {op.output.storage for op in backward if op.purpose is Purpose.GATHERED_AGAIN}
    gathered = {op.output.storage for op in backward if isinstance(op, Collective)} - again
    steps = defaultdict[str, list[Operation]](list)
    for step in backward:
        if step.forward in matrices and not isinstance(step, Collective):
            steps[matrices[step.forward]].append(step)
    for matrix_steps in steps.values():
        last = next((step for step in reversed(matrix_steps) if step.purpose is Purpose.WEIGHT_GRADIENT), None)
        if last is None:
            continue
        until = frozenset({last.inputs[1].storage})
        results = {s.output.storage for s in matrix_steps if s.purpose is Purpose.RESULT and isinstance(s, Contraction)}
        storages = {t.storage for step in matrix_steps for t in (*step.inputs, *step.outputs) if t.role != "weight"}
        yield from ((storage, until) for storage in sorted(storages - results - gathered))


def _scatter_frames(
    step: Operation, backward: Sequence[Operation], copied: Mapping[str, Tensor]
) -> Iterator[tuple[str, frozenset[str]]]:
    """The saved share and the whole's gradient last until the share's gradient is read; `copied`: sources of copies."""
    until = frozenset({step.output.storage})
    yield step.inputs[0].storage, until
    for gather in backward:
        if gather.purpose is Purpose.GATHERED_AGAIN:
            share = gather.inputs[0]
            if copied.get(share.storage, share).gradient.name == step.output.name:
                yield share.storage, until


def _is_scatter(step: Operation) -> bool:
    return isinstance(step, Collective) and (step.collective, step.axis) == ("reduce_scatter", AXIS)


def _late_steps(steps: Sequence[Operation]) -> set[int]:
    """Gradients of weights, and what nothing else reads, by identity."""
    late: set[int] = set()
    for step in reversed(steps):
        results = {tensor.name for tensor in step.outputs}
        reading = [
            reader for reader in steps if reader is not step and results & {tensor.name for tensor in reader.inputs}
        ]
        only_late = bool(reading) and all(id(reader) in late for reader in reading)
        if step.purpose is Purpose.WEIGHT_GRADIENT or (only_late and not isinstance(step, Collective)):
            late.add(id(step))
    return late


# --- what callers hold while a part of a layer runs forward ---

UPDATE = "update"  # the region of what joins parts of a layer, or multiplies one, before the stream
FrameLifetimes = tuple[tuple[str, frozenset[str]], ...]  # a storage, and those that it is not freed before


def held_inputs(operations: Sequence[Operation]) -> FrameLifetimes:
    """The inputs of a part's first products, gathered or not, which are there until its last one has its result.

    What that one reads is there while devices put its result together.
    """
    moved = {op.output.storage: op for op in operations if isinstance(op, Collective)}
    parts = groupby(filter(is_projection, operations), key=lambda operation: operation.block)
    return tuple(pair for block, part in parts if block for pair in _part_frames(tuple(part), moved))


def held_updates(operations: Sequence[Operation]) -> FrameLifetimes:
    """The result of a part has a name in its layer's frame, beside its product with a factor until that is added."""
    joining = (op for op in operations if UPDATE in op.region)
    return tuple((tensor.storage, frozenset({op.output.storage})) for op in joining for tensor in op.inputs)


def _part_frames(part: Sequence[Operation], moved: Mapping[str, Operation]) -> Iterator[tuple[str, frozenset[str]]]:
    read, last = part[0].inputs[0].storage, part[-1]
    result = last.output.storage
    for name in (read, *((moved[read].inputs[0].storage,) if read in moved else ())):
        yield name, frozenset({result})
    if any(op.inputs[0].storage == result for op in moved.values()):
        yield last.inputs[0].storage, frozenset({result})
