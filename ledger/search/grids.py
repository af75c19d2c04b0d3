"""Rows as places along the axes of grids: what is known over few axes is taken for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ledger.search.facts import Array


class Grid:
    """Columns of places along named axes: what is known over few axes is taken for every row."""

    def __init__(self, columns: Mapping[str, Array], lengths: Mapping[str, int]) -> None:
        self.columns, self.lengths = columns, lengths
        self.flat: dict[Any, Array] = {}
        self.size = len(next(iter(columns.values())))

    def take(self, values: Array, axes: Sequence[str]) -> Array:
        """The values of facts over some axes, one for each row; numbers stay as they are."""
        if np.ndim(values) == 0:
            return values
        used = tuple(axis for axis, length in zip(axes[-np.ndim(values) :], values.shape, strict=True) if length > 1)
        if used not in self.flat:
            flat: Array = np.zeros(self.size, np.int64)
            for axis in used:
                flat = flat * self.lengths[axis] + self.columns[axis]
            self.flat[used] = flat
        return values.reshape(-1)[self.flat[used]] if used else values.reshape(-1)[0]

    def chosen(self, rows: Array) -> Grid:
        """Some of the rows."""
        return Grid({axis: column[rows] for axis, column in self.columns.items()}, self.lengths)
