"""Legal layouts in batches of one size, each choice as a place among the values of the whole space.

How many layouts a block has is the affair of what prices it: here every batch but the last of a task is full, so that
nothing that follows depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ledger.search.space import Space

FULL = 1 << 18  # layouts of a batch
DIVIDING = ("parallelism.tensor", "parallelism.pipeline", "parallelism.context")  # what data is the rest of


@dataclass(frozen=True)
class Batch:
    """Legal layouts, a row each; `first` is the number of the first row among those of its task.

    `choices`: for each key of a layout, places among `space.values` (int32). `totals`: float64, by key.
    """

    space: Space
    first: int
    choices: Mapping[str, np.ndarray]
    totals: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.choices.values())))

    @property
    def data(self) -> np.ndarray:
        """The data-parallel degree of each layout."""
        return data_degrees(self.space, self.choices)


def text_of(value: Any) -> str:
    """A value of a key as JSON, which identifies it."""
    return json.dumps(value, sort_keys=True)


def data_degrees(space: Space, choices: Mapping[str, np.ndarray]) -> np.ndarray:
    """The devices over the product of the tensor, pipeline and context degrees."""
    devices_of_replica = np.ones(1, np.int64)
    for key in filter(space.values.__contains__, DIVIDING):
        devices_of_replica = devices_of_replica * np.array(space.values[key], np.int64)[choices[key]]
    return space.plan.cluster.devices // devices_of_replica


def batches(
    blocks: Iterable[PricedLayouts], space: Space, data: Sequence[int] = (), full: int = FULL
) -> Iterator[Batch]:
    """The rows of blocks, in their order, in batches of `full`; of all data-parallel degrees, or of those given."""
    waiting: list[Batch] = []
    count, first = 0, 0
    for block in blocks:
        part = _translated(block, space)
        if data:
            part = rows_of(part, np.flatnonzero(np.isin(part.data, data)))
        waiting.append(part)
        count += len(part)
        while count >= full:
            waiting_rows = replace(concatenated(waiting), first=first)
            yield rows_of(waiting_rows, slice(0, full))
            waiting = [rows_of(waiting_rows, slice(full, None))]
            count, first = count - full, first + full
    if count:
        yield replace(concatenated(waiting), first=first)


def _translated(block: PricedLayouts, space: Space) -> Batch:
    """The block with its choices as places in the whole space."""
    choices = {}
    for key in space.keys:
        places = {text_of(value): place for place, value in enumerate(space.values[key])}
        places_in_space = np.array([places[text_of(value)] for value in block.space.values[key]], np.int32)
        choices[key] = places_in_space[block.choices[key]]
    return Batch(space, 0, choices, {key: np.asarray(column, np.float64) for key, column in block.totals.items()})


# --- priced layouts as columns ---


@dataclass(frozen=True)
class PricedLayouts:
    """Legal layouts of one piece of a space, a row each.

    `choices`: for each key of a layout, the place of its value among `space.values[key]` (integers).
    `totals`: for each total that was asked for, its values (float64; NaN where a layout has none).
    """

    space: Space
    choices: Mapping[str, np.ndarray]
    totals: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.choices.values()), ()))

    def layout(self, row: int) -> dict[str, Any]:
        """The keys that a spec would state to have the layout of a row; None: leave the key out."""
        places = {key: int(column[row]) for key, column in self.choices.items()}
        chosen = {key: self.space.values[key][place] for key, place in places.items()}
        from ledger.search.space import completed

        return dict(completed(chosen, self.space.plan))


Layouts = TypeVar("Layouts", Batch, PricedLayouts)


def rows_of(layouts: Layouts, rows: Any) -> Layouts:
    """Some rows of a batch or a block."""
    choices = {key: column[rows] for key, column in layouts.choices.items()}
    return replace(layouts, choices=choices, totals={key: column[rows] for key, column in layouts.totals.items()})


def concatenated(parts: Sequence[Layouts]) -> Layouts:
    """The rows of several batches or blocks of one space, one after the other."""
    if len(parts) == 1:
        return parts[0]
    choices = {key: np.concatenate([part.choices[key] for part in parts]) for key in parts[0].choices}
    totals = {key: np.concatenate([part.totals[key] for part in parts]) for key in parts[0].totals}
    return replace(parts[0], choices=choices, totals=totals)
