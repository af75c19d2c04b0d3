"""The steps of a moment where weights are held split: those of its unit, and the transfers before and after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import sympy

from ledger.books.entries import Entry
from ledger.books.evaluate import Value
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.reduction_buffer import gradients_in_order
from ledger.books.memory.steps import Allocation, AnyAllocation, LiveStep, Running, tensors, weight_gradients
from ledger.books.memory.timeline import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    AliveCount,
    Moment,
    Timeline,
    post_stock,
    until_update,
)
from ledger.books.memory.transfers import CATEGORY, Buffers, Root, lasting_buffers, sets_after_backward
from ledger.books.parameter_traffic import AT_THE_END, ModuleSpan, Profile
from ledger.model.causes import INPUT, LOSS, OUTPUT, ROOT, Cause
from ledger.model.exchanges import gathers_again, sent_dtype
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.operations import ONE, ZERO
from ledger.model.program import Program
from ledger.model.tensors import sized
from ledger.model.unit import Unit
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Gathering:
    """The moments of one device whose weights are gathered for use and freed after it."""

    buffers: Buffers
    timeline: Timeline

    @property
    def root(self) -> Root:
        """The weights of the two ends of the model."""
        return Root(self.buffers, self.timeline)

    @property
    def adds(self) -> bool:
        """Whether a new gradient is added at once to one that is there, so that it does not last."""
        return self.buffers.added

    def lasting(self) -> Iterator[Entry]:
        """What stays from set to set of weights."""
        return lasting_buffers(self.buffers, self.timeline)

    def steps(
        self, point: Moment, unit: Unit, alive: Sequence[LiveTensors], running: Sequence[Running]
    ) -> Iterator[LiveStep]:
        """All steps of a moment; of those of the unit itself, `alive`, only the `running` ones."""
        gathers = self.forward if point.phase == FORWARD else self.backward
        arriving = tuple(tensors(unit, alive[0]))
        for name, allocations in gathers(point):
            yield LiveStep(name, (*arriving, *allocations))
        standing = tuple(self.allocations(point))
        for step in running:
            yield LiveStep(step.step, (*tensors(unit, step), *standing))
        if point.phase == BACKWARD:
            yield from self.reductions(point, unit, alive[-1])

    def forward(self, point: Moment) -> Iterator[tuple[str, tuple[Allocation, ...]]]:
        """The gather and the copy before a set runs: the output of the gather before is freed when both are over.

        FSDPParamGroup.wait_for_unshard drops the shared reference to it before the copy, but has one of its own.
        """
        name = self.buffers.of(point.unit)
        if name == ROOT and point.unit == INPUT:
            yield "the root is gathered", (*self.buffers.arriving(ROOT), *self.buffers.accumulated(ROOT))
        elif name != ROOT and point.surroundings.inside == 0:
            last = point.surroundings.before or (ROOT if self.root.has_weights else "")
            earlier = (self.buffers.gathered(last, ".before"),) if last else ()
            standing = (*self.root.allocations(point), *earlier)
            yield f"weights of {name} are gathered", (*standing, *self.buffers.arriving(name))
            copied_out = (
                self.buffers.gathered(name),
                self.buffers.gathered_weights(name),
                *self.buffers.unaligned_copy(name),
            )
            yield f"weights of {name} are copied out", (*standing, *copied_out)

    def backward(self, point: Moment) -> Iterator[tuple[str, tuple[Allocation, ...]]]:
        """The copy of what was gathered ahead, then the gather of the set that follows."""
        name, standing = self.buffers.of(point.unit), (*self.root.allocations(point), *self.pending(point))
        if name == ROOT and point.unit == OUTPUT and gathers_again(self.buffers.plan, ROOT):
            sums = tuple(self.buffers.accumulated(ROOT))
            yield "the root is gathered", (*self.buffers.arriving(ROOT), *sums)
            yield "the root is copied out", (self.buffers.gathered(ROOT), *standing)
        if name != ROOT and point.surroundings.inside == 0:
            standing = (*standing, *self.buffers.accumulated(name), self.buffers.gathered_weights(name))
            if self.buffers.again(name):
                gathered = (*standing, self.buffers.gathered(name), *self.buffers.unaligned_copy(name))
                yield f"weights of {name} are copied out", gathered
        if point.surroundings.inside == 0 and point.unit != LOSS:
            for ahead in self.sets_ahead(point):
                yield f"weights of {ahead} are gathered ahead", (*standing, *self.buffers.arriving(ahead, ".ahead"))

    def allocations(self, point: Moment) -> Iterator[Allocation]:
        """What stands beside the steps of a unit."""
        name = self.buffers.of(point.unit)
        yield from self.root.allocations(point)
        if name != ROOT:
            yield self.buffers.gathered_weights(name)
        if point.phase == FORWARD:
            if point.unit != LOSS:
                yield self.buffers.gathered(
                    name if name != ROOT else self.last_gathered(point.surroundings.before or ROOT)
                )
            return
        if point.unit != LOSS:
            yield from self.gathered_ahead(point)
        yield from self.pending(point)
        if name != ROOT:
            yield from self.buffers.accumulated(name)
            yield from self.left_inside(point)

    def last_gathered(self, name: str) -> str:
        """The set that forward gathers last, of those that move with these layers."""
        return name

    def stretches(self, point: Moment, unit: Unit, steps: Sequence[LiveTensors]) -> tuple[Sequence[LiveTensors], ...]:  # noqa: ARG002
        """All steps of a unit as one, since the same stands beside each."""
        return (steps,)

    def sets_ahead(self, point: Moment) -> Iterator[str]:
        """The set that backward gathers while this one runs."""
        if point.surroundings.after and self.buffers.again(point.surroundings.after):
            yield point.surroundings.after

    def gathered_ahead(self, point: Moment) -> Iterator[Allocation]:
        """The output of the gather of the set that follows."""
        for name in self.sets_ahead(point):
            yield self.buffers.gathered(name, ".ahead")

    def pending(self, point: Moment) -> Iterator[Allocation]:
        """The input of the reduction of the set before."""
        if point.phase == BACKWARD and point.surroundings.before:
            yield self.buffers.to_reduce(point.surroundings.before, ".before")

    def left_inside(self, point: Moment) -> Iterator[Allocation]:
        """Whole gradients of the layers of this set that backward left behind."""
        if point.surroundings.inside and not self.buffers.added:
            yield self.buffers.fresh(self.buffers.of(point.unit), times=sympy.Integer(point.surroundings.inside))

    def reductions(self, point: Moment, unit: Unit, after: LiveTensors) -> Iterator[LiveStep]:
        """The reduction after the last layer of a set; at the end of backward, that of the root."""
        name, written, buffers = self.buffers.of(point.unit), weight_gradients(unit), self.buffers
        results = tuple(tensors(unit, after, written))
        if name != ROOT and point.surroundings.closes:
            standing = (*results, *self.root.allocations(point), *self.gathered_ahead(point), buffers.to_reduce(name))
            gradients: tuple[AnyAllocation, ...]
            gradients = tuple(buffers.accumulated(name)) or (*self.fresh(unit, after), *self.left_inside(point))
            reordered = tuple(buffers.gradients_apart(name))
            yield LiveStep(
                f"whole gradients of {name} are copied for their reduction", (*standing, *gradients, *reordered)
            )
            yield LiveStep(
                f"gradients of {name} are reduced", (*standing, *buffers.reduced(name), *buffers.last_gradient(name))
            )
        if self.root.has_weights and point is self.last:
            standing = (*results, buffers.to_reduce(ROOT))
            gradients = tuple(buffers.accumulated(ROOT)) or (
                *self.root.gradients(point),
                *(self.fresh(unit, after) if name == ROOT else ()),
            )
            yield LiveStep("whole gradients of the root are copied for their reduction", (*standing, *gradients))
            yield LiveStep(
                "gradients of the root are reduced", (*standing, *buffers.reduced(ROOT), *buffers.last_gradient(ROOT))
            )

    def reduced(self, unit: Unit) -> AliveCount:
        """Layers of a unit whose gradients are reduced: those of sets that are through; of the root, at the end."""
        if self.buffers.of(unit.name) == ROOT:
            return lambda point: unit.count if point.phase == OPTIMIZER else ZERO
        through, done = self.timeline.through(unit.name), sets_after_backward(unit.name, ONE)
        return lambda point: through(point) if point.phase == OPTIMIZER else done(point)

    def fresh(self, unit: Unit, after: LiveTensors) -> Iterator[AnyAllocation]:
        """Whole gradients of the unit's weights, those aside that were there before it ran (of a tied embedding)."""
        written = weight_gradients(unit)
        before = {name for end in self.buffers.program.units if end.name == OUTPUT for name in weight_gradients(end)}
        new_names = written - before if unit.name == INPUT else written
        fresh = tuple(tensor for tensor in after.tensors if tensor.name in new_names)
        yield from tensors(unit, LiveTensors(after.step, fresh))

    @property
    def last(self) -> Moment:
        """The moment at which backward ends."""
        return [point for point in self.timeline.points if point.phase == BACKWARD][-1]


# --- weights gathered module by module ---

Place = tuple[bool, int, bool]  # whether it is of those rebuilt, which module, and whether that is over


@dataclass(frozen=True)
class ModuleGathering(Gathering):
    """The moments of one device whose modules gather their weights; what is there stands beside each moment."""

    @property
    def adds(self) -> bool:
        """A gradient of a weight is copied into the buffer as soon as it is there."""
        return True

    def stretches(self, point: Moment, unit: Unit, steps: Sequence[LiveTensors]) -> tuple[Sequence[LiveTensors], ...]:
        """The steps of a unit by the module that runs, or was the last to run."""
        placed = zip(self._places(point, unit, steps), steps, strict=True)
        return tuple(tuple(step for _, step in alike) for _, alike in groupby(placed, key=lambda pair: pair[0]))

    def steps(
        self, point: Moment, unit: Unit, alive: Sequence[LiveTensors], running: Sequence[Running]
    ) -> Iterator[LiveStep]:
        """The fullest step of each module; in backward, those at which a gradient finds the buffer full."""
        places = self._places(point, unit, alive)
        gathered = dict(zip((step.step for step in alive), self._allocations(point, unit, alive, places), strict=True))
        stretches = [place for place, _ in groupby(places)]
        first_steps = [alive[places.index(place)].step for place in stretches]
        for name, step in zip(first_steps, running, strict=True):
            yield LiveStep(step.step, (*tensors(unit, step), *gathered[name]))
        if point.phase == BACKWARD:
            yield from self._reductions(point, unit, alive, gathered)

    def _reductions(
        self, point: Moment, unit: Unit, alive: Sequence[LiveTensors], gathered: Mapping[str, tuple[Allocation, ...]]
    ) -> Iterator[LiveStep]:
        """The copies of what is in the buffer, beside the gradient that finds it full; the last one beside none."""
        profile, last = self._profile(point), alive[-1]
        for weight, step in gradients_in_order(unit, alive):
            for name, amount in profile.reduced:
                if name == weight.name:
                    allocations = (*tensors(unit, step), *gathered[step.step], _copy_allocation(amount))
                    yield LiveStep("a full buffer is reduced", allocations)
        for name, amount in profile.reduced:
            if name == AT_THE_END:
                allocations = (*tensors(unit, last), *gathered[last.step], _copy_allocation(amount))
                yield LiveStep("what is left in the buffer is reduced", allocations)

    def lasting(self) -> Iterator[Entry]:
        """Nothing stays from layer to layer but what stands beside each moment."""
        return iter(())

    def _profile(self, point: Moment) -> Profile:
        return point.surroundings.gathered or Profile()

    def _places(self, point: Moment, unit: Unit, steps: Sequence[LiveTensors]) -> list[Place]:
        """Of each step, the module that runs or ran last."""
        profile, again = self._profile(point), {operation.name for operation in unit.saving.again}
        rebuilding = point.phase == BACKWARD
        current: Place = (rebuilding and bool(profile.again), 0, False)
        places = []
        for step in steps:
            rebuilt = rebuilding and step.step in again
            spans = profile.again if rebuilt else profile.modules
            match = next((place for place, span in enumerate(spans) if _runs_in(step.step, span)), None)
            if match is not None:
                current = (rebuilt, match, False)
            elif step is not steps[0]:
                current = (rebuilt, current[1], True) if current[0] == rebuilt else (rebuilt, 0, False)
            places.append(current)
        return places

    def _allocations(
        self, point: Moment, unit: Unit, steps: Sequence[LiveTensors], places: Sequence[Place]
    ) -> Iterator[tuple[Allocation, ...]]:
        """What is gathered at each step, and a gradient that is larger than the buffer and waits for the next one."""
        profile, waits = self._profile(point), self._profile(point).entering
        larger, gradients = dict(profile.larger), {w.gradient.name: w.name for w in unit.weights if not w.frozen}
        seen: set[str] = set()
        for step, (rebuilt, place, is_over) in zip(steps, places, strict=True):
            spans = profile.again if rebuilt else profile.modules
            amount = (spans[place].after if is_over else spans[place].inside) if spans else 0
            why = "weights of the modules that run and of those that follow"
            gathered = Allocation(Cause(unit.name, "weights", state="gathered"), CATEGORY, sympy.Integer(amount), why)
            fresh = [gradients[t.name] for t in step.tensors if t.name in gradients and t.name not in seen]
            yield (gathered, _waiting_gradient(waits)) if waits else (gathered,)
            for name in fresh:
                seen.add(next(gradient for gradient, weight in gradients.items() if weight == name))
                waits = larger.get(name, 0)


def _copy_allocation(amount: int) -> Allocation:
    why = "gradients laid out by the ranks that keep them"
    return Allocation(Cause("gradients", "buffer", state="copy"), "workspace", sympy.Integer(amount), why)


def _waiting_gradient(amount: int) -> Allocation:
    why = "a gradient that the buffer has no room for, until the next one is there"
    return Allocation(Cause("gradients", "larger", state="whole"), "gradients", sympy.Integer(amount), why)


def small_weights(program: Program, plan: Plan, line: Timeline, value: Value) -> Iterator[Entry]:
    """Weights that are never let go before they are updated."""
    for name, count, weights in weights_by_unit(program.units):
        for weight in weights:
            if value(weight.elements()) <= plan.stack.persistent:
                amount, cause = sized(sent_dtype(plan), weight.elements()), Cause(name, weight.name, state="kept")
                why = "so small that it is let go for the update alone"
                yield from post_stock(line, cause, CATEGORY, amount, until_update(count), why)


def _runs_in(step: str, span: ModuleSpan) -> bool:
    """Whether a step is of a module."""
    return step == span.module or step.startswith(f"{span.module}.")
