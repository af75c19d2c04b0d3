"""FSDP units: sets of weights that are gathered, and whose gradients are reduced, together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import sympy

from ledger.model.causes import ENDS, LOSS, ROOT
from ledger.model.formats import share_dtype
from ledger.model.operations import ONE, total
from ledger.model.sharding import Sharding, gathered, sent_as
from ledger.model.tensors import Tensor, sized
from ledger.spec.plan import Precision

if TYPE_CHECKING:
    from ledger.model.unit import Unit

MODEL = 0  # layers in a wrap that holds all of them


@dataclass(frozen=True)
class FsdpUnit:
    """`count` equal sets of weights on one device, each of which moves as one: weights, and how many layers have them.

    `name` is the unit whose layers it wraps, or the root.
    """

    name: str
    count: sympy.Expr
    parts: tuple[tuple[sympy.Expr, tuple[Tensor, ...]], ...]
    used_again: bool = True  # its layers have a backward pass
    experts: bool = False  # the routed experts of its layers alone

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.count, self.parts, self.used_again, self.experts))

    def __hash__(self) -> int:
        return self._hash

    def over(self, sharding: Sharding) -> Iterator[tuple[str, FsdpUnit]]:
        """The axes over which its weights are shared, each with the set of those that are."""
        parts_by_axis: dict[str, list[tuple[sympy.Expr, tuple[Tensor, ...]]]] = {}
        for times, weights in self.parts:
            for axis, shared in sharding.shared(weights):
                parts_by_axis.setdefault(axis, []).append((times, shared))
        for axis, parts in parts_by_axis.items():
            yield axis, replace(self, parts=tuple(parts))

    def trained(self) -> FsdpUnit:
        """The set without the weights that have no gradient."""
        parts = ((times, tuple(weight for weight in weights if not weight.frozen)) for times, weights in self.parts)
        return replace(self, parts=tuple((times, weights) for times, weights in parts if weights))

    def gradients(self) -> FsdpUnit:
        """The weights that have a gradient, none of them narrow: gradients never are."""
        parts = ((times, tuple(replace(weight, narrow="") for weight in weights)) for times, weights in self.parts)
        return replace(self, parts=tuple(parts)).trained()

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - few sets of weights, each a plain value
    def gathered_bytes(self, sharding: Sharding, dtype: str) -> sympy.Expr:
        """Bytes of the weights put together, padding included."""
        return total(times * gathered(weights, sharding, dtype) for times, weights in self.parts)

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - few sets of weights, each a plain value
    def share(self, sharding: Sharding, dtype: str) -> sympy.Expr:
        """Bytes of one device's part of them, padding included; what is only stored quantised stays as it is stored."""
        return total(
            times * sized(sent_as(weight, dtype), sharding.held_elements("optimizer", weight))
            for times, weights in self.parts
            for weight in weights
        )

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - few sets of weights, each a plain value
    def stored_share(self, sharding: Sharding, precision: Precision) -> sympy.Expr:
        """Bytes of one device's part of them as they are stored, padding included, without scales."""
        return total(
            times * sized(share_dtype(precision, weight), sharding.held_elements("optimizer", weight))
            for times, weights in self.parts
            for weight in weights
        )

    def stored_otherwise(self, precision: Precision, dtype: str) -> FsdpUnit:
        """The set without the weights that are stored as they are sent, where others are sent in `dtype`."""

        def is_cast(weight: Tensor) -> bool:
            return share_dtype(precision, weight) != sent_as(weight, dtype)

        parts = ((times, tuple(filter(is_cast, weights))) for times, weights in self.parts)
        return replace(self, parts=tuple((times, weights) for times, weights in parts if weights))

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - few sets of weights, each a plain value
    def unpadded(self, dtype: str) -> sympy.Expr:
        """Bytes of the whole weights or their gradients as autograd has them."""
        return total(times * sized(dtype, weight.elements()) for times, weights in self.parts for weight in weights)


def distinct_weights(units: Sequence[Unit]) -> tuple[Tensor, ...]:
    """Weights of several units, a shared one once."""
    return tuple({weight.name: weight for unit in units for weight in unit.weights}.values())


def shared(units: Sequence[Unit]) -> tuple[Tensor, ...]:
    """Trained weights that both ends of the model have, on a device that holds both."""
    ends = [{w.name: w for w in unit.weights if not w.frozen} for unit in units if unit.name in ENDS]
    uses = Counter(name for weights in ends for name in weights)
    return tuple({name: w for weights in ends for name, w in weights.items() if uses[name] > 1}.values())


def weights_by_unit(units: Sequence[Unit]) -> Iterator[tuple[str, sympy.Expr, tuple[Tensor, ...]]]:
    """Each weight once: those of each layer with their number, and those of the two ends of the model, the root."""
    ends = [unit for unit in units if unit.name in ENDS]
    for unit in units:
        if unit not in ends:
            yield unit.name, unit.count, unit.weights
    if ends:
        yield ROOT, ONE, distinct_weights(ends)


def separate_ends(units: Sequence[Unit]) -> tuple[str, ...]:
    """The ends that can be sets of their own, since no other unit has any of their weights; else none of them."""
    uses = Counter(weight.name for unit in units for weight in unit.weights)
    ends = [unit for unit in units if unit.name in ENDS and unit.weights]
    shares = any(uses[weight.name] > 1 for end in ends for weight in end.weights)
    names = tuple(end.name for end in ends)
    return () if shares or LOSS in names else names


def fsdp_units(units: Sequence[Unit], layers: int, ends: Sequence[str] = ()) -> tuple[FsdpUnit, ...]:
    """The sets of weights that move as one, with so many layers in each; `MODEL`: all weights with the root.

    These `ends` are sets of their own, which leaves none to the root.
    """
    if layers == MODEL:
        return (FsdpUnit(ROOT, ONE, tuple((count, weights) for _, count, weights in weights_by_unit(units))),)
    sets = [FsdpUnit(unit.name, ONE, ((ONE, unit.weights),)) for unit in units if unit.name in ends]
    for name, count, weights in weights_by_unit(units):
        if ends and name == ROOT:
            continue
        depth = ONE if name == ROOT else sympy.Integer(layers)
        has_backward = name == ROOT or any(unit.backward for unit in units if unit.name == name)
        sets.append(FsdpUnit(name, count / depth, ((depth, weights),), has_backward))
    return tuple(sets)
