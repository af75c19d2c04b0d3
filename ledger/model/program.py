"""One device's program: the units of its role, forward, backward and rebuilt, and the transfers of their weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import sympy

from ledger.arithmetic.values import maximum
from ledger.model.collectives import Collective, collective
from ledger.model.dims import symbol
from ledger.model.exchanges import Exchanged, collectives_of_rules, tied, weights_moved_together
from ledger.model.schedule import Role, schedule
from ledger.model.sharding import Sharding
from ledger.model.unit import Unit
from ledger.model.units import Builder, builder, single_device_builder, units
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Program:
    """The program of one device. `exchanges` move weights and gradients: unit, how many, phase, what.

    `sends` move activations between stages: how many a micro-batch, the phase, and what.
    """

    units: tuple[Unit, ...]
    exchanges: tuple[Exchanged, ...]
    sends: tuple[tuple[sympy.Expr, str, Collective], ...]
    sharding: Sharding


def program(plan: Plan, role: Role, units_of_role: tuple[Unit, ...] | None = None) -> Program:
    """The program of one device of a role; `units_of_role`: its units, where they are there already."""
    build = builder(plan)
    units_of_role = units_of_role or units(build, role)
    degrees = plan.parallelism
    several = {"data": degrees.data, "context": degrees.context, "ways": schedule(degrees).pipeline_ends}
    axes = tuple(axis for axis, degree in several.items() if degree > 1)
    scattered = bool(math.prod(several.values()) == degrees.replicate * degrees.expert)
    rows, flat = frozenset(_by_rows(plan, build)), plan.stack.unshard == "modules"
    sharding = Sharding(degrees.zero, axes, bool(degrees.replicate > 1), scattered, rows, flat)
    if plan.model.bare:
        return Program(units_of_role, (), (), sharding)
    shared: list[Exchanged] = []
    if (plan.model.tied or plan.model.predictions) and role.first != role.last:
        shared = [
            tied(build.input().weights[0], plan.precision.gradients)
        ]  # the embedding, which another stage uses too
    moved = collectives_of_rules(plan, weights_moved_together(plan, units_of_role, sharding), sharding)
    return Program(units_of_role, (*shared, *moved), tuple(sends(plan, role)), sharding)


def _by_rows(plan: Plan, build: Builder) -> Iterator[sympy.Symbol]:
    """Experts of a device that its shards do not divide: fully_shard cuts their second dimension (torchtitan)."""
    degrees = plan.parallelism
    shards = maximum(1, degrees.data * degrees.context // (degrees.replicate * degrees.expert))
    for group in plan.model.groups:
        if group.mlp.experts // degrees.expert % shards:
            yield symbol("experts", build.suffix(group))


def sends(plan: Plan, role: Role) -> Iterator[tuple[sympy.Expr, str, Collective]]:
    """The residual stream to the next stage, its gradient to the one before, each as often as a chunk's end is sent on.

    Where every tensor-parallel rank holds all of it, a stack may have each send a share, and the receivers gather
    theirs.
    """
    scattered, whole_stream = plan.stack.scatter_sends and plan.parallelism.tensor > 1, builder(plan).entry()
    shares = scattered and not whole_stream.split
    stream = whole_stream.on((("seq", "tensor"),), "stream.share") if shares else whole_stream
    counts = {name: symbol(name) for name in ("sends", "returns") if getattr(role, name)}
    for name, phase, sent, direction in (
        ("send", "forward", stream, "sends"),
        ("send_gradient", "backward", stream.gradient, "returns"),
    ):
        if direction in counts:
            yield counts[direction], phase, collective(name, "send", "pipeline", sent, sent)
    gathered_again = (  # what comes in crosses the same ends of chunks as what goes the other way
        ("gather", "forward", stream, whole_stream, "returns"),
        ("gather_gradient", "backward", stream.gradient, whole_stream.gradient, "sends"),
    )
    for name, phase, share, together, direction in gathered_again if shares else ():
        if direction in counts:
            yield counts[direction], phase, collective(name, "all_gather", "tensor", share, together)


def whole_program(plan: Plan, role: Role) -> tuple[Unit, ...]:
    """The units of the unsharded plan without recompute, for a role that holds every layer."""
    return units(single_device_builder(plan), role)
