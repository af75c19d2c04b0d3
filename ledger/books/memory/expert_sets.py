"""Routed experts as a set of their own within their layer, where they are shared over other devices than the rest.

fully_shard of the experts inside that of their layer: gathered when the experts run and freed after them, reduced
before the rest of the layer. Layers gather ahead what the next one needs, both sets of it, as torchtitan asks for
explicitly where experts are split (models/llama4/infra/parallelize.py, `apply_fsdp`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.books.memory.gathering import Gathering
from ledger.books.memory.liveness import LiveTensors, between
from ledger.books.memory.steps import Allocation, AnyAllocation, FullestLive, LiveStep, Running, tensors
from ledger.books.memory.timeline import FORWARD, Moment
from ledger.books.memory.transfers import INNER
from ledger.model.causes import INPUT, OUTPUT, ROOT
from ledger.model.collectives import Collective
from ledger.model.fsdp_units import FsdpUnit
from ledger.model.sharding import Sharding
from ledger.model.unit import Unit


def split_expert_sets(sets: Mapping[str, FsdpUnit], sharding: Sharding, layers: int) -> dict[str, FsdpUnit]:
    """The sets with those experts that move over other devices than their layer; none where many layers move as one."""
    sets_apart = dict(sets)
    for name, fsdp_unit in sets.items():
        parts = tuple((times, tuple(sharding.cut(weights))) for times, weights in fsdp_unit.parts)
        if layers == 1 and name != ROOT and any(weights for _, weights in parts):
            experts = {weight.name for _, weights in parts for weight in weights}
            shared = ((times, tuple(w for w in weights if w.name not in experts)) for times, weights in fsdp_unit.parts)
            sets_apart[name] = replace(fsdp_unit, parts=tuple(shared))
            sets_apart[name + INNER] = replace(fsdp_unit, parts=parts, experts=True)
    return sets_apart


@dataclass(frozen=True)
class ExpertGathering(Gathering):
    """The moments of a device some of whose layers have two sets of weights."""

    def stretches(self, point: Moment, unit: Unit, steps: Sequence[LiveTensors]) -> tuple[Sequence[LiveTensors], ...]:
        """The steps of a unit in parts: before its experts run, while they do, and after."""
        if not self.inner(point.unit):
            return (steps,)
        experts_run = self.span(unit, point.phase, steps)
        parts: dict[int, list[LiveTensors]] = {}
        for place, step in enumerate(steps):
            parts.setdefault(experts_run.stretch(place), []).append(step)
        return tuple(parts.values())

    def span(self, unit: Unit, phase: str, steps: Sequence[LiveTensors]) -> Span:
        """When in a pass the experts of a unit run."""
        return span(unit, phase, steps)

    def steps(
        self, point: Moment, unit: Unit, alive: Sequence[LiveTensors], running: Sequence[Running]
    ) -> Iterator[LiveStep]:
        """The steps of a moment; those of the ends of the model are as without experts."""
        if self.buffers.of(point.unit) == ROOT:
            yield from super().steps(point, unit, alive, running)
            return
        layer = ExpertLayer(self, point, unit, tuple(alive))
        yield from layer.forward(running) if point.phase == FORWARD else layer.backward(running)

    def inner(self, name: str) -> str:
        """The set of a layer's experts; none where it has none."""
        return name + INNER if name + INNER in self.buffers.fsdp_units else ""

    def both(self, name: str) -> tuple[str, ...]:
        """The sets of a layer."""
        return tuple(set_name for set_name in (name, self.inner(name)) if set_name)

    def last_gathered(self, name: str) -> str:
        """The set of a layer's experts where it has any, else the layer's own."""
        return self.both(name)[-1]

    def gathered_ahead(self, point: Moment) -> Iterator[Allocation]:
        """Of a layer both sets; the ends of the model gather one set ahead, as they are told nothing."""
        for name in self.sets_ahead(point):
            sets = (name,) if self.buffers.of(point.unit) == ROOT else self.both(name)
            yield from (self.buffers.gathered(set_name, ".ahead") for set_name in sets)


# --- a layer with routed experts at one moment of a step ---


@dataclass(frozen=True)
class ExpertLayer:
    """One layer at one moment: what it gathers, step by step."""

    gathering: ExpertGathering
    point: Moment
    unit: Unit
    live_tensors: tuple[LiveTensors, ...]

    @property
    def name(self) -> str:
        """The set of the layer's weights but its experts."""
        return self.gathering.buffers.of(self.point.unit)

    @property
    def experts(self) -> str:
        """The set of its experts; none where it has none, or runs none in this pass."""
        name = self.gathering.inner(self.name)
        return name if name and self.span.first < len(self.live_tensors) else ""

    @property
    def gathered_while_it_runs(self) -> tuple[str, ...]:
        """What is gathered while it runs."""
        after = self.point.surroundings.after
        gathers = self.point.phase == FORWARD or self.gathering.buffers.again(after)
        return self.gathering.both(after) if after and gathers else ()

    @property
    def arrives(self) -> bool:
        """Whether the layer's experts were gathered ahead with the rest of it: by a layer."""
        return self.point.surroundings.before not in ("", INPUT, OUTPUT)

    def forward(self, running: Sequence[Running]) -> Iterator[LiveStep]:
        """Both sets of this layer are copied out in their turn; each buffer is freed with the copy after its own."""
        buffers, root = self.gathering.buffers, tuple(self.gathering.root.allocations(self.point))
        last = self.point.surroundings.before or (ROOT if self.gathering.root.has_weights else "")
        early = (buffers.gathered(self.experts),) if self.experts and self.arrives else ()
        weights, gathered = buffers.gathered_weights(self.name), buffers.gathered(self.name)
        entering = (*tensors(self.unit, self.live_tensors[0]), *root)
        earlier = (buffers.gathered(self.gathering.last_gathered(last), ".before"),) if last else ()
        if not self.point.surroundings.before:
            allocations = (*entering, *earlier, *buffers.arriving(self.name))
            yield LiveStep(f"weights of {self.name} are gathered", allocations)
        copied = (*entering, *earlier, gathered, weights, *buffers.unaligned_copy(self.name), *early)
        yield LiveStep(f"weights of {self.name} are copied out", copied)
        yield from self.gathers((*entering, gathered, weights, *early), ".next")
        ahead = tuple(buffers.gathered(name, ".next") for name in self.gathered_while_it_runs)
        by_stretch = [(*root, weights, gathered, *early, *ahead)]
        if self.experts:
            arrived, experts = buffers.gathered(self.experts), buffers.gathered_weights(self.experts)
            yield from self.copies((*root, weights, gathered, *ahead), self.arrives)
            staying = () if buffers.again(self.name) else (experts,)
            by_stretch += [(), (*root, weights, arrived, experts, *ahead), (*root, weights, arrived, *staying, *ahead)]
        yield from self.run(running, by_stretch)

    def backward(self, running: Sequence[Running]) -> Iterator[LiveStep]:
        """The experts' gradients are reduced before those of the rest; each input is held to the next reduction."""
        buffers, root = self.gathering.buffers, tuple(self.gathering.root.allocations(self.point))
        again, pending = buffers.again(self.name), tuple(self.gathering.pending(self.point))
        sums = tuple(allocation for name in self.gathering.both(self.name) for allocation in buffers.accumulated(name))
        weights, experts = (
            buffers.gathered_weights(self.name),
            (buffers.gathered_weights(self.experts),) if self.experts else (),
        )
        early = (buffers.gathered(self.experts),) if self.experts and self.arrives and again else ()
        staying = early if again else experts
        lasting = (*root, *pending, *sums, weights, *staying)
        entering = tuple(tensors(self.unit, self.live_tensors[0]))
        if again:
            copied = (*entering, *lasting, buffers.gathered(self.name), *buffers.unaligned_copy(self.name))
            yield LiveStep(f"weights of {self.name} are copied out", copied)
        yield from self.gathers((*entering, *lasting), ".ahead")
        ahead = tuple(buffers.gathered(name, ".ahead") for name in self.gathered_while_it_runs)
        by_stretch = [(*lasting, *ahead)]
        if self.experts:
            standing = (*root, *pending, *sums, weights, *ahead)
            if again:
                yield from self.copies(standing, self.arrives)
            yield from self.reduction((*root, weights, *ahead, *buffers.accumulated(self.name)))
            after = (buffers.to_reduce(self.experts), *self.reduced(), *buffers.accumulated(self.name))
            arrived = (buffers.gathered(self.experts),) if again else ()  # a pass forward frees it with the next copy
            by_stretch += [(*standing, *experts, *arrived), (*standing, *experts), (*root, weights, *ahead, *after)]
        yield from self.run(running, by_stretch)
        shares = tuple(self.reduced()) if self.experts else ()
        for step in self.gathering.reductions(self.point, self.unit, self.left_by_backward):
            yield LiveStep(step.name, (*step.allocations, *shares))

    def gathers(self, live: tuple[AnyAllocation, ...], which: str) -> Iterator[LiveStep]:
        """The sets of the next layer, one after the other."""
        buffers = self.gathering.buffers
        for name in self.gathered_while_it_runs:
            yield LiveStep(f"weights of {name} are gathered ahead", (*live, *buffers.arriving(name, which)))
            live = (*live, buffers.gathered(name, which))

    def copies(self, live: tuple[AnyAllocation, ...], arrived: bool) -> Iterator[LiveStep]:
        """The experts are copied out, or gathered at once where that was not done ahead."""
        buffers, entering = (
            self.gathering.buffers,
            tuple(tensors(self.unit, between(self.live_tensors, self.span.first))),
        )
        if not arrived:
            yield LiveStep(
                f"weights of {self.experts} are gathered", (*entering, *live, *buffers.arriving(self.experts))
            )
        copied_out = (
            buffers.gathered(self.experts),
            buffers.gathered_weights(self.experts),
            *buffers.unaligned_copy(self.experts),
        )
        yield LiveStep(f"weights of {self.experts} are copied out", (*entering, *live, *copied_out))

    def reduction(self, live: tuple[AnyAllocation, ...]) -> Iterator[LiveStep]:
        """The whole gradients of the experts are copied, then reduced."""
        buffers, name = self.gathering.buffers, self.experts
        now = between(self.live_tensors, self.span.last + 1)
        unit_tensors = tuple(tensors(self.unit, now, self.written))
        allocations = (*unit_tensors, *live, buffers.to_reduce(name))
        sums: tuple[AnyAllocation, ...] = tuple(buffers.accumulated(name))
        gradients = sums or tuple(tensors(self.unit, now.only(self.written)))
        copied = (*allocations, *gradients, *buffers.gradients_apart(name))
        yield LiveStep(f"whole gradients of {name} are copied for their reduction", copied)
        yield LiveStep(f"gradients of {name} are reduced", (*allocations, *buffers.reduced(name)))

    def reduced(self) -> Iterator[Allocation]:
        """This device's share of the experts' gradients, which is posted with the layer once that is through."""
        buffers = self.gathering.buffers
        if buffers.batches == 1 or buffers.accumulates:
            yield tuple(buffers.reduced(self.experts))[-1]

    def run(self, running: Sequence[Running], by_stretch: Sequence[tuple[AnyAllocation, ...]]) -> Iterator[LiveStep]:
        """The steps of the layer itself, with what stands beside it in each stretch of them."""
        places = {id(step): place for place, step in enumerate(self.live_tensors)}
        for step in running:
            any_of_them = step.steps[0] if isinstance(step, FullestLive) else step
            stretch = self.span.stretch(places[id(any_of_them)]) if self.experts else 0
            freed = self.written if stretch == AFTER and self.point.phase != FORWARD else frozenset()
            yield LiveStep(step.step, (*tensors(self.unit, step, freed), *by_stretch[stretch]))

    @property
    def span(self) -> Span:
        """The steps of its experts."""
        return self.gathering.span(self.unit, self.point.phase, self.live_tensors)

    @property
    def written(self) -> frozenset[str]:
        """The gradients of the experts' weights."""
        parts = self.gathering.buffers.fsdp_units[self.experts].parts if self.experts else ()
        return frozenset(weight.gradient.name for _, weights in parts for weight in weights)

    @property
    def left_by_backward(self) -> LiveTensors:
        """What the layer's backward leaves, the experts' gradients aside."""
        last = self.live_tensors[-1]
        return LiveTensors(last.step, tuple(tensor for tensor in last.tensors if tensor.name not in self.written))


# --- the steps of a pass in which the routed experts run ---

REGION = "experts"
AFTER = 3


@dataclass(frozen=True)
class Span:
    """The steps of a pass between which a layer's experts run, `first` to `last`.

    What backward rebuilds of them before anything asks for their gradients, it rebuilds up to `rebuilt`.
    """

    first: int
    last: int
    rebuilt: int

    def stretch(self, place: int) -> int:
        """0 before the experts run, 1 while they are rebuilt, 2 while they run, `AFTER`."""
        return (place >= self.first) + (place >= self.first and place > self.rebuilt) + (place > self.last)


def span(unit: Unit, phase: str, steps: Sequence[LiveTensors]) -> Span:
    """Where the experts of a unit run; after all steps where a pass runs none of them.

    Backward begins with their gradients, or where they are rebuilt before those.
    """
    of_experts = {step.name for step in unit.written if REGION in step.region}
    written = [place for place, alive in enumerate(steps) if alive.step in of_experts]
    if phase == FORWARD:
        return Span(written[0], written[-1], written[0] - 1)
    results = {tensor.name for step in unit.written if REGION in step.region for tensor in step.outputs}
    transfers = (step for step in unit.written if isinstance(step, Collective) and step.inputs[0].name in results)
    gradients, with_transfers = [step.name for step in unit.backward], of_experts | {step.name for step in transfers}
    indices = [index for index, step in enumerate(unit.backward) if step.forward in with_transfers]
    if not indices:  # no gradient passes through them
        return Span(len(steps), len(steps) - 1, len(steps) - 1)
    places = {alive.step: place for place, alive in enumerate(steps)}
    before = max((places[name] for name in gradients[: indices[0]]), default=0)
    asked = before + 1
    early = bool(written) and written[0] < asked
    first = written[0] if early else asked
    return Span(first, places[gradients[indices[-1]]], written[-1] if early else first - 1)
