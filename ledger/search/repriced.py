"""Variants under other prices: each price that can move made better, by the compiler's own changes of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ledger.books.price_changes import PRICES
from ledger.search.facts import Array, Facts, each_array, evaluated
from ledger.search.stacks import Stack
from ledger.search.variants import Grid, Variant
from ledger.spec.plan import Plan


class Repriced(Variant):
    """A variant with one of PRICES made better: its seconds are traced once for all of them, as one axis more."""

    def __init__(self, one: Variant, price: int) -> None:
        super().__init__(one.world, one.way, one.layers, one.several, one.ways, one.cells)
        self.price = price

    def timed(self, key: tuple[Any, ...], over: Grid, run: Callable[[Plan, Mapping[str, Any]], Facts]) -> Facts:
        """Seconds that `run` says of the plan, over a grid, under its price."""

        def moved(inputs: Mapping[str, Any]) -> Facts:
            plan = self.plan
            for price in PRICES:
                plan = price.moved(plan, inputs[price.path])
            return run(plan, inputs)

        def found() -> Facts:
            grid, legal = over()
            return evaluated(priced_grid(grid), moved, legal)

        def own() -> Facts:
            return each_array(self.world.once(("repriced", *key), found), self._own)

        return self.world.once(("repriced", self.price, *key), own)

    def _own(self, values: Array) -> Array:
        """Of values over all prices, those under this one; a number is the same under all of them."""
        return values[self.price if len(values) > 1 else 0] if np.ndim(values) else values


def priced_grid(grid: Mapping[str, Array]) -> dict[str, Array]:
    """A grid with one axis more, the first: PRICES, of which one is better at each place."""
    depth = max(np.ndim(column) for column in grid.values())
    found = {
        name: np.reshape(column, (1,) * (depth + 1 - np.ndim(column)) + np.shape(column))
        for name, column in grid.items()
    }
    for place, price in enumerate(PRICES):
        factors = np.ones(len(PRICES))
        factors[place] = price.better_by
        found[price.path] = factors.reshape(-1, *(1,) * depth)
    return found


def repriced(stack: Stack, price: int) -> Stack:
    """A stack whose variants are under a better price."""
    return stack.once(("repriced", price), lambda: Stack(stack.world, [Repriced(one, price) for one in stack.variants]))
