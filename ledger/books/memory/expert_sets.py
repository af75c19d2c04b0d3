"""Routed experts as a set of their own within their layer, where they are shared over other devices than the rest.

fully_shard of the experts inside that of their layer: gathered when the experts run and freed after them, reduced
before the rest of the layer. Layers gather ahead what the next one needs, both sets of it, as torchtitan asks for
explicitly where experts are split (models/llama4/infra/parallelize.py, `apply_fsdp`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.books.memory.expert_layer import Layer
from ledger.books.memory.expert_span import Span, span
from ledger.books.memory.gathering import Gathering
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.steps import Allocation, Running, Step
from ledger.books.memory.timeline import FORWARD, Point
from ledger.books.memory.transfers import INNER
from ledger.model.fsdp_units import ROOT, FsdpUnit
from ledger.model.sharding import Sharding
from ledger.model.units import Unit


def apart(sets: Mapping[str, FsdpUnit], sharding: Sharding, layers: int) -> dict[str, FsdpUnit]:
    """The sets with those experts that move over other devices than their layer; none where many layers move as one."""
    found = dict(sets)
    for name, each in sets.items():
        parts = tuple((times, tuple(sharding.cut(weights))) for times, weights in each.parts)
        if layers == 1 and name != ROOT and any(weights for _, weights in parts):
            experts = replace(each, parts=parts, experts=True)
            found |= {name: _without(each, experts), name + INNER: experts}
    return found


def _without(whole: FsdpUnit, part: FsdpUnit) -> FsdpUnit:
    gone = {weight.name for _, weights in part.parts for weight in weights}
    parts = ((times, tuple(w for w in weights if w.name not in gone)) for times, weights in whole.parts)
    return replace(whole, parts=tuple(parts))


@dataclass(frozen=True)
class ExpertGathering(Gathering):
    """The moments of a device some of whose layers have two sets of weights."""

    def stretches(self, point: Point, unit: Unit, steps: Sequence[LiveTensors]) -> tuple[Sequence[LiveTensors], ...]:
        """The steps before the experts, theirs, and those after."""
        if not self.inner(point.unit):
            return (steps,)
        there = self.span(unit, point.phase, steps)
        parts: dict[int, list[LiveTensors]] = {}
        for place, step in enumerate(steps):
            parts.setdefault(there.stretch(place), []).append(step)
        return tuple(parts.values())

    def span(self, unit: Unit, phase: str, steps: Sequence[LiveTensors]) -> Span:
        """When in a pass the experts of a unit run."""
        return span(unit, phase, steps)

    def steps(
        self, point: Point, unit: Unit, alive: Sequence[LiveTensors], running: Sequence[Running]
    ) -> Iterator[Step]:
        """As without experts for the ends of the model."""
        if self.buffers.of(point.unit) == ROOT:
            yield from super().steps(point, unit, alive, running)
            return
        layer = Layer(self, point, unit, tuple(alive))
        yield from layer.forward(running) if point.phase == FORWARD else layer.backward(running)

    def inner(self, name: str) -> str:
        """The set of a layer's experts; none where it has none."""
        return name + INNER if name + INNER in self.buffers.sets else ""

    def both(self, name: str) -> tuple[str, ...]:
        """The sets of a layer."""
        return tuple(found for found in (name, self.inner(name)) if found)

    def last_gathered(self, name: str) -> str:
        """Its experts, where it has any."""
        return self.both(name)[-1]

    def gathered_ahead(self, point: Point) -> Iterator[Allocation]:
        """Of a layer both sets; the ends of the model gather one set ahead, as they are told nothing."""
        for name in self.ahead(point):
            sets = (name,) if self.buffers.of(point.unit) == ROOT else self.both(name)
            yield from (self.buffers.gathered(found, ".ahead") for found in sets)
