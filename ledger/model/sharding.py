"""State that is held split over the data axis: gathers before use, reductions after, by the same two rules as layouts.

A weight that is held split and used whole is gathered. Its gradient is a contraction over batch, which the data axis
splits, so it is summed over that axis; where the sum is held split as well, the sum is a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

import sympy

from ledger.model import dtypes
from ledger.model.causes import Transfer
from ledger.model.dims import symbol
from ledger.model.operations import ZERO, Operation, total
from ledger.model.tensors import CeilDiv, Tensor, product, sized
from ledger.spec.kernel_classes import KernelClass

EXPERT, EXPERT_DATA = "expert", "expert_data"  # the axis that splits experts, and that of the copies of one expert


@dataclass(frozen=True)
class Sharding:
    """The state that is held split over `axes`, by ZeRO stage: 1 optimizer states, 2 gradients too, 3 weights too.

    `replicated`: hybrid sharding, where the axes hold `replicate` copies, each split over the devices of one group.
    `scattered`: the experts are split over all devices of a group, so that each of them is held once. `by_rows`: the
    symbols of experts that are fewer than the devices that share them, so that each is cut by its own rows.
    `flat`: shares are of a weight's elements, whatever its rows.
    """

    stage: int
    axes: tuple[str, ...]
    replicated: bool = False
    scattered: bool = False
    by_rows: frozenset[sympy.Symbol] = frozenset()
    flat: bool = False

    def degree(self, weight: Tensor) -> sympy.Expr:
        """Devices that share one copy of a weight; what is cut over `expert` has fewer, since that axis subdivides."""
        subdividing = [axis for _, axis in weight.split if axis == EXPERT]
        return _devices(self.axes, (*(("replicate",) if self.replicated else ()), *subdividing))

    def shared(self, weights: Iterable[Tensor]) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Weights by the axis over which their copies or shares lie; those of which there is only one are left out."""
        all_weights = tuple(weights)
        cut = tuple(self.cut(all_weights))
        replicated_weights = tuple(weight for weight in all_weights if weight not in cut)
        for axis, group, several in (("data", replicated_weights, True), (EXPERT_DATA, cut, not self.scattered)):
            if self.axes and group and several:
                yield axis, group

    def cut(self, weights: Iterable[Tensor]) -> Iterator[Tensor]:
        """The weights of which other devices hold other experts."""
        return (weight for weight in weights if any(axis == EXPERT for _, axis in weight.split))

    def has_unaligned_shares(self, weight: Tensor) -> bool:
        """Whether shares of a weight are not rows of its first dimension: putting it together copies it twice."""
        return weight.dims[0].name == "experts" and weight.dims[0].symbol in self.by_rows

    def splits(self, what: str) -> bool:
        """Whether `optimizer`, `gradients` or `weights` are held split."""
        first = {"optimizer": 1, "gradients": 2, "weights": 3}[what]
        return bool(self.axes) and self.stage >= first

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - few ways of sharing, each a plain value
    def held_elements(self, what: str, weight: Tensor) -> sympy.Expr:
        """Elements of a weight's `what` that one device holds: rows where FSDP splits weights, else flat."""
        if what == "gradients" and weight.frozen:
            return ZERO
        if not self.splits(what):
            return weight.elements()
        if self.stage == 3 and not self.flat:
            return weight.sharded(self.degree(weight))
        return CeilDiv(weight.elements(), self.degree(weight))

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - as `held`
    def padded(self, weight: Tensor) -> sympy.Expr:
        """Elements of the weight put together from equal shares."""
        return product(self.degree(weight), self.held_elements("optimizer", weight)) if self.axes else weight.elements()


@cache
def _devices(axes: tuple[str, ...], within: tuple[str, ...]) -> sympy.Expr:
    """Devices along some axes, over those along what subdivides them."""
    return product(*[symbol(axis) for axis in axes]) / product(*[symbol(axis) for axis in within])


@dataclass(frozen=True)
class ParameterCollective(Operation):
    """A collective over the data axes for the weights of one unit; `amount` is its payload in bytes."""

    collective: str = ""
    axis: str = "data"
    amount: sympy.Expr = ZERO
    per_step: bool = False

    @property
    def transfer(self) -> Transfer:
        """The transfer that this is: of weights or gradients, over a data axis."""
        return Transfer(self.collective, self.axis, content="data")

    def payload(self) -> sympy.Expr:
        """Output of an all-gather, input of a reduce-scatter or all-reduce."""
        return self.amount

    def traffic(self) -> sympy.Expr:
        """0: the price of a transfer includes what it reads and writes in memory."""
        return ZERO


def part_of(axis: str) -> str:
    """The weights that lie in copies or shares over an axis: `experts`, or the other `weights`."""
    return "experts" if axis == EXPERT_DATA else "weights"


def exchange(collective: str, axis: str, amount: sympy.Expr, *, per_step: bool, of: str = "") -> ParameterCollective:
    """The transfer of one unit's weights or gradients; `of`: of which part, where the axis does not say it."""
    name = f"{of or part_of(axis)}/{collective}"
    kernel = KernelClass(collective)
    return ParameterCollective(name, kernel, (), (), collective=collective, axis=axis, amount=amount, per_step=per_step)


def gathered(weights: Iterable[Tensor], sharding: Sharding, dtype: str) -> sympy.Expr:
    """Bytes of whole weights, padding included, in the dtype sent: their own of what is only stored quantised."""
    return total(sized(sent_as(weight, dtype), sharding.padded(weight)) for weight in weights)


def sent_as(weight: Tensor, dtype: str) -> str:
    """The dtype that a weight is sent in where others are sent in `dtype`: its own, where only that is there."""
    return weight.narrow or (weight.dtype if dtypes.is_stored_only(weight.dtype) else dtype)
