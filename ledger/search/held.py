"""What the fullest device of many layouts holds at its fullest moment, by category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ledger.arithmetic.values import largest, pick
from ledger.books.memory.holdings import CATEGORIES
from ledger.search.combining import Rows, Which
from ledger.search.facts import Array
from ledger.search.shapes import Kind
from ledger.search.stacks import STATED, Stack, aligned, plus
from ledger.search.states import Parts, References
from ledger.search.tiles import TILE, TileParts, tile_parts
from ledger.search.variants import Variant


def held_parts(rows: Rows) -> dict[str, Array]:
    """Bytes at the fullest moment by category, for every row; `rows` are detailed."""
    size, memory = rows.rows["cell"].size, rows.memory
    found = {category: np.zeros(size) for category in CATEGORIES}
    fullest = np.broadcast_to(memory.moment, size)
    for number in np.unique(fullest):
        chosen = fullest == number
        mine = {name: column[chosen] for name, column in rows.rows.items()}
        some = Rows(rows.stack, rows.kinds, rows.listed, mine, detailed=True)
        for category, amount in _at(some, memory.moments[number]).items():
            found[category][chosen] = amount
    return found


def _at(rows: Rows, which: Which) -> dict[str, Array]:
    """Bytes at one moment by category."""
    kind, slots, place = rows.kinds[which.kind], rows.slots(which.kind), which.place
    standing = standing_parts(rows.stack, kind, place)
    found = {category: rows.layered(amount, kind, slots) for category, amount in standing.items()}
    for key in rows.stack.stocks(kind, rows.schedule, detailed=True):
        first, last, _, category = key
        if first <= place <= last:
            found[category] = found.get(category, 0) + rows.stock(key, kind, slots, which.variant)
    return found


def standing_parts(stack: Stack, kind: Kind, place: int) -> Mapping[str, Array]:
    """Bytes at a moment beside what layers wait with, for every cell."""

    def found() -> dict[str, Array]:
        lasting = stack.named(lambda one: one.point_parts(kind, place).lasting, STATED)
        listed = list(stack.references(kind, place))
        return _sum(lasting, fullest_step(stack, kind, place, listed)) if listed else lasting

    return stack.once(("standing parts", kind.held, id(kind.line), place), found)


def fullest_step(stack: Stack, kind: Kind, place: int, listed: Sequence[References]) -> Parts:
    """What the fullest step of a moment holds, of those that layers' own bytes tell apart."""
    fullest = largest(aligned([stack.step(kind, place, each) for each in listed]), lambda amount: amount)
    each = [step_parts(stack, kind, place, references) for references in listed]
    names = dict.fromkeys(name for one in each for name in one)
    return {name: pick(*_together(fullest, [one.get(name, 0.0) for one in each])) for name in names}


def step_parts(stack: Stack, kind: Kind, place: int, references: References) -> Parts:
    """What layers hold while they run, and what stands beside it."""
    found = stack.named(lambda one: one.point_parts(kind, place).steps.get(references, {}), STATED)
    for which, phase, unit in references:
        own = stack.named(lambda one: parts_of_tile(one)[phase, unit, one.adds][which], TILE)  # noqa: B023 - at once
        found = _sum(found, own)
    return found


def parts_of_tile(one: Variant) -> TileParts:
    """What layers hold while they run, over the sizes of a tile."""
    return one.of_tiles("parts", lambda inputs: tile_parts(one.plan, one.units, inputs))


def _together(place: Array, values: Sequence[Array]) -> tuple[Array, list[Array]]:
    first, *others = aligned([place, *values])
    return first, others


def _sum(one: Parts, other: Parts) -> dict[str, Array]:
    return {name: plus(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}
