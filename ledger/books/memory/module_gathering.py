"""The steps of a moment where each module gathers its weights, and gradients are reduced out of a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import sympy

from ledger.books.entries import Entry
from ledger.books.evaluate import Value
from ledger.books.memory.gathering import Gathering
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.reduction_buffer import written
from ledger.books.memory.steps import Allocation, Running, Step, tensors
from ledger.books.memory.timeline import BACKWARD, Point, Timeline, posted, until_update
from ledger.books.memory.transfers import CATEGORY
from ledger.books.module_fetches import AT_THE_END, ModuleSpan, Profile
from ledger.model.causes import Cause
from ledger.model.exchanges import sent
from ledger.model.fsdp_units import wrapped
from ledger.model.program import Program
from ledger.model.tensors import sized
from ledger.model.units import Unit
from ledger.spec.plan import Plan

Place = tuple[bool, int, bool]  # whether it is of those rebuilt, which module, and whether that is over


@dataclass(frozen=True)
class ModuleGathering(Gathering):
    """The moments of one device whose modules gather their weights; what is there stands beside each moment."""

    @property
    def adds(self) -> bool:
        """A gradient of a weight is copied into the buffer as soon as it is there."""
        return True

    def stretches(self, point: Point, unit: Unit, steps: Sequence[LiveTensors]) -> tuple[Sequence[LiveTensors], ...]:
        """The steps of a unit by the module that runs, or was the last to run."""
        placed = zip(self._places(point, unit, steps), steps, strict=True)
        return tuple(tuple(step for _, step in alike) for _, alike in groupby(placed, key=lambda pair: pair[0]))

    def steps(
        self, point: Point, unit: Unit, alive: Sequence[LiveTensors], running: Sequence[Running]
    ) -> Iterator[Step]:
        """The fullest step of each module; in backward, those at which a gradient finds the buffer full."""
        places = self._places(point, unit, alive)
        beside = dict(zip((step.step for step in alive), self._beside(point, unit, alive, places), strict=True))
        stretches = [place for place, _ in groupby(places)]
        first = [alive[places.index(place)].step for place in stretches]
        for name, step in zip(first, running, strict=True):
            yield Step(step.step, (*tensors(unit, step), *beside[name]))
        if point.phase == BACKWARD:
            yield from self._reductions(point, unit, alive, beside)

    def _reductions(
        self, point: Point, unit: Unit, alive: Sequence[LiveTensors], beside: Mapping[str, tuple[Allocation, ...]]
    ) -> Iterator[Step]:
        """The copies of what is in the buffer, beside the gradient that finds it full; the last one beside none."""
        profile, last = self._profile(point), alive[-1]
        for weight, step in written(unit, alive):
            for name, amount in profile.reduced:
                if name == weight.name:
                    held = (*tensors(unit, step), *beside[step.step], _copied(amount))
                    yield Step("a full buffer is reduced", held)
        for name, amount in profile.reduced:
            if name == AT_THE_END:
                held = (*tensors(unit, last), *beside[last.step], _copied(amount))
                yield Step("what is left in the buffer is reduced", held)

    def lasting(self) -> Iterator[Entry]:
        """Nothing stays from layer to layer but what stands beside each moment."""
        return iter(())

    def _profile(self, point: Point) -> Profile:
        return point.beside.gathered or Profile()

    def _places(self, point: Point, unit: Unit, steps: Sequence[LiveTensors]) -> list[Place]:
        """Of each step, the module that runs or ran last."""
        profile, again = self._profile(point), {operation.name for operation in unit.kept.again}
        rebuilding = point.phase == BACKWARD
        current: Place = (rebuilding and bool(profile.again), 0, False)
        found = []
        for step in steps:
            rebuilt = rebuilding and step.step in again
            spans = profile.again if rebuilt else profile.modules
            match = next((place for place, span in enumerate(spans) if _of(step.step, span)), None)
            if match is not None:
                current = (rebuilt, match, False)
            elif step is not steps[0]:
                current = (rebuilt, current[1], True) if current[0] == rebuilt else (rebuilt, 0, False)
            found.append(current)
        return found

    def _beside(
        self, point: Point, unit: Unit, steps: Sequence[LiveTensors], places: Sequence[Place]
    ) -> Iterator[tuple[Allocation, ...]]:
        """What is gathered at each step, and a gradient that is larger than the buffer and waits for the next one."""
        profile, waits = self._profile(point), self._profile(point).entering
        larger, gradients = dict(profile.larger), {w.gradient.name: w.name for w in unit.weights if not w.frozen}
        seen: set[str] = set()
        for step, (rebuilt, place, over) in zip(steps, places, strict=True):
            spans = profile.again if rebuilt else profile.modules
            amount = (spans[place].after if over else spans[place].inside) if spans else 0
            why = "weights of the modules that run and of those that follow"
            gathered = Allocation(Cause(unit.name, "weights", state="gathered"), CATEGORY, sympy.Integer(amount), why)
            fresh = [gradients[t.name] for t in step.tensors if t.name in gradients and t.name not in seen]
            yield (gathered, _waiting(waits)) if waits else (gathered,)
            for name in fresh:
                seen.add(next(gradient for gradient, weight in gradients.items() if weight == name))
                waits = larger.get(name, 0)


def _copied(amount: int) -> Allocation:
    why = "gradients laid out by the ranks that keep them"
    return Allocation(Cause("gradients", "buffer", state="copy"), "workspace", sympy.Integer(amount), why)


def _waiting(amount: int) -> Allocation:
    why = "a gradient that the buffer has no room for, until the next one is there"
    return Allocation(Cause("gradients", "larger", state="whole"), "gradients", sympy.Integer(amount), why)


def small_weights(program: Program, plan: Plan, line: Timeline, value: Value) -> Iterator[Entry]:
    """Weights that are never let go before they are updated."""
    for name, count, weights in wrapped(program.units):
        for weight in weights:
            if value(weight.elements()) <= plan.stack.persistent:
                amount, cause = sized(sent(plan), weight.elements()), Cause(name, weight.name, state="kept")
                why = "so small that it is let go for the update alone"
                yield from posted(line, cause, CATEGORY, amount, until_update(count), why)


def _of(step: str, span: ModuleSpan) -> bool:
    """Whether a step is of a module."""
    return step == span.module or step.startswith(f"{span.module}.")
