"""What is alive at the steps of one moment: tensors of the unit that runs, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import sympy

from ledger.books.memory.liveness import Alive
from ledger.books.memory.passing import categories, standing
from ledger.model.operations import ONE
from ledger.model.program import Program
from ledger.model.units import Unit
from ledger.model.wrapping import Wrap
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Held:
    """`times` equal things that are alive, of a category."""

    account: str
    category: str
    amount: sympy.Expr
    why: str = field(compare=False)
    times: sympy.Expr = ONE


@dataclass(frozen=True)
class Step:
    """What is alive while something runs."""

    name: str
    held: tuple[Held, ...]


def tensors(unit: Unit, alive: Alive, without: frozenset[str] = frozenset()) -> Iterator[Held]:
    """The tensors of a unit at one of its steps; those that belong to the whole step are posted elsewhere."""
    category, why = categories(unit), f"alive while {alive.step} runs"
    for tensor in alive.tensors:
        if not standing(tensor) and tensor.name not in without:
            yield Held(f"{unit.name}/{tensor.name}.now", category(tensor), tensor.bytes(), why)


def weight_gradients(unit: Unit) -> frozenset[str]:
    """The names of the gradients of a unit's weights."""
    return frozenset(weight.gradient.name for weight in unit.weights)


def scattering(program: Program, plan: Plan, unit: Unit, after: Alive, steps: Iterable[Step]) -> Iterator[Step]:
    """Steps of a unit in backward, then the reduction of its whole gradients to this device's share, unit by unit."""
    yield from steps
    whole = Wrap(unit.name, ONE, ((ONE, unit.weights),)).trained()
    if not whole.parts:
        return
    sharding, precision = program.sharding, plan.precision
    amount = whole.whole(sharding, precision.reduction)
    source = Held(f"{unit.name}/gradient.to_reduce", "unsharded", amount, "input of the reduce-scatter")
    amount = whole.share(sharding, precision.reduction)
    result = Held(f"{unit.name}/gradient.reduced", "unsharded", amount, "output of the reduce-scatter")
    yield Step("whole gradients are copied for their reduction", (*tensors(unit, after), source))
    yield Step("gradients are reduced", (*tensors(unit, after, weight_gradients(unit)), source, result))


def running(unit: Unit, steps: Sequence[Alive]) -> Iterator[Step]:
    """The steps of a unit, as they are."""
    for alive in steps:
        yield Step(alive.step, tuple(tensors(unit, alive)))
