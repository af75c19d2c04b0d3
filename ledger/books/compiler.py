"""From a plan to closed books: one sentence for each stage."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest

from ledger.arithmetic.values import Amount
from ledger.books import bare, time, totals
from ledger.books.assembly.stages import with_exposure
from ledger.books.bindings import described
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.counts import with_token_count
from ledger.books.entries import Lifetime
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.memory.outside import outside, reserved, workspaces_of
from ledger.books.memory.peak import Peak, peak_of
from ledger.books.memory.timeline import Timeline
from ledger.books.notation import text
from ledger.books.price_changes import resource_shares, step_calls
from ledger.books.results import Account, Compiled, KernelTime, Moment, RoleResult
from ledger.books.serving.compiler import compile_serving, compile_serving_totals
from ledger.books.verdict import verdict
from ledger.model.schedule import roles
from ledger.spec.plan import Plan

LARGEST = 12  # stocks listed for each moment


def compile_plan(plan: Plan) -> Compiled:
    """Operations, entries, numbers, prices, verdict."""
    if plan.serve is not None:
        return compile_serving(plan)
    plan = with_token_count(plan)
    books = compile_roles(plan, roles(plan))
    if plan.model.bare:
        return _bare(plan, books)
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
    found = totals.totals(totals.counts(plan), totals.PlanFigures(plan, stages, step))
    found |= resource_shares(plan, table, rows, step.estimate)
    return Compiled(
        plan=plan,
        totals=found,
        accounts=tuple(account for book in books for account in accounts(book)),
        roles=results,
        waterfall=time.spans(step),
        verdict=verdict(plan, found, results, results[step.slowest].kernels),
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
        return bare.totals(plan, books)
    table = step_calls(books)
    step = time.step_time(table.times(plan, table.rows(plan)), plan)
    stages = [totals.figures(plan, book, peak_of(book)) for book in books]
    return totals.totals(totals.counts(plan), totals.PlanFigures(plan, stages, step))


def _bare(plan: Plan, books: tuple[CompiledRole, ...]) -> Compiled:
    """A parameter count alone: state, capacity and the napkin follow from it, and nothing else is reported."""
    results = tuple(result(book, plan, peak_of(book), ()) for book in books)
    found = bare.totals(plan, books)
    rows = tuple(account for book in books for account in accounts(book))
    return Compiled(plan, found, rows, results, (), bare.verdict(plan, found), described(plan, books[0].role))


def result(book: CompiledRole, plan: Plan, peak: Peak, rows: tuple[KernelTime, ...]) -> RoleResult:
    """One role's memory at every candidate moment, its peak, and what the allocator reserves for it."""
    found, role = moments(book), book.role
    workspaces = workspaces_of(book)
    return RoleResult(
        name=role.name,
        stages=role.stages,
        devices=role.devices,
        moments=found,
        peak=found[peak.moment],
        reserved=reserved(plan, peak, workspaces),
        kernels=rows,
        outside=outside(plan, peak, workspaces),
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
    line = book.line
    parts = [dict.fromkeys(CATEGORIES, 0) for _ in line.names]
    alive: list[list[tuple[str, int]]] = [[] for _ in line.names]
    for when, category, account, amount in stocks(book):
        for moment in range(when.first, when.last + 1):
            parts[moment][category] += amount
            alive[moment].append((account, amount))
    return tuple(
        Moment(name, line.titles[name], parts[index], tuple(nsmallest(LARGEST, alive[index], key=_largest_first)))
        for index, name in enumerate(line.names)
    )


def _largest_first(holding: tuple[str, int]) -> tuple[int, str]:
    account, amount = holding
    return -amount, account


def accounts(book: CompiledRole) -> Iterator[Account]:
    """Every entry with its value and its formula as text."""
    line = book.line
    for entry in book.entries:
        yield Account(
            cause=entry.cause,
            role=book.role.name,
            resource=entry.resource,
            when=_when(entry.when, line),
            amount=book.value(entry.amount),
            times=int(book.value(entry.times)),
            formula=text(entry.amount),
            basis=entry.basis,
            expression=entry.amount,
        )


def _when(when: str | Lifetime, line: Timeline) -> str:
    if isinstance(when, str):
        return when
    first, last = line.names[when.first], line.names[when.last]
    return first if first == last else f"{first}..{last}"
