"""Gradients that wait: for the rest of backward, for the next micro-batch, for the update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import sympy

from ledger.books.bindings import model_sizes
from ledger.books.entries import Entry
from ledger.books.evaluate import Exact
from ledger.books.memory.moments import Moments
from ledger.books.memory.reduction_buffer import ReductionBuffer
from ledger.books.memory.timeline import BACKWARD, OPTIMIZER, AliveCount, Point, always, posted
from ledger.model.causes import Cause
from ledger.model.formats import matrices, stored_dtype, trained_dtype
from ledger.model.fsdp_units import ENDS, INPUT, OUTPUT
from ledger.model.gradients import copied_to_buckets, drains, fuses, stays, waits
from ledger.model.offloading import updates_on_host, weights_on_host
from ledger.model.operations import ONE, ZERO
from ledger.model.projections import ALONE
from ledger.model.tensors import Tensor, product, sized
from ledger.model.units import Unit


def gradients(moments: Moments) -> Iterator[Entry]:
    """Gradients of every trained weight, once each."""
    seen: set[str] = set()
    for unit in reversed(moments.program.units):
        for weight in unit.weights:
            if weight.frozen or (unit.name in ENDS and weight.name in seen):  # tied
                continue
            seen.add(weight.name)
            yield from _of(moments, unit, weight)
    if moments.plan.stack.dummy_gradients:
        yield from _dummies(moments)
    yield from ReductionBuffer(moments.program, moments.plan, moments.line).entries()


def _dummies(moments: Moments) -> Iterator[Entry]:
    """What autograd is given in place of gradients that matmuls have added already: one tensor of each shape.

    Transformer Engine's get_dummy_wgrad (module/base.py) keeps them for good. Products of one input are one module's,
    whose weight is all of theirs.
    """
    seen: set[tuple[sympy.Expr, sympy.Expr]] = set()
    sizes, units = tuple(model_sizes(moments.plan.model).items()), moments.program.units
    shared = {weight.gradient.name: weight for unit in units for weight in unit.weights if not weight.frozen}
    for unit in units:
        own = {weight.gradient.name: weight for weight in unit.weights if not weight.frozen}
        weights = {**shared, **own}  # a module of further tokens also multiplies by weights of the head
        modules: dict[tuple[str, sympy.Expr], sympy.Expr] = {}
        for operation in unit.backward:
            if operation.adds_to:
                source, weight = operation.inputs[0], weights[operation.output.name]
                alike = matrices(weight)
                read = product(*(weight.local(dim) for dim in weight.dims if dim in source.dims)) / alike
                alone = operation.forward if operation.forward in ALONE else ""
                key = f"{source.name}{alone}", read
                modules[key] = modules.get(key, ZERO) + weight.elements() / alike
        for (name, read), elements in modules.items():
            shape = _at_sizes(elements, sizes), _at_sizes(read, sizes)
            if shape not in seen:
                seen.add(shape)
                amount, cause = sized(trained_dtype(moments.plan), elements), Cause(unit.name, name, state="dummy")
                why = "stands for the gradient that a matmul has added, and is never freed"
                yield from posted(moments.line, cause, "gradients", amount, always(ONE), why)


@lru_cache(maxsize=1 << 12)
def _at_sizes(amount: sympy.Expr, sizes: tuple[tuple[sympy.Symbol, Exact], ...]) -> sympy.Expr:
    """A formula at a model's sizes, in the letters of the layout."""
    return amount.subs(sizes)


def _of(moments: Moments, unit: Unit, weight: Tensor) -> Iterator[Entry]:
    plan, line, cause = moments.plan, moments.line, Cause(unit.name, weight.gradient.name)
    alive, why = _kept(moments, unit)
    amount = sized(plan.precision.gradients, moments.program.sharding.held("gradients", weight))
    leaves = drains(plan) and updates_on_host(plan)  # as soon as it is reduced
    if drains(plan) and plan.parallelism.zero == 1:
        share = sized(plan.precision.gradients, moments.program.sharding.held("optimizer", weight))
        kept = _at_the_update(unit.count)
        alive, own = _before_the_update(alive), replace(cause, state="share")
        if not leaves:
            yield from posted(line, own, "gradients", share, kept, "of it, what is updated here")
    if not weights_on_host(plan) and not (leaves and plan.parallelism.zero == 2):
        yield from posted(line, cause, "gradients", amount, alive, why)
    whole = sized(stored_dtype(plan.precision, weight), weight.elements())
    if moments.adds and unit.name == OUTPUT and weight.name in _looked_up(moments):
        why = "the head's part of a tied weight's gradient, which waits for the embedding's"
        alive = _until_added(line.through(unit.name))
        if fuses(plan):  # it was added by the product, and autograd sums what stands for it with the embedding's
            why, alive = "the sum of a tied weight's gradients", _while_summed
        yield from posted(line, replace(cause, state="part"), "gradients", whole, alive, why)
    if waits(plan):
        why = "of this micro-batch, until its backward is over"
        alive = _until_added(line.through(unit.name))
        yield from posted(line, replace(cause, state="fresh"), "gradients", whole, alive, why)
    if copied_to_buckets(plan):
        why = "buckets that are reduced: a second copy of all gradients"
        yield from posted(line, replace(cause, state="bucket"), "gradients", whole, always(unit.count), why)


def _looked_up(moments: Moments) -> frozenset[str]:
    """The weights of the input."""
    return frozenset(w.name for unit in moments.program.units if unit.name == INPUT for w in unit.weights)


def _kept(moments: Moments, unit: Unit) -> tuple[AliveCount, str]:
    """All the time where they stay or micro-batches add to them, else from their layer on.

    Where weights are held split, a set's gradients are there when the last of its layers is through, and the root's
    only when backward is over.
    """
    gathering = moments.gathering
    if gathering and stays(moments.plan):
        return always(unit.count), "a buffer of all gradients, which stays"
    if gathering and not (moments.several and not gathering.buffers.accumulates):
        return gathering.reduced(unit), "waits for the update"
    if moments.several:
        return always(unit.count), "accumulated over micro-batches"
    if stays(moments.plan):
        return always(unit.count), "a buffer of all gradients, which stays"
    return moments.line.through(unit.name), "waits for the update"


def _while_summed(point: Point) -> sympy.Expr:
    return ONE if (point.phase, point.unit) == (BACKWARD, INPUT) else ZERO


def _at_the_update(count: sympy.Expr) -> AliveCount:
    return lambda point: count if point.phase == OPTIMIZER else ZERO


def _before_the_update(alive: AliveCount) -> AliveCount:
    return lambda point: ZERO if point.phase == OPTIMIZER else alive(point)


def _until_added(through: AliveCount) -> AliveCount:
    def alive(point: Point) -> sympy.Expr:
        return through(point) if point.phase == BACKWARD else ZERO

    return alive
