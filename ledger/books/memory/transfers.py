"""What weights held split occupy while they are used: PyTorch's fully_shard (FSDP2), buffer by buffer.

Forward gathers a set of weights into a buffer and copies it out into the weights; the buffer is freed when the next
one has arrived and is copied out. Backward gathers one set ahead and frees each buffer at the copy. After a set's
backward its whole gradients are copied into the input of the reduction, which is held until the next set gets there
(torch/distributed/fsdp/_fully_shard, torch 2.13: _fsdp_param_group.py, _fsdp_collectives.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import sympy

from ledger.books.entries import Entry
from ledger.books.memory.steps import Allocation
from ledger.books.memory.timeline import BACKWARD, FORWARD, OPTIMIZER, AliveCount, Moment, Timeline, post_stock
from ledger.model.causes import ENDS, LOSS, ROOT, Cause
from ledger.model.exchanges import fills_gradients, gathers_again, sent_dtype
from ledger.model.fsdp_units import FsdpUnit
from ledger.model.offloading import weights_on_host
from ledger.model.operations import ONE, ZERO
from ledger.model.program import Program
from ledger.spec.plan import Plan

CATEGORY = "unsharded"
INNER = "/experts"  # ends the name of a set within a layer's


@dataclass(frozen=True)
class Buffers:
    """The buffers of each set of weights; `batches`: micro-batches of a step."""

    program: Program
    plan: Plan
    fsdp_units: dict[str, FsdpUnit]
    batches: int

    # --- rules ---

    def again(self, name: str) -> bool:
        """Whether backward gathers a set that forward freed."""
        return gathers_again(self.plan, name)

    @property
    def accumulates(self) -> bool:
        """Whether whole gradients are added up over micro-batches before one reduction."""
        return self.batches > 1 and self.plan.parallelism.reduces_once

    @property
    def added(self) -> bool:
        """Whether autograd itself adds to whole gradients that are there: where they are summed in its own dtype."""
        return self.accumulates and self.plan.precision.reduction == self.plan.precision.compute

    def of(self, unit: str) -> str:
        """The set that a unit's weights belong to."""
        return unit if unit in self.fsdp_units else ROOT

    # --- buffers ---

    def gathered_weights(self, name: str) -> Allocation:
        """Weights of a set, put together."""
        why = "gathered weights of the set that runs"
        return Allocation(Cause(name, "weights", state="whole"), CATEGORY, self._amounts[name], why)

    @cached_property
    def _amounts(self) -> dict[str, sympy.Expr]:
        return {
            name: wrap.gathered_bytes(self.program.sharding, sent_dtype(self.plan))
            for name, wrap in self.fsdp_units.items()
        }

    def gathered(self, name: str, which: str = "") -> Allocation:
        """The output of an all-gather, before and while it is copied out; none where nobody else has any of it."""
        is_unshared = self.fsdp_units[name].experts and self.program.sharding.scattered
        amount = ZERO if is_unshared else self.gathered_weights(name).amount
        return Allocation(Cause(name, "weights", state=f"gathered{which}"), CATEGORY, amount, "output of an all-gather")

    def arriving(self, name: str, which: str = "") -> Iterator[Allocation]:
        """A gather: its output, and this device's share in the dtype that is sent, where it is not held here in it.

        A share that comes from the host is cast weight by weight, so that two copies of all of it are never there.
        """
        yield self.gathered(name, which)
        moved = self.fsdp_units[name].stored_otherwise(self.plan.precision, sent_dtype(self.plan))
        cast, copied = bool(moved.parts), weights_on_host(self.plan)
        if cast or copied:
            amount = (self.fsdp_units[name] if copied else moved).share(self.program.sharding, sent_dtype(self.plan))
            why = f"this device's share, {'cast' if cast else 'copied from the host'} for the all-gather"
            yield Allocation(Cause(name, "weights", state="cast" if cast else "copied"), CATEGORY, amount, why)

    def unaligned_copy(self, name: str) -> Iterator[Allocation]:
        """A second copy of weights whose shares are not rows, between the gather and the weights."""
        amount = self._second_dimension_shares(name).gathered_bytes(self.program.sharding, sent_dtype(self.plan))
        if amount != ZERO:
            why = "shares of a second dimension, put side by side"
            yield Allocation(Cause(name, "weights", state="apart"), CATEGORY, amount, why)

    def gradients_apart(self, name: str) -> Iterator[Allocation]:
        """The last of their gradients, which the loop that puts each in the order of its shares still holds."""
        last = [weights[-1:] for _, weights in self._second_dimension_shares(name).parts if weights][-1:]
        for weights in last:
            amount = FsdpUnit(name, ONE, ((ONE, weights),)).unpadded(self.plan.precision.compute)
            why = "a gradient beside its copy in the order of shares"
            yield Allocation(Cause(name, "gradient", state="apart"), CATEGORY, amount, why)

    def last_gradient(self, name: str) -> Iterator[Allocation]:
        """The last whole gradient of a set, which the loop over them holds while the reduced ones are allocated.

        `foreach_reduce` of PyTorch 2.13. A layer's last weight is a norm or a bias, which is left out.
        """
        if name not in (*ENDS, ROOT) or self.plan.stack.unshard != "copied":
            return
        weights = [weights[-1:] for _, weights in self.fsdp_units[name].trained().parts]
        last = FsdpUnit(name, ONE, tuple((ONE, group) for group in weights[-1:]))
        dtype = self.plan.precision.reduction if self.accumulates else self.plan.precision.compute
        why = "the last of the gradients that were copied"
        yield Allocation(Cause(name, "gradient", state="last"), CATEGORY, last.unpadded(dtype), why)

    def _second_dimension_shares(self, name: str) -> FsdpUnit:
        cut = self.program.sharding.has_unaligned_shares
        parts = ((times, tuple(w for w in weights if cut(w))) for times, weights in self.fsdp_units[name].parts)
        return replace(self.fsdp_units[name], parts=tuple(parts))

    def to_reduce(self, name: str, which: str = "") -> Allocation:
        """The input of a reduction."""
        amount = self.fsdp_units[name].gradients().gathered_bytes(self.program.sharding, self.plan.precision.reduction)
        why = "input of a reduce-scatter, held until the next one"
        return Allocation(Cause(name, "gradient", state=f"to_reduce{which}"), CATEGORY, amount, why)

    def reduced(self, name: str) -> Iterator[Allocation]:
        """The output of a reduction, and its cast to the dtype of gradients."""
        share, precision = self.fsdp_units[name].gradients().share, self.plan.precision
        amount = share(self.program.sharding, precision.reduction)
        yield Allocation(Cause(name, "gradient", state="reduced"), CATEGORY, amount, "output of the reduce-scatter")
        if precision.gradients != precision.reduction:
            amount = share(self.program.sharding, precision.gradients)
            why = "the reduced gradient in the dtype it is kept in"
            yield Allocation(Cause(name, "gradient", state="cast"), CATEGORY, amount, why)

    def fresh(self, name: str, part: int = 0, times: sympy.Expr = ONE) -> Allocation:
        """Whole gradients of one layer of a set as autograd leaves them."""
        layer = FsdpUnit(name, ONE, ((ONE, self.fsdp_units[name].parts[part][1]),)).trained()
        amount, why = layer.unpadded(self.plan.precision.compute), "whole gradients that wait for the rest of their set"
        return Allocation(Cause(name, "gradient", state="whole"), CATEGORY, amount, why, times)

    def accumulated(self, name: str) -> Iterator[Allocation]:
        """Whole gradients that earlier micro-batches left."""
        if self.accumulates:
            amount = self.fsdp_units[name].trained().unpadded(self.plan.precision.reduction)
            why = "whole gradients of earlier micro-batches"
            yield Allocation(Cause(name, "gradient", state="accumulated"), CATEGORY, amount, why)


@dataclass(frozen=True)
class Root:
    """The weights of the two ends of the model: gathered for a whole pass, reduced at the end of backward.

    Where one set holds the whole model, it is this one.
    """

    buffers: Buffers
    timeline: Timeline

    @property
    def has_weights(self) -> bool:
        """Whether this device has weights of either end."""
        return ROOT in self.buffers.fsdp_units

    def allocations(self, point: Moment) -> Iterator[Allocation]:
        """What stands beside every step of a moment but its last reduction: weights, and gradients so far."""
        if not self.has_weights:
            return
        if point.unit != LOSS or not gathers_again(self.buffers.plan, ROOT):
            yield self.buffers.gathered_weights(ROOT)
        yield from self.buffers.accumulated(ROOT)
        if point.phase == BACKWARD:
            yield from self.gradients(point)

    def gradients(self, point: Moment) -> Iterator[Allocation]:
        """Whole gradients of the units that backward left behind."""
        if self.buffers.added:
            return
        for unit in self.buffers.program.units:
            done = self.timeline.through(unit.name)(point)
            if self.buffers.of(unit.name) == ROOT and done != ZERO and unit.weights:
                amount = (
                    FsdpUnit(ROOT, ONE, ((ONE, unit.weights),)).trained().unpadded(self.buffers.plan.precision.compute)
                )
                why = "whole gradients that wait for the end of backward"
                yield Allocation(Cause(unit.name, "gradient", state="whole"), CATEGORY, amount, why, done)


# --- what stays from set to set ---


def lasting_buffers(buffers: Buffers, line: Timeline) -> Iterator[Entry]:
    """Weights that stay gathered between the passes, whole gradients that wait for the last micro-batch's reduction.

    With copies of the shares, the input of their all-reduce is held to the end of backward (FSDPParamGroup,
    `_all_reduce_state`); it becomes the gradient itself where that has its dtype and there is none yet.
    """
    precision, sharding = buffers.plan.precision, buffers.program.sharding
    for name, fsdp_unit in buffers.fsdp_units.items():
        if name == ROOT:
            continue
        size, unit = fsdp_unit.parts[0][0], fsdp_unit.name
        if not buffers.again(name):
            buffer, why = buffers.gathered_weights(name), "not freed after forward"
            yield from post_stock(
                line,
                Cause(name, "weights", state="kept"),
                CATEGORY,
                buffer.amount,
                sets_awaiting_backward(line, unit, size),
                why,
            )
        for buffer in buffers.accumulated(name):
            alive = sets_awaiting_backward(line, unit, size, since=OPTIMIZER)
            yield from post_stock(
                line, Cause(name, "gradient", state="waiting"), CATEGORY, buffer.amount, alive, buffer.why
            )
        first = (buffers.batches == 1 or buffers.accumulates) and not fills_gradients(buffers.plan)
        becomes = precision.gradients == precision.reduction and first and not weights_on_host(buffers.plan)
        if sharding.replicated and not becomes:
            amount = fsdp_unit.gradients().share(sharding, precision.reduction)
            done = sets_after_backward(unit, size)
            yield from post_stock(
                line, Cause(name, "gradient", state="summed"), CATEGORY, amount, done, "input of an all-reduce"
            )


def sets_awaiting_backward(line: Timeline, name: str, size: sympy.Expr, since: str = FORWARD) -> AliveCount:
    """Sets that wait for backward, from their forward on or `since` the last step; the one that runs is not counted."""

    def count(point: Moment) -> sympy.Expr:
        if point.phase == OPTIMIZER:
            return ZERO
        if point.phase == FORWARD:
            return (line.counts[name] if since == OPTIMIZER else _passed_layers(point, name)) / size
        return (line.counts[name] - _passed_layers(point, name)) / size - (1 if point.unit == name else 0)

    return count


def sets_after_backward(name: str, size: sympy.Expr) -> AliveCount:
    """Sets whose backward is over, until it ends."""
    return lambda point: _passed_layers(point, name) / size if point.phase == BACKWARD else ZERO


def _passed_layers(point: Moment, name: str) -> sympy.Expr:
    """Layers of the sets that a pass left behind, whole sets only."""
    return point.passed_layers[name] - (point.surroundings.inside if point.unit == name else 0)
