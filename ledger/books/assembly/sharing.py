"""Facts of sharing: what a stage spends on the weights of its layers and holds of them, step by step.

They belong to a stage: what is reduced in buckets or gathered in a queue is no sum over layers. What the layers hold
themselves is only referred to, by the labels of `units`, since it is the same for every way of sharing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ledger.arithmetic.values import Amount, largest, maximum, truncate
from ledger.books import posting
from ledger.books.assembly.units import (
    ALL,
    BEGINS,
    DONE,
    ENTERS,
    FULLEST,
    LEFT,
    STRETCHES,
    WROTE,
    Live,
    Parts,
    Sums,
    expert_gradients,
    placeholder_tensor,
    priced_entries,
    sums_of,
)
from ledger.books.assembly.work import PassOf, StepWork, UnitWork, step_work, unit_works
from ledger.books.compiled_roles import CompiledRole
from ledger.books.counts import per_device
from ledger.books.entries import MICRO_BATCH, STEP, Ledger, Lifetime, nonzero
from ledger.books.evaluate import Value
from ledger.books.memory import holdings, optimizer
from ledger.books.memory.expert_sets import ExpertGathering, Span, span
from ledger.books.memory.gathering import Gathering
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.moments import Moments
from ledger.books.memory.peak import add, bytes_of_stocks
from ledger.books.memory.reduction_buffer import Written, gradients_in_order
from ledger.books.memory.steps import Allocation, LiveStep, passes_with_live_tensors, pick_parts, weight_gradients
from ledger.books.memory.timeline import Moment, Timeline
from ledger.books.totals import static
from ledger.model.program import Program
from ledger.model.schedule import Role, micro_batches
from ledger.model.tensors import Tensor
from ledger.model.unit import Unit
from ledger.spec.plan import Plan

Reference = tuple[str, str, str]  # a label of what is alive, of a pass and a unit
References = tuple[Reference, ...]
WITH_EXPERTS = 2 + len(STRETCHES)  # steps of a pass that runs experts
LABELS = (BEGINS, FULLEST, LEFT, ENTERS, DONE, *STRETCHES)


# --- seconds and sums ---


@dataclass(frozen=True)
class SharingTimes:
    """What a stage does for the weights that it shares: by pass and unit in a micro-batch, and once a step."""

    work: Mapping[PassOf, UnitWork]
    once: StepWork


@dataclass(frozen=True)
class SharingSums:
    """What a stage spends on shared weights in a micro-batch and once a step, and what it holds of them, by total."""

    recurring: Sums
    once: Sums
    static: Mapping[str, Amount]
    parameters: Amount


def sharing_times(plan: Plan, program: Program, value: Value) -> SharingTimes:
    """Seconds that a stage spends on sharing weights, at one setting of the degrees."""
    rows = priced_entries(posting.of_sharing(program, plan, value), plan, value)
    return SharingTimes(dict(unit_works(rows, plan)), step_work(rows, plan))


def sharing_sums(plan: Plan, role: Role, program: Program, value: Value) -> SharingSums:
    """What a stage spends on sharing weights, and holds of them, at one setting of the degrees."""
    entries, count = tuple(posting.of_sharing(program, plan, value)), micro_batches(plan)
    recurring = sums_of((entry for entry in entries if entry.per == MICRO_BATCH), plan, value)
    once = [entry for entry in entries if entry.per == STEP]
    once += posting.of_weights_on_host(program, plan, value)
    line = Timeline((), {})
    states = nonzero(optimizer.optimizer_states(program, plan, line.all_moments, value))
    book = CompiledRole(role, program, Ledger("", states), value, line)
    in_one = {key: amount / count for key, amount in recurring.items()}
    return SharingSums(in_one, sums_of(once, plan, value), dict(static(plan, book)), per_device(book))


# --- memory ---


@dataclass(frozen=True)
class PointFacts:
    """Bytes by category at one moment: those that last, and beside which of layers' own bytes how many more stand.

    Of the steps beside the same bytes of layers, it is the fullest.
    """

    lasting: dict[str, Amount]
    steps: Mapping[References, Parts]


class Referring(Moments):
    """The moments of a step at which the layers' own bytes are labels."""

    @cached_property
    def passes(self) -> Mapping[tuple[str, str], tuple[LiveTensors, ...]]:
        """A few steps of each unit and pass: as it begins, the fullest, and what is left beside weights' gradients."""
        steps_of_pass: dict[tuple[str, str], tuple[LiveTensors, ...]] = {}
        for name, unit in self.units.items():
            for phase, steps in passes_with_live_tensors(unit, added=self.adds):
                inner = isinstance(self.gathering, ExpertGathering) and bool(self.gathering.inner(name))
                gradients = tuple(t for t in steps[-1].tensors if t.name in weight_gradients(unit))
                end = LiveTensors(LEFT, (placeholder_tensor(LEFT), *gradients))
                inner = inner and span(unit, phase, steps).first < len(steps)
                middle = (
                    _with_experts(unit, steps) if inner else (LiveTensors(FULLEST, (placeholder_tensor(FULLEST),)),)
                )
                steps_of_pass[phase, name] = (LiveTensors(BEGINS, (placeholder_tensor(BEGINS),)), *middle, end)
        return steps_of_pass

    @cached_property
    def gathering(self) -> Gathering | None:
        """The gathering of a real unit, but for when its experts run."""
        real = Moments(self.program, self.plan, self.timeline).gathering
        return _ExpertsByLabel(real.buffers, real.timeline) if isinstance(real, ExpertGathering) else real

    @cached_property
    def labels(self) -> frozenset[str]:
        """The labels that stand for bytes of layers."""
        weights = (weight for unit in self.units.values() for weight in unit.weights)
        return frozenset((*LABELS, *(WROTE + weight.name for weight in weights)))

    def written(self, point: Moment) -> Sequence[Written]:
        """The weights of a unit in the order of their gradients, what is there beside each by its label."""
        unit = self.units[point.unit]
        return tuple(
            (weight, LiveTensors(WROTE + weight.name, (placeholder_tensor(WROTE + weight.name), weight.gradient)))
            for weight in written_weights(unit, added=self.adds)
        )


class _ExpertsByLabel(ExpertGathering):
    """Layers with experts whose own bytes are labels."""

    def span(self, unit: Unit, phase: str, steps: Sequence[LiveTensors]) -> Span:  # noqa: ARG002
        """The third and the fourth of the steps are the experts', rebuilt and run; after all where a pass runs none."""
        return Span(2, 3, 2) if len(steps) == WITH_EXPERTS else Span(len(steps), len(steps) - 1, len(steps) - 1)


def written_weights(unit: Unit, *, added: bool) -> tuple[Tensor, ...]:
    """The trained weights of a unit in the order of their gradients."""
    steps = dict(passes_with_live_tensors(unit, added=added))["backward"]
    return tuple(weight for weight, _ in gradients_in_order(unit, steps))


def _with_experts(unit: Unit, steps: Sequence[LiveTensors]) -> tuple[LiveTensors, ...]:
    """Steps before the experts, while they are rebuilt, while they run, and after."""
    enters, done = placeholder_tensor(ENTERS), placeholder_tensor(DONE)
    gradients = tuple(tensor for tensor in steps[-1].tensors if tensor.name in expert_gradients(unit))
    alive = ((enters,), (enters,), (done, *gradients), (done, *gradients))
    return tuple(
        LiveTensors(label, (*live, placeholder_tensor(label))) for label, live in zip(STRETCHES, alive, strict=True)
    )


def point_facts(
    plan: Plan, program: Program, value: Value, line: Timeline, *, by_category: bool
) -> tuple[PointFacts, ...]:
    """What a stage holds at each moment beside what its layers do; unless `by_category`, all bytes are of one."""
    moments = Referring(program, plan, line)
    return tuple(
        PointFacts(
            lasting if by_category else {ALL: sum(lasting.values())},
            _fullest(moments, point, value, by_category=by_category) if point.unit in moments.units else {},
        )
        for point, lasting in zip(line.points, _lasting_bytes(moments, value), strict=True)
    )


def _lasting_bytes(moments: Moments, value: Value) -> list[dict[str, Amount]]:
    """What a stage holds of weights, states and gradients at each moment, by category."""
    program, plan, line = moments.program, moments.plan, moments.timeline
    entries = (*holdings.of_weights(program, plan, line, value), *holdings.of_gradients(moments))
    stocks = (
        (entry.when, entry.resource.category, truncate(value(entry.amount) * value(entry.times)))
        for entry in entries
        if entry.amount and entry.times and isinstance(entry.when, Lifetime)
    )
    return bytes_of_stocks(stocks, len(line.points))


def gradients_add(plan: Plan, program: Program) -> bool:
    """Whether a new gradient is added at once to one that is there."""
    return Moments(program, plan, Timeline((), {})).adds


def _fullest(moments: Referring, point: Moment, value: Value, *, by_category: bool) -> dict[References, Parts]:
    """The fullest step of a moment beside each set of layers' own bytes, which are by reference."""
    alternatives: dict[References, list[Parts]] = {}
    for step in moments.steps(point, moments.live_steps(point)[1:-1]):
        references, parts = _references_and_bytes(step, point.phase, value, moments.labels)
        alternatives.setdefault(references, []).append(parts if by_category else {ALL: sum(parts.values())})
    return {references: fullest_step(steps) for references, steps in alternatives.items()}


def _references_and_bytes(step: LiveStep, phase: str, value: Value, labels: frozenset[str]) -> tuple[References, Parts]:
    references: list[Reference] = []
    parts: dict[str, Amount] = {}
    for allocation in step.allocations:
        if not isinstance(allocation, Allocation):
            raise TypeError(f"which step of {step.name} is the fullest is not known")
        if allocation.cause.name in labels:
            references.append((allocation.cause.name, phase, allocation.cause.unit))
        elif allocation.amount and allocation.times:
            amount = truncate(value(allocation.amount) * value(allocation.times))
            parts[allocation.category] = parts.get(allocation.category, 0) + amount
    return tuple(references), parts


def point_bytes(facts: PointFacts, live: Live) -> Parts:
    """Bytes by category at a moment: what lasts, and the fullest step with what layers hold meanwhile."""
    steps = []
    for references, parts in facts.steps.items():
        step_bytes = dict(parts)
        for label, phase, unit in references:
            add(step_bytes, live[phase, unit][label])
        steps.append(step_bytes)
    moment = dict(facts.lasting)
    add(moment, fullest_step(steps))
    return moment


def fullest_step(steps: Sequence[Parts]) -> Parts:
    """The step with most bytes, by category; nothing of no steps."""
    if not steps:
        return {}
    if all(parts.keys() == {ALL} for parts in steps):
        return {ALL: maximum(*(parts[ALL] for parts in steps))}
    return pick_parts(largest(steps, lambda parts: sum(parts.values())), steps)
