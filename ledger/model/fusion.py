"""What a compiler of kernels does to a run of elementwise operations: one kernel, and only external traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import sympy

from ledger.model.elementwise import Lookup, Pointwise
from ledger.model.operations import Operation, total
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

# Where a run holds one of these, it is priced like it: reductions set the pace of the kernel they are fused into.
LEADING = (CROSS_ENTROPY, SOFTMAX, NORM_BACKWARD, NORM_FORWARD, DROPOUT)


@dataclass(frozen=True)
class Fused(Pointwise):
    """A run of elementwise operations as one kernel: what lies between them never leaves the chip."""

    parts: tuple[Operation, ...] = ()

    def vector(self) -> sympy.Expr:
        """The FLOPs of all parts."""
        return total(part.vector() for part in self.parts)


def fused(operations: Sequence[Operation], kept: Iterable[Tensor] = ()) -> tuple[Operation, ...]:
    """Consecutive elementwise operations become one; what is `kept`, or used later, is still written."""
    lasting = {tensor.storage for tensor in kept} | {operations[-1].output.storage} if operations else set()
    found: list[Operation] = []
    runs = [tuple(run) for _, run in groupby(operations, key=_fusible)]
    for index, run in enumerate(runs):
        if len(run) == 1 or not _fusible(run[0]):
            found.extend(run)
            continue
        later = {tensor.storage for after in runs[index + 1 :] for op in after for tensor in op.inputs}
        found.append(_joined(run, lasting | later))
    return tuple(found)


def _fusible(operation: Operation) -> bool:
    return isinstance(operation, Pointwise) and not isinstance(operation, Lookup) and operation.kernel != EMBEDDING


def _joined(run: Sequence[Operation], needed: set[str]) -> Fused:
    made = {tensor.storage: tensor for op in run for tensor in op.outputs}
    inputs = {t.storage: t for op in run for t in op.inputs if t.storage not in made}
    outputs = tuple(tensor for name, tensor in made.items() if name in needed) or run[-1].outputs
    kernel = next((kind for kind in LEADING if any(op.kernel == kind for op in run)), ELEMENTWISE)
    saves = {t.storage: t for op in run for t in op.saves}
    names = {op.name for op in run}
    name = f"{run[-1].name}.fused" if len(names) > 1 else run[-1].name
    last = run[-1]
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


def kernels(operations: Sequence[Operation], kept: Iterable[Tensor], *, compiled: bool) -> Iterator[Operation]:
    """The kernels that run: the operations themselves, or what a compiler makes of them."""
    yield from fused(operations, kept) if compiled else operations
