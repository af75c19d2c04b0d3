"""What torch.autocast remembers: the cast of every weight, until the context of the forward pass ends."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from ledger.books.entries import Entry
from ledger.books.memory.timeline import FORWARD, AliveCount, Point, Timeline, posted
from ledger.model.causes import Cause
from ledger.model.operations import ZERO
from ledger.model.program import Program
from ledger.model.tensors import Tensor
from ledger.model.units import Unit, compute_precision
from ledger.spec.plan import Plan

WHY = "torch.autocast keeps the cast of a weight until forward is over, though nothing saves it for backward"


def remembered(program: Program, plan: Plan, line: Timeline) -> Iterator[Entry]:
    """Casts in layers that forward has left behind: of biases, and of all weights where layers are recomputed.

    A compiled layer casts inside its own graph, which autocast does not see.
    """
    if not compute_precision(plan).autocast or plan.stack.compiled:
        return
    for unit in program.units:
        for tensor in _unsaved_casts(unit):
            cause = Cause(unit.name, tensor.name, state="remembered")
            yield from posted(line, cause, "activations", tensor.bytes(), _left_behind(line, unit), WHY)


def _unsaved_casts(unit: Unit) -> tuple[Tensor, ...]:
    saved = {tensor.storage for tensor in unit.kept.saved}
    casts = (tensor for operation in unit.forward for tensor in operation.outputs if tensor.role == "cast")
    return tuple({tensor.storage: tensor for tensor in casts if tensor.storage not in saved}.values())


def _left_behind(line: Timeline, unit: Unit) -> AliveCount:
    waiting = line.saved(unit)

    def alive(point: Point) -> sympy.Expr:
        return waiting(point) if point.phase == FORWARD else ZERO

    return alive
