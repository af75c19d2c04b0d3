"""The pieces of a space, each priced by itself as arrays.

A layout's step and memory are put together from facts that depend on few of its keys: what a tile of the model computes
and holds (tiles), what sharing its weights costs (states), how its layers are dealt out (shapes). Facts are traced from
the compiler's own rules and evaluated over grids of sizes; here they are gathered for every legal layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from ledger.search.blocks import Block
from ledger.search.combining import Rows
from ledger.search.compiled_rows import compiled_parts, is_compiled, price_compiled
from ledger.search.facts import Array, UnsettledError
from ledger.search.row_totals import RowTotals, detailed
from ledger.search.shapes import Kind, Shape, is_priced_at_once
from ledger.search.space import Space
from ledger.search.stacks import Stack
from ledger.search.tiles import TILE
from ledger.search.variants import Layers, Sharded, Variant, lone
from ledger.search.world import World, world

CELLS = 1 << 15  # of a stack: what is known of them is held at once
COMPILED = 16  # of a block whose layouts are compiled one by one: a search that has little time stops between blocks
ROWS = 1 << 16  # of a block: what is computed of them stays in the caches


@dataclass(frozen=True)
class Piece:
    """A part of a space that is priced by itself: layouts whose layers are cut by the same axes, states by one ZeRO.

    `name` tells it from the others of its space, in the order in which they come. `cut`: which of the axes of TILE are
    used at all; `recomputes`: what of the layers is rebuilt.
    """

    space: Space
    name: str
    cut: Mapping[str, bool] = field(default_factory=dict)
    zero: int = 0
    offload: Any = None
    recomputes: tuple[Any, ...] = ()


def pieces(space: Space) -> tuple[Piece, ...]:
    """The pieces that make up a space; smaller ones where each layout is compiled, so that they end now and then."""
    if is_compiled(space.plan):
        return tuple(Piece(part, f"{place:05}") for place, part in enumerate(compiled_parts(space)))
    values = space.values
    flags = (sorted({value > 1 for value in values[f"parallelism.{axis}"]}) for axis in TILE[:3])
    rebuilt = [values["recompute"]] if is_priced_at_once(space.plan) else [(one,) for one in values["recompute"]]
    kinds = product(product(*flags), values["parallelism.zero"], values["parallelism.offload"], rebuilt)
    return tuple(
        Piece(space, f"{place:05}", dict(zip(TILE[:3], cut, strict=True)), zero, offload, recomputes)
        for place, (cut, zero, offload, recomputes) in enumerate(kinds)
    )


def price(piece: Piece, keys: Sequence[str]) -> Iterator[Block]:
    """The legal layouts of a piece with these totals, block by block; raises KeyError for a total that no plan has."""
    if is_compiled(piece.space.plan):
        yield from price_compiled(piece.space, keys)
        return
    shared = world(piece.space)
    for variants in _stacked(_variants(shared, piece)):
        stack = Stack(shared, variants)
        for kinds, listed in stack.classes():
            for rows in _rows(stack, listed):
                yield from _priced(stack, kinds, listed, rows, keys)


def _priced(
    stack: Stack, kinds: Sequence[Kind], listed: Sequence[Shape], rows: Mapping[str, Array], keys: Sequence[str]
) -> Iterator[Block]:
    """Some rows with their totals: put together from facts, or compiled each, few a block, where that cannot be."""
    if all(one.uniform for one in stack.variants):
        with suppress(UnsettledError, KeyError):
            yield RowTotals(Rows(stack, kinds, listed, rows, detailed=detailed(keys))).block(keys)
            return
    count = len(next(iter(rows.values()), ()))
    for first in range(0, count, COMPILED):
        some = {key: column[first : first + COMPILED] for key, column in rows.items()}
        yield RowTotals(Rows(stack, kinds, listed, some, detailed=detailed(keys))).compiled(keys)


def _variants(shared: World, piece: Piece) -> Iterator[Variant]:
    """The choices of a piece that are no sizes, with the cells of each: those that may stand in one stack together."""
    values = shared.space.values
    ways = sorted({shape.schedule.ways for shape in shared.shapes})
    for way, both in product(_ways(values, piece), ways):
        for layers in _layers(values, piece):
            cells = shared.cells(piece.cut, way, layers, both)
            for (alone, at_once), several in product(_alone(shared, cells), (False, True)):
                chosen = at_once & (cells["several"] == several)
                if chosen.any():
                    own = {axis: column[chosen] for axis, column in cells.items() if axis != "several"}
                    yield Variant(shared, way, replace(layers, alone=alone), several, both, own)


def _alone(shared: World, cells: Mapping[str, Array]) -> Iterator[tuple[int, Array]]:
    """Degrees at which devices hold one expert each, with the cells that have them; last, 0 and all others."""
    degrees = np.array(shared.lists["expert"])[cells["expert"]]
    sizes = lone(shared.plan)
    yield from ((size, degrees == size) for size in sizes)
    yield 0, ~np.isin(degrees, sizes)


def _ways(values: Mapping[str, Sequence[Any]], piece: Piece) -> Iterator[Sharded]:
    for reshard in values["parallelism.reshard"]:
        if (reshard is None) == (piece.zero != 3):
            yield Sharded(piece.zero, reshard, piece.offload)


def _layers(values: Mapping[str, Sequence[Any]], piece: Piece) -> Iterator[Layers]:
    """What the layers of a piece may be cut into, and what of them is rebuilt."""
    cut = piece.cut
    for sequence, exchange in product(values["parallelism.sequence"], values["parallelism.context_exchange"]):
        if (cut["tensor"] or sequence == "off") and cut["context"] != (exchange is None):
            for recompute in piece.recomputes:
                yield Layers(cut["tensor"], cut["context"], cut["expert"], sequence, exchange, recompute)


def _stacked(variants: Iterator[Variant]) -> Iterator[list[Variant]]:
    """Variants in stacks of so many cells; those of a stack enter pipelines from equally many ends."""
    held: list[Variant] = []
    size = 0
    for one in variants:
        alike = not held or (one.ways, one.uniform) == (held[0].ways, held[0].uniform)
        if held and (size + one.size > CELLS or not alike):
            yield held
            held, size = [], 0
        held.append(one)
        size += one.size
    if held:
        yield held


def _rows(stack: Stack, listed: Sequence[Shape]) -> Iterator[dict[str, Array]]:
    """The legal layouts of some shapes, block by block: places of cells and of shapes."""
    cells, of_shape = [], []
    for place, shape in enumerate(listed):
        found = stack.of_stages(shape.mesh.pipeline)
        cells.append(found)
        of_shape.append(np.full(found.size, place))
    rows = {"cell": np.concatenate(cells), "shape": np.concatenate(of_shape)}
    for start in range(0, rows["cell"].size, ROWS):
        part = {name: column[start : start + ROWS] for name, column in rows.items()}
        legal = stack.allowed(part, listed)
        if legal.any():
            yield part if legal.all() else {name: column[legal] for name, column in part.items()}
