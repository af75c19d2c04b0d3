"""What stages spend in a step, for many layouts at once: sums of what their layers, ends and weights spend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ledger.search.facts import Array
from ledger.search.shapes import Kind
from ledger.search.spent import Spent, role_sums, sent_sums, state_sums, tile_sums
from ledger.search.stacks import STATED, Stack
from ledger.search.tiles import TILE
from ledger.search.variants import PIPELINE, SENT

PASSES = ("forward", "backward")


class CellSums:
    """What the cells of a stack spend, part by part."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def layer(self, unit: str, kind: Kind) -> Spent:
        """A layer of a group, or an end of the model, in a micro-batch."""

        def found() -> Spent:
            return added([(1, self._pass(name, unit, kind)) for name in PASSES])

        return self.stack.once(("layer sums", unit, kind.held), found)

    def passed_on(self, name: str, kind: Kind) -> Spent:
        """What a stage does in a pass, beyond its transfer, for what another one sends."""
        return self.stack.once(("pass sums", name, kind.held), lambda: self._pass(name, PIPELINE, kind))

    def _pass(self, name: str, unit: str, kind: Kind) -> Spent:
        key = name, unit
        own = self.stack.named(lambda one: tile_sums(one).passes.get(key, {}), TILE)
        shared = self.stack.named(lambda one: state_sums(one, kind).get(key, {}), STATED)
        return added([(1, own), (1, shared)])

    def ends(self, kind: Kind) -> Spent:
        """All that a kind of stage holds but layers and what it passes on, in a micro-batch."""

        def found() -> Spent:
            units = {unit for one in self.stack.variants for name in PASSES for unit in one.ends(name, kind)}
            return added([(1, self.layer(unit, kind)) for unit in sorted(units)])

        return self.stack.once(("end sums", kind.held), found)

    def sent(self, name: str) -> Spent:
        """What goes from stage to stage in a pass."""
        found = lambda: self.stack.named(lambda one: sent_sums(one).get(name, {}), SENT)  # noqa: E731
        return self.stack.once(("sent sums", name), found)

    def once(self, unit: str) -> Spent:
        """What a layer of a group, or an end of the model, spends once a step."""
        found = lambda: self.stack.named(lambda one: tile_sums(one).once.get(unit, {}), TILE)  # noqa: E731
        return self.stack.once(("once sums", unit), found)

    def by_role(self, kind: Kind) -> Spent:
        """What a kind of stage spends once a step for weights and gradients."""
        found = lambda: self.stack.named(lambda one: role_sums(one, kind).once, STATED)  # noqa: E731
        return self.stack.once(("role sums", kind.held), found)

    def held(self, kind: Kind) -> Mapping[str, Array]:
        """What a kind of stage holds of weights and states, by total."""
        found = lambda: self.stack.named(lambda one: role_sums(one, kind).held, STATED)  # noqa: E731
        return self.stack.once(("held sums", kind.held), found)

    def hosted(self) -> Mapping[Any, Array]:
        """Bytes of activations that wait in host memory, by how many of them there are."""
        return self.stack.once(("hosted",), lambda: self.stack.named(lambda one: tile_sums(one).hosted, TILE))


def added(parts: Sequence[tuple[Array, Mapping[Any, Array]]]) -> dict[Any, Array]:
    """So many of each of these, by name; nothing of what there are none of."""
    found: dict[Any, Array] = {}
    for count, part in parts:
        for name, amount in part.items():
            if not (np.ndim(amount) == 0 and amount == 0):
                more = amount if np.ndim(count) == 0 and count == 1 else count * amount
                found[name] = found[name] + more if name in found else more
    return found
