"""Recompute policies: what a unit keeps from forward to backward, and what backward runs again to rebuild the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ledger.model.operations import Operation
from ledger.model.tensors import Tensor


@dataclass(frozen=True)
class Kept:
    """`saved` lives from forward to backward; `again` runs in backward and brings back `rebuilt`."""

    saved: tuple[Tensor, ...]
    again: tuple[Operation, ...] = ()
    rebuilt: tuple[Tensor, ...] = ()


def saved_by(operations: Sequence[Operation]) -> tuple[Tensor, ...]:
    """What autograd keeps: each storage once, views as the tensor they look into, weights excluded, casts included."""
    owners = {t.name: t for op in operations for t in (*op.outputs, *op.inputs) if not t.view_of}
    found: dict[str, Tensor] = {}
    for operation in operations:
        for tensor in operation.saves:
            if tensor.role != "weight":
                found.setdefault(tensor.storage, owners.get(tensor.storage, tensor))
    return tuple(found.values())


def prefix(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """What rebuilding runs: all up to the last operation that saves something, and it too if it saves a result.

    PyTorch's checkpointing stops as soon as the last saved tensor is back (torch.utils.checkpoint, early stop).
    """
    last = max((i for i, op in enumerate(operations) if _saves(op)), default=-1)
    if last < 0:
        return ()
    return tuple(operations[: last + (1 if operations[last].after else 0)])


def _saves(operation: Operation) -> bool:
    return any(tensor.role != "weight" for tensor in operation.saves)


def _none(operations: Sequence[Operation], _: tuple[str, ...]) -> Kept:
    return Kept(saved_by(operations))


def _full(operations: Sequence[Operation], _: tuple[str, ...]) -> Kept:
    entry = _entry(operations)
    rest = tuple(t for t in saved_by(operations) if t.storage not in {e.storage for e in entry})
    return Kept(entry, prefix(operations), rest)


def _selective(operations: Sequence[Operation], _: tuple[str, ...]) -> Kept:
    """The attention core is rebuilt from query, key and value (Korthikanti et al. 2022, section 5)."""
    core = [op for op in operations if op.region == "core"]
    outside = {t.storage: t for t in saved_by([op for op in operations if op.region != "core"])}
    saved = {**outside, **{t.storage: t for t in _owned(_entry(core), operations)}}
    rebuilt = tuple(t for t in saved_by(operations) if t.storage not in saved)
    return Kept(tuple(saved.values()), prefix(core) if rebuilt else (), rebuilt)


def _keep(operations: Sequence[Operation], kinds: tuple[str, ...]) -> Kept:
    """Results of the named kinds of kernel are kept, all else is run again (torch's selective checkpointing)."""

    def kept(operation: Operation) -> bool:
        return any(operation.kernel.startswith(kind) for kind in kinds)

    results = {t.storage: t for op in operations if kept(op) for t in op.outputs}
    saved = {**{t.storage: t for t in _entry(operations)}, **results}
    again = tuple(op for op in prefix(operations) if not kept(op))
    rebuilt = tuple(t for t in saved_by(operations) if t.storage not in saved)
    return Kept(tuple(saved.values()), again, rebuilt)


def _entry(operations: Sequence[Operation]) -> tuple[Tensor, ...]:
    """The activations that come from outside, each storage once."""
    made = {t.storage for op in operations for t in op.outputs}
    inputs = (t for op in operations for t in op.inputs)
    return tuple({t.storage: t for t in inputs if t.storage not in made and t.role == "activation"}.values())


def _owned(tensors: tuple[Tensor, ...], operations: Sequence[Operation]) -> tuple[Tensor, ...]:
    """Views replaced by the tensors that own their storage."""
    owners = {t.name: t for op in operations for t in op.outputs}
    return tuple(owners.get(t.storage, t) for t in tensors)


POLICIES: Mapping[str, Callable[[Sequence[Operation], tuple[str, ...]], Kept]] = {
    "none": _none,
    "selective": _selective,
    "full": _full,
    "keep": _keep,
}
