"""What quantising adds to weights: copies that serve every micro-batch, and buffers of delayed scaling."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from ledger.books.entries import Entry
from ledger.books.memory.timeline import Timeline
from ledger.books.resources import stock
from ledger.model.causes import Cause, Purpose
from ledger.model.program import Program
from ledger.model.quantised import SLOTS, STAYING, Quantised
from ledger.model.tensors import sized

PER_SLOT = 2  # the scale, and its inverse, beside the history


def kept(program: Program, line: Timeline) -> Iterator[Entry]:
    """Alive all the time, in every layer."""
    weights = stock("weights")
    for unit in program.units:
        copies = {t.name: t for op in unit.forward for t in op.outputs if t.role == STAYING}
        for tensor in copies.values():
            why = "a quantised copy of a weight, which the next micro-batch finds"
            cause = Cause(unit.name, tensor.name, purpose=Purpose.QUANTISED_WEIGHT)
            yield Entry(cause, weights, line.whole, tensor.bytes(), unit.count, why)
        for operation in unit.forward:
            if isinstance(operation, Quantised) and operation.recipe and operation.recipe.history:
                slots = sized("fp32", sympy.Integer(SLOTS * (operation.recipe.history + PER_SLOT)))
                why = "largest magnitudes and scales of delayed scaling (Transformer Engine, pytorch/fp8.py)"
                cause = Cause(unit.name, operation.name, state="amax")
                yield Entry(cause, weights, line.whole, slots, unit.count, why)
