"""A step and its memory put together from facts, for many layouts at once: arrays, a value for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.arithmetic.values import maximum, minimum
from ledger.books.memory.outside import HANDLES
from ledger.books.memory.timeline import BACKWARD
from ledger.books.overlap import behind_everything
from ledger.books.passes import (
    StageTime,
    StepWork,
    UnitPass,
    UnitWork,
    send_waits,
    transfers_once,
    unit_pass,
)
from ledger.books.time import critical_path
from ledger.books.totals import run
from ledger.search.blocks import Block
from ledger.search.facts import Array
from ledger.search.grids import Grid
from ledger.search.shapes import Kind, Shape, Slot
from ledger.search.space import LAYOUT
from ledger.search.states import BEGINS, STATE
from ledger.search.states import ENDS as LEFT
from ledger.search.tiles import TILE, TileFacts

if TYPE_CHECKING:
    from ledger.search.pricing import Combined

PIPELINE = "pipeline"


@dataclass(frozen=True)
class Stage(StageTime):
    """A stage's step as sums: `number` of them in a pipeline, seconds of kernels by phase."""

    number: Array = 1
    spent: Mapping[str, Array] | None = None

    @property
    def stages(self) -> Array:
        """Devices of a pipeline that play the role."""
        return self.number

    @property
    def computed(self) -> Mapping[str, Array]:
        """Seconds of kernels in a step, the update aside, by phase."""
        return self.spent or {}


def added(one: UnitWork, other: UnitWork) -> UnitWork:
    """Two parts of a unit's work as one."""
    return UnitWork(
        one.device + other.device,
        one.hosts + other.hosts,
        {kind: one.shown.get(kind, 0.0) + other.shown.get(kind, 0.0) for kind in {**one.shown, **other.shown}},
        one.behind + other.behind,
        dict(_copies(one, other)),
        one.waited + other.waited,
        one.weights + other.weights,
    )


def _copies(one: UnitWork, other: UnitWork) -> Iterator[tuple[str, tuple[Array, Array]]]:
    for way in {**one.copies, **other.copies}:
        (mine, chained), (theirs, also) = (work.copies.get(way, (0.0, 0.0)) for work in (one, other))
        yield way, (mine + theirs, chained + also)


NOTHING = UnitWork(shown={"tensor": 0.0, "context": 0.0, "expert": 0.0, "data": 0.0}, copies={})


def gathered(value: Any, take: Callable[[Array], Array]) -> Any:
    """Facts of every layout, from those over grids."""
    if isinstance(value, UnitWork):
        return UnitWork(
            take(value.device),
            take(value.hosts),
            {kind: take(seconds) for kind, seconds in value.shown.items()},
            take(value.behind),
            {way: (take(mine), take(chained)) for way, (mine, chained) in value.copies.items()},
            take(value.waited),
            take(value.weights),
        )
    return take(value)


class Passes:
    """The passes of each unit, of one layer and micro-batch, under one tile and one way of sharing."""

    def __init__(self, around: Combined, tile: TileFacts) -> None:
        self.around, self.tile = around, tile
        self.grid, self.plan = around.grid, around.plan
        self.known: dict[Any, UnitPass] = {}
        self.sums: dict[Any, UnitPass] = {}

    def of(self, name: str, unit: str, kind: Kind) -> UnitPass | None:
        """A unit's pass; None where it has none."""
        key = name, unit, kind.held if unit not in self.around.group_names else None
        if key not in self.known:
            own, shared = self.tile.work.get((name, unit)), self.around.state_work(kind).get((name, unit))
            if own is None and shared is None:
                return None
            parts = [NOTHING]
            if own is not None:
                parts.append(gathered(own, lambda values: self.grid.take(values, TILE)))
            if shared is not None:
                parts.append(gathered(shared, lambda values: self.grid.take(values, STATE)))
            work = parts[0]
            for part in parts[1:]:
                work = added(work, part)
            if own is not None and shared is not None:
                work = self.sheltered(work, parts[-1].device)
            self.known[key] = unit_pass(name, unit, work, self.plan)
        return self.known[key]

    def sheltered(self, work: UnitWork, more: Array) -> UnitWork:
        """A unit's work with transfers behind kernels that are there for its weights' sake, as far as any may be."""
        for transfers in behind_everything(self.plan.stack.overlap):
            behind = minimum(work.shown[transfers], more)
            shown = {**work.shown, transfers: work.shown[transfers] - behind}
            work, more = replace(work, shown=shown, behind=work.behind + behind), more - behind
        return work

    def ends(self, name: str, kind: Kind) -> UnitPass:
        """The sum of the passes of all that a kind of stage holds but layers and what it passes on."""
        key = name, kind.held
        if key not in self.sums:
            units = {unit for phase, unit in (*self.tile.work, *self.around.state_work(kind)) if phase == name}
            there = [unit for unit in sorted(units) if self.around.holds(kind, unit)]
            found = [one for unit in there if (one := self.of(name, unit, kind)) is not None]
            self.sums[key] = summed([(1, one) for one in found])
        return self.sums[key]


def summed(parts: Iterable[tuple[Array, UnitPass]]) -> UnitPass:
    """So many passes one after the other; what they show of transfers is one sum."""
    device = launch = shown = tax = weights = hidden = 0.0
    for count, part in parts:
        device = device + count * part.device
        launch = launch + count * part.launch
        shown = shown + count * sum(part.shown.values())
        tax = tax + count * part.tax
        weights = weights + count * part.weights
        hidden = hidden + count * part.hidden
    return UnitPass(device, launch, {"data": shown}, tax, weights, hidden)


def of_rows(one: UnitPass, take: Callable[[Array], Array]) -> UnitPass:
    """A pass of cells as one of rows."""
    shown = {kind: take(seconds) for kind, seconds in one.shown.items()}
    return UnitPass(take(one.device), take(one.launch), shown, take(one.tax), take(one.weights), take(one.hidden))


class Class:
    """Rows of layouts whose stages are of the same kinds, with one recompute policy and one order of work."""

    def __init__(  # noqa: PLR0913 - what a row is made of
        self,
        around: Combined,
        recompute: Any,
        tile: TileFacts,
        passes: Passes,
        listed: Sequence[Shape],
        kinds: Sequence[Kind],
        rows: Mapping[str, Array],
    ) -> None:
        self.around, self.recompute, self.tile, self.passes = around, recompute, tile, passes
        self.listed, self.kinds, self.rows = listed, kinds, rows
        self.plan, self.pricer = around.plan, around.pricer
        self.grid: Grid = around.grid.chosen(rows["cell"])
        counts = np.array(around.world.counts, dtype=float)
        self.count = counts[self.grid.columns["count"]]
        self.schedule = listed[0].schedule

    def cell(self, values: Array) -> Array:
        """Values of cells, for every row."""
        return values if np.ndim(values) == 0 else values[self.rows["cell"]]

    def shape(self, values: Sequence[float]) -> Array:
        """Values of shapes, for every row."""
        first = values[0]
        return first if all(value == first for value in values) else np.array(values, dtype=float)[self.rows["shape"]]

    # --- time ---

    @cached_property
    def step(self) -> Array:
        """Seconds of a step."""
        times = [self.stage(place, kind) for place, kind in enumerate(self.kinds)]
        chunks = self.shape([shape.mesh.interleave for shape in self.listed])
        return critical_path(times, lambda others, own: self.schedule.bubble(others, own, chunks)).estimate

    def stage(self, place: int, kind: Kind) -> Stage:
        """One kind of stages in seconds."""
        slots = [shape.slots[place] for shape in self.listed]
        sends, returns = (self.shape([getattr(slot.role, name) for slot in slots]) for name in ("sends", "returns"))
        layers = self.layers(slots)
        passes = {}
        for name, sent in (("forward", returns), ("backward", sends)):
            parts = [(1, of_rows(self.passes.ends(name, kind), self.cell))]
            for group, held in layers.items():
                one = self.passes.of(name, group, kind)
                if one is not None:
                    parts.append((held, of_rows(one, self.cell)))
            passed = self.passes.of(name, PIPELINE, kind)
            if passed is not None:
                parts.append((sent, of_rows(passed, self.cell)))
            passes[name, "all"] = summed(parts)
        state = self.around.update_times(kind)
        late, computed = self.once(kind, slots, layers)
        once, _ = transfers_once(late, passes, self.plan)
        send = self.cell(self.around.send_seconds) if self.listed[0].mesh.pipeline > 1 else 0.0
        waits = send_waits(_Sends(sends, returns), send, self.plan)  # type: ignore[arg-type]
        device = passes["forward", "all"].device + passes["backward", "all"].device
        spent = {"forward": self.count * device + computed}
        optimizer = self.state(state.optimizer, slots, kind)
        number = self.shape([slot.stages for slot in slots])
        return Stage(kind.role, self.count, (), passes, waits, optimizer, once, 0.0, number, spent)

    def layers(self, slots: Sequence[Slot]) -> dict[str, Array]:
        """The layers of each group, for every row; none of a group that the stages do not hold."""
        found = {}
        for place, name in enumerate(self.around.group_names):
            counts = [slot.role.layers[place] for slot in slots]
            if any(counts):
                found[name] = self.shape(counts)
        return found

    def once(self, kind: Kind, slots: Sequence[Slot], layers: Mapping[str, Array]) -> tuple[StepWork, Array]:
        """Transfers that a stage has once a step, and seconds of its kernels."""
        state = self.around.update_times(kind).once
        work = _step_work(state.transfers, lambda values: self.state(values, slots, kind))
        computed = sum(self.state(seconds, slots, kind) for seconds in state.computed.values())
        for unit, own in self.tile.once.items():
            times = layers.get(unit, 1 if self.around.holds(kind, unit) else 0)
            found = _step_work(own.transfers, self.tiled)
            if np.any(own.transfers.late) and np.any(times):
                work = _together(work, found, times)
            computed = computed + sum(times * self.tiled(seconds) for seconds in own.computed.values())
        return work, computed

    def tiled(self, values: Array) -> Array:
        """Facts of a tile, for every row."""
        return self.grid.take(values, TILE)

    def state(self, values: Array, slots: Sequence[Slot], kind: Kind) -> Array:
        """Facts of weights and gradients, for every row: those of the layers that its stages hold."""
        if np.ndim(values) == 0:
            return values
        listed = self.around.layer_list(kind.held)
        places = np.array([listed.index(slot.role.layers) for slot in slots])[self.rows["shape"]]
        key = kind.held, tuple(slot.role.layers for slot in slots)
        if key not in self.by_layers:
            columns = {**self.grid.columns, "layers": places}
            self.by_layers[key] = Grid(columns, {**self.grid.lengths, "layers": len(listed)})
        return self.by_layers[key].take(values, (*STATE, "layers"))

    @cached_property
    def by_layers(self) -> dict[Any, Grid]:
        """Rows with the layers of one kind of stages."""
        return {}

    # --- memory ---

    @cached_property
    def memory(self) -> tuple[Array, Array]:
        """Bytes at the fullest moment of the fullest device, and those that are reserved there."""
        peak: Array = None
        workspace: Array = 0
        for place, kind in enumerate(self.kinds):
            slots = [shape.slots[place] for shape in self.listed]
            for variant in range(max(len(slot.variants) for slot in slots)):
                for point, bytes_ in self.moments(kind, slots, variant):
                    own = self.workspace(point)
                    if peak is None:
                        peak, workspace = bytes_, own
                        continue
                    more = bytes_ > peak
                    peak = np.where(more, bytes_, peak)
                    if workspace is not own:
                        workspace = np.where(more, own, workspace)
        library = HANDLES * self.plan.accelerator.matmul_workspace
        held = peak + library + workspace
        pool = np.floor(held * self.plan.stack.fragmentation + 1e-3) - held
        return peak, peak + library + workspace + pool + self.plan.stack.context

    def workspace(self, point: Any) -> Array:
        """What the kernel of attention allocates at a moment."""
        if point.phase != BACKWARD or point.unit not in self.tile.workspace:
            return 0
        if point.unit not in self.workspaces:
            self.workspaces[point.unit] = self.tiled(self.tile.workspace[point.unit])
        return self.workspaces[point.unit]

    @cached_property
    def workspaces(self) -> dict[str, Array]:
        """Those of each unit."""
        return {}

    def moments(self, kind: Kind, slots: Sequence[Slot], variant: int) -> Iterator[tuple[Any, Array]]:
        """Bytes at each moment of a kind of stages."""
        facts = self.around.point_facts(kind)
        stocks = self.around.stocks(self.recompute, kind, self.schedule)
        times = {times: self.times(times, slots, variant) for _, _, times in stocks}
        held = {key: self.tiled(amount) * times[key[2]] for key, amount in stocks.items()}
        for place, point in enumerate(kind.line.points):
            total = self.state(facts[place].lasting, slots, kind)
            for (first, last, _), amount in held.items():
                if first <= place <= last:
                    total = total + amount
            steps = [
                sum((self.live(one) for one in references), 0) + self.state(more, slots, kind)
                for references, more in facts[place].steps.items()
            ]
            yield point, total + maximum(*steps) if steps else total

    def live(self, reference: tuple[str, str, str]) -> Array:
        """Bytes of a unit that runs."""
        if reference not in self.alive:
            which, phase, unit = reference
            live = self.tile.live[phase, unit, self.around.adds]
            value = live.begins if which == BEGINS else live.ends if which == LEFT else live.fullest
            self.alive[reference] = self.tiled(value)
        return self.alive[reference]

    @cached_property
    def alive(self) -> dict[Any, Array]:
        """What is alive of each unit."""
        return {}

    def times(self, times: Any, slots: Sequence[Slot], variant: int) -> Array:
        """How many layers and micro-batches a formula counts, for every row."""
        table = np.stack([
            np.broadcast_to(self.around.counted(times, shape, slot, variant), len(self.around.world.counts))
            for shape, slot in zip(self.listed, slots, strict=True)
        ])  # fmt: skip
        if (table == table.flat[0]).all():
            return table.flat[0]
        return table[self.rows["shape"], self.grid.columns["count"]]

    # --- totals ---

    def block(self, keys: Sequence[str]) -> Block:
        """The rows with their totals."""
        chosen = self.around.chosen(self.rows, self.listed, self.recompute)
        size = self.rows["cell"].size
        choices = {key: np.broadcast_to(np.asarray(chosen[key], np.int32), size) for key in LAYOUT}
        totals = {key: np.broadcast_to(np.asarray(self.total(key), float), size) for key in keys}
        return Block(self.around.world.space, choices, totals)

    def total(self, key: str) -> Array:
        """One total of every row."""
        if key == "time.step":
            return self.step
        if key == "memory.peak":
            return self.memory[0]
        if key == "memory.reserved":
            return self.memory[1]
        if key == "memory.capacity":
            return self.plan.accelerator.memory
        if key not in self.of_run:
            raise KeyError(key)
        return self.of_run[key]

    @cached_property
    def of_run(self) -> dict[str, Array]:
        """The run's totals, which follow from the step."""
        plan = self.pricer.plan
        rate = plan.run.global_batch * plan.run.seq_len / self.step
        found = {"tokens_per_second": rate, "tokens_per_second_per_device": rate / plan.cluster.devices}
        return {**found, **dict(run(plan, self.step))}


def _step_work(work: StepWork, take: Callable[[Array], Array]) -> StepWork:
    """A step's transfers of every row, from those over grids."""
    once = {name: take(getattr(work, name)) for name in ("reduced", "longest", "gathered")}
    copied = {name: take(getattr(work, name)) for name in ("down", "longest_down", "up")}
    return replace(work, **once, **copied, late=take(work.late))


@dataclass(frozen=True)
class _Sends:
    """What a device passes on, as arrays."""

    sends: Array
    returns: Array


def _together(one: StepWork, other: StepWork, times: Array) -> StepWork:
    """Transfers once a step: these, and so many others."""
    longest = np.where(times > 0, other.longest, 0.0) if np.ndim(times) else other.longest
    return StepWork(
        one.reduced + times * other.reduced,
        maximum(one.longest, longest),
        one.gathered + times * other.gathered,
        one.down + times * other.down,
        maximum(one.longest_down, other.longest_down),
        one.up + times * other.up,
        np.logical_or(one.late, other.late),
    )
