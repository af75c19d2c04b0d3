"""What one role of a plan runs and holds: its program, its ledger, and the value of every formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.books import posting
from ledger.books.bindings import bindings
from ledger.books.entries import Entry, Ledger, Lifetime, nonzero
from ledger.books.evaluate import Exact, exact
from ledger.books.memory import holdings
from ledger.books.memory.steps import FullestStep
from ledger.books.memory.timeline import Timeline, timeline
from ledger.books.step_sums import spending
from ledger.model.formats import stored_bytes
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.offloading import weights_on_host
from ledger.model.program import Program, program, whole_program
from ledger.model.schedule import Role, roles, whole_role
from ledger.model.tensors import Tensor
from ledger.model.unit import Unit
from ledger.spec.plan import Plan


@dataclass(frozen=True)
class CompiledRole:
    """What one kind of device runs and holds; `value` evaluates any formula exactly under its sizes."""

    role: Role
    program: Program
    ledger: Ledger
    value: Callable[[sympy.Expr], Exact]
    timeline: Timeline
    fullest: tuple[FullestStep, ...] = ()  # of each moment at which a unit runs

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every entry: flows, stocks that last, and those that exist only at the fullest step of a moment."""
        running = nonzero(entry for step in self.fullest for entry in holdings.stocks_of_fullest_step(step))
        return Ledger(self.role.name, self.ledger.entries + running).entries

    @cached_property
    def spent(self) -> Mapping[str, Exact]:
        """What the role spends in a step, by total."""
        return spending(self.ledger, self.value)

    def weights(self) -> Iterator[tuple[sympy.Expr, Tensor]]:
        """Every weight this device has a part in, once, with how many layers hold one."""
        return _weights_with_counts(self.program.units)

    def held_elements(self, what: str) -> sympy.Expr:
        """Elements of all weights' `weights`, `gradients` or `optimizer` state that this device holds."""
        weights = [(count, weight) for count, weight in self.weights() if what == "weights" or not weight.frozen]
        return sympy.Add(*[count * self.program.sharding.held_elements(what, weight) for count, weight in weights])

    def stored_weights(self, plan: Plan) -> sympy.Expr:
        """Bytes of all weights that this device holds from step to step, each in the format of its part."""
        precision, sharding, hosted = plan.precision, self.program.sharding, weights_on_host(plan)
        sizes = ((count, stored_bytes(precision, weight, sharding, on_host=hosted)) for count, weight in self.weights())
        return sympy.Add(*[count * amount for count, amount in sizes])


def _weights_with_counts(units: Sequence[Unit]) -> Iterator[tuple[sympy.Expr, Tensor]]:
    return ((count, weight) for _, count, weights in weights_by_unit(units) for weight in weights)


def compile_roles(plan: Plan, chosen: Iterable[Role]) -> tuple[CompiledRole, ...]:
    """Every role with flows and memory. Those that differ only in what is in flight share one ledger."""
    programs: dict[object, Program] = {}
    empty_roles = []
    for role in chosen:
        key = _ledger_key(role)
        if key not in programs:
            programs[key] = program(plan, role)
        empty_roles.append(bound_role(plan, role, programs[key]))
    return tuple(_by_kind(empty_roles, lambda book: with_flows(plan, with_memory(plan, book))))


def with_memory_of(plan: Plan, books: Iterable[CompiledRole]) -> Iterator[CompiledRole]:
    """Roles with the memory of this plan: which step is the fullest was chosen for the sizes of another one."""
    return _by_kind(books, lambda book: with_memory(plan, book))


def at_sizes(plan: Plan, books: Sequence[CompiledRole]) -> tuple[CompiledRole, ...]:
    """The roles of a plan that differs from theirs in sizes: the flows are its own, and there are no stocks.

    Another number of layers may give roles of other kinds, which are compiled anew.
    """
    devices = roles(plan)
    if devices != tuple(book.role for book in books):
        return compile_roles(plan, devices)
    empty_roles = (bound_role(plan, book.role, book.program) for book in books)
    return tuple(_by_kind(empty_roles, lambda book: with_flows(plan, book)))


def bound_role(plan: Plan, role: Role, role_program: Program) -> CompiledRole:
    """A role whose symbols are bound and whose ledger is empty."""
    return CompiledRole(role, role_program, Ledger(role.name, ()), exact(bindings(plan, role)), Timeline((), {}))


def with_flows(plan: Plan, book: CompiledRole) -> CompiledRole:
    """The role with the flows of a plan."""
    flows = nonzero(posting.flows(book.program, plan, book.value))
    stocks = tuple(entry for entry in book.ledger.entries if isinstance(entry.when, Lifetime))
    return replace(book, ledger=Ledger(book.role.name, flows + stocks))


def with_memory(plan: Plan, book: CompiledRole) -> CompiledRole:
    """The role with the stocks of a plan, and the moments that they live through."""
    line = timeline(book.program, plan, book.role, book.value)
    flows = tuple(entry for entry in book.ledger.entries if not isinstance(entry.when, Lifetime))
    stocks = nonzero(holdings.lasting_stocks(book.program, plan, book.value, line))
    fullest = tuple(holdings.fullest_by_moment(book.program, plan, book.value, line))
    return replace(book, ledger=Ledger(book.role.name, flows + stocks), timeline=line, fullest=fullest)


def _by_kind(books: Iterable[CompiledRole], write: Callable[[CompiledRole], CompiledRole]) -> Iterator[CompiledRole]:
    """Roles with ledgers that are written once for each kind of role."""
    written: dict[object, CompiledRole] = {}
    for book in books:
        key = _ledger_key(book.role)
        if key not in written:
            written[key] = write(book)
        twin = written[key]
        yield replace(book, ledger=twin.ledger, timeline=twin.timeline, fullest=twin.fullest)


def _ledger_key(role: Role) -> object:
    return role.layers, role.first, role.last, role.sends > 0, role.returns > 0


@dataclass(frozen=True)
class Whole:
    """The unsharded model on one device without recompute, which PyTorch's own counters are compared with."""

    units: tuple[Unit, ...]
    value: Callable[[sympy.Expr], Exact]

    def weights(self) -> Iterator[tuple[sympy.Expr, Tensor]]:
        """Every weight once, with how many layers hold one."""
        return _weights_with_counts(self.units)


def whole(plan: Plan, units: tuple[Unit, ...] | None = None) -> Whole:
    """One micro-batch of the whole model; `units`: its units, where they are there already."""
    role = whole_role(plan.model)
    return Whole(units or whole_program(plan, role), exact(bindings(plan, role)))
