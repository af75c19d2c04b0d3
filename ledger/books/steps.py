"""What is alive at the steps of one moment: tensors of the unit that runs, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import sympy

from ledger.books.liveness import Alive
from ledger.books.passing import categories, standing
from ledger.model.operations import ONE, gradient
from ledger.model.program import Unit


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
    return frozenset(gradient(weight).name for weight in unit.weights)


def running(unit: Unit, steps: Sequence[Alive]) -> Iterator[Step]:
    """The steps of a unit, as they are."""
    for alive in steps:
        yield Step(alive.step, tuple(tensors(unit, alive)))
