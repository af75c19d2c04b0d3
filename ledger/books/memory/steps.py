"""What is alive at the steps of one moment: tensors of the unit that runs, and what stands beside them.

Only the fullest step of a moment counts. Which one that is depends on sizes: where these are numbers, it is known;
where they are values of a trace, every step that may be the fullest stays, and its bytes are a choice between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import sympy

from ledger.arithmetic.values import Amount, is_plain, largest, pick, truncate
from ledger.books.evaluate import Value
from ledger.books.memory.liveness import LiveTensors, backward, forward, storages
from ledger.model.causes import Cause
from ledger.model.fsdp_units import FsdpUnit
from ledger.model.images import FRAMES, PIXELS
from ledger.model.operations import ONE
from ledger.model.program import Program
from ledger.model.quantised import STAYING
from ledger.model.tensors import BUFFER, REMEMBERED, SHARED, Tensor
from ledger.model.unit import Unit
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Allocation:
    """`times` equal things that are alive, of a category."""

    cause: Cause
    category: str
    amount: sympy.Expr
    why: str = field(compare=False)
    times: sympy.Expr = ONE


@dataclass(frozen=True)
class FullestLive:
    """One of several steps of a unit, by its `place` among them: a value of a trace.

    `choices`: what was asked of it.
    """

    steps: tuple[LiveTensors, ...]
    place: Amount
    choices: dict[frozenset[str], AllocationChoice] = field(default_factory=dict, compare=False, repr=False)

    @property
    def step(self) -> str:
        """The operation that runs at the first of the steps."""
        return self.steps[0].step


@dataclass(frozen=True)
class AllocationChoice:
    """What is held at one of several steps, by its `place` among them: a value of a trace. `amounts`: its bytes."""

    choices: tuple[tuple[Allocation, ...], ...]
    place: Amount
    amounts: dict[Value, Mapping[str, Amount]] = field(default_factory=dict, compare=False, repr=False)

    def by_category(self, value: Value) -> Mapping[str, Amount]:
        """Bytes at that step, by what they are."""
        if value not in self.amounts:
            sums = [
                _sum_by_category((allocation.category, _allocation_bytes(allocation, value)) for allocation in choice)
                for choice in self.choices
            ]
            self.amounts[value] = pick_parts(self.place, sums)
        return self.amounts[value]


Running: TypeAlias = LiveTensors | FullestLive
AnyAllocation: TypeAlias = Allocation | AllocationChoice


@dataclass(frozen=True)
class LiveStep:
    """What is alive while something runs."""

    name: str
    allocations: tuple[AnyAllocation, ...]

    def bytes(self, value: Value) -> Amount:
        """All bytes that are alive."""
        return sum(_allocation_bytes(allocation, value) for allocation in self.allocations)

    def by_category(self, value: Value) -> Iterator[tuple[str, Amount]]:
        """Bytes that are alive, with what they are."""
        for allocation in self.allocations:
            if isinstance(allocation, Allocation):
                yield allocation.category, _allocation_bytes(allocation, value)
            else:
                yield from allocation.by_category(value).items()


def _allocation_bytes(allocation: AnyAllocation, value: Value) -> Amount:
    if isinstance(allocation, Allocation):
        return truncate(value(allocation.amount) * value(allocation.times))
    return sum(allocation.by_category(value).values())


@dataclass(frozen=True)
class FullestStep:
    """The steps of one moment, by its place in the timeline, and the place of the fullest among them."""

    moment: int
    steps: tuple[LiveStep, ...]
    place: Amount

    def by_category(self, value: Value) -> Mapping[str, Amount]:
        """Bytes that are alive at the fullest step, by what they are."""
        if isinstance(self.place, int):
            return _sum_by_category(self.steps[self.place].by_category(value))
        return pick_parts(self.place, [_sum_by_category(step.by_category(value)) for step in self.steps])


def pick_parts(place: Amount, sums: Sequence[Mapping[str, Amount]]) -> dict[str, Amount]:
    """The amounts of the parts at a place, by name; a part that is not there is 0."""
    names = dict.fromkeys(name for parts in sums for name in parts)
    return {name: pick(place, [parts.get(name, 0) for parts in sums]) for name in names}


def _sum_by_category(parts: Iterable[tuple[str, Amount]]) -> dict[str, Amount]:
    sums: dict[str, Amount] = {}
    for category, amount in parts:
        sums[category] = sums.get(category, 0) + amount
    return sums


def fullest_operation(steps: Sequence[LiveTensors], value: Value) -> Running:
    """The step with most bytes alive; what lives through many steps is valued once.

    A step whose tensors are all alive at another one is never the fullest alone.
    """
    sizes = {id(tensor): value(tensor.bytes()) for alive in steps for tensor in alive.tensors}
    filled = [sum(sizes[id(tensor)] for tensor in alive.tensors) for alive in steps]
    if all(map(is_plain, filled)):
        return steps[largest(filled, lambda amount: amount)]
    widest = widest_places([frozenset(id(tensor) for tensor in alive.tensors) for alive in steps])
    if len(widest) == 1:
        return steps[widest[0]]
    return FullestLive(tuple(steps[place] for place in widest), largest(widest, lambda place: filled[place]))


def fullest_in_moment(moment: int, steps: tuple[LiveStep, ...], value: Value) -> FullestStep:
    """The step of a moment with most bytes alive."""
    filled = [step.bytes(value) for step in steps]
    if all(map(is_plain, filled)):
        return FullestStep(moment, steps, largest(filled, lambda amount: amount))
    # a thing is told by what caused it, a choice by itself
    widest = widest_places(
        [
            frozenset(item.cause if isinstance(item, Allocation) else id(item) for item in step.allocations)
            for step in steps
        ]
    )
    return FullestStep(moment, tuple(steps[place] for place in widest), largest(widest, lambda place: filled[place]))


def widest_places(sets: Sequence[frozenset[object]]) -> tuple[int, ...]:
    """The places of steps of which any may be the fullest: one whose things are all held at another one never is."""
    return tuple(
        place for place, step in enumerate(sets) if step not in sets[:place] and not any(step < wider for wider in sets)
    )


def tensors(unit: Unit, alive: Running, without: frozenset[str] = frozenset()) -> Iterator[AnyAllocation]:
    """The tensors of a unit at one of its steps; those that belong to the whole step are posted elsewhere."""
    if isinstance(alive, FullestLive):
        if without not in alive.choices:
            choices = tuple(tuple(_live_allocations(unit, live, without)) for live in alive.steps)
            alive.choices[without] = AllocationChoice(choices, alive.place)
        yield alive.choices[without]
    else:
        yield from _live_allocations(unit, alive, without)


def _live_allocations(unit: Unit, alive: LiveTensors, without: frozenset[str]) -> Iterator[Allocation]:
    category, why = categories(unit), f"alive while {alive.step} runs"
    for tensor in alive.tensors:
        if not outlives_unit(tensor) and tensor.name not in without:
            yield Allocation(Cause(unit.name, tensor.name, state="now"), category(tensor), tensor.bytes(), why)


def weight_gradients(unit: Unit) -> frozenset[str]:
    """The names of the gradients of a unit's weights."""
    return frozenset(weight.gradient.name for weight in unit.weights)


def reduce_scatter_steps(
    program: Program, plan: Plan, unit: Unit, after: LiveTensors, steps: Iterable[LiveStep]
) -> Iterator[LiveStep]:
    """Steps of a unit in backward, then the reduction of its whole gradients to this device's share, unit by unit.

    Experts that no other device has a copy of are not reduced.
    """
    yield from steps
    shared = tuple(weight for _, weights in program.sharding.shared(unit.weights) for weight in weights)
    trained = FsdpUnit(unit.name, ONE, ((ONE, shared),)).trained()
    if not trained.parts:
        return
    sharding, precision = program.sharding, plan.precision
    amount, why = trained.gathered_bytes(sharding, precision.reduction), "input of the reduce-scatter"
    source = Allocation(Cause(unit.name, "gradient", state="to_reduce"), "unsharded", amount, why)
    amount, why = trained.share(sharding, precision.reduction), "output of the reduce-scatter"
    result = Allocation(Cause(unit.name, "gradient", state="reduced"), "unsharded", amount, why)
    yield LiveStep("whole gradients are copied for their reduction", (*tensors(unit, after), source))
    reduced = frozenset(weight.gradient.name for weight in shared)
    yield LiveStep("gradients are reduced", (*tensors(unit, after, reduced), source, result))


def unit_steps(unit: Unit, steps: Sequence[Running]) -> Iterator[LiveStep]:
    """Each step of a unit, with the unit's tensors alone."""
    for alive in steps:
        yield LiveStep(alive.step, tuple(tensors(unit, alive)))


# --- tensors that exist only while one unit runs ---

BATCH = ("embedding/tokens.index", "source_embedding/tokens.index", FRAMES, PIXELS)  # what a step is given


def passes_with_live_tensors(unit: Unit, *, added: bool) -> Iterator[tuple[str, tuple[LiveTensors, ...]]]:
    """The two passes of a unit with what is alive at their steps; `added` as in `liveness.backward`."""
    yield "forward", forward(unit)
    yield "backward", backward(unit, added=added)


def categories(unit: Unit) -> Callable[[Tensor], str]:
    """What each tensor that is alive while a unit runs counts as: by what it is, wherever it is kept."""
    storage = storages(unit)
    weights = {weight.parameter for weight in unit.weights}
    summed = {storage(weight.gradient) for weight in unit.weights}
    lasting = {tensor.name for tensor in (*unit.saving.saved, *unit.saving.rebuilt)}

    def held(tensor: Tensor) -> str:
        if storage(tensor) in summed or (tensor.earlier and tensor.parameter in weights):
            return "gradients"
        if scores(tensor):
            return "logits"
        return "activations" if tensor.name in lasting else "workspace"

    return held


def scores(tensor: Tensor) -> bool:
    """Whether a tensor is scores of the vocabulary or of classes, or what the loss makes of them."""
    dims = {dim.name for dim in tensor.dims}
    return (bool(dims & {"vocab", "classes"}) and "d_model" not in dims) or tensor.of_loss


def outlives_unit(tensor: Tensor) -> bool:
    """Whether a tensor outlives a unit: the batch, tables, copies of weights that stay, what layers keep or get."""
    return tensor.role in ("table", BUFFER, REMEMBERED, SHARED, STAYING) or tensor.name in BATCH
