"""The fullest moment of a step on one device: bytes alive by moment and category, and the largest sum of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.arithmetic.values import Amount, largest, pick, truncate
from ledger.books.compiled_roles import CompiledRole
from ledger.books.entries import Lifetime
from ledger.books.memory.holdings import CATEGORIES


@dataclass(frozen=True)
class Peak:
    """Bytes alive at the fullest moment, in all and by category; `moment` is its place in the timeline."""

    moment: Amount
    bytes: Amount
    parts: Mapping[str, Amount]


def peak_of(book: CompiledRole) -> Peak:
    """The fullest moment of one device."""
    filled = by_moment(book)
    totals = [sum(parts.values()) for parts in filled]
    moment = largest(totals, lambda total: total)
    parts = {category: pick(moment, [parts[category] for parts in filled]) for category in CATEGORIES}
    return Peak(moment, pick(moment, totals), parts)


def peak_bytes(book: CompiledRole) -> Amount:
    """The bytes alive at the fullest moment."""
    return peak_of(book).bytes


def by_moment(book: CompiledRole) -> list[dict[str, Amount]]:
    """The bytes alive at each moment, by category."""
    filled: list[dict[str, Amount]] = [dict.fromkeys(CATEGORIES, 0) for _ in book.line.points]
    for entry in book.ledger.entries:
        if isinstance(entry.when, Lifetime):
            amount = truncate(book.value(entry.amount) * book.value(entry.times))
            category = entry.resource.category
            for moment in range(entry.when.first, entry.when.last + 1):
                filled[moment][category] += amount
    for step in book.fullest:
        for category, amount in step.by_category(book.value).items():
            filled[step.moment][category] += amount
    return filled
