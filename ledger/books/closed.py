"""One role of a plan with its books closed: program, ledger, and the value of every formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import sympy

from ledger.books import memory, posting
from ledger.books.bindings import bindings
from ledger.books.entries import Ledger, Lifetime, nonzero
from ledger.books.evaluate import Exact, exact
from ledger.books.timeline import Timeline
from ledger.books.visits import timeline
from ledger.model.program import Program, program, whole_program
from ledger.model.schedule import Role
from ledger.model.tensors import Tensor
from ledger.model.units import Unit
from ledger.model.wrapping import wrapped
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class Books:
    """`value` evaluates any formula exactly under the sizes of this role."""

    role: Role
    program: Program
    ledger: Ledger
    value: Callable[[sympy.Expr], Exact]
    line: Timeline

    def weights(self) -> Iterator[tuple[sympy.Expr, Tensor]]:
        """Every weight this device has a part in, once, with how many layers hold one."""
        for _, count, weights in wrapped(self.program.units):
            for weight in weights:
                yield count, weight

    def held(self, what: str) -> sympy.Expr:
        """Elements of all weights' `weights`, `gradients` or `optimizer` state that this device holds."""
        mine = [(count, weight) for count, weight in self.weights() if what == "weights" or not weight.frozen]
        return sympy.Add(*[count * self.program.sharding.held(what, weight) for count, weight in mine])


def close(plan: Plan, roles: Iterable[Role]) -> tuple[Books, ...]:
    """The books of every role. Roles that differ only in what is in flight share one ledger, bound to other values."""
    written: dict[object, tuple[Program, Ledger, Timeline]] = {}
    found = []
    for role in roles:
        key = _kind(role)
        value = exact(bindings(plan, role))
        if key not in written:
            mine = program(plan, role)
            line = timeline(mine, plan, role, value)
            entries = nonzero([*posting.flows(mine, plan, value), *memory.stocks(mine, plan, value, line)])
            written[key] = mine, Ledger(role.name, entries), line
        mine, ledger, line = written[key]
        found.append(Books(role, mine, ledger, value, line))
    return tuple(found)


def restocked(plan: Plan, books: Iterable[Books]) -> Iterator[Books]:
    """Books with stocks of this plan: which step is the fullest was chosen for the sizes they were closed for."""
    written: dict[object, tuple[Ledger, Timeline]] = {}
    for book in books:
        role, key = book.role, _kind(book.role)
        if key not in written:
            line = timeline(book.program, plan, role, book.value)
            stocks = nonzero(memory.stocks(book.program, plan, book.value, line))
            flows = tuple(entry for entry in book.ledger.entries if not isinstance(entry.when, Lifetime))
            written[key] = Ledger(role.name, flows + stocks), line
        ledger, line = written[key]
        yield replace(book, ledger=ledger, line=line)


def _kind(role: Role) -> object:
    return role.layers, role.first, role.last, role.sends > 0, role.returns > 0


@dataclass(frozen=True)
class Whole:
    """The unsharded model on one device without recompute, which PyTorch's own counters are compared with."""

    units: tuple[Unit, ...]
    value: Callable[[sympy.Expr], Exact]


def whole(plan: Plan) -> Whole:
    """One micro-batch of the whole model."""
    counts = tuple(group.repeat for group in plan.model.groups)
    role = Role("all", (0,), 1, counts, first=True, last=True, in_flight=Fraction(1))
    return Whole(whole_program(plan, role), exact(bindings(plan, role)))
