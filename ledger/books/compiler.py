"""From a plan to its compiled form: one sentence for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest

from ledger.arithmetic.values import Amount
from ledger.books import time, totals
from ledger.books.assembly.stages import with_exposure
from ledger.books.bindings import described
from ledger.books.calendar import run
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole, compile_roles, whole
from ledger.books.counts import CHECKPOINT, checkpoint, napkin, parameters, with_token_count
from ledger.books.entries import Lifetime, account_of
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.memory.outside import allocations_outside, reserved, workspaces_of
from ledger.books.memory.peak import Peak, peak_of
from ledger.books.price_changes import resource_shares, step_calls
from ledger.books.results import Account, Check, KernelTime, Moment, Number, RoleResult, Verdict
from ledger.books.serving.compiler import compile_serving, compile_serving_totals
from ledger.books.totals import static
from ledger.books.verdict import cost, expectations, operated, policy, verdict
from ledger.model.schedule import roles
from ledger.numbers import with_unit
from ledger.spec.plan import Plan

LARGEST = 12  # stocks listed for each moment


def compile_plan(plan: Plan) -> Compiled:
    """A compiled plan: operations, entries, numbers, prices, verdict."""
    if plan.serve is not None:
        return compile_serving(plan)
    plan = with_token_count(plan)
    books = compile_roles(plan, roles(plan))
    if plan.model.bare:
        return _compile_bare(plan, books)
    table = step_calls(books)
    rows = table.rows(plan)
    timed = table.times(plan, rows)
    step = time.step_time(timed, plan)
    peaks = [peak_of(book) for book in books]
    results = tuple(
        result(book, plan, peak, with_exposure(rows[place], stage))
        for book, peak, stage, (_, place) in zip(books, peaks, timed, table.roles, strict=True)
    )
    stages = [totals.figures(plan, book, peak) for book, peak in zip(books, peaks, strict=True)]
    amounts = totals.totals(totals.counts(plan), totals.PlanFigures(plan, stages, step))
    amounts |= resource_shares(plan, table, rows, step.estimate)
    return Compiled(
        plan=plan,
        totals=amounts,
        accounts=tuple(account for book in books for account in accounts(book)),
        roles=results,
        waterfall=time.spans(step),
        verdict=verdict(plan, amounts, results, results[step.slowest].kernels),
        symbols=described(plan, books[0].role),
        books=books,
    )


def compile_totals(plan: Plan) -> dict[str, Amount]:
    """The totals of `compile_plan` but `pace.*`, without accounts, moments and verdict: two thirds of its time."""
    if plan.serve is not None:
        return compile_serving_totals(plan)
    plan = with_token_count(plan)
    books = compile_roles(plan, roles(plan))
    if plan.model.bare:
        return bare_totals(plan, books)
    table = step_calls(books)
    step = time.step_time(table.times(plan, table.rows(plan)), plan)
    stages = [totals.figures(plan, book, peak_of(book)) for book in books]
    return totals.totals(totals.counts(plan), totals.PlanFigures(plan, stages, step))


def _compile_bare(plan: Plan, books: tuple[CompiledRole, ...]) -> Compiled:
    """A parameter count alone: state, capacity and the napkin follow from it, and nothing else is reported."""
    results = tuple(result(book, plan, peak_of(book), ()) for book in books)
    amounts = bare_totals(plan, books)
    rows = tuple(account for book in books for account in accounts(book))
    return Compiled(plan, amounts, rows, results, (), bare_verdict(plan, amounts), described(plan, books[0].role))


def result(book: CompiledRole, plan: Plan, peak: Peak, rows: tuple[KernelTime, ...]) -> RoleResult:
    """One role's memory at every candidate moment, its peak, and what the allocator reserves for it."""
    candidates, role = moments(book), book.role
    workspaces = workspaces_of(book)
    return RoleResult(
        name=role.name,
        stages=role.stages,
        devices=role.devices,
        moments=candidates,
        peak=candidates[peak.moment],
        reserved=reserved(plan, peak, workspaces),
        kernels=rows,
        outside=allocations_outside(plan, peak, workspaces),
    )


def reserved_bytes(plan: Plan, book: CompiledRole) -> Amount:
    """Bytes the driver reports of a role's device at its fullest moment."""
    return reserved(plan, peak_of(book), workspaces_of(book))


def stocks(book: CompiledRole) -> Iterator[tuple[Lifetime, str, str, int]]:
    """Every stock with its bytes: when it is alive, its category, its account."""
    for entry in book.entries:
        if isinstance(entry.when, Lifetime):
            amount = int(book.value(entry.amount) * book.value(entry.times))
            yield entry.when, entry.resource.category, entry.account, amount


def moments(book: CompiledRole) -> tuple[Moment, ...]:
    """Every candidate for the peak, with what is alive then."""
    line = book.timeline
    parts = [dict.fromkeys(CATEGORIES, 0) for _ in line.names]
    alive: list[list[tuple[str, int]]] = [[] for _ in line.names]
    for when, category, account, amount in stocks(book):
        for moment in range(when.first, when.last + 1):
            parts[moment][category] += amount
            alive[moment].append((account, amount))
    details = [tuple(nsmallest(LARGEST, rows, key=lambda row: (-row[1], row[0]))) for rows in alive]
    filled = zip(line.names, parts, details, strict=True)
    return tuple(Moment(name, line.titles[name], amounts, largest) for name, amounts, largest in filled)


def accounts(book: CompiledRole) -> Iterator[Account]:
    """Every entry with its value and its formula as text."""
    names = book.timeline.names
    for entry in book.entries:
        when = entry.when
        if isinstance(when, Lifetime):
            first, last = names[when.first], names[when.last]
            when = first if first == last else f"{first}..{last}"
        yield account_of(entry, book.role.name, when, book.value)


# --- A model that is a parameter count and nothing else ---

STATE = ("weights", "master", "gradients", "optimizer")


def bare_totals(plan: Plan, books: Sequence[CompiledRole]) -> dict[str, Number]:
    """Parameters, the napkin, persistent state, labelled capacity; the run at the assumed MFU."""
    amounts: dict[str, Number] = dict(parameters(whole(plan), books))
    amounts.update(napkin(plan, whole(plan)))
    amounts.update(checkpoint(plan, whole(plan)))
    for key, amount in (pair for book in books for pair in static(plan, book)):
        amounts[key] = max(amounts.get(key, 0), amount)
    amounts["memory.capacity"] = plan.accelerator.memory
    if "napkin.time.run" in amounts:
        steps = plan.run.global_batch * plan.run.seq_len
        step = float(amounts["napkin.time.run"]) * steps / (plan.run.token_count or 1)
        run_totals = dict(run(plan, step, lambda: amounts[CHECKPOINT]))
        amounts.update({key: amount for key, amount in run_totals.items() if key != "time.run"})
    return amounts


def bare_verdict(plan: Plan, amounts: Mapping[str, Number]) -> Verdict:
    """Whether the state alone fits; activations, logits and buffers come on top and are not known."""
    state = sum(float(amounts[f"memory.static.{part}"]) for part in STATE)
    capacity = float(amounts["memory.capacity"])
    fits = state <= capacity
    figure = f"{with_unit(state, 'B')} of {with_unit(capacity, 'B')}"
    detail = "weights, gradients and optimizer state only; activations and buffers come on top"
    checks = [
        Check("fits", "State per device", "pass" if fits else "fail", figure, detail),
        Check("parameters", "Parameters", "pass", with_unit(amounts["parameters"], "1")),
        *operated(plan, amounts),
        *policy(plan),
        *expectations(plan, amounts),
    ]
    headline = f"state {'fits' if fits else 'does not fit'}: {figure}"
    if "napkin.days" in amounts:
        length, assumed = with_unit(amounts["time.calendar"], "s"), with_unit(plan.assumptions.mfu, "%")
        headline += f"; {length} at the assumed {assumed} MFU{cost(plan, amounts)}"
    return Verdict(fits, "not known from a parameter count", "uncalibrated", headline, tuple(checks))
