"""The ledgers of a plan as data for its live page: every entry with the number of its formula instead of a value.

Formulas hold for every size, but which operations there are depends on which axes of the mesh are split at all. So the
axes that are 1 in the plan stay 1, and the others stay above it; whether micro-batches accumulate is told apart here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from ledger.books import kernels, overlap, posting, prices
from ledger.books.bindings import bindings
from ledger.books.entries import MICRO_BATCH, Entry, Ledger, Lifetime, nonzero
from ledger.books.evaluate import Value, exact
from ledger.books.memory.holdings import CATEGORIES, lasting
from ledger.books.memory.moments import Moments
from ledger.books.memory.outside import workspace
from ledger.books.memory.steps import Held, Step
from ledger.books.memory.visits import timeline
from ledger.books.results import KernelTime
from ledger.model.collectives import Collective
from ledger.model.operations import Matmul, Operation
from ledger.model.program import Program, program
from ledger.model.schedule import Role, micro_batches, roles
from ledger.model.sharding import Exchange
from ledger.report.javascript import Formulas
from ledger.spec.kernel_classes import ATTENTION
from ledger.spec.plan import Group, Plan

Row = tuple[Any, ...]
ALWAYS, ONE, SEVERAL = 0, 1, 2  # the steps in which an entry is there: of one micro-batch, of several, or both
# What the price of each form reads of a matmul's shape, of which there are so many equal pieces.
READ: Mapping[str, Callable[[Matmul, sympy.Expr], tuple[sympy.Expr, ...]]] = {
    "matmul": lambda shape, pieces: (shape.batch / pieces * shape.m * shape.n, shape.k),
    "grouped": lambda shape, _: (shape.group,),
    "attention": lambda shape, _: (shape.m,),
}


@dataclass
class Emission:
    """What the ledgers of one plan share: formulas and prices, each once."""

    formulas: Formulas = field(default_factory=Formulas)
    prices: list[dict[str, Any]] = field(default_factory=list)

    def price(self, found: dict[str, Any]) -> int:
        """The place of a price in the table."""
        if found not in self.prices:
            self.prices.append(found)
        return self.prices.index(found)


@dataclass(frozen=True)
class Variant:
    """One role's entries that are there whatever the sizes, with their values, under one plan."""

    plan: Plan
    entries: tuple[Entry, ...]
    value: Value
    moments: Moments

    @property
    def rows(self) -> Iterator[tuple[Entry, KernelTime]]:
        """What takes time, with its price."""
        timed = [e for e in self.entries if e.resource.kind in ("comm", "hbm") and e.operation]
        return zip(timed, kernels.priced(Ledger("", self.entries), self.plan, self.value), strict=True)


# --- structure ----------------------------------------------------------------------------------


def structures(plan: Plan) -> dict[str, Role]:
    """One role for each ledger that any legal number of pipeline stages needs, by the layers and ends it holds."""
    found: dict[str, Role] = {}
    for stages in degrees(plan)["pipeline"]:
        for role in roles(staged(plan, stages)):
            held = " ".join(str(min(layers, told_apart(plan))) for layers in role.layers)
            found.setdefault(f"{held}{' first' * role.first}{' last' * role.last}", role)
    return found


def told_apart(plan: Plan) -> int:
    """From how many layers of a group on, a device's moments are the same: its first, second, last but one and last.

    Where groups take turns, or some layers are rebuilt, every number has moments of its own.
    """
    if plan.model.order or plan.recompute.policy not in ("none", "selective", "full", "keep", "components"):
        return max(group.repeat for group in plan.model.groups)
    return 4 if plan.parallelism.zero == 3 else 2


def staged(plan: Plan, stages: int) -> Plan:
    """The plan with another number of pipeline stages, and the devices they need."""
    devices = plan.cluster.devices // plan.parallelism.pipeline * stages
    mesh = replace(plan.parallelism, pipeline=stages)
    return replace(plan, parallelism=mesh, cluster=replace(plan.cluster, devices=devices))


def degrees(plan: Plan) -> dict[str, tuple[int, ...]]:
    """The legal degrees of the axes that split a model: 1 where the plan has 1, above it where it has more."""
    layers = sum(group.repeat for group in plan.model.groups)
    chunks = plan.parallelism.interleave
    sizes = [plan.model.vocab, *(size for group in plan.model.groups for size in splits(group).values())]
    legal = {
        "tensor": [degree for degree in range(1, min(sizes) + 1) if not any(size % degree for size in sizes)],
        "pipeline": [degree for degree in range(1, layers // chunks + 1) if layers % (degree * chunks) == 0],
    }
    own = {axis: getattr(plan.parallelism, axis) for axis in legal}
    return {axis: tuple(d for d in found if (d > 1) == (own[axis] > 1)) for axis, found in legal.items()}


def splits(group: Group) -> dict[str, int]:
    """The sizes of a group that tensor parallelism splits."""
    return {"heads": group.attention.heads, "kv_heads": group.attention.kv_heads, "d_ff": group.mlp.d_ff}


def accumulating(plan: Plan) -> tuple[Plan, Plan]:
    """The plan with one micro-batch a step, and with several."""
    once = plan.parallelism.data * plan.run.micro_batch
    batches = (once, plan.run.global_batch if micro_batches(plan) > 1 else 2 * once)
    one, several = (replace(plan, run=replace(plan.run, global_batch=batch)) for batch in batches)
    return one, several


# --- one ledger ---------------------------------------------------------------------------------


def ledger(plan: Plan, role: Role, emission: Emission) -> dict[str, Any]:
    """A role's moments, stocks, kernels and transfers, with the numbers of their formulas."""
    mine = program(plan, role)
    variants = [variant(mine, one, role) for one in accumulating(plan)]
    timed = [[timing(variant, entry, row, emission) for entry, row in variant.rows] for variant in variants]
    return {
        "moments": [point.title for point in variants[0].moments.line.points],
        "workspaces": [emission.formulas.number(workspace(mine, point)) for point in variants[0].moments.line.points],
        "stocks": merged([tuple(stocks(variant, emission)) for variant in variants]),
        "passing": merged([tuple(passing(variant, emission)) for variant in variants]),
        "kernels": merged([tuple(row for moves, row in rows if not moves) for rows in timed]),
        "transfers": merged([tuple(row for moves, row in rows if moves) for rows in timed]),
    }


def variant(mine: Program, plan: Plan, role: Role) -> Variant:
    """The entries and moments of a role under one plan."""
    value = exact(bindings(plan, role))
    line = timeline(mine, plan, role, value)
    entries = nonzero([*posting.flows(mine, plan, value), *lasting(mine, plan, value, line)])
    return Variant(plan, entries, value, Moments(mine, plan, line))


def merged(variants: Sequence[Sequence[Row]]) -> list[Row]:
    """Rows of both variants, each with the steps in which it is there; a row's account, its first field, is dropped."""
    one, several = variants
    shared = set(one) & set(several)
    rows = [(ALWAYS if row in shared else ONE, *row[1:]) for row in one]
    return rows + [(SEVERAL, *row[1:]) for row in several if row not in shared]


def stocks(variant: Variant, emission: Emission) -> Iterator[Row]:
    """Account, category, first and last moment, bytes."""
    for entry in variant.entries:
        if isinstance(entry.when, Lifetime):
            category = CATEGORIES.index(entry.resource.category)
            held = emission.formulas.number(entry.amount * entry.times)
            yield entry.account, category, entry.when.first, entry.when.last, held


def passing(variant: Variant, emission: Emission) -> Iterator[Row]:
    """For each moment at which something runs: its place, what may be alive then, and what is at each of its steps.

    Moments with the same steps are one row; its account, its first field, is empty.
    """
    same: dict[tuple[Step, ...], list[int]] = {}
    moments = variant.moments
    for point in moments.points:
        steps = tuple(widest(tuple(moments.steps(point, moments.alive(point)))))
        same.setdefault(steps, []).append(moments.line.points.index(point))
    for steps, at in same.items():
        found = (held for step in steps for held in step.held if isinstance(held, Held))
        things = {held: index for index, held in enumerate(dict.fromkeys(found))}
        amounts = tuple(
            (CATEGORIES.index(held.category), emission.formulas.number(held.amount * held.times)) for held in things
        )
        yield (
            "",
            tuple(at),
            amounts,
            tuple(tuple(things[held] for held in step.held if isinstance(held, Held)) for step in steps),
        )


def widest(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps of which any may be the fullest: one whose things are all alive at another step never is."""
    sets = [frozenset(step.held) for step in steps]
    seen: set[frozenset[object]] = set()
    for step, mine in zip(steps, sets, strict=True):
        if mine not in seen and not any(mine < other for other in sets):
            yield step
        seen.add(mine)


def timing(variant: Variant, entry: Entry, row: KernelTime, emission: Emission) -> tuple[bool, Row]:
    """Whether it is a transfer; account, phase, unit, whether it recurs, times, block, and what prices it."""
    times = emission.formulas.number(entry.times)
    head = (row.account, row.when, row.cause.unit, int(row.per == MICRO_BATCH), times, row.cause.block)
    operation = entry.operation
    if isinstance(operation, Collective | Exchange):
        hides = overlap.may_hide(row, "forward" if row.when == "forward" else "backward", variant.plan)
        payload = emission.formulas.number(entry.amount)
        return True, (*head, operation.collective, operation.axis, payload, int(hides))
    if not isinstance(operation, Operation):
        raise TypeError(f"{entry.account} is no operation")
    work = operation.spent() if row.flops else operation.vector()
    price, shape = priced(variant, operation, row)
    numbers = [emission.formulas.number(formula) for formula in (work, entry.amount, *shape)]
    return False, (*head, emission.price(price), *numbers)


def priced(variant: Variant, operation: Operation, row: KernelTime) -> tuple[dict[str, Any], tuple[sympy.Expr, ...]]:
    """The price of a kernel's class, and the formulas of its shape that the price reads."""
    device, shape = variant.plan.accelerator, operation.shape()
    kind = operation.kernel
    sized = shape is not None and kind.family == ATTENTION
    measured = prices.curve(device, kind, head_dim=float(variant.value(shape.k)) if shape and sized else 0)
    curve = measured or prices.typical(kind)
    rate = device.peak[posting.matmul_dtype(operation)] if row.flops else device.vector
    price = {"kind": str(kind), "rate": rate, "matrix": int(bool(row.flops)), "error": row.error}
    price |= {"form": curve.form, "levelled": int(prices.levelled(kind, curve.form)), **curve.parameters}
    if shape is None or curve.form not in READ:
        return price, ()
    return price, READ[curve.form](shape, operation.pieces)
