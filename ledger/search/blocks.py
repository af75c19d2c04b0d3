"""Priced layouts as columns: what each of them chooses, and its totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from ledger.search.space import Space


@dataclass(frozen=True)
class Block:
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
        """What a spec would state to have the layout of a row; None: leave the key out."""
        places = {key: int(column[row]) for key, column in self.choices.items()}
        chosen = {key: self.space.values[key][place] for key, place in places.items()}
        from ledger.search.space import completed

        return dict(completed(chosen, self.space.plan))
