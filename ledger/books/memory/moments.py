"""The moments of a step at which something runs, and what can be alive at each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ledger.books.memory import transfers
from ledger.books.memory.expert_sets import ExpertGathering, split_expert_sets
from ledger.books.memory.gathering import Gathering, ModuleGathering
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.reduction_buffer import ReductionBuffer, Written, gradients_in_order
from ledger.books.memory.steps import LiveStep, Running, passes_with_live_tensors, reduce_scatter_steps, unit_steps
from ledger.books.memory.timeline import BACKWARD, Moment, Timeline
from ledger.books.parameter_traffic import by_module
from ledger.model.exchanges import drains, stays, waits, weights_moved_together
from ledger.model.program import Program
from ledger.model.schedule import micro_batches
from ledger.model.unit import Unit
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Moments:
    """The moments at which a unit runs, with the steps that any of them can be fullest at."""

    program: Program
    plan: Plan
    timeline: Timeline

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """The units that run anything, by name."""
        return {unit.name: unit for unit in self.program.units if unit.forward}

    @cached_property
    def passes(self) -> Mapping[tuple[str, str], tuple[LiveTensors, ...]]:
        """What is alive at each step of each unit and pass."""
        added = self.adds
        return {
            (phase, name): steps
            for name, unit in self.units.items()
            for phase, steps in passes_with_live_tensors(unit, added=added)
        }

    @cached_property
    def gathering(self) -> Gathering | None:
        """Weights that are gathered for use, where they are held split."""
        if not self.program.sharding.splits("weights"):
            return None
        together = {
            unit.name: unit for unit in weights_moved_together(self.plan, self.program.units, self.program.sharding)
        }
        split = split_expert_sets(together, self.program.sharding, self.plan.parallelism.wrap)
        buffers = transfers.Buffers(self.program, self.plan, split, micro_batches(self.plan))
        if by_module(self.plan):
            return ModuleGathering(buffers, self.timeline)
        return Gathering(buffers, self.timeline) if split == together else ExpertGathering(buffers, self.timeline)

    @property
    def several(self) -> bool:
        """Whether a step has more than one micro-batch."""
        return bool(micro_batches(self.plan) > 1)

    @property
    def adds(self) -> bool:
        """Whether a new gradient is added at once to one that is there, so that it does not last."""
        if self.gathering:
            return self.gathering.adds
        if waits(self.plan) or self.program.sharding.splits("gradients"):
            return drains(self.plan)  # into the buffer, which is never summed in place
        return bool(self.several) or stays(self.plan)

    @property
    def points(self) -> Iterator[Moment]:
        """The moments at which something runs but the optimizer."""
        return (point for point in self.timeline.points if point.unit in self.units)

    def live_steps(self, point: Moment) -> tuple[LiveTensors, ...]:
        """The steps of the unit that runs."""
        return self.passes[point.phase, point.unit]

    def written(self, point: Moment) -> Sequence[Written]:
        """The weights of the unit that runs backward in the order of their gradients, with what is there then."""
        return tuple(gradients_in_order(self.units[point.unit], self.live_steps(point)))

    def stretches(self, point: Moment) -> tuple[Sequence[LiveTensors], ...]:
        """The steps of the unit that runs, apart where different things stand beside them."""
        alive, gathering = self.live_steps(point), self.gathering
        return gathering.stretches(point, self.units[point.unit], alive) if gathering else (alive,)

    def steps(self, point: Moment, chosen: Sequence[Running]) -> Iterator[LiveStep]:
        """The steps of a moment, of which only the chosen ones are steps of its unit."""
        unit, gathering = self.units[point.unit], self.gathering
        if gathering:
            return gathering.steps(point, unit, self.live_steps(point), chosen)
        if drains(self.plan) and point.phase == BACKWARD:
            buffer = ReductionBuffer(self.program, self.plan, self.timeline)
            return buffer.steps(point, unit, self.written(point), unit_steps(unit, chosen))
        if self.program.sharding.splits("gradients") and point.phase == BACKWARD:
            return reduce_scatter_steps(
                self.program, self.plan, unit, self.live_steps(point)[-1], unit_steps(unit, chosen)
            )
        return unit_steps(unit, chosen)
