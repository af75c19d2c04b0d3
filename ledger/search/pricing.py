"""The pieces of a space, each priced by itself as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ledger.books.compiler import compile_plan
from ledger.search.blocks import Block
from ledger.search.space import LAYOUT, Space, laid_out


@dataclass(frozen=True)
class Piece:
    """A part of a space that is priced by itself: what it holds does not depend on any other piece.

    `name` tells it from the others of its space, in the order in which they come.
    """

    space: Space
    name: str


def pieces(space: Space) -> tuple[Piece, ...]:
    """The pieces that make up a space."""
    of_tensor = (replace(space, values={**space.values, LAYOUT[0]: (one,)}) for one in space.values[LAYOUT[0]])
    return tuple(Piece(one, f"{place:05}") for place, one in enumerate(of_tensor))


def price(piece: Piece, keys: Sequence[str]) -> Iterator[Block]:
    """The legal layouts of a piece with these totals, block by block; raises KeyError for a total that no plan has."""
    space = piece.space
    rows = list(space.layouts())
    if not rows:
        return
    found = [compile_plan(laid_out(space.plan, row)).totals for row in rows]
    choices = {key: np.array([space.values[key].index(row[key]) for row in rows], np.int32) for key in LAYOUT}
    yield Block(space, choices, {key: np.array([float(one.get(key, np.nan)) for one in found]) for key in keys})
