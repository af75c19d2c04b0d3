"""What lives in host memory instead of the device's, and what then moves over the link to the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sympy

from ledger.model.operations import total
from ledger.model.optimizers import Value, owned, states
from ledger.model.sharding import Sharding
from ledger.model.tensors import sized
from ledger.model.units import Unit
from ledger.model.wrapping import wrapped
from ledger.spec.plan import Plan

OPTIMIZER = "optimizer"
DOWN, UP = "down", "up"  # to the host, and back


@dataclass(frozen=True)
class HostCopy:
    """A copy between a device and its host: `amount` bytes, `down` to the host or `up`."""

    name: str
    direction: str
    amount: sympy.Expr


@dataclass(frozen=True)
class HostHeld:
    """Bytes in host memory for one device, of `count` layers; `category` is what they would be on the device."""

    account: str
    category: str
    amount: sympy.Expr
    count: sympy.Expr
    why: str


def updates_on_host(plan: Plan) -> bool:
    """Whether master weights and optimizer states live in host memory, where the update then runs."""
    return OPTIMIZER in plan.parallelism.offload


def copies(plan: Plan, mine: Sequence[Unit], sharding: Sharding) -> Iterator[tuple[str, sympy.Expr, HostCopy]]:
    """Once a step: this device's share of gradients goes down layer by layer, that of the updated weights comes up."""
    if not updates_on_host(plan):
        return
    precision = plan.precision
    for unit, count, weights in wrapped(tuple(mine)):
        elements = total(sharding.held("optimizer", weight) for weight in weights if not weight.frozen)
        yield unit, count, HostCopy("gradients.down", DOWN, sized(precision.gradients, elements))
        yield unit, count, HostCopy("weights.up", UP, sized(precision.weights, elements))


def held_on_host(plan: Plan, mine: Sequence[Unit], sharding: Sharding, value: Value) -> Iterator[HostHeld]:
    """What the update reads and writes in host memory: a copy of the weights, their gradients in its dtype, states.

    The copy is the master weights where there are any; a gradient is kept in the dtype of what it updates.
    """
    if not updates_on_host(plan):
        return
    precision = plan.precision
    updated = precision.master or precision.weights
    for one in owned(plan.optimizer, tuple(mine)):
        account, elements = f"{one.unit}/{one.weight.name}", sharding.held("optimizer", one.weight)
        copy = "master copy" if precision.master else "the copy of the weights that the update writes"
        yield HostHeld(account, "master", sized(updated, elements), one.count, copy)
        why = "gradients where the update reads them, in the dtype of what it updates"
        yield HostHeld(f"{account}.gradient", "gradients", sized(updated, elements), one.count, why)
        for state in states(one, sharding, precision, value):
            why = f"{state.name.replace('_', ' ')} of {one.rule.title}"
            yield HostHeld(f"{account}.{state.name}", "optimizer", state.bytes(), one.count, why)
