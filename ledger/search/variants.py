"""A choice of all that is no size, and what the rules say of it: facts over grids, taken for its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ledger.books.passes import UnitWork
from ledger.model.fsdp_units import INPUT, ROOT
from ledger.model.pipelines import PIPELINES, Pipeline
from ledger.model.schedule import Role
from ledger.model.units import Unit, compute_precision
from ledger.search.facts import Array, Facts, evaluated
from ledger.search.shapes import Kind, Lines, fetches_alike, trains_all
from ledger.search.space import LAYOUT, Layout, laid_out
from ledger.search.states import (
    PointFacts,
    PointParts,
    Sharing,
    UpdateTimes,
    any_moments,
    held_units,
    point_facts,
    point_parts,
    state_work,
    update_times,
)
from ledger.search.tiles import (
    TILE,
    PassOf,
    Stock,
    Stocks,
    TileFacts,
    TileTimes,
    send_seconds,
    tile_facts,
    tile_stocks,
    tile_times,
    tile_units,
)
from ledger.search.world import States, World
from ledger.spec.plan import Plan

PIPELINE = "pipeline"
Grid = Callable[[], tuple[Mapping[str, Array], Array]]  # values of inputs, and where these are legal
SENT = (*TILE, "data", "pipeline")  # what decides what a stage sends to the next


@dataclass(frozen=True)
class Sharded:
    """A choice of how weights are shared: `zero`, `reshard` and `offload` as a layout states them."""

    zero: int
    reshard: Any
    offload: Any

    @property
    def layout(self) -> Layout:
        """Its keys."""
        stated = {"zero": self.zero, "reshard": self.reshard, "offload": self.offload}
        return {f"parallelism.{name}": value for name, value in stated.items()}

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class Layers:
    """A choice of what cuts the layers, which of the axes of a tile are used, and what is rebuilt.

    `alone`: experts that lie on as many devices, one each, of which stacks write other operations; 0: of no layer.
    """

    tensor: bool
    context: bool
    expert: bool
    sequence: str
    exchange: str | None
    recompute: Any
    alone: int = 0

    @property
    def layout(self) -> Layout:
        """Its keys."""
        return {
            "parallelism.sequence": self.sequence,
            "parallelism.context_exchange": self.exchange,
            "recompute": self.recompute,
        }

    def __hash__(self) -> int:
        return hash(repr(self))


def lone(plan: Plan) -> tuple[int, ...]:
    """Degrees at which each device holds one expert of a layer, where its stack then moves rows otherwise."""
    found = {group.mlp.experts for group in plan.model.groups if group.mlp.experts > 1}
    return tuple(sorted(found)) if plan.stack.expert_rows == "mapped" else ()


class Variant:
    """One way of sharing weights and of cutting layers, with one micro-batch a step or several, from one end or both.

    `cells` are its legal degrees, copies and micro-batches, as places in the lists of the world.
    """

    def __init__(  # noqa: PLR0913 - the choices of a layout
        self, shared: World, way: Sharded, layers: Layers, several: bool, ways: int, cells: Mapping[str, Array]
    ) -> None:
        self.world, self.way, self.layers, self.several, self.ways = shared, way, layers, several, ways
        self.cells, self.size = cells, cells["data"].size
        offload = [kind for kind in way.offload or () if kind != "activations"]
        self.sharing_key = layers.tensor, layers.expert, way.zero, way.reshard, repr(offload), several, ways

    # --- plans ---

    @cached_property
    def plan(self) -> Plan:
        """A plan with these choices, of which only what is not a size counts."""
        key = "plan", self.way, self.layers, self.ways
        return self.world.once(key, self._plan)

    def _plan(self) -> Plan:
        lists, layers = self.world.lists, self.layers
        used = {"tensor": layers.tensor, "context": layers.context, "expert": layers.expert}
        degrees = {axis: max(lists[axis]) if used[axis] else 1 for axis in TILE[:3]}
        if layers.expert:
            degrees["expert"] = layers.alone or max(
                size for size in lists["expert"] if size not in lone(self.world.plan)
            )
        layout = {
            **dict.fromkeys(LAYOUT),
            **layers.layout,
            **self.way.layout,
            **{f"parallelism.{axis}": degree for axis, degree in degrees.items()},
            "parallelism.pipeline": max(lists["pipeline"]),
            "parallelism.interleave": 1,
            "parallelism.replicate": 1,
            "run.micro_batch": 1,
        }
        found = laid_out(self.world.plan, layout)
        name = next(name for name, one in PIPELINES.items() if one.ways == self.ways)
        mesh = replace(found.parallelism, data=max(2, found.parallelism.data), schedule=name)
        return replace(found, parallelism=mesh)

    @cached_property
    def uniform(self) -> bool:
        """Whether all layers of a group are alike, so that a step can be put together from facts of one of each."""
        plan, counted = self.plan, ("every", "layers", "segment")
        alike = plan.recompute.policy not in counted and not plan.parallelism.offload.layers
        alone = fetches_alike(plan) or self.way.zero < 3
        return alike and alone and trains_all(plan) and not plan.stack.check

    @cached_property
    def tile_key(self) -> Any:
        """What decides the units of the model, and all that they compute and hold."""
        return self.layers, repr(self.way.offload), compute_precision(self.plan)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The units of the model."""
        return self.world.once(("units", self.tile_key), lambda: tile_units(self.plan))

    @cached_property
    def sharing(self) -> Sharing:
        """The way of sharing, for the rules."""
        return Sharing(self.plan, self.units, self.several)

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """The groups of layers, each a unit of its own."""
        return tuple(group.name for group in self.plan.model.groups)

    @cached_property
    def lines(self) -> Lines:
        """The moments of roles: those of all variants whose units move alike."""
        moved = tuple((unit.name, unit.hosted) for unit in self.units)
        key = "lines", self.way.zero == 3, repr(self.way.offload), moved
        return self.world.once(key, lambda: Lines(self.plan, self.units, {}, {}))

    # --- facts of layers ---

    def timed(self, key: tuple[Any, ...], over: Grid, run: Callable[[Plan, Mapping[str, Any]], Facts]) -> Facts:
        """Seconds that `run` says of the plan, over a grid."""

        def found() -> Facts:
            grid, legal = over()
            return evaluated(grid, lambda inputs: run(self.plan, inputs), legal)

        return self.world.once(key, found)

    @cached_property
    def times(self) -> TileTimes:
        """What layers take, over the sizes of a tile."""
        mine = self.units
        run = lambda plan, inputs: tile_times(plan, mine, inputs)  # noqa: E731
        return self.timed(("times", self.tile_key), lambda: self.sizes(TILE), run)

    def sizes(self, axes: tuple[str, ...]) -> tuple[Mapping[str, Array], Array]:
        """The sizes of layers, and which of them any layout may have."""
        return self.world.grid(axes), self.legal_of_layers(axes)

    @cached_property
    def tile(self) -> TileFacts:
        """What layers hold, over the sizes of a tile."""
        return self.of_tiles("tile", lambda inputs: tile_facts(self.plan, self.units, inputs))

    def of_tiles(self, name: Any, run: Callable[[Mapping[str, Any]], Facts]) -> Facts:
        """What `run` says of layers, over the sizes of a tile."""
        return self.world.once((name, self.tile_key), lambda: evaluated(self.world.grid(TILE), run, self.legal_tiles))

    def legal_of_layers(self, axes: tuple[str, ...]) -> Array:
        """Sizes that any layout may have whose layers are cut alike, however it shares its weights."""
        values, found = self.world.space.values, np.zeros([self.world.lengths[axis] for axis in axes], bool)
        cut = {"tensor": self.layers.tensor, "context": self.layers.context, "expert": self.layers.expert}
        for zero in values["parallelism.zero"]:
            reshard = values["parallelism.reshard"][-1] if zero == 3 else None
            cells = self.world.cells(cut, Sharded(zero, reshard, values["parallelism.offload"][0]), None, 1)
            found[tuple(cells[axis] for axis in axes)] = True
        return found

    @cached_property
    def legal_tiles(self) -> Array:
        """Sizes of a tile that any such layout may have."""
        return self.legal_of_layers(TILE)

    @cached_property
    def send_seconds(self) -> Array:
        """Seconds of what one stage sends to the next, over a tile, `data` and `pipeline`."""
        return self.timed(self.send_key("send"), lambda: self.sizes(SENT), send_seconds)

    def send_key(self, name: str) -> tuple[Any, ...]:
        """What decides what a stage sends to the next."""
        return name, replace_recompute(self.layers), compute_precision(self.plan)

    def stocks(self, kind: Kind, schedule: Pipeline, *, detailed: bool) -> Stocks:
        """What layers hold from moment to moment, over the sizes of a tile; `detailed`: each category by itself."""
        name = next(name for name, one in PIPELINES.items() if one is schedule)
        plan = replace(self.plan, parallelism=replace(self.plan.parallelism, schedule=name))

        def run(inputs: Mapping[str, Any]) -> Stocks:
            units = held_units(self.units, plan, kind.role)
            return tile_stocks(plan, units, kind.line, inputs, detailed=detailed)

        return self.of_tiles((*stock_key(kind, schedule), detailed), run)

    def stock_sums(self, kind: Kind, schedule: Pipeline, *, detailed: bool) -> Mapping[Stock, Array]:
        """The same, all of each kind together."""
        key = "sums", self.tile_key, *stock_key(kind, schedule), detailed
        each = self.stocks(kind, schedule, detailed=detailed)
        return self.world.once(key, lambda: {stock: sum(amounts) for stock, amounts in each.items()})

    # --- facts of sharing ---

    @cached_property
    def states(self) -> States:
        """The degrees that cut weights and their states, in any layout whose weights are cut alike."""
        cut = {"tensor": self.layers.tensor, "expert": self.layers.expert}
        return self.world.states(cut, self.way, self.ways)

    def state_grid(self, held: tuple[bool, ...]) -> dict[str, Array]:
        """The degrees, a row each, and the layers of stages of a kind, a column each."""
        grid = {name: column[:, None] for name, column in self.degrees.items()}
        for group, _ in enumerate(self.plan.model.groups):
            if held[2 + group]:
                counts = np.array([layers[group] for layers in self.world.layer_list(held)], dtype=float)
                grid[f"layers.{group}"] = counts[None, :]
        return grid

    @property
    def degrees(self) -> dict[str, Array]:
        """The degrees that cut weights and their states, a row each."""
        columns = self.states.columns
        rest = columns["tensor"] * columns["context"] * columns["data"]
        return {**columns, "pipeline": np.maximum(1, self.plan.cluster.devices // rest)}

    def state_work(self, kind: Kind) -> Mapping[PassOf, UnitWork]:
        """What stages of a kind spend for weights and gradients in a micro-batch, of one layer of each group."""
        return self.shared("work", kind, False, state_work)

    def update_times(self, kind: Kind) -> UpdateTimes:
        """What stages of a kind spend for weights and gradients once a step."""
        return self.shared("update", kind, True, update_times)

    def shared(
        self, name: str, kind: Kind, deep: bool, run: Callable[[Sharing, Role, Mapping[str, Any]], Facts]
    ) -> Facts:
        """What `run` says of the weights of a kind of stage, over its degrees, and its layers where it is `deep`."""
        return self.timed(
            (name, self.sharing_key, kind.held),
            lambda: (self.state_grid(kind.held) if deep else self.degrees, True),
            lambda plan, inputs: run(replace(self.sharing, plan=plan), kind.role, inputs),
        )

    def point_facts(self, kind: Kind) -> tuple[PointFacts, ...]:
        """What stages of a kind hold of weights and gradients, moment by moment."""
        key = "points", self.sharing_key, kind.held, id(kind.line)
        run = lambda inputs: point_facts(self.sharing, kind.role, kind.line, inputs)  # noqa: E731
        found: tuple[PointFacts, ...] = self.world.once(key, lambda: evaluated(self.state_grid(kind.held), run))
        return found

    def point_parts(self, kind: Kind, place: int) -> PointParts:
        """The same of one moment, by category."""
        key = "point parts", self.sharing_key, kind.held, id(kind.line), place
        run = lambda inputs: point_parts(self.sharing, kind.role, kind.line, place, inputs)  # noqa: E731
        return self.world.once(key, lambda: evaluated(self.state_grid(kind.held), run))

    @cached_property
    def adds(self) -> bool:
        """Whether a new gradient is added at once to one that is there."""
        return self.world.once(("adds", self.sharing_key), lambda: any_moments(self.sharing).adds)

    # --- passes ---

    def holds(self, kind: Kind, unit: str) -> bool:
        """Whether stages of a kind hold an end of the model, or the weights of the ends."""
        first, last = kind.held[:2]
        if unit in self.group_names or unit == PIPELINE:
            return False
        return first or last if unit == ROOT else first if unit == INPUT else last

    def ends(self, name: str, kind: Kind) -> list[str]:
        """The units that a pass runs of all that stages of a kind hold, but layers and what they pass on."""
        units = {unit for phase, unit in (*self.times.work, *self.state_work(kind)) if phase == name}
        return [unit for unit in sorted(units) if self.holds(kind, unit)]


def stock_key(kind: Kind, schedule: Pipeline) -> tuple[Any, ...]:
    """What decides what layers hold from moment to moment, beside what they are."""
    return "stocks", kind.held, id(kind.line), schedule.keeps_output, schedule.delays


def replace_recompute(layers: Layers) -> Layers:
    """The same layers, whatever of them is rebuilt."""
    return replace(layers, recompute="none")
