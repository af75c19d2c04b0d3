"""Gradients that are reduced out of one buffer: the buffer itself, and the copy of what it holds that is reduced.

Each gradient is copied into the buffer and freed; when the next one does not fit, what is there is laid out by the
ranks that keep it, in a copy, and that is reduced. One that is larger than the buffer is reduced by itself
(deepspeed/runtime/zero/stage_1_and_2.py, reduce_independent_p_g_buckets_and_remove_grads and allreduce_bucket). Where
every rank keeps all gradients there is the copy alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sympy

from ledger.books.entries import Entry
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.steps import Allocation, LiveStep, tensors
from ledger.books.memory.timeline import BACKWARD, AliveCount, Moment, Timeline, always, post_stock, until_update
from ledger.model.causes import INPUT, LOSS, OUTPUT, Cause
from ledger.model.exchanges import drains
from ledger.model.operations import ONE, ZERO, total
from ledger.model.program import Program
from ledger.model.schedule import micro_batches
from ledger.model.tensors import CeilDiv, Tensor, sized
from ledger.model.unit import Unit
from ledger.spec.plan import Plan

Written = tuple[Tensor, LiveTensors]  # a weight, and what is there when its gradient has been written
MANY = sympy.Integer(10**6)  # more than the buffers that one gradient fills


@dataclass(frozen=True)
class ReductionBuffer:
    """The buffer of a plan whose stack has one."""

    program: Program
    plan: Plan
    timeline: Timeline

    @property
    def elements(self) -> sympy.Integer:
        """Elements that the buffer holds."""
        return sympy.Integer(self.plan.stack.reduction_buffer)

    def entries(self) -> Iterator[Entry]:
        """The buffer: there from the first gradient of a layer on, or all the time where weights are held split."""
        zero = self.plan.parallelism.zero
        if not drains(self.plan) or zero == 0:
            return
        buffer = self._buffer_allocation()
        lasts = zero == 1 and micro_batches(self.plan) > 1  # it is let go when the last micro-batch is reduced
        alive: AliveCount = always(ONE) if zero == 3 else until_update(ONE) if lasts else _alive_from_layers
        yield from post_stock(self.timeline, buffer.cause, buffer.category, buffer.amount, alive, buffer.why)

    def steps(
        self, point: Moment, unit: Unit, fresh: Sequence[Written], running: Iterable[LiveStep]
    ) -> Iterator[LiveStep]:
        """The steps of a moment of backward, and those at which gradients, `fresh` in their order, are reduced."""
        yield from running
        at_once = self.plan.parallelism.zero > 1
        if unit.name == OUTPUT and self.plan.parallelism.zero:
            for _, step in fresh:
                yield LiveStep("a gradient is copied to be reduced", (*tensors(unit, step), self._buffer_allocation()))
        elif unit.name == INPUT:
            yield from self._embedding_steps(unit, fresh)
        elif at_once and unit.name in point.passed_layers:
            yield from self._layer_steps(point, unit, fresh)

    def _buffer_allocation(self) -> Allocation:
        amount = sized(self.plan.precision.reduction, self.elements)
        return Allocation(Cause("gradients", "buffer"), "workspace", amount, "gradients are reduced out of it")

    def copy(self, elements: sympy.Expr, times: sympy.Expr = ONE) -> Allocation:
        """The copy of the buffer that is reduced."""
        amount = sized(self.plan.precision.reduction, elements)
        why = "gradients laid out by the ranks that keep them"
        return Allocation(Cause("gradients", "buffer", state="copy"), "workspace", amount, why, times)

    def _layer_steps(self, point: Moment, unit: Unit, fresh: Sequence[Written]) -> Iterator[LiveStep]:
        """The gradients of a layer, each of which may find the buffer full."""
        layer = total(weight.elements() for weight, _ in fresh)
        filled = self._head_elements() + point.passed_layers[unit.name] * layer
        for weight, step in fresh:
            full = self._times_filled(filled + weight.elements()) - self._times_filled(filled)
            copied = self.copy(self.elements, CeilDiv(full, MANY))
            yield LiveStep("a full buffer is reduced", (*tensors(unit, step), copied))
            filled += weight.elements()

    def _embedding_steps(self, unit: Unit, fresh: Sequence[Written]) -> Iterator[LiveStep]:
        """The embedding's gradient finds the buffer full, or is reduced by itself.

        Where whole gradients of earlier micro-batches are there, it has been added to them.
        """
        summed = self.plan.parallelism.zero < 2 and micro_batches(self.plan) > 1
        for weight, step in fresh:
            gradients = tuple(tensor for tensor in step.tensors if tensor.name == weight.gradient.name and not summed)
            allocations = tuple(tensors(unit, LiveTensors(step.step, gradients)))
            for elements in (self.elements, weight.elements()):
                yield LiveStep("gradients are reduced", (*allocations, self.copy(elements)))

    def _head_elements(self) -> sympy.Expr:
        """Elements in the buffer when backward gets to the layers: those of the head, unless it is larger."""
        ends = (unit for unit in self.program.units if unit.name == OUTPUT)
        head = total(weight.elements() for unit in ends for weight in unit.weights)
        return head * (ONE - CeilDiv(self._times_filled(head), MANY))

    def _times_filled(self, elements: sympy.Expr) -> sympy.Expr:
        """How often so many elements fill the buffer."""
        return CeilDiv(elements + 1, self.elements) - 1


def _alive_from_layers(point: Moment) -> sympy.Expr:
    return ONE if point.phase == BACKWARD and point.unit not in (OUTPUT, LOSS) else ZERO


def gradients_in_order(unit: Unit, alive: Sequence[LiveTensors]) -> Iterator[Written]:
    """The trained weights in the order of their gradients, each with what is there when its own has been written."""
    unwritten = {weight.gradient.name: weight for weight in unit.weights if not weight.frozen}
    for step, after in pairwise(alive):
        lasting = {id(tensor) for tensor in after.tensors}
        for gradient in step.tensors:
            if weight := unwritten.pop(gradient.name, None):
                present = (tensor for tensor in step.tensors if id(tensor) in lasting or tensor is gradient)
                yield weight, LiveTensors(step.step, tuple(present))
