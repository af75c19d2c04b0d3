"""Entries and the ledger: who spends how much of what, and when. Flows add, stocks peak; the two never mix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import sympy

from ledger.books.evaluate import Value
from ledger.books.notation import text
from ledger.books.resources import Resource, ResourceKind
from ledger.books.results import Account
from ledger.model.causes import Cause
from ledger.model.offloading import HostCopy
from ledger.model.operations import Operation, total

MICRO_BATCH, STEP = "micro-batch", "step"


@dataclass(frozen=True)
class Lifetime:
    """A stock is alive at the moments `first` to `last` of the timeline, both included."""

    first: int
    last: int

    def covers(self, moment: int) -> bool:
        """Whether the stock is alive at this moment."""
        return self.first <= moment <= self.last


@dataclass(frozen=True)
class Entry:
    """`amount` of a resource per occurrence, `times` occurrences a step; `basis` is the rule that posted it.

    `when` is a phase for a flow and a Lifetime for a stock (`times` then counts what is alive together). `per` says
    whether it recurs with every micro-batch or once a step. `shares`: whether it is spent on sharing weights between
    devices (their gathers, reductions and update), not on what a unit computes. `operation` is what runs, if anything.
    """

    cause: Cause
    resource: Resource
    when: str | Lifetime
    amount: sympy.Expr
    times: sympy.Expr
    basis: str
    per: str = STEP
    operation: Operation | HostCopy | None = field(default=None, compare=False, repr=False)
    shares: bool = False

    @property
    def account(self) -> str:
        """The name of the account."""
        return self.cause.account

    @property
    def key(self) -> tuple[str, Resource, str | Lifetime]:
        """What no two entries of a ledger share."""
        return self.account, self.resource, self.when


@dataclass(frozen=True)
class Ledger:
    """The entries of one device role. Only leaves carry amounts; totals are sums over them."""

    role: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        twice = [key for key, count in Counter(entry.key for entry in self.entries).items() if count > 1]
        if twice:
            raise ValueError(f"posted twice: {twice}")

    def select(self, *kinds: ResourceKind, when: str = "") -> Iterator[Entry]:
        """Entries of these kinds of resource (none: of all), of one phase where one is asked for."""
        for entry in self.entries:
            if (not kinds or entry.resource.kind in kinds) and (not when or entry.when == when):
                yield entry

    def total(self, *kinds: ResourceKind, when: str = "") -> sympy.Expr:
        """The sum of a flow over a step. A stock has a peak, not a sum: asking for it raises ValueError."""
        chosen = tuple(self.select(*kinds, when=when))
        stocks = {entry.resource.name for entry in chosen if entry.resource.stock}
        if stocks:
            raise ValueError(f"stocks have a peak, not a total: {', '.join(sorted(stocks))}")
        if len({entry.resource.unit for entry in chosen}) > 1:
            raise ValueError("a total over unlike units")
        return total(entry.amount * entry.times for entry in chosen)


def account_of(entry: Entry, role: str, when: str, value: Value) -> Account:
    """An entry of a role with its value, and its formula as text."""
    return Account(
        cause=entry.cause,
        role=role,
        resource=entry.resource,
        when=when,
        amount=value(entry.amount),
        times=int(value(entry.times)),
        formula=text(entry.amount),
        basis=entry.basis,
        expression=entry.amount,
    )


def nonzero(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries whose amount and times are not zero."""
    return tuple(entry for entry in entries if entry.amount and entry.times)
