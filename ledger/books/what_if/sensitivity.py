"""What one per cent of each input buys: elasticities, d ln(total) / d ln(input).

Prices are changed while all counts stay, which is how the verdict's limit is found. Sizes are differentiated in the
closed forms of work, traffic and memory; their effect on time is that of the nearest legal sizes around them, each
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import log, prod
from typing import Any

import sympy

from ledger.books.calendar import calendar, run, saved_bytes
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole, at_sizes
from ledger.books.counts import with_token_count
from ledger.books.entries import Entry, Lifetime
from ledger.books.evaluate import Exact
from ledger.books.price_changes import PRICES, step_time
from ledger.books.resources import stock
from ledger.model.dims import BY_NAME, symbol
from ledger.model.tensors import CeilDiv
from ledger.spec.plan import Group, Plan
from ledger.spec.stages import growth

NEAR = 0.01  # sizes are moved by at least so much: they are whole numbers
TIME = ("time.step", "time.run", "time.calendar", "cost.run")


@dataclass(frozen=True)
class Sensitivity:
    """Per cent of each total for one per cent more of the input at `path`; totals that were not derived are absent."""

    path: str
    title: str
    elasticities: Mapping[str, float]


def sensitivities(compiled: Compiled, *, of_time_alone: bool = False) -> tuple[Sensitivity, ...]:
    """Every input that has a price or a size; none for a model that is a parameter count.

    `of_time_alone` leaves out the elasticities of FLOPs, traffic and memory, which take closed forms differentiated.
    """
    plan = compiled.plan
    if plan.model.bare:
        return ()
    gradients = {} if of_time_alone else dict(_gradients(compiled))
    return (*_price_sensitivities(compiled), *_size_sensitivities(compiled, gradients), *_run_sensitivities(compiled))


# --- prices ---


def _price_sensitivities(compiled: Compiled) -> Iterator[Sensitivity]:
    """What the pace of the step depends on: a total of the plan each."""
    for price in PRICES:
        gained = -price.better * float(compiled.totals[price.pace])
        yield Sensitivity(price.path, price.title, _time_elasticities(compiled, gained) | {"memory.peak": 0.0})


def _elasticity(before: float, after: float, less: float, more: float) -> float:
    return log(after / before) / log(more / less)


def _time_elasticities(compiled: Compiled, step: float, run: float | None = None) -> dict[str, float]:
    """The elasticities of time, and of cost where the plan has a price; the run's are the step's if not given."""
    rates, plan, totals = {"time.step": step}, compiled.plan, compiled.totals
    if plan.run.tokens:
        rates["time.run"] = step if run is None else run
        trained = float(totals["time.run"])
        rates["time.calendar"] = rates["time.run"] * trained / (trained + (plan.operations.warm_up or 0.0))
        if plan.assumptions.price:
            rates["cost.run"] = rates["time.calendar"]
    return rates


Put = tuple[Callable[[int], Plan], int, int]  # the plan with another size, the size as it is, and its smallest step
Mover = Callable[[Plan], Put]


@dataclass(frozen=True)
class SizeInput:
    """An input that is a whole number; `mover`: how time follows it, where it can move alone."""

    path: str
    title: str
    mover: Mover | None


# --- sizes ---


def _size_sensitivities(
    compiled: Compiled, gradients: Mapping[str, tuple[Fraction, Gradient]]
) -> Iterator[Sensitivity]:
    """The sizes of the run and of the model, by the symbols that stand for them."""
    groups = compiled.plan.model.groups
    for name, path, mover in OF_THE_MODEL:
        yield _size_sensitivity(compiled, SizeInput(path, BY_NAME[name].meaning, mover), gradients, _signs(name))
    for group in groups:
        suffix, of = (group.name, f" ({group.name})") if len(groups) > 1 else ("", "")
        for name, field, moved in OF_A_GROUP:
            mover = partial(moved, group) if moved else None
            size = SizeInput(f"model.layers.{group.name}.{field}", f"{BY_NAME[name].meaning}{of}", mover)
            yield _size_sensitivity(compiled, size, gradients, _signs(name, suffix))


def _signs(name: str, suffix: str = "") -> tuple[tuple[sympy.Symbol, int], ...]:
    """The symbols that move with an input, and which way: a step has fewer micro-batches where they are larger."""
    letter = (symbol(name, suffix), 1)
    return (letter, (symbol("micro_batches"), -1)) if name == "batch" else (letter,)


def _size_sensitivity(
    compiled: Compiled,
    size: SizeInput,
    gradients: Mapping[str, tuple[Fraction, Gradient]],
    signs: Sequence[tuple[sympy.Symbol, int]],
) -> Sensitivity:
    elasticities = {
        key: float(sum(power * gradient.get(sign, Fraction(0)) for sign, power in signs) / amount) if amount else 0.0
        for key, (amount, gradient) in gradients.items()
    }
    return Sensitivity(size.path, size.title, _nearby_elasticities(compiled, size.mover) | elasticities)


def _gradients(compiled: Compiled) -> Iterator[tuple[str, tuple[Fraction, Gradient]]]:
    """Work of the job, traffic of the slowest role, and memory at the peak of the worst role, with their gradients."""
    books = compiled.books
    work = [(book, entry, book.role.devices) for book in books for entry in book.ledger.select("matmul")]
    yield "flops.step", _sum_with_gradient(work)
    traffic = [_sum_with_gradient([(book, entry, 1) for entry in book.ledger.select("hbm")]) for book in books]
    yield "traffic.step", max(traffic, key=lambda pair: pair[0])
    worst, peak = max(zip(books, compiled.roles, strict=True), key=lambda pair: pair[1].peak.total)
    moment = next(index for index, candidate in enumerate(peak.moments) if candidate is peak.peak)
    alive = [
        (worst, entry, 1) for entry in worst.entries if isinstance(entry.when, Lifetime) and entry.when.covers(moment)
    ]
    yield "memory.peak", _sum_with_gradient(alive)
    for part, amount in peak.peak.parts.items():
        if amount:
            yield f"memory.{part}", _sum_with_gradient([row for row in alive if row[1].resource == stock(part)])


def _sum_with_gradient(rows: Sequence[tuple[CompiledRole, Entry, int]]) -> tuple[Fraction, Gradient]:
    """The amounts of entries, each as often as it occurs and on so many devices, with their gradient."""
    by_book = {id(book): slopes(book.value) for book, _, _ in rows}
    weighted_sum, terms = Fraction(0), []
    for book, entry, devices in rows:
        amount = entry.amount * entry.times
        weighted_sum += devices * Fraction(book.value(amount))
        terms.append((Fraction(devices), by_book[id(book)](amount)))
    return weighted_sum, added(*terms)


def _nearby_elasticities(compiled: Compiled, mover: Mover | None) -> dict[str, float]:
    """The elasticities of time from the nearest legal sizes around the given one."""
    if mover is None:
        return {}
    put, current, step = mover(compiled.plan)
    by = max(step, round(current * NEAR / step) * step)
    if current <= by:
        return {}
    less, more = (_step_and_run(put(size), compiled.books) for size in (current - by, current + by))
    return {key: _elasticity(less[key], more[key], current - by, current + by) for key in TIME if key in less}


def _step_and_run(plan: Plan, books: Sequence[CompiledRole]) -> dict[str, float]:
    """What a step of a plan of other sizes takes, and its run, whose tokens may follow the model."""
    plan = with_token_count(plan)
    books = at_sizes(plan, books)
    step = step_time(plan, books)
    return {"time.step": step, **{key: float(amount) for key, amount in run(plan, step, saved_bytes(plan))}}


def _move_seq_len(plan: Plan) -> Put:
    mesh = plan.parallelism
    step = mesh.context * (mesh.tensor if mesh.sequence != "off" else 1)
    return lambda size: replace(plan, run=replace(plan.run, seq_len=size)), plan.run.seq_len, step


def _move_model(field: str, plan: Plan) -> Put:
    current, step = getattr(plan.model, field), plan.parallelism.tensor
    return lambda size: replace(plan, model=replace(plan.model, **{field: size})), current, step


def _move_depth(group: Group, plan: Plan) -> Put:
    step = growth(plan.model, plan.parallelism)
    return lambda size: _with_group(plan, group, replace(group, repeat=size)), group.repeat, step


def _move_width(group: Group, plan: Plan) -> Put:
    mlp, step = group.mlp, plan.parallelism.tensor
    return lambda size: _with_group(plan, group, replace(group, mlp=replace(mlp, d_ff=size))), mlp.d_ff, step


def _with_group(plan: Plan, group: Group, new_group: Group) -> Plan:
    groups = tuple(new_group if listed is group else listed for listed in plan.model.groups)
    return replace(plan, model=replace(plan.model, groups=groups))


# Symbols of sizes, their paths, and how time follows them: where nothing moves them alone, it is left out.
OF_THE_MODEL: Sequence[tuple[str, str, Mover | None]] = (
    ("batch", "run.micro_batch", None),
    ("seq", "run.seq_len", _move_seq_len),
    ("d_model", "model.d_model", partial(_move_model, "d_model")),
    ("vocab", "model.vocab", partial(_move_model, "vocab")),
)
OF_A_GROUP: Sequence[tuple[str, str, Callable[[Group, Plan], Put] | None]] = (
    ("d_ff", "mlp.d_ff", _move_width),
    ("heads", "attention.heads", None),
    ("layers", "repeat", _move_depth),
)


# --- the length of a run, its price, and what interrupts it ---


def _run_sensitivities(compiled: Compiled) -> Iterator[Sensitivity]:
    """A run is as long as its tokens or images, and costs what an hour of its devices does; and what interrupts it."""
    plan = compiled.plan
    if not plan.run.tokens:
        return
    read = "images" if plan.run.images else "tokens"
    yield Sensitivity(
        f"run.{read}", f"{read} of the run", _time_elasticities(compiled, 0.0, 1.0) | {"memory.peak": 0.0}
    )
    still = {"time.step": 0.0, "time.run": 0.0, "memory.peak": 0.0}
    if plan.assumptions.price:
        cost = still | {"time.calendar": 0.0, "cost.run": 1.0}
        yield Sensitivity("assumptions.price.per_device_hour", "price of a device and hour", cost)
    for field, title in INTERRUPTIONS.items():
        if isinstance(stated := getattr(plan.operations, field), float) and plan.operations.loses and stated:
            lost = _calendar_elasticity(compiled, field, stated)
            money = {"cost.run": lost} if plan.assumptions.price else {}
            yield Sensitivity(f"operations.{field}", title, still | {"time.calendar": lost} | money)


# Fields of a plan's operations that a reviewer may ask about, with what they are.
INTERRUPTIONS = {
    "failure_rate": "failures of a device",
    "checkpoint_interval": "time between checkpoints",
    "checkpoint_cost": "time of a checkpoint",
    "storage_bandwidth": "bandwidth of storage",
    "restart_time": "time of a restart",
    "evaluation_interval": "time between evaluations",
    "evaluation_time": "time of an evaluation",
    "warm_up": "warm-up",
}


def _calendar_elasticity(compiled: Compiled, field: str, stated: float) -> float:
    """The elasticity of the calendar in a field of the plan's operations."""
    plan, saved = compiled.plan, saved_bytes(compiled.plan)
    around = (1 - NEAR, 1 + NEAR)
    moved: list[dict[str, Any]] = [{field: stated * by} for by in around]
    plans = (replace(plan, operations=replace(plan.operations, **fields)) for fields in moved)
    less, more = (calendar(changed, compiled.totals["time.run"], saved) for changed in plans)
    return _elasticity(float(less), float(more), 1 - NEAR, 1 + NEAR)


# --- Closed forms differentiated ---

Gradient = Mapping[sympy.Symbol, Fraction]


def slopes(value: Callable[[sympy.Expr], Exact]) -> Callable[[sympy.Expr], Gradient]:
    """A function that gives s * d(formula)/ds for every symbol s of a formula, at the sizes that `value` binds.

    Rounding up to equal shards is differentiated as the plain quotient.
    """
    gradients: dict[sympy.Expr, Gradient] = {}

    def slope(expr: sympy.Expr) -> Gradient:
        gradient = gradients.get(expr)
        if gradient is None:
            gradient = gradients[expr] = _slope(expr, value, slope)
        return gradient

    return slope


def _slope(expr: sympy.Expr, value: Callable[[sympy.Expr], Exact], slope: Callable[[sympy.Expr], Gradient]) -> Gradient:
    if isinstance(expr, sympy.Symbol):
        return {expr: Fraction(value(expr))}
    if isinstance(expr, sympy.Rational):
        return {}
    if isinstance(expr, sympy.Add):
        return added(*((Fraction(1), slope(term)) for term in expr.args))
    if isinstance(expr, sympy.Mul):
        return added(*((_other_factors(expr, index, value), slope(factor)) for index, factor in enumerate(expr.args)))
    if isinstance(expr, sympy.Pow):
        power = int(expr.exp)
        return added((power * Fraction(value(expr.base)) ** (power - 1), slope(expr.base)))
    if isinstance(expr, CeilDiv):
        rows, shards = expr.args
        over, row_count = Fraction(1) / Fraction(value(shards)), Fraction(value(rows))
        return added((over, slope(rows)), (-row_count * over**2, slope(shards)))
    raise TypeError(f"no derivative of {expr}")


def _other_factors(expr: sympy.Mul, index: int, value: Callable[[sympy.Expr], Exact]) -> Fraction:
    """The product of all factors but one."""
    return prod((value(factor) for place, factor in enumerate(expr.args) if place != index), start=Fraction(1))


def added(*terms: tuple[Fraction, Gradient]) -> dict[sympy.Symbol, Fraction]:
    """A sum of gradients with their weights."""
    sums: dict[sympy.Symbol, Fraction] = {}
    for weight, gradient in terms:
        for sign, amount in gradient.items():
            sums[sign] = sums.get(sign, Fraction(0)) + weight * amount
    return sums
