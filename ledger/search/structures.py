"""Structures: the choices of a layout that are no sizes, and the compiler's facts of them over grids of sizes.

Facts of a unit depend on what cuts one micro-batch, facts of sharing on the degrees that cut weights and on what a
stage holds (books/assembly). Each is traced from the rules once, evaluated over arrays, and kept in the world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ledger.books.assembly import sharing
from ledger.books.assembly import units as unit_facts
from ledger.books.bindings import bindings
from ledger.books.evaluate import Value, exact
from ledger.books.memory.timeline import Timeline, timeline
from ledger.books.parameter_traffic import by_module
from ledger.books.price_changes import PRICES
from ledger.model import losses
from ledger.model.causes import INPUT, LOSS, OUTPUT
from ledger.model.exchanges import drains, has_buffer
from ledger.model.program import Program, program
from ledger.model.schedule import PIPELINES, Pipeline, Role, schedule
from ledger.model.unit import Unit
from ledger.model.units import builder, compute_precision
from ledger.model.units import units as units_of
from ledger.search.facts import Array, Facts, Inputs, each_array, evaluate_facts
from ledger.search.space import LAYOUT, with_layout
from ledger.search.world import MICRO_BATCH_SIZES, LayerCut, SearchContext, Sharding, WeightDegrees
from ledger.spec.plan import Plan

SENT = (*MICRO_BATCH_SIZES, "data", "pipeline")  # what decides what a stage sends to the next
DEGREES = ("data", "tensor", "pipeline", "context", "expert", "replicate")
Grid = Callable[[], tuple[Mapping[str, Array], Array]]  # values of inputs, and where these are legal


def degrees_of_single_experts(plan: Plan) -> tuple[int, ...]:
    """Degrees at which each device holds one expert of a layer, where its stack then moves rows otherwise."""
    counts = {group.mlp.experts for group in plan.model.groups if group.mlp.experts > 1}
    return tuple(sorted(counts)) if plan.stack.expert_rows == "mapped" else ()


@dataclass(frozen=True)
class Composition:
    """The composition of a stage: layers of each group, ends of the model; `chunks` of layers, where they matter."""

    layers: tuple[int, ...]
    first: bool
    last: bool
    chunks: int = 1

    @property
    def kind(self) -> tuple[bool, ...]:
        """Which ends of the model, then which groups of layers."""
        return self.first, self.last, *(bool(count) for count in self.layers)

    def role(self, layers: Sequence[Array] = (), sends: int = 1, returns: int = 1) -> Role:
        """A device of such a stage."""
        layers_of_groups = tuple(layers) or self.layers
        return Role("", (0,), 1, layers_of_groups, self.first, self.last, 1, 0, sends, returns)


def at_sizes(plan: Plan, inputs: Inputs, count: int = 1) -> Plan:
    """The plan with degrees and a micro-batch that may be values of a trace, and so many micro-batches a step."""
    mesh = replace(plan.parallelism, **{name: inputs[name] for name in DEGREES if name in inputs})
    size, pipeline_ends = inputs.get("micro_batch", 1), schedule(plan.parallelism).pipeline_ends
    run = replace(plan.run, micro_batch=size, global_batch=mesh.data * size * (count * pipeline_ends))
    return replace(plan, parallelism=mesh, run=run, cluster=replace(plan.cluster, devices=mesh.data * mesh.replica))


def prices_in_bulk(plan: Plan) -> bool:
    """Whether layouts of a plan are priced by thousands, not one by one as where weights come and go in a queue."""
    return plan.stack.unshard != "modules"


class Structure:
    """A choice of how weights are sharded and layers cut, with one micro-batch a step or several, from one end or both.

    `cells` are its legal degrees, copies and micro-batches, as places in the lists of the world. `alone`: no other
    device has a copy or a share of the same weights, of which some stacks keep gradients otherwise.
    """

    def __init__(  # noqa: PLR0913 - the choices of a layout
        self,
        world: SearchContext,
        sharded: Sharding,
        cut: LayerCut,
        several: bool,
        ways: int,
        alone: bool,
        cells: Mapping[str, Array],
    ) -> None:
        self.world, self.sharded, self.cut, self.several, self.ways = world, sharded, cut, several, ways
        self.alone, self.cells, self.size = alone, cells, cells["data"].size

    # --- plan and units ---

    @cached_property
    def plan(self) -> Plan:
        """A plan with these choices; its sizes stand for nothing."""
        return self.world.once(("plan", self.sharded, self.cut, self.ways, self.alone), self._plan)

    def _plan(self) -> Plan:
        lists, cut = self.world.lists, self.cut
        degrees = {axis: max(lists[axis]) if getattr(cut, axis) else 1 for axis in MICRO_BATCH_SIZES[:3]}
        if cut.expert:
            single = degrees_of_single_experts(self.world.plan)
            degrees["expert"] = cut.one_expert_each or max(size for size in lists["expert"] if size not in single)
        layout = {
            **dict.fromkeys(LAYOUT),
            **cut.layout,
            **self.sharded.layout,
            **{f"parallelism.{axis}": degree for axis, degree in degrees.items()},
            "parallelism.pipeline": max(lists["pipeline"]),
            "parallelism.interleave": 1,
            "parallelism.replicate": 1,
            "run.micro_batch": 1,
        }
        placed = with_layout(self.world.plan, layout)
        name = next(name for name, order in PIPELINES.items() if order.pipeline_ends == self.ways)
        data = 1 if self.alone else max(2, placed.parallelism.data)
        mesh = replace(placed.parallelism, data=data, schedule=name)
        return replace(placed, parallelism=mesh)

    @cached_property
    def cut_key(self) -> Any:
        """The key of facts of the model's units, whose computation and bytes depend on nothing else."""
        return self.cut, repr(self.sharded.offload), compute_precision(self.plan), self.alone, has_buffer(self.plan)

    @cached_property
    def every_unit(self) -> tuple[Unit, ...]:
        """The units of a device that holds the whole model."""
        layers = [group.repeat for group in self.plan.model.groups]
        return self.world.once(
            ("units", self.cut_key), lambda: units_of(builder(self.plan), unit_facts.any_stage(self.plan, layers))
        )

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all layers of a group are alike, whatever a stage holds of the model, so that facts of one do."""
        model, train = self.plan.model, self.plan.train
        plain = {INPUT, OUTPUT, LOSS, losses.UNIT, *(group.name for group in model.groups)}
        are_alike = all(unit.name in plain for unit in self.every_unit)
        trains_all = train.kind == "all" and train.lora is None
        by_layer = self.plan.recompute.policy in ("every", "layers", "segment") or self.plan.parallelism.offload.layers
        return are_alike and trains_all and not by_layer and not model.of_blocks and not model.encoder_groups

    @cached_property
    def is_labelled(self) -> bool:
        """Whether the fullest step of a moment is known by its label, whatever the sizes of layers are."""
        return not by_module(replace(self.plan, parallelism=replace(self.plan.parallelism, context=2)))

    def composition(self, role: Role, chunks: int) -> Composition:
        """The composition of a role's stages; facts of layers that are not alike depend on the number of chunks too."""
        return Composition(role.layers, role.first, role.last, 1 if self.is_uniform else chunks)

    def plan_of_stage(self, composition: Composition) -> Plan:
        """The plan with as many chunks of layers."""
        return _with_chunks(self.plan, composition)

    def units(self, composition: Composition) -> tuple[Unit, ...]:
        """The units that a stage holds."""
        if not self.is_uniform:
            key = "units", self.cut_key, composition
            plan = self.plan_of_stage(composition)
            return self.world.once(key, lambda: units_of(builder(plan), composition.role()))
        layers = {group.name: count for group, count in zip(self.plan.model.groups, composition.layers, strict=True)}

        def is_in_stage(unit: Unit) -> bool:
            return bool(layers.get(unit.group, composition.first if unit.name == INPUT else composition.last))

        return tuple(filter(is_in_stage, self.every_unit))

    def unit_key(self, composition: Composition) -> Any:
        """The key of facts of the units of a stage."""
        return self.cut_key if self.is_uniform else (self.cut_key, composition)

    def units_of_facts(self, composition: Composition) -> tuple[Unit, ...]:
        """The units of which facts are made: all of the model where layers are alike, else those of the stage."""
        return self.every_unit if self.is_uniform else self.units(composition)

    def counts(self, composition: Composition) -> Mapping[str, int]:
        """The number of each unit in a stage, by its name."""

        def unit_counts() -> dict[str, int]:
            value = exact(bindings(self.plan_of_stage(composition), composition.role()))
            return {unit.name: int(value(unit.count)) for unit in self.units(composition)}

        return self.world.once(("counts", self.unit_key(composition), composition), unit_counts)

    def _at(self, plan: Plan, composition: Composition, inputs: Inputs) -> tuple[Plan, Value]:
        """A plan, at its own prices, at sizes of a cut, and what evaluates formulas of one unit each."""
        placed = at_sizes(_with_chunks(plan, composition), inputs)
        role = unit_facts.any_stage(placed) if self.is_uniform else composition.role()
        return placed, exact(bindings(placed, role))

    # --- facts of units ---

    def repriced_seconds(
        self, key: tuple[Any, ...], over: Grid, price: int | None, run: Callable[[Plan, Inputs], Facts]
    ) -> Facts:
        """Seconds that `run` gives for the plan, over a grid; with one of PRICES made better, where `price` names one.

        All prices are traced at once, as one more axis of the grid.
        """

        def plain() -> Facts:
            grid, legal = over()
            return evaluate_facts(grid, lambda inputs: run(self.plan, inputs), legal)

        def repriced() -> Facts:
            def run_repriced(inputs: Inputs) -> Facts:
                plan = self.plan
                for price_change in PRICES:
                    plan = price_change.moved(plan, inputs[price_change.path])
                return run(plan, inputs)

            grid, legal = over()
            return evaluate_facts(priced_grid(grid), run_repriced, legal)

        def at_price() -> Facts:
            table = self.world.once(("repriced", *key), repriced)
            return each_array(table, lambda values: values[price if len(values) > 1 else 0] if values.ndim else values)

        return self.world.once(key, plain) if price is None else self.world.once(("price", price, *key), at_price)

    def sizes(self, axes: tuple[str, ...]) -> tuple[Mapping[str, Array], Array]:
        """The grid of sizes of a cut, and which of them any layout may have."""
        key = "legal sizes", axes, self.cut.tensor, self.cut.context, self.cut.expert, repr(self.sharded.offload)
        return self.world.grid(axes), self.world.once(key, lambda: self._legal_sizes(axes))

    def _legal_sizes(self, axes: tuple[str, ...]) -> Array:
        """Sizes that any layout may have whose layers are cut alike, however it shares its weights."""
        values, legal = self.world.space.values, np.zeros([self.world.lengths[axis] for axis in axes], bool)
        cut = {axis: getattr(self.cut, axis) for axis in MICRO_BATCH_SIZES[:3]}
        for zero in values["parallelism.zero"]:
            reshard = values["parallelism.reshard"][-1] if zero == 3 else None
            cells = self.world.legal_sizes(cut, Sharding(zero, reshard, values["parallelism.offload"][0]), None, 1)
            legal[tuple(cells[axis] for axis in axes)] = True
        return legal

    def unit_times(self, composition: Composition, price: int | None) -> unit_facts.UnitTimes:
        """Seconds of each unit, over the sizes of a cut."""

        def run(plan: Plan, inputs: Inputs) -> unit_facts.UnitTimes:
            placed, value = self._at(plan, composition, inputs)
            return unit_facts.unit_times(placed, unit_facts.single(self.units_of_facts(composition)), value)

        return self.repriced_seconds(
            ("times", self.unit_key(composition)), lambda: self.sizes(MICRO_BATCH_SIZES), price, run
        )

    def send_seconds(self, price: int | None) -> Array:
        """Seconds of the longest transfer to another stage, over a cut, `data` and `pipeline`."""

        def run(plan: Plan, inputs: Inputs) -> Array:
            placed = at_sizes(plan, inputs)
            return unit_facts.send_seconds(placed, exact(bindings(placed, unit_facts.any_stage(placed))))

        return self.repriced_seconds(self._send_key("send"), lambda: self.sizes(SENT), price, run)

    def sent_sums(self) -> Mapping[str, unit_facts.Sums]:
        """Sums over the transfers between stages in a micro-batch, over a cut, `data` and `pipeline`."""

        def run(plan: Plan, inputs: Inputs) -> Mapping[str, unit_facts.Sums]:
            placed = at_sizes(plan, inputs)
            return unit_facts.sent_sums(placed, exact(bindings(placed, unit_facts.any_stage(placed))))

        return self.repriced_seconds(self._send_key("sent"), lambda: self.sizes(SENT), None, run)

    def _send_key(self, name: str) -> tuple[Any, ...]:
        return name, replace(self.cut, recompute="none"), compute_precision(self.plan)

    def unit_sums(self, composition: Composition) -> unit_facts.UnitSums:
        """Sums over the kernels of each unit, over the sizes of a cut."""
        return self._of_units(
            "sums", composition, lambda plan, value: unit_facts.unit_sums(plan, self.units_of_facts(composition), value)
        )

    def live(self, composition: Composition, *, by_category: bool) -> unit_facts.Live:
        """Bytes of live tensors while units run, over the sizes of a cut."""
        added = self.adds(composition)

        def run(plan: Plan, value: Value) -> unit_facts.Live:
            return unit_facts.unit_live(
                plan, self.units_of_facts(composition), value, added=added, by_category=by_category
            )

        return self._of_units(("live", added, by_category), composition, run)

    def workspaces(self, composition: Composition) -> Mapping[str, Array]:
        """Bytes of the workspace of attention's backward, over the sizes of a cut."""
        return self._of_units(
            "workspaces",
            composition,
            lambda _, value: unit_facts.unit_workspaces(self.units_of_facts(composition), value),
        )

    def stocks(self, composition: Composition, order: Pipeline, *, by_category: bool) -> unit_facts.Stocks:
        """Bytes that units hold from one moment to a later one, over the sizes of a cut."""
        line = self.timeline(composition)
        name = next(name for name, row in PIPELINES.items() if row is order)

        def run(plan: Plan, value: Value) -> unit_facts.Stocks:
            placed = replace(plan, parallelism=replace(plan.parallelism, schedule=name))
            return unit_facts.unit_stocks(placed, self.units(composition), value, line, by_category=by_category)

        key = "stocks", composition.kind, id(line), order.keeps_output, order.delays, by_category
        return self._of_units(key, composition, run)

    def _of_units(self, name: Any, composition: Composition, run: Callable[[Plan, Value], Facts]) -> Facts:
        def facts() -> Facts:
            grid, legal = self.sizes(MICRO_BATCH_SIZES)
            return evaluate_facts(grid, lambda inputs: run(*self._at(self.plan, composition, inputs)), legal)

        return self.world.once((name, self.unit_key(composition)), facts)

    # --- moments ---

    def timeline(self, composition: Composition) -> Timeline:
        """The moments of a stage's step: one object for all stages that have equal moments."""
        moved = tuple((unit.name, unit.hosted) for unit in self.every_unit)
        kind = None if self.is_uniform else self.plan.recompute
        key = "line", self.sharded.zero == 3, repr(self.sharded.offload), moved, repr(kind), composition
        return self.world.once(key, lambda: self._line(composition))

    def _line(self, composition: Composition) -> Timeline:
        plan, role = self.plan_of_stage(composition), composition.role()
        run = program(plan, role, self.units(composition))
        line = timeline(run, plan, role, exact(bindings(plan, role)), chunked=True)
        points = tuple((p.phase, p.unit, p.surroundings, tuple(p.passed_layers.items())) for p in line.points)
        key = "line", points, tuple(line.counts.items()), composition.kind, composition.chunks
        return self.world.once(key, lambda: line)

    # --- facts of sharing ---

    @cached_property
    def sharing_key(self) -> Any:
        """The key of facts of sharded weights, of layers that are alike."""
        cut, sharded = self.cut, self.sharded
        offload = [kind for kind in sharded.offload or () if kind != "activations"]
        choices = sharded.zero, sharded.reshard, repr(offload), self.several, self.ways, self.alone
        key = cut.tensor, cut.expert, *choices
        return key if self.is_uniform else (key, self.cut_key)

    @cached_property
    def holding_key(self) -> Any:
        """The rest of the key of their bytes: the order of gradients in a buffer, and what dummy gradients read."""
        order: tuple[str, ...] = ()
        if drains(self.plan):
            order = tuple(w.name for unit in self.every_unit for w in sharing.written_weights(unit, added=True))
        read = (self.cut.sequence, self.cut.exchange) if self.plan.stack.dummy_gradients else ()
        return order, read

    @cached_property
    def weight_degrees(self) -> WeightDegrees:
        """The degrees that cut weights and their states, in any layout whose weights are cut alike."""
        cut = {"tensor": self.cut.tensor, "expert": self.cut.expert}
        return self.world.weight_degrees(cut, self.sharded, self.ways)

    def layer_columns(self, composition: Composition) -> list[tuple[int, ...]]:
        """The layers that stages of a kind may hold, for which facts of sharing are made at once."""
        return self.world.layer_list(composition.kind) if self.is_uniform else [composition.layers]

    def _state_grid(self, composition: Composition, *, deep: bool = True) -> dict[str, Array]:
        """The degrees, a row each, and the layers of stages of a kind, a column each."""
        degrees = self.weight_degrees.columns
        devices_of_stage = degrees["tensor"] * degrees["context"] * degrees["data"]
        grid = {**degrees, "pipeline": np.maximum(1, self.plan.cluster.devices // devices_of_stage)}
        grid = {name: column[:, None] for name, column in grid.items()}
        if self.is_uniform and deep:
            for group, has_layers in enumerate(composition.kind[2:]):
                if has_layers:
                    columns_of_layers = self.layer_columns(composition)
                    grid[f"layers.{group}"] = np.array([layers[group] for layers in columns_of_layers], float)[None, :]
        return grid

    def _stage(self, plan: Plan, composition: Composition, inputs: Inputs) -> tuple[Plan, Role, Program, Value]:
        """A stage at one setting of the degrees and of its layers."""
        placed = at_sizes(_with_chunks(plan, composition), inputs, count=2 if self.several else 1)
        layers = (inputs.get(f"layers.{group}", count) for group, count in enumerate(composition.layers))
        role = composition.role(tuple(layers))
        value = exact(bindings(placed, role))
        return placed, role, program(placed, role, self.units(composition)), value

    def _shared_key(self, name: str, composition: Composition) -> tuple[Any, ...]:
        return name, self.sharing_key, composition.kind if self.is_uniform else composition

    def sharing_times(self, composition: Composition, price: int | None) -> sharing.SharingTimes:
        """Seconds of a stage's work on sharded weights, over the degrees, with a column for each count of layers."""

        def run(plan: Plan, inputs: Inputs) -> sharing.SharingTimes:
            placed, _, stage_program, value = self._stage(plan, composition, inputs)
            return sharing.sharing_times(placed, stage_program, value)

        key = self._shared_key("sharing times", composition)
        return self.repriced_seconds(key, lambda: (self._state_grid(composition), True), price, run)

    def sharing_sums(self, composition: Composition) -> sharing.SharingSums:
        """Sums over the kernels that serve sharded weights in a stage, and the bytes that it holds of these."""

        def run(plan: Plan, inputs: Inputs) -> sharing.SharingSums:
            placed, role, stage_program, value = self._stage(plan, composition, inputs)
            return sharing.sharing_sums(placed, role, stage_program, value)

        key = self._shared_key("sharing sums", composition)
        return self.repriced_seconds(key, lambda: (self._state_grid(composition), True), None, run)

    def adds(self, composition: Composition) -> bool:
        """Whether a new gradient is added at once to one that is there."""

        def gradients_add() -> bool:
            data = 1 if self.alone else 2 * self.plan.parallelism.expert
            placed, _, stage_program, _ = self._stage(self.plan, composition, {"data": data})
            return sharing.gradients_add(placed, stage_program)

        return self.world.once(self._shared_key("adds", composition), gradients_add)

    def point_facts(self, composition: Composition, *, by_category: bool) -> tuple[sharing.PointFacts, ...]:
        """Bytes of weights and gradients in a stage, moment by moment."""
        line = self.timeline(composition)

        def run(inputs: Inputs) -> tuple[sharing.PointFacts, ...]:
            placed, _, stage_program, value = self._stage(self.plan, composition, inputs)
            return sharing.point_facts(placed, stage_program, value, line, by_category=by_category)

        key = *self._shared_key("points", composition), self.holding_key, id(line), by_category
        return self.world.once(key, lambda: evaluate_facts(self._state_grid(composition), run))


def _with_chunks(plan: Plan, composition: Composition) -> Plan:
    """A plan whose devices have as many chunks of layers."""
    return replace(plan, parallelism=replace(plan.parallelism, interleave=composition.chunks))


def priced_grid(grid: Mapping[str, Array]) -> dict[str, Array]:
    """A grid with one axis more, the first: PRICES, of which one is better at each place."""
    depth = max(np.ndim(column) for column in grid.values())
    deeper = {
        name: np.reshape(column, (1,) * (depth + 1 - np.ndim(column)) + np.shape(column))
        for name, column in grid.items()
    }
    for place, price in enumerate(PRICES):
        factors = np.ones(len(PRICES))
        factors[place] = price.better_by
        deeper[price.path] = factors.reshape(-1, *(1,) * depth)
    return deeper
