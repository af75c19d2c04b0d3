"""Cells of several variants one after the other: what is known of each variant, joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ledger.arithmetic.values import maximum, minimum
from ledger.books.overlap import behind_everything
from ledger.books.passes import PASS_SECONDS, StepWork, UnitPass, UnitWork, unit_pass
from ledger.model.pipelines import Pipeline
from ledger.search.facts import Array
from ledger.search.shapes import Kind, Shape
from ledger.search.states import Reference, References
from ledger.search.tiles import NEVER, TILE, Stock
from ledger.search.variants import PIPELINE, Variant, stock_key
from ledger.search.world import Known, World


class Stack:
    """Some variants and all their cells."""

    def __init__(self, shared: World, variants: Sequence[Variant]) -> None:
        self.world, self.variants = shared, variants
        self.plan, self.ways = variants[0].plan, variants[0].ways
        self.cells = {axis: np.concatenate([one.cells[axis] for one in variants]) for axis in variants[0].cells}
        self.variant = np.repeat(np.arange(len(variants)), [one.size for one in variants])
        self.size = self.variant.size
        self.cells["state"] = variants[0].states.places(self.cells)
        self.lengths = {**shared.lengths, "state": variants[0].states.codes.size}
        self._known: dict[Any, Any] = {}

    def joined(self, value: Callable[[Variant], Array], axes: Sequence[str]) -> Array:
        """Facts over some axes, for every cell; a number where it is the same for all.

        Facts with one axis more than is named have a column for each of its places.
        """
        found = [value(one) for one in self.variants]
        unique = {id(one): one for one in found}
        if all(np.ndim(one) == 0 for one in unique.values()):
            first = found[0]
            if all(one == first for one in unique.values()):
                return first
        shape = np.broadcast_shapes(*(np.shape(one) for one in unique.values()))
        deep = len(shape) > len(axes)
        leading, inner = (shape[:-1], shape[-1]) if deep else (shape, 1)
        used = tuple(axis for axis, length in zip(axes[len(axes) - len(leading) :], leading, strict=True) if length > 1)
        place = self._places(used)
        if len(unique) > 1:
            order = {key: number for number, key in enumerate(unique)}
            table = np.stack([np.broadcast_to(one, shape) for one in unique.values()])
            of_variant = np.array([order[id(one)] for one in found])
            place = of_variant[self.variant] * (table[0].size // inner) + place
        else:
            table = np.asarray(found[0])
        if inner > 1:
            return table.reshape(-1, inner).take(place, axis=0)
        return table.reshape(-1).take(place)

    def named(self, of: Callable[[Variant], Mapping[Any, Array]], axes: Sequence[str]) -> dict[Any, Array]:
        """Facts by name, for every cell; what a variant lacks is 0."""
        each = {id(one): of(one) for one in self.variants}
        names = dict.fromkeys(name for own in each.values() for name in own)
        return {name: self.joined(lambda one: each[id(one)].get(name, 0.0), axes) for name in names}  # noqa: B023

    def _places(self, used: tuple[str, ...]) -> Array:
        """Where the cells are in an array over some axes."""

        def found() -> Array:
            place: Array = np.zeros(self.size, np.int64)
            for axis in used:
                place = place * self.lengths[axis] + self.cells[axis]
            return place

        return self.once(("places", used), found)

    def once(self, key: Any, make: Callable[[], Known]) -> Known:
        """What is made once, under a key."""
        if key not in self._known:
            self._known[key] = make()
        found: Known = self._known[key]
        return found

    # --- layouts ---

    def classes(self) -> list[tuple[tuple[Kind, ...], list[Shape]]]:
        """Shapes by the kinds of their stages and the order of their work."""
        found: dict[Any, tuple[tuple[Kind, ...], list[Shape]]] = {}
        lines = self.variants[0].lines
        for shape in self.world.shapes:
            if shape.schedule.ways == self.ways:
                kinds = tuple(Kind(slot.role, lines.of(slot.role)) for slot in shape.slots)
                key = shape.mesh.scheduled, tuple((kind.held, id(kind.line)) for kind in kinds)
                found.setdefault(key, (kinds, []))[1].append(shape)
        return list(found.values())

    def of_stages(self, stages: int) -> Array:
        """The cells with so many stages."""
        numbers = self.once("stages", lambda: np.array(self.world.lists["pipeline"])[self.cells["pipeline"]])
        return self.once(("stages", stages), lambda: np.flatnonzero(numbers == stages))

    @cached_property
    def _keys(self) -> dict[str, Array]:
        """The keys of the cells, as places among the values of the space."""
        each = [self.world.keys(one.cells, one.way, one.layers) for one in self.variants]
        found = {}
        for key in each[0]:
            parts = zip(each, self.variants, strict=True)
            found[key] = np.concatenate([np.broadcast_to(own[key], one.size) for own, one in parts])
        return found

    def chosen(self, rows: Mapping[str, Array], listed: Sequence[Shape]) -> dict[str, Array]:
        """The keys of layouts, as places among the values of the space."""
        values = self.world.space.values
        found = {key: column[rows["cell"]] for key, column in self._keys.items()}
        for key in listed[0].layout:
            found[key] = np.array([values[key].index(shape.layout[key]) for shape in listed])[rows["shape"]]
        return found

    def allowed(self, rows: Mapping[str, Array], listed: Sequence[Shape]) -> Array:
        """Whether the rules that read a shape, or what is rebuilt, have nothing to say."""
        chosen, stages = self.chosen(rows, listed), self.world.stages
        chosen["parallelism.stages"] = np.array([stages.index(shape.mesh.stages) for shape in listed])[rows["shape"]]
        del chosen["parallelism.ends"]
        given = ("parallelism.interleave", "parallelism.schedule", "parallelism.stages", "recompute")
        return np.broadcast_to(self.world.legality.allowed(chosen, given), rows["cell"].shape)

    # --- facts ---

    def tiled(self, values: Callable[[Variant], Array]) -> Array:
        """Facts of tiles, for every cell."""
        return self.joined(values, TILE)

    def stated(self, values: Callable[[Variant], Array]) -> Array:
        """Facts of weights and gradients, for every cell, with a column for each count of layers."""
        return self.joined(values, STATED)

    def ends(self, name: str, kind: Kind, *, detailed: bool = False) -> UnitPass:
        """The sum of the passes of all that a kind of stage holds but layers and what it passes on."""

        def found() -> UnitPass:
            units = dict.fromkeys(unit for one in self.variants for unit in one.ends(name, kind))
            return summed([(1, lumped(self.unit_pass(name, unit, kind), detailed)) for unit in units])

        return self.once(("ends", name, kind.held, detailed), found)

    def group_pass(self, name: str, unit: str, kind: Kind, *, detailed: bool = False) -> UnitPass:
        """The pass of a layer of a group, or of what is passed on."""

        def found() -> UnitPass:
            return lumped(self.unit_pass(name, unit, kind), detailed)

        return self.once(("pass", name, unit, detailed), found)

    def unit_pass(self, name: str, unit: str, kind: Kind) -> UnitPass:
        """A unit's pass of one layer and micro-batch, for every cell."""
        key = name, unit
        own = self._work(lambda one: one.times.work.get(key, NOTHING), TILE)
        shared = self._work(lambda one: one.state_work(kind).get(key, NOTHING), STATED)
        work = added(own, shared)
        for transfers in behind_everything(self.plan.stack.overlap):  # also those kernels that weights need
            behind = minimum(own.shown[transfers], shared.device)
            shown = {**work.shown, transfers: work.shown[transfers] - behind}
            work = replace(work, shown=shown, behind=work.behind + behind)
        return unit_pass(name, unit, work, self.plan)

    def _work(self, of: Callable[[Variant], UnitWork], axes: Sequence[str]) -> UnitWork:
        """A unit's work in every cell."""
        each = {id(one): of(one) for one in self.variants}
        if all(work is NOTHING for work in each.values()):
            return NOTHING

        def taken(field: Callable[[UnitWork], Array]) -> Array:
            return self.joined(lambda one: field(each[id(one)]), axes)

        ways = dict.fromkeys(way for work in each.values() for way in work.copies)
        copies = {
            way: (
                taken(lambda work: work.copies.get(way, NO_COPIES)[0]),  # noqa: B023 - asked at once
                taken(lambda work: work.copies.get(way, NO_COPIES)[1]),  # noqa: B023
            )
            for way in ways
        }
        kinds = dict.fromkeys(kind for work in each.values() for kind in work.shown)
        return UnitWork(
            taken(lambda work: work.device),
            taken(lambda work: work.hosts),
            {kind: taken(lambda work: work.shown.get(kind, 0.0)) for kind in kinds},  # noqa: B023
            taken(lambda work: work.behind),
            copies,
            taken(lambda work: work.waited),
            taken(lambda work: work.weights),
            taken(lambda work: work.summed),
        )

    @property
    def passes_on(self) -> bool:
        """Whether stages do more than send what they pass on."""
        return any(unit == PIPELINE for _, unit in self.variants[0].times.work)

    def send_seconds(self) -> Array:
        """Seconds of what one stage sends to the next."""
        return self.once("send", lambda: self.joined(lambda one: one.send_seconds, (*TILE, "data", "pipeline")))

    def update(self, kind: Kind) -> tuple[StepWork, Array, Array]:
        """Transfers of a kind of stage once a step, seconds of kernels beside them, and those of its update."""
        return self.once(("update", kind.held), lambda: self._update(kind))

    def _update(self, kind: Kind) -> tuple[StepWork, Array, Array]:
        def transfers(name: str) -> Array:
            return self.stated(lambda one: getattr(one.update_times(kind).once.transfers, name))

        work = StepWork(**{name: transfers(name) for name in TRANSFERS})
        computed = self.stated(lambda one: sum(one.update_times(kind).once.computed.values()))
        return work, computed, self.stated(lambda one: one.update_times(kind).optimizer)

    def tile_once(self, unit: str) -> tuple[StepWork, Array] | None:
        """What a unit of a tile does once a step; None where it is nothing."""

        def found() -> tuple[StepWork, Array] | None:
            once = [one.times.once[unit] for one in self.variants]
            if not any(np.any(each.transfers.late) or each.computed for each in once):
                return None

            def transfers(name: str) -> Array:
                return self.tiled(lambda one: getattr(one.times.once[unit].transfers, name))

            computed = self.tiled(lambda one: sum(one.times.once[unit].computed.values()))
            return StepWork(**{name: transfers(name) for name in TRANSFERS}), computed

        return self.once(("once", unit), found)

    # --- memory ---

    def standing(self, kind: Kind, place: int) -> Array:
        """Bytes at a moment beside what layers wait with: weights, gradients, and the fullest step of what runs."""

        def found() -> Array:
            total = self.stated(lambda one: one.point_facts(kind)[place].lasting)
            steps = [self.step(kind, place, references) for references in self.references(kind, place)]
            return plus(total, maximum(*aligned(steps))) if steps else total

        return self.once(("standing", kind.held, id(kind.line), place), found)

    def references(self, kind: Kind, place: int) -> Mapping[References, None]:
        """The steps of a moment, by what layers hold meanwhile."""
        return dict.fromkeys(references for one in self.variants for references in one.point_facts(kind)[place].steps)

    def step(self, kind: Kind, place: int, references: References) -> Array:
        """Bytes of what layers hold while they run, with the most that stands beside it."""
        total = self.stated(lambda one: one.point_facts(kind)[place].steps.get(references, NEVER))
        for reference in references:
            total = plus(total, self.live(reference))
        return total

    def stocks(self, kind: Kind, schedule: Pipeline, *, detailed: bool) -> dict[Stock, Array]:
        """What layers hold from moment to moment: all bytes of each kind."""

        def found() -> dict[Stock, Array]:
            each = {id(one): one.stock_sums(kind, schedule, detailed=detailed) for one in self.variants}
            keys = dict.fromkeys(key for own in each.values() for key in own)
            return {key: self.tiled(lambda one: each[id(one)].get(key, 0)) for key in keys}  # noqa: B023

        return self.once((*stock_key(kind, schedule), detailed), found)

    def whole(self, key: Stock, kind: Kind, schedule: Pipeline, *, detailed: bool) -> bool:
        """Whether the bytes of each are whole numbers."""

        def found() -> bool:
            each = (one.stocks(kind, schedule, detailed=detailed).get(key, ()) for one in self.variants)
            return all(bool(np.all(amount == np.rint(np.asarray(amount, float)))) for own in each for amount in own)

        return self.once((*stock_key(kind, schedule), key, "whole"), found)

    def single_stocks(self, key: Stock, kind: Kind, schedule: Pipeline, *, detailed: bool) -> list[Array]:
        """The same of one such key, each by itself."""

        def found() -> list[Array]:
            each = {id(one): one.stocks(kind, schedule, detailed=detailed).get(key, ()) for one in self.variants}
            most = max(len(own) for own in each.values())
            filled = {name: (*own, *([0] * (most - len(own)))) for name, own in each.items()}
            return [self.tiled(lambda one: filled[id(one)][place]) for place in range(most)]  # noqa: B023

        return self.once((*stock_key(kind, schedule), key), found)

    def live(self, reference: Reference) -> Array:
        """Bytes of a unit that runs."""
        which, phase, unit = reference

        def of(one: Variant) -> Array:
            return one.tile.live[phase, unit, one.adds][which]

        return self.once(("live", reference), lambda: self.tiled(of))

    def workspace(self, unit: str) -> Array:
        """What the kernel of a unit's attention allocates in backward."""
        return self.once(("workspace", unit), lambda: self.tiled(lambda one: one.tile.workspace.get(unit, 0)))


NO_COPIES = (0.0, 0.0)
NOTHING = UnitWork(shown={"tensor": 0.0, "context": 0.0, "expert": 0.0, "data": 0.0}, copies={})


def added(one: UnitWork, other: UnitWork) -> UnitWork:
    """Two parts of a unit's work as one."""
    ways = {**one.copies, **other.copies}
    pairs = {way: (one.copies.get(way, NO_COPIES), other.copies.get(way, NO_COPIES)) for way in ways}
    return UnitWork(
        one.device + other.device,
        one.hosts + other.hosts,
        {kind: one.shown.get(kind, 0.0) + other.shown.get(kind, 0.0) for kind in {**one.shown, **other.shown}},
        one.behind + other.behind,
        {way: (mine[0] + theirs[0], mine[1] + theirs[1]) for way, (mine, theirs) in pairs.items()},
        one.waited + other.waited,
        one.weights + other.weights,
        one.summed + other.summed,
    )


STATED = ("state",)  # one axis of all degrees that cut weights
TRANSFERS = ("reduced", "longest", "gathered", "down", "longest_down", "up", "update", "late")


def aligned(values: Sequence[Array]) -> list[Array]:
    """Values of cells so that they broadcast: those without a column for each count of layers have one column."""
    wide = any(np.ndim(one) == 2 for one in values)
    return [one[:, None] if wide and np.ndim(one) == 1 else one for one in values]


def plus(one: Array, other: Array) -> Array:
    """The sum of two values of cells."""
    first, second = aligned([one, other])
    return first + second


def lumped(one: UnitPass, detailed: bool = False) -> UnitPass:
    """What a pass shows of transfers as one sum, unless each kind is wanted."""
    return one if detailed else replace(one, shown={"data": sum(one.shown.values())})


def summed(parts: Sequence[tuple[Array, UnitPass]]) -> UnitPass:
    """So many passes one after the other."""
    taken: dict[str, Array] = dict.fromkeys(PASS_SECONDS, 0.0)
    shown: dict[str, Array] = {}
    for count, part in parts:
        for name in PASS_SECONDS:
            taken[name] = taken[name] + count * getattr(part, name)
        for kind, seconds in part.shown.items():
            shown[kind] = shown.get(kind, 0.0) + count * seconds
    return UnitPass(shown=shown, **taken)
