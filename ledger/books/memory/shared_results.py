"""What one unit gives and layers of others read, and the sum of the gradients that these give back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import sympy

from ledger.books.entries import Entry
from ledger.books.memory.timeline import BACKWARD, FORWARD, OPTIMIZER, Point, Timeline, posted
from ledger.model.causes import Cause
from ledger.model.fsdp_units import BRIDGE
from ledger.model.operations import ONE, ZERO, differentiable
from ledger.model.program import Program
from ledger.model.shared_results import Shared
from ledger.model.tensors import Tensor
from ledger.model.units import Unit


def shared_results(program: Program, line: Timeline) -> Iterator[Entry]:
    """Each such result, and the sum of its gradients, while the unit that makes it does not run itself."""
    for unit in program.units:
        for operation in unit.written:
            if isinstance(operation, Shared):
                yield from _SharedResult(program, unit, operation.output).entries(line)


@dataclass(frozen=True)
class _SharedResult:
    """A tensor that its `maker` gives to layers of other units."""

    program: Program
    maker: Unit
    tensor: Tensor

    def entries(self, line: Timeline) -> Iterator[Entry]:
        """The result, and the sum of the gradients that layers have given so far."""
        cause, amount = Cause(self.maker.name, self.tensor.name), self.tensor.bytes()
        yield from posted(line, cause, "activations", amount, self.alive, "read by layers of other units, held once")
        if differentiable(self.tensor):
            gradient = self.tensor.gradient
            cause, why = Cause(self.maker.name, gradient.name), "gradients of the layers that read it, added up"
            yield from posted(line, cause, "workspace", gradient.bytes(), self.summed, why)

    @cached_property
    def readers(self) -> frozenset[str]:
        """The units whose layers read it."""
        others = (unit for unit in self.program.units if unit is not self.maker)
        storage = self.tensor.storage
        return frozenset(u.name for u in others if any(t.storage == storage for op in u.written for t in op.inputs))

    @cached_property
    def kept(self) -> bool:
        """Whether backward reads it, to find gradients or to rebuild what did."""
        readers = [unit for unit in self.program.units if unit.name in self.readers]
        saved = {tensor.storage for unit in readers for tensor in unit.kept.saved}
        again = {tensor.storage for unit in readers for op in unit.kept.again for tensor in op.inputs}
        return self.tensor.storage in saved | again

    def alive(self, point: Point) -> sympy.Expr:
        """Forward from its maker on, while callers hold it; where backward reads it, until the first layer is over."""
        if point.phase == OPTIMIZER or point.unit == self.maker.name:
            return ZERO
        if point.phase == FORWARD:
            held = self.kept or BRIDGE in (self.maker.name, point.unit) or point.unit in self.readers
            return ONE if held and point.left[self.maker.name] != ZERO else ZERO
        return ONE if self.kept and point.left[self.maker.name] == ZERO else ZERO

    def summed(self, point: Point) -> sympy.Expr:
        """Backward, once a layer has given a gradient, until the maker has read their sum."""
        if point.phase != BACKWARD or point.unit == self.maker.name or point.left[self.maker.name] != ZERO:
            return ZERO
        return ONE if any(point.left[reader] != ZERO for reader in self.readers) else ZERO
