"""Entries and the ledger: who spends how much of what, and when. Flows add, stocks peak; the two never mix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import sympy

from ledger.model.operations import Operation, total

FLOW, STOCK = "flow", "stock"
MICRO_BATCH, STEP = "micro-batch", "step"


@dataclass(frozen=True)
class Resource:
    """A currency: FLOPs of a matmul dtype, bytes of memory traffic, bytes sent, bytes held. `kind` is flow or stock."""

    name: str
    unit: str
    kind: str


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
    whether it recurs with every micro-batch or once a step.
    """

    account: str
    resource: Resource
    when: str | Lifetime
    amount: sympy.Expr
    times: sympy.Expr
    basis: str
    per: str = STEP
    cause: Operation | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> tuple[str, str, str | Lifetime]:
        """What no two entries of a ledger share."""
        return self.account, self.resource.name, self.when


@dataclass(frozen=True)
class Ledger:
    """The entries of one device role. Only leaves carry amounts; totals are sums over them."""

    role: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        twice = [key for key, count in Counter(entry.key for entry in self.entries).items() if count > 1]
        if twice:
            raise ValueError(f"posted twice: {twice}")

    def select(self, resource: str = "", when: str = "", account: str = "") -> Iterator[Entry]:
        """Entries whose resource, phase and account begin with what is asked for."""
        for entry in self.entries:
            phase = entry.when if isinstance(entry.when, str) else ""
            if (
                entry.resource.name.startswith(resource)
                and entry.account.startswith(account)
                and (not when or phase == when)
            ):
                yield entry

    def total(self, resource: str = "", when: str = "") -> sympy.Expr:
        """The sum of a flow over a step. A stock has a peak, not a sum: asking for it raises ValueError."""
        chosen = tuple(self.select(resource, when))
        stocks = {entry.resource.name for entry in chosen if entry.resource.kind == STOCK}
        if stocks:
            raise ValueError(f"stocks have a peak, not a total: {', '.join(sorted(stocks))}")
        if len({entry.resource.unit for entry in chosen}) > 1:
            raise ValueError("a total over unlike units")
        return total(entry.amount * entry.times for entry in chosen)


def flow(name: str) -> Resource:
    """A resource that adds up over a step."""
    return Resource(name, "B" if name.startswith(("hbm", "comm", "host")) else "FLOP", FLOW)


def stock(category: str) -> Resource:
    """Bytes held in device memory, by what they are."""
    return Resource(f"memory.{category}", "B", STOCK)


def on_host(category: str) -> Resource:
    """Bytes held in host memory for a device all the time, by what they are."""
    return Resource(f"host.{category}", "B", STOCK)


def nonzero(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries that post anything."""
    return tuple(entry for entry in entries if entry.amount and entry.times)
