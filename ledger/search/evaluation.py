"""Step time and memory of many layouts at once: the compiler's own assembly over arrays, a value for each layout.

A batch holds structures side by side. Its layouts with one number of stages are vectors of sizes (cells); a shape of
the pipeline makes one layout of each cell. Time and memory of a stage of one composition are computed once for all
shapes that have such a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from ledger.arithmetic.operations import WHOLE
from ledger.arithmetic.values import truncate
from ledger.books.assembly.sharing import SharingSums, SharingTimes, point_bytes
from ledger.books.assembly.stages import StageTime, UnitPass, send_seconds, stage_time
from ledger.books.assembly.units import TOTAL, Live, Stock, Stocks, UnitSums, UnitTimes
from ledger.books.assembly.work import PASSES, PIPELINE, StageWork, StepWork
from ledger.books.bindings import bindings
from ledger.books.compiled_roles import bound_role, with_memory
from ledger.books.evaluate import Value, exact
from ledger.books.memory.outside import reserved, workspaces_of
from ledger.books.memory.peak import Peak, add, fullest_moment, peak_of
from ledger.books.memory.timeline import BACKWARD
from ledger.books.price_changes import PRICES
from ledger.books.step_sums import HELD
from ledger.books.time import CriticalPath, critical_path
from ledger.books.totals import StageFigures
from ledger.model.dims import BY_NAME
from ledger.model.program import program
from ledger.model.schedule import Pipeline, PipelineWork, Role
from ledger.search.facts import Array, Facts, combine_results, each_array
from ledger.search.shapes import PipelineShape, StageKind, with_micro_batches
from ledger.search.structures import SENT, Composition, Structure, at_sizes
from ledger.search.world import MICRO_BATCH_SIZES, Memo, SearchContext
from ledger.spec.plan import Parallelism, Plan

# Symbols of formulas that count what a stage holds: they differ between stages and shapes, not only by its layers.
MOVING = tuple(
    BY_NAME[name].letter
    for name in ("in_flight", "waiting", "chunks", "micro_batches", "pipeline", "ways", "sends", "returns")
)


@dataclass(frozen=True)
class FigureDetail:
    """The detail that totals need: all `sums` over kernels, by kind of transfer; bytes by `category`.

    Step time and peak memory alone need neither.
    """

    sums: bool = False
    category: bool = False


class StructureBatch:
    """Structures whose facts stand side by side, and all of their cells."""

    def __init__(self, world: SearchContext, structures: Sequence[Structure]) -> None:
        self.world, self.structures = world, structures
        self.cells = {
            axis: np.concatenate([structure.cells[axis] for structure in structures]) for axis in structures[0].cells
        }
        self.structure_of = np.repeat(np.arange(len(structures)), [structure.size for structure in structures])

    def with_stages(self, stages: int, detail: FigureDetail) -> SizeArrays | None:
        """The cells with so many stages; None where there are none."""
        numbers = np.array(self.world.lists["pipeline"])[self.cells["pipeline"]]
        places = np.flatnonzero(numbers == stages)
        return SizeArrays(self, stages, places, detail) if places.size else None


class SizeArrays(Memo):
    """The cells of a batch with one number of stages, and what stages of any composition take and hold there."""

    def __init__(
        self, batch: StructureBatch, stages: int, places: Array, detail: FigureDetail, price: int | None = None
    ) -> None:
        super().__init__()
        self.batch, self.stages, self.places, self.detail, self.price = batch, stages, places, detail, price
        self.world, self.structure = batch.world, batch.structures[0]
        self.columns = {axis: column[places] for axis, column in batch.cells.items()}
        self.structure_of = batch.structure_of[places]
        self.size = places.size
        self.columns["state"] = self.structure.weight_degrees.places(self.columns)
        self.count = np.array(self.world.counts, float)[self.columns["count"]]

    @cached_property
    def plan(self) -> Plan:
        """The plan of these layouts: sizes are arrays, a value for each cell."""
        degrees = {axis: self.number(axis) for axis in ("tensor", "context", "expert", "data", "replicate")}
        plan = self.structure.plan
        mesh = replace(plan.parallelism, **degrees, pipeline=self.stages)
        run = replace(plan.run, micro_batch=self.number("micro_batch"), global_batch=self.world.plan.run.global_batch)
        return replace(plan, parallelism=mesh, run=run, cluster=self.world.plan.cluster)

    def number(self, axis: str) -> Array:
        """A size of every cell."""
        return np.array(self.world.lists[axis])[self.columns[axis]]

    def with_better_price(self, price: int) -> SizeArrays:
        """These cells with one of PRICES made better."""
        return self.once(
            ("repriced", price), lambda: SizeArrays(self.batch, self.stages, self.places, FigureDetail(), price=price)
        )

    # --- facts of every cell ---

    def facts_of_structures(self, facts: Callable[[Structure], Facts], axes: tuple[str, ...]) -> Facts:
        """Facts over some axes, for every cell: those that structures share are looked up once."""
        of_structure = [facts(structure) for structure in self.batch.structures]
        unique = list({id(traced): traced for traced in of_structure}.values())
        number = {id(traced): place for place, traced in enumerate(unique)}
        fact_of_cell = None
        if len(unique) > 1:
            fact_of_cell = np.array([number[id(traced)] for traced in of_structure])[self.structure_of]

        def looked_up(values: Sequence[Array]) -> Array:
            if all(np.ndim(value) == 0 for value in values) and all(value == values[0] for value in values):
                return values[0]
            shape = np.broadcast_shapes(*(np.shape(value) for value in values))
            used = tuple(axis for axis, length in zip(axes[len(axes) - len(shape) :], shape, strict=True) if length > 1)
            place, length = self._place(used)
            if fact_of_cell is None:
                return np.asarray(values[0]).reshape(-1).take(place)
            table = np.stack([np.broadcast_to(value, shape).reshape(-1) for value in values])
            return table.reshape(-1).take(fact_of_cell * length + place)

        gathered: Facts = (
            combine_results(unique, looked_up)
            if len(unique) > 1
            else each_array(unique[0], lambda values: looked_up([values]))
        )
        return gathered

    def _place(self, used: tuple[str, ...]) -> tuple[Array, int]:
        """The flat index of each cell in an array over some axes, and the length of that array."""

        def place() -> tuple[Array, int]:
            flat, length = np.zeros(self.size, np.int64), 1
            for axis in used:
                size = self.structure.weight_degrees.codes.size if axis == "state" else self.world.lengths[axis]
                flat, length = flat * size + self.columns[axis], length * size
            return flat, length

        return self.once(("place", used), place)

    def _of_units(self, key: Any, composition: Composition, facts: Callable[[Structure], Facts]) -> Facts:
        """Facts of units over the sizes of a cut, for every cell; of all of the model's where layers are alike."""
        key = "units", key, self.structure.is_uniform or composition
        return self.once(key, lambda: self.facts_of_structures(facts, MICRO_BATCH_SIZES))

    def of_stage(self, facts: Callable[[Structure], Facts], composition: Composition) -> Facts:
        """Facts of how one composition shards its weights, for every cell."""

        def column(structure: Structure) -> Facts:
            place = structure.layer_columns(composition).index(composition.layers)

            def chosen(values: Array) -> Array:
                return values[..., place if values.shape[-1] > 1 else 0] if values.ndim else values

            table = facts(structure)
            return self.once(("column", id(table), place), lambda: (table, each_array(table, chosen)))[1]

        return self.facts_of_structures(column, ("state",))

    def composition(self, role: Role, shape: PipelineShape) -> Composition:
        """The composition of the stages of a role."""
        return self.structure.composition(role, shape.mesh.interleave)

    # --- time ---

    def stage_time(self, slot: StageKind, shape: PipelineShape) -> StageTime:
        """The step of a stage."""
        role, composition = slot.role, self.composition(slot.role, shape)
        passes_on = any(unit == PIPELINE for _, unit in self.unit_times(composition).work)
        crossings = (role.sends, role.returns) if passes_on or self.detail.sums else (0, 0)

        def time_and_send() -> tuple[StageTime, Array]:
            work = self.stage_work(composition, crossings)
            time = stage_time(role, work, self.plan)
            return time if self.detail.sums else merged_passes(time), work.send

        time, send = self.once(("time", composition, crossings), time_and_send)
        placed = replace(role, stages=tuple(range(slot.stages)))
        return replace(time, role=placed, sends=send_seconds(role, send, self.plan))

    def unit_times(self, composition: Composition) -> UnitTimes:
        """The work of one unit of each kind."""
        return self._of_units("times", composition, lambda structure: structure.unit_times(composition, self.price))

    def stage_work(self, composition: Composition, crossings: tuple[int, int]) -> StageWork:
        """The work of a stage that sends so many results of a micro-batch, and so many gradients."""
        times, counts = self.unit_times(composition), self.structure.counts(composition)
        shared: SharingTimes = self.of_stage(
            lambda structure: structure.sharing_times(composition, self.price), composition
        )
        sends, returns = crossings
        passed_on = {"forward": returns, "backward": sends}  # what comes in crosses the same ends as what goes back
        recurring = {}
        for (name, unit), work in times.work.items():
            count = passed_on[name] if unit == PIPELINE else counts.get(unit, 0)
            if count:
                recurring[name, unit] = work.times(count)
        once: StepWork = shared.once
        for unit, work_in_step in times.once.items():
            if counts.get(unit, 0):
                once = once.plus(work_in_step.times(counts[unit]))
        send = self.send_seconds() if self.stages > 1 else 0.0
        sums = self.sums(composition, crossings) if self.detail.sums else {}
        by_transfer = {key: amount for key, amount in sums.items() if key[0] != TOTAL}
        return StageWork(recurring, shared.work, once, send, by_transfer)

    def send_seconds(self) -> Array:
        """Seconds of the longest transfer to another stage."""
        return self.once(
            "send", lambda: self.facts_of_structures(lambda structure: structure.send_seconds(self.price), SENT)
        )

    def path(self, shape: PipelineShape) -> CriticalPath:
        """The slowest stage's step."""
        times = [self.stage_time(slot, shape) for slot in shape.slots]
        work, order = PipelineWork(self.count, shape.mesh.interleave), shape.schedule
        plan = self.plan if self.price is None else PRICES[self.price].moved(self.plan, PRICES[self.price].better_by)
        return critical_path(times, lambda others, stage: order.bubble(others, stage, work), plan)

    # --- sums ---

    def sums(self, composition: Composition, crossings: tuple[int, int]) -> Mapping[tuple[str, ...], Array]:
        """Sums over the kernels of a stage in a step, by the total that each is part of."""
        return self.once(("sums", composition, crossings), lambda: self._sums(composition, crossings))

    def _sums(self, composition: Composition, crossings: tuple[int, int]) -> dict[tuple[str, ...], Array]:
        unit_sums, counts = self.unit_sums(composition), self.structure.counts(composition)
        shared: SharingSums = self.of_stage(lambda structure: structure.sharing_sums(composition), composition)
        sent = (
            self.once("sent", lambda: self.facts_of_structures(lambda structure: structure.sent_sums(), SENT))
            if self.stages > 1
            else {}
        )
        sends, returns = crossings
        recurring, spent = dict(shared.recurring), dict(shared.once)
        for (name, unit), sums in unit_sums.passes.items():
            passed_on = returns if name == "forward" else sends
            add_times(recurring, sums, passed_on if unit == PIPELINE else counts.get(unit, 0))
        for name, sums in sent.items():
            add_times(recurring, sums, sends if name == "forward" else returns)
        for unit, sums in unit_sums.once.items():
            add_times(spent, sums, counts.get(unit, 0))
        add_times(spent, recurring, self.count)
        return spent

    def unit_sums(self, composition: Composition) -> UnitSums:
        """Sums over the kernels of one unit of each kind."""
        return self._of_units("sums", composition, lambda structure: structure.unit_sums(composition))

    def spent_by_total(self, slot: StageKind, shape: PipelineShape, variant: Role) -> dict[str, Array]:
        """Sums over the kernels of each device of a role in a step, by the total that each is part of."""
        composition = self.composition(slot.role, shape)
        sums = self.sums(composition, (slot.role.sends, slot.role.returns))
        spent = {key[1]: amount for key, amount in sums.items() if key[0] == TOTAL}
        on_host = self.unit_sums(composition).on_host
        value = self._counting(variant, shape)
        if on_host:
            units = self.structure.counts(composition)
            bytes_held = sum(
                amount * self._count(times, value) for (unit, times), amount in on_host.items() if units.get(unit, 0)
            )
            # Layers may hold a fraction of a micro-batch each, so sums are whole numbers only up to rounding.
            spent[HELD] = spent.get(HELD, 0) + np.where(
                np.abs(bytes_held - np.rint(bytes_held)) < WHOLE, np.rint(bytes_held), bytes_held
            )
        return spent

    # --- memory ---

    def figures(self, shape: PipelineShape) -> Iterator[StageFigures]:
        """The figures that totals are made of, for each kind of device of a shape."""
        devices = self.world.plan.cluster.devices // self.stages
        for slot in shape.slots:
            composition = self.composition(slot.role, shape)
            shared = None
            if self.detail.sums:
                shared = self.of_stage(lambda structure: structure.sharing_sums(composition), composition)  # noqa: B023 - at once
            for number, variant in enumerate(slot.variants):
                peak, reserved_bytes = self.peak(composition, shape, slot, number)
                yield StageFigures(
                    devices=devices * slot.stages if number == 0 else 0,
                    spent=self.spent_by_total(slot, shape, variant) if self.detail.sums else {},
                    static=shared.static if shared else {},
                    parameters=shared.parameters if shared else 0,
                    peak=peak,
                    reserved=reserved_bytes,
                )

    def peak(self, composition: Composition, shape: PipelineShape, slot: StageKind, number: int) -> tuple[Peak, Array]:
        """The fullest moment of a device, and the bytes that the driver reports then."""
        variant = slot.variants[number]
        if not self.structure.is_labelled:
            return self._compiled_peak(variant, shape)
        value = self._counting(variant, shape)
        fixed, moving = self.static_bytes(composition, shape.schedule)
        moments = fixed
        if moving:
            moments = [dict(parts) for parts in fixed]
            for (first, last, times, category), amounts in moving.items():
                amount = _stock_bytes(amounts, self._count(times, value))
                for moment in range(first, last + 1):
                    add(moments[moment], {category: amount})
        peak = fullest_moment(moments)
        return peak, reserved(self.plan, peak, self.workspaces(composition))

    def static_bytes(self, composition: Composition, order: Pipeline) -> tuple[list[dict[str, Array]], Stocks]:
        """Bytes by moment that a stage holds in any shape, and the stocks whose number depends on the shape."""
        key = "held", composition, order.keeps_output, order.delays
        return self.once(key, lambda: self._held_bytes(composition, order))

    def _held_bytes(self, composition: Composition, order: Pipeline) -> tuple[list[dict[str, Array]], Stocks]:
        live = self.live(composition)
        by_category = self.detail.category
        points = self.of_stage(
            lambda structure: structure.point_facts(composition, by_category=by_category), composition
        )
        moments = [dict(point_bytes(facts, live)) for facts in points]
        value = exact(bindings(self.structure.plan_of_stage(composition), composition.role()))
        moving: dict[Stock, tuple[Array, ...]] = {}
        for stock, amounts in self.stocks(composition, order).items():
            first, last, times, category = stock
            if any(sign.name.startswith(MOVING) for sign in times.free_symbols):
                moving[stock] = amounts
                continue
            amount = _stock_bytes(amounts, float(value(times)))
            for moment in range(first, last + 1):
                add(moments[moment], {category: amount})
        return moments, moving

    def stocks(self, composition: Composition, order: Pipeline) -> Stocks:
        """Bytes that layers hold from one moment to a later one, by stock."""
        by_category = self.detail.category
        key = "stocks", composition.kind, id(self.structure.timeline(composition)), order.keeps_output, order.delays
        return self._of_units(
            key, composition, lambda structure: structure.stocks(composition, order, by_category=by_category)
        )

    def live(self, composition: Composition) -> Live:
        """Bytes of live tensors while units run."""
        key = "live", tuple(structure.adds(composition) for structure in self.batch.structures)
        by_category = self.detail.category
        return self._of_units(key, composition, lambda structure: structure.live(composition, by_category=by_category))

    def workspaces(self, composition: Composition) -> list[Array]:
        """Bytes of the workspace of attention's backward, moment by moment."""
        bytes_by_unit = self._of_units("workspaces", composition, lambda structure: structure.workspaces(composition))
        points = self.structure.timeline(composition).points
        return [bytes_by_unit.get(point.unit, 0) if point.phase == BACKWARD else 0 for point in points]

    def _counting(self, variant: Role, shape: PipelineShape) -> Value:
        """Evaluates formulas of layers and micro-batches in flight, over the counts of micro-batches."""
        structural = self.structure.plan
        key = "counting", id(variant), id(shape), repr(structural.recompute), structural.parallelism.offload

        def value() -> tuple[Value, Any]:
            mesh = _mesh_of_shape(structural, shape)
            return exact(bindings(with_micro_batches(structural, mesh, self.world.counts), variant)), (variant, shape)

        return self.world.once(key, value)[0]

    def _count(self, times: sympy.Expr, value: Value) -> Array:
        """The number of layers and micro-batches that a formula counts, for every cell."""
        number = value(times)
        if np.ndim(number):
            return np.asarray(number, float)[self.columns["count"]]
        return float(number)

    def _compiled_peak(self, variant: Role, shape: PipelineShape) -> tuple[Peak, Array]:
        """Peak and reserved bytes where weights come and go in a queue, whose moments depend on all sizes."""
        names = ("tensor", "context", "expert", "micro_batch", "data", "replicate")
        numbers = np.stack([self.number(axis) for axis in names] + [self.columns["count"], self.structure_of])
        unique, index = np.unique(numbers, axis=1, return_inverse=True)
        rows = [self._peak_at(dict(zip(names, cell[:-2], strict=True)), cell[-2:], variant, shape) for cell in unique.T]
        merged = combine_results(rows, lambda values: np.array([float(value) for value in values])[index.reshape(-1)])
        parts, reserved_bytes = merged
        return Peak(0, sum(parts.values()), [parts]), reserved_bytes

    def _peak_at(
        self, sizes: Mapping[str, Any], places: Array, variant: Role, shape: PipelineShape
    ) -> tuple[Mapping[str, Array], Array]:
        count, structure = self.world.counts[places[0]], self.batch.structures[places[1]]
        inputs = {name: int(size) for name, size in sizes.items()}
        shaped = replace(structure.plan, parallelism=_mesh_of_shape(structure.plan, shape))
        plan = at_sizes(shaped, {**inputs, "pipeline": self.stages}, count=count)

        def at_count(amount: Array) -> Any:
            return amount[places[0]] if np.ndim(amount) else amount

        role = replace(
            variant,
            in_flight=at_count(variant.in_flight),
            deferred_w_passes=at_count(variant.deferred_w_passes),
            flying=tuple(map(at_count, variant.flying)),
        )
        book = with_memory(plan, bound_role(plan, role, program(plan, role)))
        peak = peak_of(book)
        return dict(peak.parts), reserved(plan, peak, workspaces_of(book))

    # --- shares of resources ---

    def steps_at_better_prices(self, shape: PipelineShape) -> list[Array]:
        """Seconds of a step with each of PRICES made better."""
        return [self.with_better_price(place).path(shape).estimate for place, _ in enumerate(PRICES)]


def _mesh_of_shape(plan: Plan, shape: PipelineShape) -> Parallelism:
    """The plan's layout as a pipeline of this shape."""
    stated = {name: getattr(shape.mesh, name) for name in ("pipeline", "interleave", "schedule", "stages")}
    return replace(plan.parallelism, **stated)


def add_times(sums: dict[tuple[str, ...], Array], more: Mapping[tuple[str, ...], Array], count: Array) -> None:
    """Adds `count` times some sums; where `count` is the number 0, no key is added either."""
    if np.ndim(count) == 0 and count == 0:
        return
    for key, amount in more.items():
        if np.ndim(amount) or amount:
            sums[key] = sums[key] + count * amount if key in sums else count * amount


def _stock_bytes(amounts: Sequence[Array], times: Array) -> Array:
    """Bytes of `times` stocks of each amount: whole bytes of each, even where `times` has a fraction."""
    if _is_whole(times) and all(map(_is_whole, amounts)):
        return sum(amounts) * times
    return sum(truncate(np.asarray(amount * times, float)) for amount in amounts)


def _is_whole(numbers: Array) -> bool:
    """Whether these are whole numbers."""
    return bool(np.all(numbers == np.rint(np.asarray(numbers, float))))


def merged_passes(time: StageTime) -> StageTime:
    """The time of a stage with all units of a pass added up, and all exposed transfers as one."""
    passes = {}
    for name in PASSES:
        parts = [unit_pass for (pass_name, _), unit_pass in time.passes.items() if pass_name == name]
        passes[name, "all"] = UnitPass(
            device=sum(part.device for part in parts),
            launch=sum(part.launch for part in parts),
            exposed={"data": sum(seconds for part in parts for seconds in part.exposed.values())},
            slowdown=sum(part.slowdown for part in parts),
            weight_gradients=sum(part.weight_gradients for part in parts),
        )
    once, computed = {"data": sum(time.once.values())}, {"forward": sum(time.computed.values())}
    return replace(time, passes=passes, once=once, computed=computed)
