"""What is alive while one unit runs: the tensors of each step of its forward and backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import sympy

from ledger.model.attention_cores import SharedResult
from ledger.model.causes import Purpose
from ledger.model.collectives import Collective
from ledger.model.operations import ONE, Operation, differentiable, total
from ledger.model.quantised import STAYING
from ledger.model.tensors import SHARED, Tensor
from ledger.model.unit import Unit

ARRIVES, LEFT = "its input arrives", "its result is left"  # the steps before and after those of a unit


@dataclass(frozen=True)
class LiveTensors:
    """The tensors that exist while `step` runs, each storage once."""

    step: str
    tensors: tuple[Tensor, ...]

    def bytes(self, chosen: Iterable[str] | None = None) -> sympy.Expr:
        """Bytes of the tensors, or of those with certain names."""
        names = None if chosen is None else set(chosen)
        return total(tensor.bytes() for tensor in self.tensors if names is None or tensor.name in names)

    def only(self, names: frozenset[str]) -> LiveTensors:
        """The tensors of these names."""
        return LiveTensors(self.step, tuple(tensor for tensor in self.tensors if tensor.name in names))


def between(steps: Sequence[LiveTensors], place: int) -> LiveTensors:
    """What is alive between a step and the one before it."""
    before = {id(tensor) for tensor in steps[place - 1].tensors}
    step = steps[place]
    return LiveTensors(step.step, tuple(tensor for tensor in step.tensors if id(tensor) in before))


def forward(unit: Unit) -> tuple[LiveTensors, ...]:
    """Forward: a result is freed after its last reader unless it is kept for backward or leaves the unit.

    What enters is held by the caller until the unit returns.
    """
    entry = _entering_tensors(unit)
    saved = {tensor.storage for tensor in unit.saving.saved}
    shared_results = {operation.output.storage for operation in unit.written if isinstance(operation, SharedResult)}
    lasting = saved | shared_results | set(entry) | {unit.forward[-1].output.storage}
    return _live_by_step(
        tuple(map(_with_allocated_results, unit.forward)), entry, lasting, {}, dict(unit.frame_lifetimes)
    )


def backward(unit: Unit, *, added: bool = False) -> tuple[LiveTensors, ...]:
    """Backward: what was kept, then what is rebuilt, then gradients; each is freed after its last reader.

    A segment is rebuilt when the first of its tensors is asked for, and its inputs wait until the last one was read.
    `added`: gradients of weights are there from earlier micro-batches, and a new one is freed once it is added. What
    adds to them itself makes no new one.
    """
    result = unit.written[-1].output
    upstream = (result.gradient,) if differentiable(result) else ()
    entry = _entering_tensors(unit)
    inputs = [t for segment in unit.saving.segments for t in segment.entry if t.storage in entry]
    start = {tensor.storage: tensor for tensor in (*unit.saving.saved, *inputs, *upstream) if tensor.role != STAYING}
    rebuilt = {tensor.storage for tensor in unit.saving.rebuilt}
    lasting = set() if added else {weight.gradient.name for weight in unit.weights}
    lasting |= {t.gradient.name for op in unit.written for t in op.inputs if t.role == SHARED and differentiable(t)}
    operations = tuple(map(_with_allocated_results, _backward_with_rebuilding(unit)))
    # gradients that were there before: left to be added to, by what runs again and again or by another unit
    earlier = (tensor for operation in operations for tensor in operation.inputs if tensor.earlier)
    start |= {tensor.storage: tensor for tensor in earlier if tensor.storage not in start}
    repeated = {tensor.storage for op in operations if op.times != ONE for tensor in op.inputs}
    waits = {
        tensor.storage: {rebuilt_tensor.storage for rebuilt_tensor in segment.rebuilt} | repeated
        for segment in unit.saving.segments
        for tensor in segment.entry
    }
    waits |= {
        segment.again[-1].output.storage: {rebuilt_tensor.storage for rebuilt_tensor in segment.rebuilt}
        for segment in unit.saving.segments
        if segment.reentrant and segment.again  # its frame holds the result until all its gradients are there
    }
    no_waits: dict[str, set[str]] = {storage: set() for storage in (*rebuilt, *(t.storage for t in unit.saving.saved))}
    framed = {storage: awaited | waits.get(storage, set()) for storage, awaited in dict(unit.frame_lifetimes).items()}
    return _live_by_step(operations, start, lasting, _gradient_aliases(unit), {**no_waits, **waits, **framed})


def _with_allocated_results(operation: Operation) -> Operation:
    """An operation with the results that it allocates: none where it adds to what is there, or fills a buffer."""
    filled = isinstance(operation, Collective) and operation.buffered
    return replace(operation, outputs=()) if operation.adds_to or filled else operation


def _backward_with_rebuilding(unit: Unit) -> Iterator[Operation]:
    """The operations of backward, each segment of forward run again before the first that reads what it rebuilds.

    The gradients of one operation are asked for together: autograd unpacks all that it saved before the first of them.
    """
    pending = list(unit.saving.segments)
    together: defaultdict[str, set[str]] = defaultdict(set)
    for operation in unit.backward:
        together[operation.forward or operation.name] |= {tensor.storage for tensor in operation.inputs}

    inside = {id(s): {op.name for op in s.again} for s in pending if s.reentrant}

    def needed(reads: Collection[str], of: str = "") -> Iterator[Operation]:
        asked_for = (s for s in pending if of in inside.get(id(s), ()) or any(t.storage in reads for t in s.rebuilt))
        for segment in tuple(asked_for):
            if segment in pending:
                pending.remove(segment)
                for step in segment.again:
                    yield from needed({tensor.storage for tensor in step.inputs})
                    yield step

    for operation in unit.backward:
        yield from needed(together[operation.forward or operation.name], operation.forward)
        yield operation
    for segment in pending:  # what it rebuilds is read by what runs no kernel of its own
        yield from segment.again


def _entering_tensors(unit: Unit) -> dict[str, Tensor]:
    """What enters, unless the layer before counts it among what it saves."""
    results = {t.storage for op in unit.written for t in op.outputs if not t.view_of}
    inputs = [
        t
        for op in unit.written
        for t in op.inputs
        if t.role == "activation" and t.storage not in results and not t.kept_before
    ]
    return {t.storage: t for t in reversed(inputs)}  # the first that reads it has the whole of it, not a view


def _live_by_step(
    operations: Sequence[Operation],
    start: dict[str, Tensor],
    lasting: set[str],
    aliases: dict[str, str],
    waits: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[LiveTensors, ...]:
    """The tensors of each step: results are allocated as they are made, and freed after their last use.

    What `waits` is freed with the last of the tensors it waits for; where no operation reads any, it stays (its reader
    is fused away).
    """
    last: dict[str, int] = {}
    for index, operation in enumerate(operations):
        for tensor in (*operation.inputs, *operation.outputs):
            last[_storage(tensor, aliases)] = index
    for name, awaited in waits.items():
        last[name] = max((last[storage] for storage in {name, *awaited} if storage in last), default=len(operations))
    early = _gathered_again(operations, aliases)
    alive = {_resolve(name, aliases): tensor for name, tensor in start.items()}
    steps = [LiveTensors(ARRIVES, tuple(alive.values()))]
    for index, operation in enumerate(operations):
        for tensor in operation.outputs:
            if tensor.role not in ("weight", STAYING) and not tensor.view_of:
                alive.setdefault(_storage(tensor, aliases), tensor)
        steps.append(LiveTensors(operation.name, tuple(alive.values())))
        freed_early = early.get(index, ())
        freed = [name for name in alive if (last.get(name, -1) <= index or name in freed_early) and name not in lasting]
        for name in freed:
            del alive[name]
    return (*steps, LiveTensors(LEFT, tuple(alive.values())))


def _gathered_again(operations: Sequence[Operation], aliases: dict[str, str]) -> dict[int, set[str]]:
    """What a rebuilt stretch gathers and backward gathers again: by the step after which the first of both is freed."""
    freed_after = defaultdict[int, set[str]](set)
    for place, operation in enumerate(operations):
        if operation.purpose is not Purpose.GATHERED_AGAIN or not operation.outputs:
            continue
        name = _storage(operation.output, aliases)
        before = enumerate(operations[:place])
        used = [i for i, op in before if name in {_storage(t, aliases) for t in (*op.inputs, *op.outputs)}]
        if used:
            freed_after[used[-1]].add(name)
    return freed_after


def storages(unit: Unit) -> Callable[[Tensor], str]:
    """The storage of each tensor of a unit, also of gradients that live in one of another name."""
    aliases = _gradient_aliases(unit)
    return lambda tensor: _storage(tensor, aliases)


def _storage(tensor: Tensor, aliases: dict[str, str]) -> str:
    return _resolve(tensor.storage, aliases)


def _resolve(name: str, aliases: dict[str, str]) -> str:
    while name in aliases:
        name = aliases[name]
    return name


def _gradient_aliases(unit: Unit) -> dict[str, str]:
    """Gradients that live in a storage of another name."""
    return {name: storage for operation in unit.written for name, storage in operation.shared()}
