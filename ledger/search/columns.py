"""The columns of a table of all layouts: a column a key, whole numbers or text, and totals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ledger.search.batches import Batch
from ledger.search.space import DATA

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what begins one (OWASP, CSV Injection)
NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Columns:
    """The keys in their order, and which of them hold whole numbers; the totals follow them as float64."""

    others: tuple[str, ...]  # keys that are not of the layout
    layout: tuple[str, ...]
    integer_keys: frozenset[str]
    totals: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that a layout states, after those that make its base."""
        return (*self.others, DATA, *self.layout)

    def values(self, batch: Batch, fixed: Mapping[str, Any]) -> Iterator[tuple[str, list[Any], np.ndarray]]:
        """For each key: its values as cells, and which of them each row has."""
        rows = len(batch)
        for key in self.others:
            yield key, [self.cell(key, fixed[key])], np.zeros(rows, np.int32)
        degrees, places = np.unique(batch.data, return_inverse=True)
        yield DATA, [int(degree) for degree in degrees], places.astype(np.int32)
        for key in self.layout:
            yield key, [self.cell(key, value) for value in batch.space.values[key]], batch.choices[key]

    def cell(self, key: str, value: Any) -> int | str | None:
        """A value as a cell: a number in a column of numbers, else its text; nothing where a key is left out."""
        if key in self.integer_keys:
            return int(value)
        if value is None:
            return None
        return text_cell(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def text_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: behind an apostrophe, where it would and is no number."""
    return f"'{text}" if text.startswith(FORMULA) and not NUMBER.fullmatch(text) else text


def columns_of(
    values: Mapping[str, Sequence[Any]], others: Sequence[str], layout: Sequence[str], totals: Sequence[str]
) -> Columns:
    """The columns of a space: a key whose values are all whole numbers is a column of them."""
    of_integers = {key for key, listed in values.items() if all(type(value) is int for value in listed)}
    return Columns(tuple(others), tuple(layout), frozenset({*of_integers, DATA}), tuple(totals))
