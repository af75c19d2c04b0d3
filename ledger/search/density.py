"""Histograms of layouts over time and memory: one of all layouts, and one for each value of a key.

Their size is bounded, however many layouts are counted: a grid of cells, and a layer of it for each value that a page
can choose. Only cells in which there is a layout are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ledger.search.batches import Batch, text_of
from ledger.search.question import MEMORY

PER_DECADE = 32  # cells of a factor of ten in time
SHORTEST, DECADES = 1e-4, 9  # seconds at which the grid begins, and factors of ten that it has
PER_DEVICE = 40  # cells of the memory of a device
REACH = 100  # cells of memory; what needs more is in the last of them
TIMES = PER_DECADE * DECADES
CELLS = TIMES * REACH
MOST_VALUES = 48  # of a key that has layers of its own


@dataclass(frozen=True)
class Layers:
    """The grid's cell of memory in bytes, the total that is its time, and the keys whose values have layers."""

    unit: float
    time: str
    values: Mapping[str, tuple[Any, ...]]

    def first(self, key: str) -> int:
        """The layer of the first value of a key; layer 0 is of all layouts."""
        keys = list(self.values)
        return 1 + sum(len(self.values[before]) for before in keys[: keys.index(key)])

    @property
    def count(self) -> int:
        """The number of layers."""
        return 1 + sum(map(len, self.values.values()))


@dataclass(frozen=True)
class Density:
    """Counts of layouts: `cells` are numbers of layer x CELLS + time x REACH + memory, sorted, each once."""

    cells: np.ndarray
    counts: np.ndarray

    def layer(self, number: int) -> np.ndarray:
        """The counts of a layer, of times by memory."""
        start, end = np.searchsorted(self.cells, (number * CELLS, (number + 1) * CELLS))
        grid = np.zeros(CELLS, np.int64)
        grid[self.cells[start:end] - number * CELLS] = self.counts[start:end]
        return grid.reshape(TIMES, REACH)


def layers_of(unit: float, time: str, values: Mapping[str, Sequence[Any]]) -> Layers:
    """Layers for the keys that have more values than one, and not too many."""
    return Layers(unit, time, {key: tuple(few) for key, few in values.items() if 1 < len(few) <= MOST_VALUES})


def add_densities(first: Density | None, second: Density | None) -> Density | None:
    """The counts of both, where there are any."""
    densities = [density for density in (first, second) if density is not None]
    return summed(densities) if densities else None


def summed(parts: Iterable[Density]) -> Density:
    """The sum of several densities, cell by cell."""
    listed = list(parts)
    cells = np.concatenate([part.cells for part in listed])
    counts = np.concatenate([part.counts for part in listed])
    order = np.argsort(cells, kind="stable")
    cells, counts = cells[order], counts[order]
    starts = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1]))) if len(cells) else np.zeros(0, int)
    return Density(cells[starts], np.add.reduceat(counts, starts) if len(cells) else counts)


def density_of(batch: Batch, layers: Layers, fixed: Mapping[str, Any]) -> Density:
    """The counts of a batch, each of whose layouts has the `fixed` values besides its own."""
    times, memory = batch.totals[layers.time], batch.totals[MEMORY]
    counted = np.isfinite(times) & np.isfinite(memory) & (times > 0)
    row = np.floor(np.log10(np.where(counted, times, 1.0) / SHORTEST) * PER_DECADE)
    column = np.floor(np.where(counted, memory, 0.0) / layers.unit)
    cell = np.clip(row, 0, TIMES - 1).astype(np.int64) * REACH + np.clip(column, 0, REACH - 1).astype(np.int64)
    used, compact = np.unique(cell[counted], return_inverse=True)
    parts = [_density_by_value(used, compact, np.zeros(len(compact), np.int64), 1, 0)]
    for key, values in layers.values.items():
        first = layers.first(key)
        if key in fixed:
            place = [text_of(value) for value in values].index(text_of(fixed[key]))
            parts.append(Density(parts[0].cells + (first + place) * CELLS, parts[0].counts))
        elif key in batch.choices:
            places = {text_of(value): place for place, value in enumerate(values)}
            layer = np.array([places[text_of(value)] for value in batch.space.values[key]], np.int64)
            parts.append(_density_by_value(used, compact, layer[batch.choices[key][counted]], len(values), first))
    return summed(parts)


def _density_by_value(used: np.ndarray, compact: np.ndarray, places: np.ndarray, values: int, first: int) -> Density:
    """Counts of cells by value, the first value's in layer `first`."""
    counts = np.bincount(places * len(used) + compact, minlength=values * len(used))
    occupied = np.flatnonzero(counts)
    if not len(occupied):
        return Density(np.zeros(0, np.int64), np.zeros(0, np.int64))
    value, cell = np.divmod(occupied, len(used))
    return Density((first + value) * CELLS + used[cell], counts[occupied])
