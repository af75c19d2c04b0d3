"""What sharing the weights costs a device: what it holds of them, and what it sends and updates, moment by moment.

What the layers themselves hold at a moment is only referred to, since it is the same for every way of sharing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy

from ledger.arithmetic.values import Amount, largest, maximum, parts_of, truncate
from ledger.books import posting
from ledger.books.bindings import bindings
from ledger.books.entries import STEP, Entry, Lifetime
from ledger.books.evaluate import Value, exact
from ledger.books.memory import holdings
from ledger.books.memory.expert_sets import ExpertGathering
from ledger.books.memory.expert_span import Span
from ledger.books.memory.gathering import Gathering
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.moments import Moments
from ledger.books.memory.passing import passes
from ledger.books.memory.steps import Allocation, Step, weight_gradients
from ledger.books.memory.timeline import Timeline
from ledger.books.overlap import computes, spent
from ledger.books.passes import UnitWork
from ledger.model.dims import Dim
from ledger.model.program import program
from ledger.model.schedule import Role
from ledger.model.tensors import Tensor
from ledger.model.units import Unit
from ledger.search.facts import UnsettledError
from ledger.search.tiles import (
    BEGINS,
    DONE,
    ENDS,
    ENTERS,
    FULLEST,
    STRETCHES,
    OnceWork,
    PassOf,
    expert_gradients,
    once_work,
    priced,
    sized,
    unit_works,
    whole_role,
)
from ledger.spec.plan import Plan

STATE = ("tensor", "context", "expert", "data", "replicate")  # the degrees that cut weights and their states
NAMES = (BEGINS, FULLEST, ENDS, ENTERS, DONE, *STRETCHES)
Reference = tuple[str, str, str]  # which of these, of the pass and unit
References = tuple[Reference, ...]
Parts = Mapping[str, Amount]  # bytes by category
Beside = tuple[References, Parts]  # what layers hold at a step, by name, and what stands beside it


@dataclass(frozen=True)
class PointFacts:
    """Bytes at one moment: those that last, and beside which sums of layers' own bytes how many more may stand."""

    lasting: Amount
    steps: Mapping[References, Amount]


@dataclass(frozen=True)
class PointParts:
    """The same by category, at the fullest of the steps beside the same bytes of layers."""

    lasting: Parts
    steps: Mapping[References, Parts]


@dataclass(frozen=True)
class UpdateTimes:
    """What a device does once a step: transfers and kernels for its gradients, and seconds of its update."""

    once: OnceWork
    optimizer: Amount


class Referring(Moments):
    """The moments of a step at which the layers' own bytes are names."""

    @cached_property
    def passes(self) -> Mapping[tuple[str, str], tuple[LiveTensors, ...]]:
        """Three steps of each unit and pass: as it begins, the fullest, and what is left beside weights' gradients."""
        found: dict[tuple[str, str], tuple[LiveTensors, ...]] = {}
        for name, unit in self.units.items():
            for phase, steps in passes(unit, added=self.adds):
                inner = isinstance(self.gathering, ExpertGathering) and self.gathering.inner(name)
                written = tuple(t for t in steps[-1].tensors if t.name in weight_gradients(unit))
                ends = LiveTensors(ENDS, (_named(ENDS), *written))
                within = _with_experts(unit, steps) if inner else (LiveTensors(FULLEST, (_named(FULLEST),)),)
                found[phase, name] = (LiveTensors(BEGINS, (_named(BEGINS),)), *within, ends)
        return found

    @cached_property
    def gathering(self) -> Gathering | None:
        """As of a real unit, but for when its experts run."""
        found = Moments(self.program, self.plan, self.line).gathering
        return Referring.Experts(found.buffers, found.line) if isinstance(found, ExpertGathering) else found

    class Experts(ExpertGathering):
        """Layers with experts whose own bytes are names."""

        def span(self, unit: Unit, phase: str, steps: Sequence[LiveTensors]) -> Span:  # noqa: ARG002
            """The third and the fourth of the steps are the experts', rebuilt and run."""
            return Span(2, 3, 2)


def _with_experts(unit: Unit, steps: Sequence[LiveTensors]) -> tuple[LiveTensors, ...]:
    """Steps before the experts, while they are rebuilt, while they run, and after."""
    enters, done = _named(ENTERS), _named(DONE)
    written = tuple(tensor for tensor in steps[-1].tensors if tensor.name in expert_gradients(unit))
    beside = ((enters,), (enters,), (done, *written), (done, *written))
    return tuple(LiveTensors(name, (*held, _named(name))) for name, held in zip(STRETCHES, beside, strict=True))


def _named(which: str) -> Tensor:
    return Tensor(which, (Dim(which, sympy.Symbol(which)),), "fp32")


def held_units(mine: Sequence[Unit], plan: Plan, role: Role) -> tuple[Unit, ...]:
    """The units that a role holds, of all that a plan has."""
    layers = {group.name: bool(count) for group, count in zip(plan.model.groups, role.layers, strict=True)}
    ends = {unit.name: role.first if place == 0 else role.last for place, unit in enumerate(mine)}
    return tuple(unit for unit in mine if layers.get(unit.group, ends[unit.name]))


@dataclass(frozen=True)
class Sharing:
    """A way of sharing weights: the plan that states it, its units, and how its gradients are summed.

    `several`: whether a step has more than one micro-batch.
    """

    plan: Plan
    units: tuple[Unit, ...]
    several: bool

    def placed(self, inputs: Mapping[str, Any]) -> Plan:
        """The plan at values of the degrees."""
        return sized(self.plan, inputs, count=2 if self.several else 1)


def any_moments(way: Sharing) -> Moments:
    """The moments of a device that holds the whole model: what they say of gradients holds for every device."""
    placed = way.placed({"data": 2 * way.plan.parallelism.expert})
    role = whole_role(placed)
    return Moments(program(placed, role, way.units), placed, Timeline((), {}))


def state_work(way: Sharing, role: Role, inputs: Mapping[str, Any]) -> dict[PassOf, UnitWork]:
    """What a micro-batch spends for weights and gradients, of one layer of each group, at one setting of degrees."""
    placed, single = way.placed(inputs), replace(role, layers=tuple(min(1, held) for held in role.layers))
    value = exact(bindings(placed, single))
    entries = (entry for entry in sharing_entries(way, single, placed, value) if entry.per != STEP)
    return dict(unit_works(priced(tuple(entries), placed, value), placed))


def update_times(way: Sharing, role: Role, inputs: Mapping[str, Any]) -> UpdateTimes:
    """What a device spends for weights and gradients once a step, at one setting of degrees and of its layers."""
    placed, held = way.placed(inputs), replace(role, layers=layers_of(role, inputs))
    value = exact(bindings(placed, held))
    entries = (entry for entry in sharing_entries(way, held, placed, value) if entry.per == STEP)
    rows = priced(tuple(entries), placed, value)
    optimizer = spent(row for row in rows if row.when == "optimizer" and computes(row))
    return UpdateTimes(once_work(rows), optimizer)


def sharing_entries(way: Sharing, role: Role, placed: Plan, value: Value) -> Iterator[Entry]:
    """What a role does for weights and gradients."""
    found = program(placed, role, held_units(way.units, way.plan, role))
    yield from posting.of_exchanges(found, placed, value)
    yield from posting.of_update(found, placed, value)
    yield from posting.of_host(found, placed)


def point_facts(way: Sharing, role: Role, line: Timeline, inputs: Mapping[str, Any]) -> tuple[PointFacts, ...]:
    """What a role holds at each moment beside what its layers do, at one setting of the degrees and of its layers."""
    points = _points(way, role, line, range(len(line.points)), inputs)
    return tuple(PointFacts(sum(lasting.values()), _most(steps)) for lasting, steps in points)


def point_parts(way: Sharing, role: Role, line: Timeline, place: int, inputs: Mapping[str, Any]) -> PointParts:
    """The same of one moment, by category."""
    ((lasting, steps),) = _points(way, role, line, (place,), inputs)
    return PointParts(lasting, _fullest(steps))


def _points(
    way: Sharing, role: Role, line: Timeline, places: Sequence[int], inputs: Mapping[str, Any]
) -> Iterator[tuple[Parts, Sequence[Beside]]]:
    """At moments: bytes that last, by category, and at the steps of what runs those beside bytes of layers."""
    plan, mine, placed = way.plan, way.units, way.placed(inputs)
    held = replace(role, layers=layers_of(role, inputs))
    found = program(placed, held, held_units(mine, plan, role))
    value = exact(bindings(placed, held))
    moments = Referring(found, placed, line)
    entries = (*holdings.of_weights(found, placed, line, value), *holdings.of_gradients(moments))
    wanted = [entry for entry in entries if entry.amount and entry.times and not set(places).isdisjoint(alive(entry))]
    stocks = [(alive(entry), entry.resource.category, held_bytes(entry, value)) for entry in wanted]
    for place in places:
        lasting: dict[str, Amount] = {}
        for there, category, amount in stocks:
            if place in there:
                lasting[category] = lasting.get(category, 0) + amount
        point = line.points[place]
        yield lasting, tuple(_steps(moments, point, value)) if point.unit in moments.units else ()


def _most(steps: Sequence[Beside]) -> dict[References, Amount]:
    """Of the steps beside the same bytes of layers, the most bytes more."""
    found: dict[References, Amount] = {}
    for references, parts in steps:
        amount = sum(parts.values())
        found[references] = maximum(found[references], amount) if references in found else amount
    return found


def _fullest(steps: Sequence[Beside]) -> dict[References, Parts]:
    """Of the steps beside the same bytes of layers, the fullest."""
    alike: dict[References, list[Parts]] = {}
    for references, parts in steps:
        alike.setdefault(references, []).append(parts)
    return {
        references: parts_of(largest(each, lambda parts: sum(parts.values())), each, lambda parts: parts)
        for references, each in alike.items()
    }


def _steps(moments: Moments, point: Any, value: Value) -> Iterator[Beside]:
    chosen = moments.alive(point)[1:-1]
    for step in moments.steps(point, chosen):
        yield _split(step, point.phase, value)


def _split(step: Step, phase: str, value: Value) -> Beside:
    references: list[Reference] = []
    parts: dict[str, Amount] = {}
    for each in step.held:
        if not isinstance(each, Allocation):
            raise UnsettledError
        if each.cause.name in NAMES:
            references.append((each.cause.name, phase, each.cause.unit))
        elif each.amount and each.times:
            amount = truncate(value(each.amount) * value(each.times))
            parts[each.category] = parts.get(each.category, 0) + amount
    return tuple(references), parts


def held_bytes(entry: Entry, value: Value) -> Amount:
    """Bytes of a stock."""
    return truncate(value(entry.amount) * value(entry.times))


def alive(entry: Entry) -> range:
    """The moments at which a stock is alive."""
    if not isinstance(entry.when, Lifetime):
        raise TypeError(f"{entry.account} is no stock")
    return range(entry.when.first, entry.when.last + 1)


def layers_of(role: Role, inputs: Mapping[str, Any]) -> tuple[Amount, ...]:
    """The layers of each group that a device holds, where a role holds any."""
    return tuple(inputs[f"layers.{place}"] if held else 0 for place, held in enumerate(role.layers))
