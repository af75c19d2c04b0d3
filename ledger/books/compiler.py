"""From a plan to closed books: one sentence for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.books import kernels, memory, posting, time, totals
from ledger.books.bindings import bindings, described
from ledger.books.entries import STOCK, Ledger, Lifetime, nonzero
from ledger.books.evaluate import exact
from ledger.books.memory import CATEGORIES, Timeline, timeline
from ledger.books.notation import text
from ledger.books.results import Account, Compiled, Moment, RoleResult
from ledger.books.totals import Books
from ledger.books.verdict import verdict
from ledger.model.program import program
from ledger.model.schedule import Role, roles
from ledger.spec.plan import Plan

LARGEST = 12  # stocks listed for each moment


def compile_plan(plan: Plan) -> Compiled:
    """Operations, entries, numbers, prices, verdict."""
    books = tuple(close(plan, role) for role in roles(plan))
    timed = [time.role_time(book.role, tuple(kernels.priced(book.ledger, plan, book)), plan) for book in books]
    step = time.step_time(timed, plan)
    results = tuple(_result(book, plan, time.with_exposure(role)) for book, role in zip(books, timed, strict=True))
    found = totals.totals(plan, books, results, step)
    slowest = next(role for role in results if role.name == step.slowest)
    return Compiled(
        plan=plan,
        totals=found,
        accounts=tuple(account for book in books for account in accounts(book)),
        roles=results,
        waterfall=step.spans,
        verdict=verdict(plan, found, results, step, slowest.kernels),
        symbols=described(plan, books[0].role),
    )


def close(plan: Plan, role: Role) -> Books:
    """The books of one role: its program posted, its formulas bound."""
    written = program(plan, role)
    value = exact(bindings(plan, role))
    entries = nonzero([*posting.flows(written, plan), *memory.stocks(written, plan, value)])
    return Books(role, written, Ledger(role.name, entries), value)


def _result(book: Books, plan: Plan, rows: tuple[object, ...]) -> RoleResult:
    found = tuple(moments(book))
    peak = max(found, key=lambda moment: moment.total)
    reserved = int(peak.total * plan.stack.fragmentation) + plan.stack.context
    role = book.role
    return RoleResult(role.name, role.stages, role.devices, found, peak, reserved, rows)  # type: ignore[arg-type]


def moments(book: Books) -> Iterator[Moment]:
    """Every candidate for the peak, with what is alive then."""
    line = timeline(book.program)
    stocks = [entry for entry in book.ledger.entries if entry.resource.kind == STOCK]
    amounts = [(entry, int(book(entry.amount * entry.times))) for entry in stocks]
    for index, name in enumerate(line.names):
        parts = dict.fromkeys(CATEGORIES, 0)
        alive = [(e, n) for e, n in amounts if isinstance(e.when, Lifetime) and e.when.covers(index)]
        for entry, amount in alive:
            parts[entry.resource.name.split(".")[1]] += amount
        largest = sorted(((e.account, n) for e, n in alive), key=lambda pair: (-pair[1], pair[0]))[:LARGEST]
        yield Moment(name, line.titles[name], parts, tuple(largest))


def accounts(book: Books) -> Iterator[Account]:
    """Every entry with its value and its formula as text."""
    line = timeline(book.program)
    for entry in book.ledger.entries:
        yield Account(
            account=entry.account,
            role=book.role.name,
            resource=entry.resource.name,
            unit=entry.resource.unit,
            when=_when(entry.when, line),
            amount=book(entry.amount),
            times=int(book(entry.times)) if entry.resource.kind != STOCK else _whole(book(entry.times)),
            formula=text(entry.amount),
            basis=entry.basis,
            expression=entry.amount,
        )


def _whole(number: object) -> int:
    return number if isinstance(number, int) else round(float(number))  # type: ignore[arg-type]


def _when(when: str | Lifetime, line: Timeline) -> str:
    if isinstance(when, str):
        return when
    first, last = line.names[when.first], line.names[when.last]
    return first if first == last else f"{first}..{last}"


__all__: Sequence[str] = ["close", "compile_plan"]
