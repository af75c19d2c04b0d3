"""What the layers of a layout compute, send and hold, by the sizes that cut one micro-batch: a tile of the model.

It is the same whatever shares the weights and however the layers are dealt out to stages, so it is computed for one
layer of each group, and for one micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import sympy

from ledger.arithmetic.values import Amount, largest, largest_of, pick, truncate
from ledger.books import posting
from ledger.books.bindings import bindings
from ledger.books.entries import MICRO_BATCH, Entry, Ledger, Lifetime, nonzero
from ledger.books.evaluate import Value, exact
from ledger.books.kernels import kernel_calls, price_call
from ledger.books.memory import holdings
from ledger.books.memory.expert_span import AFTER, span
from ledger.books.memory.liveness import LiveTensors
from ledger.books.memory.outside import temporaries
from ledger.books.memory.passing import categories, passes, standing
from ledger.books.memory.steps import weight_gradients
from ledger.books.memory.timeline import FORWARD, Timeline
from ledger.books.overlap import computes
from ledger.books.passes import PASSES, StepWork, UnitWork, step_work, unit_work
from ledger.books.results import KernelTime
from ledger.model.fused_attention import AttentionBackward
from ledger.model.operations import total
from ledger.model.program import Program, sends
from ledger.model.schedule import Role, schedule
from ledger.model.sharding import EXPERT, Sharding
from ledger.model.tensors import Tensor
from ledger.model.units import Unit, builder, units
from ledger.spec.plan import Plan

TILE = ("tensor", "context", "expert", "micro_batch")  # the sizes that cut a tile
PassOf = tuple[str, str]  # forward or backward, and the unit
Counts = Callable[[Tensor], bool]


# Bytes alive in one pass of a unit: as it begins, at the fullest step, at the end but weights' gradients. Of a layer
# with experts also: as these begin and when they are done, and at the fullest steps before, while they are rebuilt,
# while they run and after, less what `ENTERS` or `DONE` and the experts' own gradients are.
BEGINS, FULLEST, ENDS, ENTERS, DONE = "live.begins", "live.fullest", "live.ends", "live.enters", "live.done"
STRETCHES = ("live.before", "live.rebuilt", "live.experts", "live.after")
NEVER = -1e30  # bytes of a step that there is not


@dataclass(frozen=True)
class OnceWork:
    """What a unit does once a step: its transfers, and seconds of its kernels by phase."""

    transfers: StepWork
    computed: Mapping[str, Amount]


@dataclass(frozen=True)
class TileTimes:
    """What one layer of each group, and each end of the model, takes in one micro-batch, and once a step."""

    work: Mapping[PassOf, UnitWork]
    once: Mapping[str, OnceWork]


@dataclass(frozen=True)
class TileFacts:
    """What one layer of each group, and each end of the model, holds.

    `live` by pass, unit and whether gradients are added to. `workspace`: bytes that the attention of a unit's backward
    allocates for itself.
    """

    live: Mapping[tuple[str, str, bool], Mapping[str, Amount]]
    workspace: Mapping[str, Amount]


def whole_role(plan: Plan, layers: Sequence[Amount] = (), *, first: bool = True, last: bool = True) -> Role:
    """A device that holds one layer of each group (or so many), and ends of the model."""
    counts = tuple(layers) or (1,) * len(plan.model.groups)
    sent = 1 if plan.parallelism.pipeline > 1 else 0
    return Role("all", (0,), 1, counts, first, last, Fraction(1), 0, sent, sent)


def tile_units(plan: Plan) -> tuple[Unit, ...]:
    """The units of a plan, as a device would run them that holds the whole model."""
    return units(builder(plan), whole_role(plan))


def sized(plan: Plan, inputs: Mapping[str, Amount], count: int = 1) -> Plan:
    """The plan with degrees and a micro-batch that are values of a trace, and so many micro-batches a step."""
    mesh = replace(plan.parallelism, **{name: inputs[name] for name in DEGREES if name in inputs})
    size, ways = inputs.get("micro_batch", 1), schedule(plan.parallelism).ways
    run = replace(plan.run, micro_batch=size, global_batch=mesh.data * size * (count * ways))
    devices = mesh.data * mesh.replica
    return replace(plan, parallelism=mesh, run=run, cluster=replace(plan.cluster, devices=devices))


DEGREES = ("data", "tensor", "pipeline", "context", "expert", "replicate")


def tile_times(plan: Plan, mine: tuple[Unit, ...], inputs: Mapping[str, Any]) -> TileTimes:
    """The seconds at one setting of tensor, context, expert and micro_batch."""
    placed = sized(plan, inputs)
    value = exact(bindings(placed, whole_role(placed)))
    rows = priced(tile_entries(placed, mine), placed, value)
    names = dict.fromkeys(row.cause.unit for row in rows)
    once = {name: once_work([row for row in rows if row.cause.unit == name]) for name in names}
    return TileTimes(dict(unit_works(rows, placed)), once)


def tile_entries(placed: Plan, mine: tuple[Unit, ...]) -> tuple[Entry, ...]:
    """What units compute and send, all but what goes from stage to stage."""
    passed_on = posting.of_sends(sends(placed, whole_role(placed)))
    within = (entry for entry in passed_on if not between_stages(entry))
    return *posting.of_units(mine, placed), *posting.of_host_activations(mine), *within


def tile_facts(plan: Plan, mine: tuple[Unit, ...], inputs: Mapping[str, Any]) -> TileFacts:
    """What is held at one setting of tensor, context, expert and micro_batch."""
    placed = sized(plan, inputs)
    value = exact(bindings(placed, whole_role(placed)))
    return TileFacts(
        {
            (phase, unit.name, added): dict(live(unit, phase, steps, value))
            for unit in mine
            for added in (False, True)
            for phase, steps in passes(unit, added=added)
        },
        {unit.name: workspace(unit, value) for unit in mine},
    )


# What is alive by pass, unit and whether gradients add up, then by which of the amounts of a pass, and by category.
TileParts = Mapping[tuple[str, str, bool], Mapping[str, Mapping[str, Amount]]]


def tile_parts(plan: Plan, mine: tuple[Unit, ...], inputs: Mapping[str, Any]) -> TileParts:
    """What is alive by category, at one setting of tensor, context, expert and micro_batch."""
    placed = sized(plan, inputs)
    value = exact(bindings(placed, whole_role(placed)))
    found: dict[tuple[str, str, bool], dict[str, dict[str, Amount]]] = {}
    for unit, added in product(mine, (False, True)):
        of = categories(unit)
        for phase, steps in passes(unit, added=added):
            names = {of(tensor) for step in steps for tensor in step.tensors if not standing(tensor)}
            own = found.setdefault((phase, unit.name, added), {})
            for category in sorted(names):
                for name, amount in live(unit, phase, steps, value, lambda t: of(t) == category):  # noqa: B023
                    own.setdefault(name, {})[category] = amount
    return found


def between_stages(entry: Entry) -> bool:
    """Whether something goes from one stage to another."""
    return entry.resource.axis == "pipeline"


def priced(entries: Sequence[Entry], plan: Plan, value: Value) -> list[KernelTime]:
    """The kernels and transfers of some entries."""
    ledger = Ledger("", nonzero(entries))
    return [price_call(call, plan) for call in kernel_calls(ledger, value)]


def unit_works(rows: Sequence[KernelTime], plan: Plan) -> Iterator[tuple[PassOf, UnitWork]]:
    """Each unit's passes of one micro-batch."""
    recurring = [row for row in rows if row.per == MICRO_BATCH]
    for name, phases in PASSES.items():
        found: dict[str, list[KernelTime]] = {}
        for row in recurring:
            if row.when in phases:
                found.setdefault(row.cause.unit, []).append(row)
        yield from (((name, unit), unit_work(name, unit, own, plan)) for unit, own in found.items())


def once_work(rows: Sequence[KernelTime]) -> OnceWork:
    """What of these runs once a step."""
    computed: dict[str, Amount] = {}
    for row in rows:
        if row.per != MICRO_BATCH and computes(row) and row.when != "optimizer":
            computed[row.when] = computed.get(row.when, 0.0) + row.seconds * row.times
    return OnceWork(step_work(rows), computed)


def live(
    unit: Unit, phase: str, steps: Sequence[LiveTensors], value: Value, counts: Counts = lambda _: True
) -> Iterator[tuple[str, Amount]]:
    """What is alive in a pass, as far as no other unit holds it; of tensors that do not count, nothing."""
    held, fullest = partial(_held, value=value, counts=counts), partial(_fullest, value=value, counts=counts)
    yield BEGINS, held(steps[0])
    yield FULLEST, fullest(steps)
    yield ENDS, held(steps[-1], without=weight_gradients(unit))
    written = expert_gradients(unit)
    if not written:
        return
    there = span(unit, phase, steps)
    enters = held(_between(steps, there.first))
    done = _between(steps, there.last + 1)
    kept, own = held(done, without=written), held(_only(done, written))
    yield ENTERS, enters
    yield DONE, kept
    gone = written if phase != FORWARD else frozenset[str]()
    for stretch, (name, less) in enumerate(zip(STRETCHES, (enters, enters, kept + own, kept), strict=True)):
        mine = [step for place, step in enumerate(steps) if there.stretch(place) == stretch]
        yield name, fullest(mine, without=gone if stretch == AFTER else frozenset()) - less if mine else NEVER


def expert_gradients(unit: Unit) -> frozenset[str]:
    """The gradients of a unit's weights of which other devices hold other experts."""
    cut = (weight for weight in unit.weights if any(axis == EXPERT for _, axis in weight.split))
    return frozenset(weight.gradient.name for weight in cut)


def _between(steps: Sequence[LiveTensors], place: int) -> LiveTensors:
    """What is alive between a step and the one before it."""
    before = {id(tensor) for tensor in steps[place - 1].tensors}
    return LiveTensors("", tuple(tensor for tensor in steps[place].tensors if id(tensor) in before))


def _only(alive: LiveTensors, names: frozenset[str]) -> LiveTensors:
    return LiveTensors(alive.step, tuple(tensor for tensor in alive.tensors if tensor.name in names))


def _held(step: LiveTensors, value: Value, counts: Counts, without: frozenset[str] = frozenset()) -> Amount:
    kept = (tensor for tensor in step.tensors if not standing(tensor) and tensor.name not in without)
    return sum(truncate(value(tensor.bytes())) for tensor in kept if counts(tensor))


def _fullest(
    steps: Sequence[LiveTensors], value: Value, counts: Counts, without: frozenset[str] = frozenset()
) -> Amount:
    """Bytes of the fullest step; one all of whose tensors are alive at another one is never the fullest alone."""
    sets = [frozenset(id(tensor) for tensor in step.tensors) for step in steps]
    widest = [
        place for place, mine in enumerate(sets) if mine not in sets[:place] and not any(mine < one for one in sets)
    ]
    sizes = {id(tensor): truncate(value(tensor.bytes())) for place in widest for tensor in steps[place].tensors}
    fullest = largest(widest, lambda place: sum(sizes[id(tensor)] for tensor in steps[place].tensors))
    return pick(fullest, [_held(steps[place], value, counts, without) for place in widest])


def workspace(unit: Unit, value: Value) -> Amount:
    """Bytes that the attention kernel of a unit's backward allocates."""
    kernels = [step for step in unit.backward if isinstance(step, AttentionBackward)][:1]
    return sum(truncate(value(total(tensor.bytes() for tensor in temporaries(kernel)))) for kernel in kernels)


def send_seconds(plan: Plan, inputs: Mapping[str, Any]) -> Amount:
    """The longest of what a stage sends to the next, in seconds."""
    placed = sized(plan, inputs)
    value = exact(bindings(placed, whole_role(placed)))
    return largest_of(row.seconds for row in priced(sent_entries(placed), placed, value))


def sent_entries(placed: Plan) -> tuple[Entry, ...]:
    """What goes from stage to stage."""
    return tuple(entry for entry in posting.of_sends(sends(placed, whole_role(placed))) if between_stages(entry))


# Bytes of each by first and last moment, how many of them there are, and their category, where that is told apart.
Stock = tuple[int, int, sympy.Expr, str]
Stocks = Mapping[Stock, tuple[Amount, ...]]


def tile_stocks(
    plan: Plan, mine: tuple[Unit, ...], line: Timeline, inputs: Mapping[str, Any], *, detailed: bool
) -> Stocks:
    """What the layers of a role hold from moment to moment; how many layers and micro-batches do stays a formula."""
    placed = sized(plan, inputs)
    value = exact(bindings(placed, whole_role(placed)))
    found: dict[Stock, tuple[Amount, ...]] = {}
    for entry in holdings.of_layers(Program(mine, (), (), Sharding(0, ())), placed, line):
        if entry.amount and entry.times and isinstance(entry.when, Lifetime):
            category = entry.resource.category if detailed else ""
            key = entry.when.first, entry.when.last, entry.times, category
            found[key] = (*found.get(key, ()), value(entry.amount))
    return found
