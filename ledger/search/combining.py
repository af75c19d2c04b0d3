"""A step and its memory put together from facts, for many layouts at once: arrays, a value for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ledger.arithmetic.values import maximum, truncate
from ledger.books.evaluate import exact
from ledger.books.memory.outside import HANDLES
from ledger.books.memory.timeline import BACKWARD, Point
from ledger.books.passes import PASS_SECONDS, StageTime, StepWork, UnitPass, send_waits, transfers_once, update_waits
from ledger.books.step_sums import StepSums
from ledger.books.time import CriticalPath, critical_path
from ledger.model.dims import BY_NAME
from ledger.model.pipelines import Work
from ledger.search.facts import Array
from ledger.search.shapes import Kind, Shape, Slot, place_values
from ledger.search.stacks import TRANSFERS, Stack, summed
from ledger.search.tiles import Stock
from ledger.search.variants import PIPELINE


@dataclass(frozen=True)
class Stage(StageTime):
    """A stage's step as sums: `number` of them in a pipeline, seconds of kernels by phase, and what they add up to."""

    number: Array = 1
    spent: Mapping[str, Array] | None = None
    totals: StepSums | None = None

    @property
    def stages(self) -> Array:
        """Devices of a pipeline that play the role."""
        return self.number

    @property
    def computed(self) -> Mapping[str, Array]:
        """Seconds of kernels in a step, the update aside, by phase."""
        return self.spent or {}

    @property
    def sums(self) -> StepSums:
        """What its kernels and transfers add up to in a step."""
        return self.totals or {}


@dataclass(frozen=True)
class Which:
    """A moment: of which kind of stages, of which of what they may have in flight, and its place in their timeline."""

    kind: int
    variant: int
    place: int


@dataclass(frozen=True)
class Memory:
    """Bytes at the fullest moment of the fullest device, and those that are reserved there.

    `moment` is its place among the `moments`, where it was asked for.
    """

    peak: Array
    reserved: Array
    moment: Array
    moments: Sequence[Which]


class Rows:
    """Layouts whose stages are of the same kinds and work in one order: places of cells and of shapes.

    `detailed`: whether more is wanted than a step and its memory: each kind of transfer by itself.
    """

    def __init__(
        self,
        stack: Stack,
        kinds: Sequence[Kind],
        listed: Sequence[Shape],
        rows: Mapping[str, Array],
        *,
        detailed: bool = False,
    ) -> None:
        self.stack, self.kinds, self.listed, self.rows, self.detailed = stack, kinds, listed, rows, detailed
        self.plan, self.world = stack.plan, stack.world
        self.schedule = listed[0].schedule
        self.counts = stack.cells["count"][rows["cell"]]
        self.count = np.array(self.world.counts, dtype=float)[self.counts]
        self._layers: dict[Any, Array] = {}
        self._live: dict[Any, Array] = {}

    def cell(self, values: Array) -> Array:
        """What is known of cells, for every row."""
        return values if np.ndim(values) == 0 else values.take(self.rows["cell"])

    def layered(self, values: Array, kind: Kind, slots: Sequence[Slot]) -> Array:
        """What is known of cells and counts of layers, for every row."""
        if np.ndim(values) < 2:
            return self.cell(values)
        key = kind.held, id(slots[0])
        if key not in self._layers:
            listed = self.world.layer_list(kind.held)
            layers = np.array([listed.index(slot.role.layers) for slot in slots])
            self._layers[key] = self.rows["cell"] * len(listed) + layers[self.rows["shape"]]
        return values.reshape(-1).take(self._layers[key])

    def shape(self, values: Sequence[float]) -> Array:
        """What is known of shapes, for every row."""
        first = values[0]
        return first if all(value == first for value in values) else np.array(values, dtype=float)[self.rows["shape"]]

    # --- time ---

    @cached_property
    def step(self) -> Array:
        """Seconds of a step."""
        return self.path.estimate

    @cached_property
    def stages(self) -> list[Stage]:
        """Each kind of stages in seconds."""
        return [self.stage(place, kind) for place, kind in enumerate(self.kinds)]

    @cached_property
    def path(self) -> CriticalPath:
        """The slowest stage's step."""
        work = Work(self.count, self.shape([shape.mesh.interleave for shape in self.listed]))
        return critical_path(self.stages, lambda others, own: self.schedule.bubble(others, own, work))

    def stage(self, place: int, kind: Kind) -> Stage:
        """One kind of stages in seconds."""
        slots = self.slots(place)
        sends, returns = self.crossed(slots)
        layers = self.layers(slots)
        passes = {}
        for name, sent in (("forward", returns), ("backward", sends)):
            parts = [(1, self._of_cells(self.stack.ends(name, kind, detailed=self.detailed)))]
            parts += [(held, self._group_pass(name, unit, kind)) for unit, held in layers.items()]
            if self.stack.passes_on:
                parts.append((sent, self._group_pass(name, PIPELINE, kind)))
            passes[name, "all"] = summed(parts)
        late, computed, optimizer = self.update(kind, slots, layers)
        once, _ = transfers_once(late, passes, self.plan)
        optimizer = optimizer + update_waits(late, passes, self.plan)
        staged = self.listed[0].mesh.pipeline > 1
        send = self.cell(self.stack.send_seconds()) if staged else 0.0
        waits = send_waits(replace(kind.role, sends=sends, returns=returns), send, self.plan)
        device = passes["forward", "all"].device + passes["backward", "all"].device
        spent = {"forward": self.count * device + computed}
        number = self.shape([slot.stages for slot in slots])
        return Stage(kind.role, self.count, (), passes, waits, optimizer, once, 0.0, number, spent)

    def slots(self, place: int) -> list[Slot]:
        """The stages of a kind, of each shape."""
        return [shape.slots[place] for shape in self.listed]

    def crossed(self, slots: Sequence[Slot]) -> tuple[Array, Array]:
        """How many results of a micro-batch go to another stage, and how many gradients."""
        return self.shape([slot.role.sends for slot in slots]), self.shape([slot.role.returns for slot in slots])

    def _group_pass(self, name: str, unit: str, kind: Kind) -> UnitPass:
        return self._of_cells(self.stack.group_pass(name, unit, kind, detailed=self.detailed))

    def _of_cells(self, one: UnitPass) -> UnitPass:
        shown = {kind: self.cell(seconds) for kind, seconds in one.shown.items()}
        return UnitPass(shown=shown, **{name: self.cell(getattr(one, name)) for name in PASS_SECONDS})

    def layers(self, slots: Sequence[Slot]) -> dict[str, Array]:
        """The layers of each group, for every row; none of a group that the stages do not hold."""
        found = {}
        for place, name in enumerate(self.stack.variants[0].group_names):
            counts = [slot.role.layers[place] for slot in slots]
            if any(counts):
                found[name] = self.shape(counts)
        return found

    def update(self, kind: Kind, slots: Sequence[Slot], layers: Mapping[str, Array]) -> tuple[StepWork, Array, Array]:
        """Transfers that a stage has once a step, seconds of kernels beside them, and of its update."""
        transfers, computed, optimizer = self.stack.update(kind)
        work = StepWork(**{name: self.layered(getattr(transfers, name), kind, slots) for name in TRANSFERS})
        seconds = self.layered(computed, kind, slots)
        for unit in self.once:
            times = self.times_once(unit, kind, layers)
            own = self.stack.tile_once(unit) if np.any(times) else None
            if own is not None:
                found = StepWork(**{name: self.cell(getattr(own[0], name)) for name in TRANSFERS})
                work = _together(work, found, times)
                seconds = seconds + times * self.cell(own[1])
        return work, seconds, self.layered(optimizer, kind, slots)

    @property
    def once(self) -> Iterable[str]:
        """The units of a tile that may do something once a step."""
        return self.stack.variants[0].times.once

    def times_once(self, unit: str, kind: Kind, layers: Mapping[str, Array]) -> Array:
        """How many of a unit a kind of stages holds."""
        return layers.get(unit, 1 if self.stack.variants[0].holds(kind, unit) else 0)

    # --- memory ---

    @cached_property
    def memory(self) -> Memory:
        """The fullest moment of the fullest device."""
        peak: Array = None
        workspace: Array = 0
        moment: Array = 0
        moments = []
        for which, point, held in self.moments():
            own = self.workspace(point)
            moments.append(which)
            if peak is None:
                peak, workspace = held, own
                continue
            if workspace is not own or self.detailed:
                fuller = held > peak
                workspace = np.where(fuller, own, workspace)
                moment = np.where(fuller, len(moments) - 1, moment) if self.detailed else moment
            peak = np.maximum(peak, held)
        library = HANDLES * self.plan.accelerator.matmul_workspace
        held = peak + library + workspace
        pool = np.floor(held * self.plan.stack.fragmentation + 1e-3) - held  # what rounding lost must not lose a byte
        return Memory(peak, held + pool + self.plan.stack.context, moment, moments)

    def workspace(self, point: Point) -> Array:
        """What the kernel of attention allocates at a moment."""
        if point.phase != BACKWARD or not point.unit:
            return 0
        key = "workspace", point.unit
        if key not in self._live:
            self._live[key] = self.cell(self.stack.workspace(point.unit))
        return self._live[key]

    def moments(self) -> Iterator[tuple[Which, Point, Array]]:
        """Bytes at each moment of each kind of stages, of each of what they may have in flight."""
        for number, kind in enumerate(self.kinds):
            for variant, place, held in self.moments_of(kind, self.slots(number)):
                yield Which(number, variant, place), kind.line.points[place], held

    def moments_of(self, kind: Kind, slots: Sequence[Slot]) -> Iterator[tuple[int, int, Array]]:
        """The same of one kind of stages, by what is in flight and the place of the moment."""
        stocks = self.stack.stocks(kind, self.schedule, detailed=self.detailed)
        variants = range(max(len(slot.variants) for slot in slots))
        steady = [key for key in stocks if not _flying(key[2])]
        held = {key: self.stock(key, kind, slots, 0) for key in steady}
        standing = [
            sum((amount for (first, last, *_), amount in held.items() if first <= place <= last), start)
            for place, start in enumerate(self.standing(kind, slots))
        ]
        for variant in variants:
            moving = {key: self.stock(key, kind, slots, variant) for key in stocks if key not in held}
            for place, _ in enumerate(kind.line.points):
                more = [amount for (first, last, *_), amount in moving.items() if first <= place <= last]
                if more or variant == 0:
                    yield variant, place, sum(more, standing[place])

    def stock(self, key: Stock, kind: Kind, slots: Sequence[Slot], variant: int) -> Array:
        """Bytes of what layers hold over a stretch of moments; each thing's are whole, however many there are of it."""
        times = self.times(key[2], slots, variant)
        stack, order, detailed = self.stack, self.schedule, self.detailed
        if stack.whole(key, kind, order, detailed=detailed) and np.all(times == np.rint(times)):
            return self.cell(stack.stocks(kind, order, detailed=detailed)[key]) * times
        each = stack.single_stocks(key, kind, order, detailed=detailed)
        return sum(truncate(self.cell(amount) * times) for amount in each)

    def standing(self, kind: Kind, slots: Sequence[Slot]) -> Iterator[Array]:
        """What stands at each moment beside what layers wait with."""
        for place, _ in enumerate(kind.line.points):
            yield self.layered(self.stack.standing(kind, place), kind, slots)

    def times(self, times: Any, slots: Sequence[Slot], variant: int) -> Array:
        """How many layers and micro-batches a formula counts, for every row."""
        key = "table", times, id(slots[0]), len(slots), variant
        table = self.stack.once(key, lambda: self._table(times, slots, variant))
        if np.ndim(table) == 0:
            return table
        return table.reshape(-1).take(self.rows["shape"] * table.shape[1] + self.counts)

    def _table(self, times: Any, slots: Sequence[Slot], variant: int) -> Array:
        """The same by shapes and counts of micro-batches; a number where it is always the same."""
        pairs = zip(self.listed, slots, strict=True)
        table = np.stack([self.counted(times, shape, slot, variant) for shape, slot in pairs])
        return table.flat[0] if (table == table.flat[0]).all() else table

    def counted(self, times: Any, shape: Shape, slot: Slot, variant: int) -> Array:
        """What a formula of layers and micro-batches in flight is, over the counts of micro-batches."""
        place = min(variant, len(slot.variants) - 1)

        def value() -> Array:
            found = exact(place_values(slot.variants[place], self.plan, shape.mesh, self.world.counts))(times)
            return np.broadcast_to(np.asarray(found, dtype=float), len(self.world.counts))

        return self.world.once(("times", times, id(slot), place), value)


def _flying(times: Any) -> bool:
    """Whether a formula counts micro-batches in flight or waiting, which differ from stage to stage of a kind."""
    return any(sign.name.startswith(FLYING) for sign in times.free_symbols)


FLYING = tuple(BY_NAME[name].letter for name in ("in_flight", "waiting"))


def _together(one: StepWork, other: StepWork, times: Array) -> StepWork:
    """Transfers once a step: these, and so many others."""

    def if_any(value: Array) -> Array:
        return np.where(times > 0, value, 0) if np.ndim(times) else value

    return StepWork(
        one.reduced + times * other.reduced,
        maximum(one.longest, if_any(other.longest)),
        one.gathered + times * other.gathered,
        one.down + times * other.down,
        maximum(one.longest_down, if_any(other.longest_down)),
        one.up + times * other.up,
        one.update + times * other.update,
        np.logical_or(one.late, if_any(other.late)),
    )
