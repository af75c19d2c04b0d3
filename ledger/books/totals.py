"""The totals that others rely on: every key in SI base units, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from ledger.books import liveness
from ledger.books.bindings import bindings
from ledger.books.entries import Ledger
from ledger.books.evaluate import Exact, exact
from ledger.books.memory import CATEGORIES
from ledger.books.results import Number, RoleResult
from ledger.books.time import StepTime
from ledger.model import dtypes
from ledger.model.operations import total
from ledger.model.optimizers import OPTIMIZERS
from ledger.model.program import LOSS, Program, Unit, counted_units, distinct
from ledger.model.recompute import saved_by
from ledger.model.schedule import Role
from ledger.model.tensors import sized
from ledger.spec.plan import Plan

DAY = 86400


@dataclass(frozen=True)
class Books:
    """One role with its books closed: its program, its ledger, and the exact value of any formula."""

    role: Role
    program: Program
    ledger: Ledger
    value: object  # evaluate.exact's function

    def __call__(self, expr: object) -> Exact:
        """The exact value of a formula in this role."""
        return self.value(expr)  # type: ignore[operator, no-any-return]


def totals(plan: Plan, books: Sequence[Books], roles: Sequence[RoleResult], time: StepTime) -> dict[str, Number]:
    """Every key that this plan has numbers for."""
    found: dict[str, Number] = {}
    found.update(parameters(plan, books))
    found.update(flops(plan, books))
    found.update(counters(plan))
    found.update(napkin(plan, int(found["parameters.active"])))
    found.update(memory(plan, books, roles))
    found.update(communication(books))
    found.update(times(plan, time, found))
    return found


def _whole(plan: Plan) -> tuple[tuple[Unit, ...], object]:
    units = counted_units(plan)
    counts = tuple(group.repeat for group in plan.model.groups)
    one = Role("all", (0,), 1, counts, first=True, last=True, in_flight=Fraction(1))
    return units, exact({**bindings(plan, one)})


def parameters(plan: Plan, books: Sequence[Books]) -> Iterator[tuple[str, Number]]:
    """Parameters of the model, those a token uses, and those one device holds."""
    units, value = _whole(plan)
    seen = {weight.name for unit in units if unit.name == "input" for weight in unit.weights}
    count = 0
    for unit in units:
        fresh = [w for w in unit.weights if unit.name == "input" or w.name not in seen]
        count += value(unit.count * total(weight.elements() for weight in fresh))  # type: ignore[operator]
    yield "parameters", count
    yield "parameters.active", count
    held = [
        book(total(unit_count * book.program.sharding.held("weights", w) for unit_count, w in _held_once(book.program)))
        for book in books
    ]
    yield "parameters.per_device", max(held)


def _held_once(program: Program) -> Iterator[tuple[object, object]]:
    from ledger.model.program import wrapped

    for _, count, weights in wrapped(program.units):
        for weight in weights:
            yield count, weight


def flops(plan: Plan, books: Sequence[Books]) -> Iterator[tuple[str, Number]]:
    """Matmul FLOPs of the whole job in one step, by pass, with the exact density of causal masks."""
    by_phase = {
        phase: sum(book.role.devices * book(book.ledger.total("matmul", phase)) for book in books)
        for phase in ("forward", "backward", "recompute")
    }
    for phase, amount in by_phase.items():
        yield f"flops.{phase}", amount
    step = sum(by_phase.values())
    yield "flops.model", by_phase["forward"] + by_phase["backward"]
    yield "flops.step", step
    if plan.run.tokens:
        yield "flops.run", step * steps(plan)


def steps(plan: Plan) -> int:
    """Optimizer steps of the run; the last one may be short."""
    return ceil(Fraction(plan.run.tokens or 0, plan.run.global_batch * plan.run.seq_len))


def counters(plan: Plan) -> Iterator[tuple[str, Number]]:
    """What PyTorch counts and saves for one micro-batch of the unsharded plan without recompute."""
    units, value = _whole(plan)

    def counted(unit: Unit, operations: Iterable[object]) -> Exact:
        return value(unit.count * total(op.counted() for op in operations))  # type: ignore[operator, attr-defined, no-any-return]

    forward = sum(counted(unit, unit.forward) for unit in units)
    yield "flops.counter.forward", forward
    yield "flops.counter.step", forward + sum(counted(unit, unit.backward) for unit in units)
    tables: dict[str, Exact] = {}
    everything: Exact = 0
    ends = {unit.name for unit in units} - {group.name for group in plan.model.groups}
    for unit in units:
        mine = {t.name: value(t.bytes()) for t in unit.kept.saved}  # type: ignore[operator]
        tables.update({t.name: mine[t.name] for t in unit.kept.saved if t.role == "table"})
        layer = sum(size for name, size in mine.items() if name not in tables)
        if unit.name not in ends:
            yield f"saved.per_layer.{unit.name}", layer
        everything += value(unit.count) * layer  # type: ignore[operator]
    shared = _cast_twice(units, value)
    yield "saved.total", everything + sum(tables.values()) - shared


def _cast_twice(units: Sequence[Unit], value: object) -> Exact:
    """Storages that two units save, counted once."""
    seen: set[str] = set()
    twice: Exact = 0
    for unit in units:
        for tensor in unit.kept.saved:
            if tensor.role == "cast" and tensor.storage in seen:
                twice += value(tensor.bytes())  # type: ignore[operator]
            seen.add(tensor.storage if unit.name in ("input", "output", LOSS) else "")
    return twice


def state_bytes(plan: Plan) -> dict[str, Fraction]:
    """Bytes of state per parameter, by kind, with every state as large as the weight."""
    precision = plan.precision
    states = [state for state in OPTIMIZERS[plan.optimizer.name].states if not state.factored]
    return {
        "weights": dtypes.size(precision.weights),
        "gradients": dtypes.size(precision.gradients),
        "master": dtypes.size(precision.master) if precision.master else Fraction(0),
        "optimizer": len(states) * dtypes.size(precision.states),
    }


def napkin(plan: Plan, count: int) -> Iterator[tuple[str, Number]]:
    """The estimate on a napkin: 6 FLOPs per parameter and token at an assumed MFU, and the state-only capacity."""
    labelled = plan.accelerator.memory_labelled * plan.cluster.devices
    yield "napkin.max_parameters", int(labelled / sum(state_bytes(plan).values()))
    if not plan.run.tokens:
        return
    work = 6 * count * plan.run.tokens
    yield "napkin.flops.run", work
    seconds = work / (plan.cluster.devices * peak(plan) * plan.assumptions.mfu)
    yield "napkin.time.run", seconds
    yield "napkin.days", seconds / DAY


def peak(plan: Plan) -> float:
    """The dense peak of one device in the plan's matmul dtype, FLOP/s."""
    return plan.accelerator.peak[dtypes.rate(plan.precision.compute)]


def memory(plan: Plan, books: Sequence[Books], roles: Sequence[RoleResult]) -> Iterator[tuple[str, Number]]:
    """State that persists, and what is alive at the peak of the worst role."""
    worst = max(roles, key=lambda role: role.peak.total)
    book = next(book for book in books if book.role.name == worst.name)
    sharding, precision = book.program.sharding, plan.precision
    held = {
        what: total(count * sharding.held(what, weight) for count, weight in _held_once(book.program))  # type: ignore[operator, arg-type]
        for what in ("weights", "gradients", "optimizer")
    }
    yield "memory.static.weights", book(sized(precision.weights, held["weights"]))
    yield "memory.static.master", book(sized(precision.master, held["optimizer"])) if precision.master else 0
    yield "memory.static.gradients", book(sized(precision.gradients, held["gradients"]))
    yield "memory.static.optimizer", worst.moments[0].parts["optimizer"]
    for category in CATEGORIES:
        yield f"memory.{category}", worst.peak.parts[category]
    yield "memory.peak", worst.peak.total
    yield "memory.reserved", worst.reserved
    yield "memory.capacity", plan.accelerator.memory
    if plan.model.groups:
        yield "kv_cache", _kv_cache(plan)


def _kv_cache(plan: Plan) -> int:
    """Keys and values of one micro-batch of full sequences, all layers, in the activations' dtype."""
    each = dtypes.size(plan.precision.compute if plan.precision.autocast else plan.precision.activations)
    tokens = plan.run.micro_batch * plan.run.seq_len
    heads = sum(group.repeat * group.attention.kv_heads * group.attention.head_dim for group in plan.model.groups)
    return int(2 * heads * tokens * each)


def communication(books: Sequence[Books]) -> Iterator[tuple[str, Number]]:
    """Bytes and counts of each collective over each axis, and memory traffic, per device and step, of the worst role."""
    found: dict[str, Number] = {}
    for book in books:
        mine: dict[str, Exact] = {}
        for entry in book.ledger.select("comm."):
            times = book(entry.times)
            name = entry.resource.name
            mine[f"{name}.bytes"] = mine.get(f"{name}.bytes", 0) + book(entry.amount) * times
            mine[f"{name}.count"] = mine.get(f"{name}.count", 0) + times
        mine["traffic.step"] = book(book.ledger.total("hbm"))
        for key, amount in mine.items():
            found[key] = max(found.get(key, 0), amount)
    yield from sorted(found.items())


def times(plan: Plan, time: StepTime, known: Mapping[str, Number]) -> Iterator[tuple[str, Number]]:
    """Bounds and estimate of a step, rates, utilisation under each convention, and what the run takes and costs."""
    yield "time.floor", time.floor
    yield "time.roofline", time.roofline
    yield "time.step", time.estimate
    yield "time.step.low", time.low
    yield "time.step.high", time.high
    yield "time.serial", time.serial
    yield "time.compute", time.compute
    yield "time.comm", time.communication
    yield "time.exposed", time.exposed
    yield "time.bubble", time.bubble
    yield "time.optimizer", time.optimizer
    rate = plan.run.global_batch * plan.run.seq_len / time.estimate
    yield "tokens_per_second", rate
    yield "tokens_per_second_per_device", rate / plan.cluster.devices
    available = time.estimate * plan.cluster.devices * peak(plan)
    whole = 3 * int(known["flops.counter.forward"]) * plan.run.global_batch // plan.run.micro_batch
    yield "mfu", whole / available
    yield "mfu.causal", float(known["flops.model"]) / available
    yield "hfu", float(known["flops.step"]) / available
    yield from run(plan, time.estimate)


def run(plan: Plan, step: float) -> Iterator[tuple[str, Number]]:
    """Time, cost and energy of the whole run, and the share of it that failures and checkpoints leave."""
    useful = goodput(plan)
    if useful is not None:
        yield "goodput", useful
    if not plan.run.tokens:
        return
    seconds = steps(plan) * step
    yield "time.run", seconds
    if plan.assumptions.price:
        yield "cost.run", plan.cluster.devices * plan.assumptions.price.per_device_hour * seconds / 3600
    power = plan.accelerator.power * plan.assumptions.power_usage_effectiveness
    yield "energy.run", plan.cluster.devices * power * seconds


def goodput(plan: Plan) -> float | None:
    """The share of time that trains: without checkpoints, restarts and work lost (half an interval a failure)."""
    given = plan.assumptions
    if not plan.cluster.failure_rate or given.checkpoint_interval is None:
        return None
    failures = plan.cluster.failure_rate * plan.cluster.devices  # per second, of the job
    saving = (given.checkpoint_cost or 0.0) / given.checkpoint_interval
    losing = failures * ((given.restart_time or 0.0) + given.checkpoint_interval / 2)
    return max(0.0, 1.0 - saving - losing)


__all__ = ["Books", "distinct", "liveness", "saved_by", "totals"]
