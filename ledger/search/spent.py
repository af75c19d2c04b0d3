"""What the parts of a layout spend beside the seconds that make its step: sums, which add up over layers and stages.

They are computed only where a total asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy

from ledger.arithmetic.values import Amount
from ledger.books import posting
from ledger.books.bindings import bindings
from ledger.books.compiled_roles import CompiledRole
from ledger.books.counts import PER_DEVICE, per_device
from ledger.books.entries import MICRO_BATCH, STEP, Entry, Ledger, nonzero
from ledger.books.evaluate import Value, exact
from ledger.books.memory import optimizer
from ledger.books.memory.timeline import Timeline
from ledger.books.passes import PASSES
from ledger.books.spending import spending
from ledger.books.step_sums import step_sums
from ledger.books.totals import static
from ledger.model.program import program
from ledger.model.schedule import Role, micro_batches
from ledger.model.units import Unit
from ledger.search.shapes import Kind
from ledger.search.states import Sharing, held_units, layers_of, sharing_entries
from ledger.search.tiles import PassOf, priced, sent_entries, sized, tile_entries, whole_role
from ledger.search.variants import SENT, Variant
from ledger.spec.plan import Plan

TOTAL = "total"  # of a key whose second part is the total that an amount is part of
Key = tuple[str, ...]  # of the sums over kernels, or this and a total
Spent = Mapping[Key, Amount]
PASS_OF = {phase: name for name, phases in PASSES.items() for phase in phases}


@dataclass(frozen=True)
class TileSpent:
    """What one layer of each group and each end of the model spends, by pass in a micro-batch, and once a step.

    `hosted`: bytes of activations that wait in host memory, by how many of them there are.
    """

    passes: Mapping[PassOf, Spent]
    once: Mapping[str, Spent]
    hosted: Mapping[sympy.Expr, Amount]


@dataclass(frozen=True)
class RoleSpent:
    """What a device spends once a step for weights and gradients, and what it holds of them, by total."""

    once: Spent
    held: Mapping[str, Amount]


def spent_by(entries: Iterable[Entry], plan: Plan, value: Value) -> Spent:
    """What entries add up to."""
    mine = tuple(entries)
    named = spending(Ledger("", nonzero(mine)), value)
    return {**step_sums(priced(mine, plan, value)), **{(TOTAL, name): amount for name, amount in named.items()}}


def tile_spent(plan: Plan, mine: tuple[Unit, ...], inputs: Mapping[str, Any]) -> TileSpent:
    """The sums at one setting of tensor, context, expert and micro_batch."""
    placed = sized(plan, inputs)
    value = exact(bindings(placed, whole_role(placed)))
    entries = tile_entries(placed, mine)
    hosted: dict[sympy.Expr, Amount] = {}
    for entry in posting.of_activations_on_host(mine):
        hosted[entry.times] = hosted.get(entry.times, 0) + value(entry.amount)
    return TileSpent(by_pass(entries, placed, value), by_unit(entries, placed, value), hosted)


def sent_spent(plan: Plan, inputs: Mapping[str, Any]) -> Mapping[str, Spent]:
    """What goes from stage to stage in a micro-batch, by pass."""
    placed = sized(plan, inputs)
    value = exact(bindings(placed, whole_role(placed)))
    return {name: found for (name, _), found in by_pass(sent_entries(placed), placed, value).items()}


def state_spent(way: Sharing, role: Role, inputs: Mapping[str, Any]) -> Mapping[PassOf, Spent]:
    """What a micro-batch spends for weights and gradients, of one layer of each group, at one setting of degrees."""
    placed, single = way.placed(inputs), replace(role, layers=tuple(min(1, held) for held in role.layers))
    value, count = exact(bindings(placed, single)), micro_batches(placed)
    found = by_pass(sharing_entries(way, single, placed, value), placed, value)
    return {key: {name: amount / count for name, amount in one.items()} for key, one in found.items()}


def role_spent(way: Sharing, role: Role, inputs: Mapping[str, Any]) -> RoleSpent:
    """What a device spends for weights and gradients once a step, and holds, at one setting of degrees and layers."""
    placed, held = way.placed(inputs), replace(role, layers=layers_of(role, inputs))
    value = exact(bindings(placed, held))
    mine = program(placed, held, held_units(way.units, way.plan, role))
    entries = [entry for entry in sharing_entries(way, held, placed, value) if entry.per == STEP]
    entries += posting.of_weights_on_host(mine, placed, value)
    line = Timeline((), {})
    stocks = nonzero(optimizer.kept(mine, placed, line.whole, value))
    book = CompiledRole(held, mine, Ledger("", stocks), value, line)
    return RoleSpent(spent_by(entries, placed, value), {**dict(static(placed, book)), PER_DEVICE: per_device(book)})


# --- of a variant -------------------------------------------------------------------------------


def tile_sums(one: Variant) -> TileSpent:
    """What layers spend, over the sizes of a tile."""
    return one.of_tiles("spent", lambda inputs: tile_spent(one.plan, one.units, inputs))


def sent_sums(one: Variant) -> Mapping[str, Spent]:
    """What goes from stage to stage, over a tile, `data` and `pipeline`."""
    return one.timed(one.send_key("sent"), lambda: one.sizes(SENT), sent_spent)


def state_sums(one: Variant, kind: Kind) -> Mapping[PassOf, Spent]:
    """What stages of a kind spend for weights and gradients in a micro-batch, of one layer of each group."""
    return one.shared("work spent", kind, False, state_spent)


def role_sums(one: Variant, kind: Kind) -> RoleSpent:
    """What stages of a kind spend for weights and gradients once a step, and hold."""
    return one.shared("role spent", kind, True, role_spent)


# --- sums ---------------------------------------------------------------------------------------


def by_pass(entries: Iterable[Entry], plan: Plan, value: Value) -> dict[PassOf, Spent]:
    """What recurs with every micro-batch, by pass and unit."""
    found: dict[PassOf, list[Entry]] = {}
    for entry in entries:
        if entry.per == MICRO_BATCH:
            found.setdefault((PASS_OF[str(entry.when)], entry.cause.unit), []).append(entry)
    return {key: spent_by(mine, plan, value) for key, mine in found.items()}


def by_unit(entries: Iterable[Entry], plan: Plan, value: Value) -> dict[str, Spent]:
    """What a unit does once a step."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.per == STEP:
            found.setdefault(entry.cause.unit, []).append(entry)
    return {key: spent_by(mine, plan, value) for key, mine in found.items()}
