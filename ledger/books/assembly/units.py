"""Facts of a unit: what one layer of a group, or an end of the model, computes, sends, saves and holds.

They are the same however its weights are shared and however layers are dealt out to stages. Each function takes units
of which there is one each, a plan whose sizes are exact numbers or values of a trace, and what evaluates formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import sympy

from ledger.arithmetic.values import Amount, is_plain, largest, truncate
from ledger.books import posting
from ledger.books.assembly.work import PASSES, PassOf, StepWork, UnitWork, longest_send, step_work, unit_works
from ledger.books.entries import MICRO_BATCH, STEP, Entry, Ledger, Lifetime, nonzero
from ledger.books.evaluate import Value
from ledger.books.kernels import price_calls
from ledger.books.memory import holdings
from ledger.books.memory.expert_sets import AFTER, span
from ledger.books.memory.liveness import LiveTensors, between
from ledger.books.memory.outside import attention_workspace
from ledger.books.memory.reduction_buffer import gradients_in_order
from ledger.books.memory.steps import (
    categories,
    outlives_unit,
    passes_with_live_tensors,
    pick_parts,
    weight_gradients,
    widest_places,
)
from ledger.books.memory.timeline import BACKWARD, FORWARD, Timeline
from ledger.books.results import KernelTime
from ledger.books.step_sums import spending, step_sums
from ledger.model.dims import Dim
from ledger.model.exchanges import drains
from ledger.model.operations import ONE
from ledger.model.program import Program, sends
from ledger.model.schedule import Role
from ledger.model.sharding import EXPERT, Sharding
from ledger.model.tensors import Tensor
from ledger.model.unit import Unit
from ledger.spec.plan import Plan

TOTAL = "total"  # begins the keys of sums that are part of a total, which is the second part
Sums = Mapping[tuple[str, ...], Amount]
PASS_OF = {phase: name for name, phases in PASSES.items() for phase in phases}


def single(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """The units, as a device would run them that holds one of each."""
    return tuple(replace(unit, count=ONE) for unit in units)


def any_stage(plan: Plan, layers: Sequence[Amount] = ()) -> Role:
    """A stage that holds both ends of the model and one layer of each group, or so many, and sends once."""
    counts = tuple(layers) or (1,) * len(plan.model.groups)
    sent = 1 if plan.parallelism.pipeline > 1 else 0
    return Role("all", (0,), 1, counts, True, True, Fraction(1), 0, sent, sent)


def priced_entries(entries: Iterable[Entry], plan: Plan, value: Value) -> list[KernelTime]:
    """The kernels and transfers of some entries with their prices."""
    return list(price_calls(Ledger("", nonzero(entries)), plan, value))


def _unit_entries(plan: Plan, units: Sequence[Unit]) -> tuple[Entry, ...]:
    """What units compute and send, all but what goes from stage to stage."""
    passed_on = (entry for entry in posting.of_sends(sends(plan, any_stage(plan))) if not _is_stage_send(entry))
    return *posting.of_units(units, plan), *posting.of_host_activations(units), *passed_on


def _is_stage_send(entry: Entry) -> bool:
    return entry.resource.axis == "pipeline"


def _send_entries(plan: Plan) -> tuple[Entry, ...]:
    """What goes from stage to stage, each once in a micro-batch."""
    return tuple(entry for entry in posting.of_sends(sends(plan, any_stage(plan))) if _is_stage_send(entry))


# --- time ---


@dataclass(frozen=True)
class UnitTimes:
    """The work of each unit, by pass, in one micro-batch, and by unit once a step."""

    work: Mapping[PassOf, UnitWork]
    once: Mapping[str, StepWork]


def unit_times(plan: Plan, units: Sequence[Unit], value: Value) -> UnitTimes:
    """What each unit takes; those that do nothing once a step have no work there."""
    rows = priced_entries(_unit_entries(plan, units), plan, value)
    late = dict.fromkeys(row.cause.unit for row in rows if row.per == STEP)
    once = {name: step_work([row for row in rows if row.cause.unit == name], plan) for name in late}
    return UnitTimes(dict(unit_works(rows, plan)), once)


def send_seconds(plan: Plan, value: Value) -> Amount:
    """Seconds of the longest transfer to another stage."""
    return longest_send(priced_entries(_send_entries(plan), plan, value))


# --- sums ---


@dataclass(frozen=True)
class UnitSums:
    """What kernels and transfers of each unit add up to, by pass in a micro-batch, and once a step.

    `on_host`: bytes of activations and batches that wait in host memory, by unit and how many of them there are.
    """

    passes: Mapping[PassOf, Sums]
    once: Mapping[str, Sums]
    on_host: Mapping[tuple[str, sympy.Expr], Amount]


def sums_of(entries: Iterable[Entry], plan: Plan, value: Value) -> Sums:
    """What entries add up to: of kernels and transfers, and by the total that they are part of."""
    listed = tuple(entries)
    spent = spending(Ledger("", nonzero(listed)), value)
    return {
        **step_sums(priced_entries(listed, plan, value)),
        **{(TOTAL, name): amount for name, amount in spent.items()},
    }


def unit_sums(plan: Plan, units: Sequence[Unit], value: Value) -> UnitSums:
    """What each unit spends; `units` with the counts that they have on a device."""
    entries, on_host = _unit_entries(plan, single(units)), dict[tuple[str, sympy.Expr], Amount]()
    for entry in posting.of_units_on_host(units, plan):
        held = entry.cause.unit, entry.times
        on_host[held] = on_host.get(held, 0) + value(entry.amount)
    once: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.per == STEP:
            once.setdefault(entry.cause.unit, []).append(entry)
    late = {name: sums_of(entries_of_unit, plan, value) for name, entries_of_unit in once.items()}
    return UnitSums(sums_by_pass(entries, plan, value), late, on_host)


def sums_by_pass(entries: Iterable[Entry], plan: Plan, value: Value) -> dict[PassOf, Sums]:
    """What recurs with every micro-batch, by pass and unit."""
    recurring: dict[PassOf, list[Entry]] = {}
    for entry in entries:
        if entry.per == MICRO_BATCH:
            recurring.setdefault((PASS_OF[str(entry.when)], entry.cause.unit), []).append(entry)
    return {key: sums_of(entries_of_pass, plan, value) for key, entries_of_pass in recurring.items()}


def sent_sums(plan: Plan, value: Value) -> Mapping[str, Sums]:
    """What goes from stage to stage in a micro-batch, by pass."""
    return {name: sums for (name, _), sums in sums_by_pass(_send_entries(plan), plan, value).items()}


# --- memory ---

# Labels of what is alive in one pass of a unit: as it begins, at the fullest step, at the end but weights' gradients.
# Of a layer with experts also as these begin and when they are done, and at the fullest steps before, while they are
# rebuilt, while they run and after, less what `ENTERS` or `DONE` and the experts' own gradients are.
BEGINS, FULLEST, LEFT, ENTERS, DONE = "live.begins", "live.fullest", "live.left", "live.enters", "live.done"
STRETCHES = ("live.before", "live.rebuilt", "live.experts", "live.after")
WROTE = "live.wrote."  # begins the label of what is there when a weight's gradient is, that gradient aside
ALL = ""  # the category of all bytes, where none is told apart
NEVER = -1e30  # bytes of a step that there is not

Parts = Mapping[str, Amount]  # bytes by category
Live = Mapping[PassOf, Mapping[str, Parts]]
# Stocks by first and last moment, how many of them there are, and their category.
Stock = tuple[int, int, sympy.Expr, str]
Stocks = Mapping[Stock, tuple[Amount, ...]]


def unit_live(plan: Plan, units: Sequence[Unit], value: Value, *, added: bool, by_category: bool) -> Live:
    """What is alive in each pass of each unit, as far as no other unit holds it, by label and category.

    `added`: whether gradients are added at once to those that are there. Unless `by_category`, all bytes are of one.
    """
    drained = drains(plan)
    return {
        (phase, unit.name): dict(
            _live_parts(unit, phase, steps, value, categories(unit) if by_category else lambda _: ALL, drained)
        )
        for unit in units
        if unit.forward
        for phase, steps in passes_with_live_tensors(unit, added=added)
    }


def _live_parts(  # noqa: PLR0913 - the facts of one pass
    unit: Unit, phase: str, steps: Sequence[LiveTensors], value: Value, category: Callable[[Tensor], str], drained: bool
) -> Iterator[tuple[str, Parts]]:

    def live_bytes(step: LiveTensors, excluded: frozenset[str] = frozenset()) -> Parts:
        parts: dict[str, Amount] = {}
        for tensor in step.tensors:
            if not outlives_unit(tensor) and tensor.name not in excluded:
                name = category(tensor)
                parts[name] = parts.get(name, 0) + truncate(value(tensor.bytes()))
        return parts

    def fullest(among: Sequence[LiveTensors], excluded: frozenset[str] = frozenset()) -> Parts:
        return _fullest_parts(among, value, lambda step: live_bytes(step, excluded))

    yield BEGINS, live_bytes(steps[0])
    yield FULLEST, fullest(steps)
    yield LEFT, live_bytes(steps[-1], weight_gradients(unit))
    if drained and phase == BACKWARD:
        for weight, step in gradients_in_order(unit, steps):
            yield WROTE + weight.name, live_bytes(step, frozenset({weight.gradient.name}))
    experts = expert_gradients(unit)
    if not experts:
        return
    experts_run = span(unit, phase, steps)
    if experts_run.first >= len(steps):  # no gradient passes through them
        return
    enters, done = live_bytes(between(steps, experts_run.first)), between(steps, experts_run.last + 1)
    remaining, expert_bytes = live_bytes(done, experts), live_bytes(done.only(experts))
    yield ENTERS, enters
    yield DONE, remaining
    freed = experts if phase != FORWARD else frozenset[str]()
    already_counted = (enters, enters, _parts_sum(remaining, expert_bytes), remaining)
    for stretch, (label, counted) in enumerate(zip(STRETCHES, already_counted, strict=True)):
        among = [step for place, step in enumerate(steps) if experts_run.stretch(place) == stretch]
        excluded = freed if stretch == AFTER else frozenset[str]()
        yield label, _parts_difference(fullest(among, excluded), counted) if among else {ALL: NEVER}


def _fullest_parts(steps: Sequence[LiveTensors], value: Value, live_bytes: Callable[[LiveTensors], Parts]) -> Parts:
    """What the fullest step holds; one all of whose tensors are alive at another one is never the fullest alone."""
    sets = [frozenset(id(tensor) for tensor in step.tensors) for step in steps]
    widest = widest_places(sets)
    sizes = {id(tensor): truncate(value(tensor.bytes())) for place in widest for tensor in steps[place].tensors}
    fullest = largest(widest, lambda place: sum(sizes[id(tensor)] for tensor in steps[place].tensors))
    if is_plain(fullest):
        return live_bytes(steps[widest[fullest]])
    return pick_parts(fullest, [live_bytes(steps[place]) for place in widest])


def _parts_sum(parts: Parts, addends: Parts) -> Parts:
    return {name: parts.get(name, 0) + addends.get(name, 0) for name in {**parts, **addends}}


def _parts_difference(parts: Parts, subtrahends: Parts) -> Parts:
    return {name: parts.get(name, 0) - subtrahends.get(name, 0) for name in {**parts, **subtrahends}}


def expert_gradients(unit: Unit) -> frozenset[str]:
    """The gradients of a unit's weights of which other devices hold other experts."""
    split_by_expert = (weight for weight in unit.weights if any(axis == EXPERT for _, axis in weight.split))
    return frozenset(weight.gradient.name for weight in split_by_expert)


def unit_stocks(plan: Plan, units: Sequence[Unit], value: Value, line: Timeline, *, by_category: bool) -> Stocks:
    """What units hold from moment to moment; how many layers and micro-batches do stays a formula."""
    stocks: dict[Stock, tuple[Amount, ...]] = {}
    for entry in holdings.of_layers(Program(tuple(units), (), (), Sharding(0, ())), plan, line):
        if entry.amount and entry.times and isinstance(entry.when, Lifetime):
            category = entry.resource.category if by_category else ALL
            key = entry.when.first, entry.when.last, entry.times, category
            stocks[key] = (*stocks.get(key, ()), value(entry.amount))
    return stocks


def unit_workspaces(units: Sequence[Unit], value: Value) -> Mapping[str, Amount]:
    """Bytes that the attention kernel of each unit's backward allocates."""
    return {unit.name: truncate(value(attention_workspace(unit))) for unit in units}


def placeholder_tensor(label: str) -> Tensor:
    """A stand-in for what is alive under a label: its bytes are looked up by its name."""
    return Tensor(label, (Dim(label, sympy.Symbol(label)),), "fp32")
