"""The fullest moment of a step on one device: bytes alive by moment and category, and the largest sum of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ledger.arithmetic.values import Amount, largest, pick, truncate
from ledger.books.compiled_roles import CompiledRole
from ledger.books.entries import Lifetime
from ledger.books.memory.holdings import CATEGORIES


@dataclass(frozen=True)
class Peak:
    """The fullest moment of a step, its place in the timeline and its bytes; `moments`: those of each by category."""

    moment: Amount
    bytes: Amount
    moments: Sequence[Mapping[str, Amount]] = ()

    @cached_property
    def parts(self) -> Mapping[str, Amount]:
        """Bytes alive then, by category."""
        names = dict.fromkeys((*CATEGORIES, *(name for parts in self.moments for name in parts)))
        return {name: pick(self.moment, [parts.get(name, 0) for parts in self.moments]) for name in names}


def peak_of(book: CompiledRole) -> Peak:
    """The fullest moment of one device."""
    return fullest_moment(by_moment(book))


def peak_bytes(book: CompiledRole) -> Amount:
    """The bytes alive at the fullest moment."""
    return peak_of(book).bytes


def fullest_moment(moments: Sequence[Mapping[str, Amount]]) -> Peak:
    """The fullest of the moments of a step, whose bytes are by category."""
    totals = [sum(parts.values()) for parts in moments]
    moment = largest(totals, lambda total: total)
    return Peak(moment, pick(moment, totals), moments)


def by_moment(book: CompiledRole) -> list[dict[str, Amount]]:
    """The bytes alive at each moment, by category."""
    stocks = (
        (entry.when, entry.resource.category, truncate(book.value(entry.amount) * book.value(entry.times)))
        for entry in book.ledger.entries
        if isinstance(entry.when, Lifetime)
    )
    moments = bytes_of_stocks(stocks, len(book.timeline.points))
    for step in book.fullest:
        add(moments[step.moment], step.by_category(book.value))
    return [dict.fromkeys(CATEGORIES, 0) | parts for parts in moments]


def bytes_of_stocks(stocks: Iterable[tuple[Lifetime, str, Amount]], count: int) -> list[dict[str, Amount]]:
    """Bytes of stocks by category at each of `count` moments; each stock with when it is alive and its category."""
    moments: list[dict[str, Amount]] = [{} for _ in range(count)]
    for when, category, amount in stocks:
        for moment in range(when.first, when.last + 1):
            add(moments[moment], {category: amount})
    return moments


def add(moment: dict[str, Amount], parts: Mapping[str, Amount]) -> None:
    """Adds bytes by category to the bytes of a moment."""
    for category, amount in parts.items():
        moment[category] = moment[category] + amount if category in moment else amount
