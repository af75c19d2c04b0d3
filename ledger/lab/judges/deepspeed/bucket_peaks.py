"""How full the moments of backward are where buckets fill weight by weight, beside the ledger's even filling.

The ledger's formula has a buffer full after every so many elements; DeepSpeed reduces it before the first gradient
that does not fit, so each bucket is a little less, and the next one is full a little earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.books import compile_plan
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.memory.moments import Moments
from ledger.books.memory.reduction_buffer import ReductionBuffer, written
from ledger.books.memory.steps import Step, running, tensors
from ledger.books.memory.timeline import BACKWARD, Point
from ledger.lab.judges.deepspeed.flat_weights import FlatWeights
from ledger.lab.verification import predicted
from ledger.model.fsdp_units import ENDS
from ledger.model.schedule import roles
from ledger.spec.plan import Plan


def beyond_even_filling(plan: Plan, flat: FlatWeights) -> Mapping[str, int]:
    """By moment, bytes of the fullest instant of backward through layers beyond the ledger's."""
    (book,) = compile_roles(plan, roles(plan))
    (role,) = compile_plan(plan).roles
    peaks = BucketPeaks(plan, book, flat)
    more = {point.name: peaks.more(point) for point in book.line.points if peaks.in_layers(point)}
    exact = [replace(one, parts={**one.parts, "more": more.get(one.name, 0)}) for one in role.moments]
    before, after = predicted.moments(book, role.moments), predicted.moments(book, exact)
    return {name: after[name] - before[name] for name in before}


@dataclass(frozen=True)
class BucketPeaks:
    """The steps of backward at which buckets are reduced."""

    plan: Plan
    book: CompiledRole
    flat: FlatWeights

    def in_layers(self, point: Point) -> bool:
        """Whether backward visits a layer."""
        return point.phase == BACKWARD and point.unit not in ENDS

    def more(self, point: Point) -> int:
        """Bytes of a moment's fullest step beyond those of even filling."""
        unit, alive = self.moments.units[point.unit], self.moments.alive(point)
        plain = list(running(unit, alive))
        even = self.buffer.steps(point, unit, self.moments.written(point), plain)
        return self._fullest((*plain, *self._weight_by_weight(point))) - self._fullest(even)

    @cached_property
    def moments(self) -> Moments:
        """The moments of the role."""
        return Moments(self.book.program, self.plan, self.book.line)

    @cached_property
    def buffer(self) -> ReductionBuffer:
        """The buffer, as the ledger fills it."""
        return ReductionBuffer(self.book.program, self.plan, self.book.line)

    @cached_property
    def emptied(self) -> Mapping[tuple[str, int], int]:
        """Elements that are reduced when the gradient of a weight finds no room, by its name and layer."""
        buckets = self.flat.buckets(self.flat.backward, self.plan.stack.reduction_buffer)
        found = [self.flat.weights[bucket[0]] for bucket in buckets[1:]]
        pairs = zip(found, buckets, strict=False)
        return {(weight.name, weight.layer): self.flat.elements(before) for weight, before in pairs}

    def _fullest(self, steps: Iterable[Step]) -> int:
        return max(int(step.bytes(self.book.value)) for step in steps)

    def _weight_by_weight(self, point: Point) -> Iterator[Step]:
        """The steps at which a gradient finds no room, with the copy of what is there."""
        unit, value = self.moments.units[point.unit], self.book.value
        counts = {other.name: int(value(other.count)) for other in self.book.program.units}
        layers = [name for name in counts if name not in ENDS]
        earlier = sum(counts[name] for name in layers[: layers.index(unit.name)])
        layer = earlier + counts[unit.name] - int(value(point.left[unit.name])) - 1
        for weight, step in written(unit, self.moments.alive(point)):
            if elements := self.emptied.get((f"{unit.name}/{weight.name}", layer)):
                copied = self.buffer.copy(sympy.Integer(elements))
                yield Step("a full buffer is reduced", (*tensors(unit, step), copied))
