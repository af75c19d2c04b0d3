"""A space that costs nothing to price: totals are arithmetic on the numbers of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ledger.search.batches import PricedLayouts
from ledger.search.pricing import SpacePiece
from ledger.search.space import LAYOUT, Space


def pieces_of(count: int) -> Callable[[Space], tuple[SpacePiece, ...]]:
    """So many pieces of any space."""
    return lambda space: tuple(SpacePiece(space, f"{number:05}") for number in range(count))


def price_of(rows: int, block: int) -> Callable[[SpacePiece, Sequence[str]], Iterator[PricedLayouts]]:
    """So many rows a piece, in blocks of one size; rows at which many totals are equal are among them."""

    def price(piece: SpacePiece, keys: Sequence[str]) -> Iterator[PricedLayouts]:
        for start in range(0, rows, block):
            number = np.arange(start, min(rows, start + block)) + rows * int(piece.name)
            yield PricedLayouts(piece.space, choices_of(piece.space, number), {key: total(key, number) for key in keys})

    return price


def choices_of(space: Space, number: np.ndarray) -> dict[str, np.ndarray]:
    """Choices that differ from row to row."""
    return {key: (number // (place + 1) % len(space.values[key])).astype(np.int32) for place, key in enumerate(LAYOUT)}


def total(key: str, number: np.ndarray) -> np.ndarray:
    """A total of each row: of few different values, of which some fit the device and some do not."""
    mixed = (number * np.uint64(2654435761) + np.uint64(len(key) * 97)) % np.uint64(1 << 32)
    share = np.floor(mixed.astype(np.float64) / 2**32 * 5000) / 5000
    return {"time.step": 0.5 + 10 * share, "memory.reserved": 2e9 + 200e9 * share**2}.get(key, share)
