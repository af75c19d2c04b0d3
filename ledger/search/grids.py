"""What is known over the axes of a grid, taken for cells that are places along these axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ledger.search.facts import Array


def taken(  # noqa: PLR0913 - cells, and what is remembered of them
    values: Array,
    axes: Sequence[str],
    cells: Mapping[str, Array],
    lengths: Mapping[str, int],
    flat: dict[Any, Array],
    size: int,
) -> Array:
    """The values of facts over some axes, one for each cell; numbers stay as they are.

    Where the facts have one axis more than is named, the result has a row for each cell. `flat` remembers places.
    """
    if np.ndim(values) == 0:
        return values
    more = values.ndim - len(axes)
    if more < 0:  # the first axes are left out by broadcasting
        axes = axes[-values.ndim :]
        more = 0
    inner = values.shape[values.ndim - more :] if more else ()
    used = tuple(axis for axis, length in zip(axes, values.shape, strict=False) if length > 1)
    if used not in flat:
        place: Array = np.zeros(size, np.int64)
        for axis in used:
            place = place * lengths[axis] + cells[axis]
        flat[used] = place
    if inner and inner[0] > 1:
        return values.reshape(-1, inner[0])[flat[used] if used else np.zeros(size, np.int64)]
    return values.reshape(-1)[flat[used]] if used else values.reshape(-1)[0]
