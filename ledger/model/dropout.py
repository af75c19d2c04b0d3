"""Dropout as a kernel of its own."""

from __future__ import annotations

from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import DROPOUT


def dropout(tape: Tape, name: str, x: Tensor) -> Tensor:
    """Dropout saves its mask, a byte an element."""
    mask = Tensor(f"{name}.mask", x.dims, "bool", "mask", x.split)
    return tape.pointwise(name, x, kernel=DROPOUT, flops=2, extras=[mask])
