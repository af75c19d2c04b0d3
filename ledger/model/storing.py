"""What waits for backward in a narrower format than it was computed in: a copy is kept, and widened to be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy

from ledger.model import dtypes
from ledger.model.operations import Operation, total
from ledger.model.quantised import Quantise, scales_along
from ledger.model.recompute import Kept, Segment
from ledger.model.tensors import Tensor, product
from ledger.spec.kernel_classes import QUANTISE
from ledger.spec.recipe import Stored

WIDE = 2  # bytes: statistics and scores, in fp32, stay as they are


@dataclass(frozen=True)
class Widen(Quantise):
    """The copy and its scales are read, the tensor is written."""

    def traffic(self) -> sympy.Expr:
        """Bytes: the copy and its scales read once, the tensor written once."""
        return total(tensor.bytes() for tensor in (*self.inputs, *self.outputs))

    def vector(self) -> sympy.Expr:
        """A product for each element."""
        return product(1, self.outputs[0].elements())


def stored(operations: Sequence[Operation], kept: Kept, rules: Sequence[Stored]) -> tuple[tuple[Operation, ...], Kept]:
    """Forward with the kernels that narrow what the rules name, and what is then kept instead.

    A copy is made as soon as the tensor is saved. To backward it is a stretch that rebuilds the tensor.
    """
    saved = {tensor.storage: tensor for tensor in kept.saved}
    copies: dict[str, tuple[Tensor, ...]] = {}
    forward: list[Operation] = []
    for operation in operations:
        forward.append(operation)
        for storage, rule in _named(operation, rules, saved):
            if storage not in copies:
                copies[storage] = _copy(saved[storage], rule)
                forward.append(Quantise(f"{storage}.narrow", QUANTISE, (saved[storage],), copies[storage]))
    waiting = (copies.get(storage, (tensor,)) for storage, tensor in saved.items())
    segments = tuple(
        Segment(narrow, (Widen(f"{storage}.widen", QUANTISE, narrow, (saved[storage],)),), (saved[storage],))
        for storage, narrow in copies.items()
    )
    found = replace(kept, saved=tuple(t for each in waiting for t in each), segments=(*segments, *kept.segments))
    return tuple(forward), found


def _named(operation: Operation, rules: Sequence[Stored], saved: Mapping[str, Tensor]) -> Iterator[tuple[str, Stored]]:
    """The 16-bit activations that this operation saves under a rule."""
    for rule in rules:
        inside = rule.part in operation.region
        for whole in (saved.get(tensor.storage) for tensor in operation.saves if inside):
            if whole is not None and whole.role == "activation" and dtypes.size(whole.dtype) == WIDE:
                yield whole.storage, rule


def _copy(tensor: Tensor, rule: Stored) -> tuple[Tensor, ...]:
    narrow = replace(tensor, name=f"{tensor.name}.narrow", dtype=rule.format, view_of="")
    return (narrow,) if rule.block is None else (narrow, scales_along(tensor, f"{narrow.name}.scales", rule.block))
