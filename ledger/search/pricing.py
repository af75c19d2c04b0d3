"""The pieces of a space, each priced by itself as arrays.

A layout's step and memory are put together from facts that depend on few of its keys: what a tile of the model computes
and holds (tiles), what sharing its weights costs (states), how its layers are dealt out (shapes). Facts are traced from
the compiler's own rules and evaluated over grids of sizes; here they are gathered for every legal layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from ledger.books.evaluate import exact
from ledger.books.passes import UnitWork
from ledger.model.fsdp_units import INPUT, ROOT
from ledger.model.pipelines import PIPELINES, Pipeline
from ledger.model.units import compute_precision
from ledger.search.blocks import Block
from ledger.search.combining import PIPELINE, Class, Passes
from ledger.search.facts import Array, evaluated
from ledger.search.grids import Grid
from ledger.search.legality import Legality
from ledger.search.shapes import Kind, Lines, Shape, Slot, held_by, place_values, shapes
from ledger.search.space import LAYOUT, Layout, Space, laid_out
from ledger.search.states import (
    STATE,
    PointFacts,
    Sharing,
    UpdateTimes,
    any_moments,
    held_units,
    point_facts,
    state_work,
    update_times,
)
from ledger.search.tiles import TILE, PassOf, TileFacts, send_seconds, tile_facts, tile_stocks, tile_units
from ledger.spec.plan import Parallelism, Plan


@dataclass(frozen=True)
class Piece:
    """A part of a space that is priced by itself: layouts whose layers are cut by the same axes in the same way.

    `name` tells it from the others of its space, in the order in which they come. `cut` are its keys of the layers:
    which of the axes of TILE it uses, how sequences are split and exchanged.
    """

    space: Space
    name: str
    cut: Layout


def pieces(space: Space) -> tuple[Piece, ...]:
    """The pieces that make up a space."""
    values, found = space.values, []
    flags = (sorted({value > 1 for value in values[f"parallelism.{axis}"]}) for axis in TILE[:3])
    for tensor, context, expert in product(*flags):
        for sequence, exchange in product(values["parallelism.sequence"], values["parallelism.context_exchange"]):
            if (tensor or sequence == "off") and context != (exchange is None):
                cut = {"tensor": tensor, "context": context, "expert": expert}
                found.append({**cut, "parallelism.sequence": sequence, "parallelism.context_exchange": exchange})
    return tuple(Piece(space, f"{place:05}", cut) for place, cut in enumerate(found))


def price(piece: Piece, keys: Sequence[str]) -> Iterator[Block]:
    """The legal layouts of a piece with these totals, block by block; raises KeyError for a total that no plan has."""
    return Pricer(world(piece.space), piece).blocks(keys)


_WORLDS: dict[str, World] = {}


def world(space: Space) -> World:
    """What all pieces of a space share, made once in each process."""
    key = f"{space.plan.digest}{space.plan.cluster.devices}{space.values!r}"
    if key not in _WORLDS:
        _WORLDS.clear()
        _WORLDS[key] = World(space)
    return _WORLDS[key]


class World:
    """What all pieces of a space share: which layouts are legal, and the shapes of pipelines."""

    def __init__(self, space: Space) -> None:
        self.space, self.plan = space, space.plan
        values = space.values
        degrees = [values[f"parallelism.{axis}"] for axis in ("tensor", "pipeline", "context")]
        devices = self.plan.cluster.devices
        rest = {t * p * c for t, p, c in product(*degrees)}
        data = sorted({devices // one for one in rest if devices % one == 0})
        if "parallelism.data" in values:
            data = [one for one in data if one in values["parallelism.data"]]
        self.lists: dict[str, list[int]] = {"data": data, "micro_batch": list(values["run.micro_batch"])}
        for axis in ("tensor", "context", "expert", "pipeline", "replicate"):
            self.lists[axis] = list(values[f"parallelism.{axis}"])
        self.lines: dict[Any, Lines] = {}
        self.works: dict[Any, Mapping[PassOf, UnitWork]] = {}
        self.times: dict[Any, UpdateTimes] = {}
        self.points: dict[Any, tuple[PointFacts, ...]] = {}
        self.layer_lists: dict[Any, list[tuple[int, ...]]] = {}
        self.counted: dict[Any, Array] = {}
        batch = self.plan.run.global_batch
        at_once = {one * size for one in data for size in values["run.micro_batch"]}
        counts = {batch // (one * ways) for one in at_once for ways in (1, 2) if batch % (one * ways) == 0}
        self.counts = sorted(counts)
        self.shapes = list(shapes(space, self.counts)) if self.counts else []

    @cached_property
    def legality(self) -> Legality:
        """The rules over the values that plans' fields have."""
        meshes = [shape.mesh.stages for shape in self.shapes]
        self.stages = list(dict.fromkeys(meshes)) or [Parallelism().stages]
        values = self.space.values
        fields = [key for key in LAYOUT if key not in ("parallelism.ends", "parallelism.stages")]
        read = {key: [_field(self.plan, key, value) for value in values[key]] for key in fields}
        read["parallelism.stages"] = self.stages
        return Legality(self.plan, {**read, "parallelism.data": self.lists["data"]})


def _field(plan: Plan, key: str, value: Any) -> Any:
    """What a plan's field is where a spec states a value."""
    layout = dict.fromkeys(LAYOUT) | {"recompute": "none", "run.micro_batch": 1, "parallelism.zero": 0}
    layout |= {"parallelism.context": 1, key: value}
    found = laid_out(replace(plan, cluster=replace(plan.cluster, devices=1)), layout)
    if key == "recompute":
        return found.recompute
    if key == "run.micro_batch":
        return value
    return getattr(found.parallelism, key.removeprefix("parallelism."))


@dataclass(frozen=True)
class Sharded:
    """A choice of how weights are shared: `zero`, `reshard` and `offload` as a layout states them."""

    zero: int
    reshard: Any
    offload: Any

    @property
    def layout(self) -> Layout:
        """Its keys."""
        return {
            "parallelism.zero": self.zero,
            "parallelism.reshard": self.reshard,
            "parallelism.offload": self.offload,
        }


ROWS = 1 << 16  # of a block: what is computed of them stays in the caches


class Pricer:
    """Prices the layouts of one piece."""

    def __init__(self, shared: World, piece: Piece) -> None:
        self.world, self.piece, self.plan = shared, piece, shared.plan
        self.lists = shared.lists
        self.tiles: dict[Any, TileFacts] = {}
        self.sent: dict[Any, Array] = {}
        self.units: dict[Any, Any] = {}
        self.stocks: dict[Any, Any] = {}

    # --- layouts ---

    def cells(self, way: Sharded, axes: Sequence[str] = TILE[:3]) -> dict[str, Array]:
        """The legal choices of degrees, copies and micro-batch under a way of sharing, as places in the lists.

        Those of which `axes` are cut as the piece says.
        """
        names = (*TILE[:3], "pipeline", "replicate", "micro_batch")
        places = {axis: np.arange(len(self.lists[axis])) for axis in names}
        for axis in axes:
            places[axis] = np.flatnonzero((np.array(self.lists[axis]) > 1) == self.piece.cut[axis])
        if not way.zero:
            places["replicate"] = np.flatnonzero(np.array(self.lists["replicate"]) == 1)
        found = np.meshgrid(*places.values(), indexing="ij")
        columns = {axis: column.reshape(-1) for axis, column in zip(names, found, strict=True)}
        at_once = self.number(columns, "tensor") * self.number(columns, "context") * self.number(columns, "pipeline")
        degree, left = np.divmod(self.plan.cluster.devices, at_once)
        known = np.array(self.lists["data"])
        place = np.minimum(np.searchsorted(known, degree), known.size - 1)
        fits = (left == 0) & (known[place] == degree)
        batch = self.plan.run.global_batch
        fits &= batch % np.maximum(1, degree * self.number(columns, "micro_batch")) == 0
        columns = {axis: column[fits] for axis, column in (columns | {"data": place}).items()}
        keys = self.keys(columns, way)
        if len(axes) < len(TILE[:3]):
            keys = {key: column for key, column in keys.items() if key not in self.piece.cut}
        legal = np.broadcast_to(self.world.legality.allowed(keys), columns["tensor"].shape)
        return {axis: column[legal] for axis, column in columns.items()}

    def number(self, columns: Mapping[str, Array], axis: str) -> Array:
        """What the places of an axis stand for."""
        return np.array(self.lists[axis])[columns[axis]]

    def keys(self, columns: Mapping[str, Array], way: Sharded) -> dict[str, Array]:
        """The keys of layouts, as places among the values of the space."""
        values, cut = self.world.space.values, self.piece.cut
        fixed = {**way.layout, **{key: cut[key] for key in cut if key.startswith("parallelism.")}}
        found: dict[str, Array] = {key: values[key].index(value) for key, value in fixed.items()}
        for axis, column in columns.items():
            found["run.micro_batch" if axis == "micro_batch" else f"parallelism.{axis}"] = column
        return found

    def blocks(self, keys: Sequence[str]) -> Iterator[Block]:
        """Every legal layout of the piece with these totals."""
        values = self.world.space.values
        for zero, reshard, offload in product(
            values["parallelism.zero"], values["parallelism.reshard"], values["parallelism.offload"]
        ):
            if (reshard is None) != (zero != 3):
                continue
            way = Sharded(zero, reshard, offload)
            cells = self.cells(way)
            if cells["data"].size:
                yield from self.shared(way, cells, keys)

    def shared(self, way: Sharded, cells: Mapping[str, Array], keys: Sequence[str]) -> Iterator[Block]:
        """The layouts that share weights in one way."""
        batch = self.plan.run.global_batch
        at_once = self.number(cells, "data") * self.number(cells, "micro_batch")
        for ways in sorted({shape.schedule.ways for shape in self.world.shapes}):
            count = batch // (at_once * ways)
            for several in (False, True):
                rows = (count > 1) == several
                rows &= (batch % (at_once * ways) == 0) & (count > 0)
                if rows.any():
                    chosen = {axis: column[rows] for axis, column in cells.items()}
                    chosen["count"] = np.searchsorted(self.world.counts, count[rows])
                    yield from Combined(self, way, chosen, several=several, ways=ways).blocks(keys)

    # --- facts ---

    def layout_of(self, way: Sharded, recompute: Any = "none") -> Layout:
        """A layout of the piece, of which only what is not a size counts."""
        cut, lists = self.piece.cut, self.lists
        return {
            **dict.fromkeys(LAYOUT),
            **{key: value for key, value in cut.items() if key.startswith("parallelism.")},
            **way.layout,
            **{f"parallelism.{axis}": max(lists[axis]) if cut[axis] else 1 for axis in TILE[:3]},
            "parallelism.pipeline": max(lists["pipeline"]),
            "parallelism.interleave": 1,
            "parallelism.replicate": 1,
            "recompute": recompute,
            "run.micro_batch": 1,
        }

    def plan_of(self, way: Sharded, recompute: Any = "none") -> Plan:
        """A plan of the piece, of which only what is not a size counts."""
        found = laid_out(self.plan, self.layout_of(way, recompute))
        mesh = replace(found.parallelism, data=max(2, found.parallelism.data))
        return replace(found, parallelism=mesh)

    def units_of(self, way: Sharded, recompute: Any) -> Any:
        """The units of the model, the same objects for all ways of sharing that do not change them."""
        plan = self.plan_of(way, recompute)
        key = repr(recompute), repr(way.offload), compute_precision(plan)
        if key not in self.units:
            self.units[key] = tile_units(plan)
        return self.units[key]

    def tile(self, way: Sharded, recompute: Any, legal: Array) -> TileFacts:
        """What layers compute and hold, over the sizes of a tile."""
        mine = self.units_of(way, recompute)
        if id(mine) not in self.tiles:
            plan = self.plan_of(way, recompute)
            self.tiles[id(mine)] = evaluated(self.grid(TILE), lambda inputs: tile_facts(plan, mine, inputs), legal)
        return self.tiles[id(mine)]

    def grid(self, axes: Sequence[str]) -> dict[str, Array]:
        """The values of some axes, to broadcast against each other."""
        lists = [np.array(self.lists[axis], dtype=float) for axis in axes]
        return dict(zip(axes, np.meshgrid(*lists, indexing="ij", sparse=True), strict=True))

    def line_of(self, way: Sharded, recompute: Any, role: Any) -> Any:
        """The moments of a role under a way of sharing."""
        mine = self.units_of(way, recompute)
        plan = self.plan_of(way, recompute)
        key = way.zero == 3, repr(way.offload), tuple((unit.name, unit.hosted) for unit in mine)
        if key not in self.world.lines:
            self.world.lines[key] = Lines(plan, mine, {}, {})
        return self.world.lines[key].of(role)


class Combined:
    """Layouts that share weights in one way, with one micro-batch a step or several, from one end or both."""

    def __init__(self, pricer: Pricer, way: Sharded, cells: dict[str, Array], *, several: bool, ways: int) -> None:
        self.pricer, self.way, self.cells, self.several, self.ways = pricer, way, cells, several, ways
        self.world, found = pricer.world, pricer.plan_of(way)
        name = next(name for name, one in PIPELINES.items() if one.ways == ways)
        self.plan = replace(found, parallelism=replace(found.parallelism, schedule=name))
        lengths = {axis: len(listed) for axis, listed in pricer.lists.items()}
        self.lengths = {**lengths, "count": len(self.world.counts)}
        self.grid = Grid(cells, self.lengths)
        offload = [kind for kind in way.offload or () if kind != "activations"]
        cut = pricer.piece.cut
        self.key = cut["tensor"], cut["expert"], way.zero, way.reshard, repr(offload), several, ways

    def blocks(self, keys: Sequence[str]) -> Iterator[Block]:
        """Every legal layout with its totals."""
        for recompute in self.world.space.values["recompute"]:
            tile = self.pricer.tile(self.way, recompute, self.legal(TILE))
            passes = Passes(self, tile)
            for kinds, listed in self.classes(recompute).values():
                for rows in self.rows(listed, recompute):
                    yield Class(self, recompute, tile, passes, listed, kinds, rows).block(keys)

    def legal(self, axes: Sequence[str]) -> Array:
        """Which choices of some axes occur."""
        found = np.zeros([self.lengths[axis] for axis in axes], bool)
        found[tuple(self.cells[axis] for axis in axes)] = True
        return found

    def classes(self, recompute: Any) -> dict[Any, tuple[tuple[Kind, ...], list[Shape]]]:
        """Shapes by the kinds of their stages."""
        found: dict[Any, tuple[tuple[Kind, ...], list[Shape]]] = {}
        for shape in self.world.shapes:
            if shape.schedule.ways == self.ways:
                line_of = partial(self.pricer.line_of, self.way, recompute)
                kinds = tuple(Kind(slot.role, line_of(slot.role)) for slot in shape.slots)
                key = shape.mesh.scheduled, tuple((kind.held, id(kind.line)) for kind in kinds)
                found.setdefault(key, (kinds, []))[1].append(shape)
        return found

    def rows(self, listed: Sequence[Shape], recompute: Any) -> Iterator[dict[str, Array]]:
        """The legal layouts of some shapes, block by block: places of cells and of shapes."""
        stages = np.array(self.pricer.lists["pipeline"])[self.cells["pipeline"]]
        cells, of_shape = [], []
        for place, shape in enumerate(listed):
            found = np.flatnonzero(stages == shape.mesh.pipeline)
            cells.append(found)
            of_shape.append(np.full(found.size, place))
        rows = {"cell": np.concatenate(cells), "shape": np.concatenate(of_shape)}
        for start in range(0, rows["cell"].size, ROWS):
            part = {name: column[start : start + ROWS] for name, column in rows.items()}
            legal = np.broadcast_to(self.allowed(part, listed, recompute), part["cell"].shape)
            if legal.any():
                yield {name: column[legal] for name, column in part.items()}

    def allowed(self, rows: Mapping[str, Array], listed: Sequence[Shape], recompute: Any) -> Array:
        """Whether the rules that read a shape, or what is rebuilt, have nothing to say."""
        chosen = self.chosen(rows, listed, recompute)
        stages = self.world.stages
        chosen["parallelism.stages"] = np.array([stages.index(shape.mesh.stages) for shape in listed])[rows["shape"]]
        del chosen["parallelism.ends"]
        given = ("parallelism.interleave", "parallelism.schedule", "parallelism.stages", "recompute")
        return self.world.legality.allowed(chosen, given)

    def chosen(self, rows: Mapping[str, Array], listed: Sequence[Shape], recompute: Any) -> dict[str, Array]:
        """The keys of layouts, as places among the values of the space."""
        values = self.world.space.values
        columns = {axis: column[rows["cell"]] for axis, column in self.cells.items() if axis != "count"}
        found = self.pricer.keys(columns, self.way)
        for key in listed[0].layout:
            found[key] = np.array([values[key].index(shape.layout[key]) for shape in listed])[rows["shape"]]
        return {**found, "recompute": values["recompute"].index(recompute)}

    # --- facts of layers ---

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """The groups of layers, each a unit of its own."""
        return tuple(group.name for group in self.plan.model.groups)

    def holds(self, kind: Kind, unit: str) -> bool:
        """Whether stages of a kind hold an end of the model, or the weights of the ends."""
        first, last = kind.held[:2]
        if unit in self.group_names or unit == PIPELINE:
            return False
        return first or last if unit == ROOT else first if unit == INPUT else last

    @cached_property
    def send_seconds(self) -> Array:
        """Seconds of what one stage sends to the next, for every cell."""
        axes = (*TILE, "data", "pipeline")
        key = compute_precision(self.plan)
        if key not in self.pricer.sent:
            plan = self.plan
            self.pricer.sent[key] = evaluated(
                self.pricer.grid(axes), lambda inputs: send_seconds(plan, inputs), self.legal(axes)
            )
        return self.grid.take(self.pricer.sent[key], axes)

    @cached_property
    def adds(self) -> bool:
        """Whether a new gradient is added at once to one that is there."""
        return any_moments(self.sharing).adds

    def stocks(self, recompute: Any, kind: Kind, schedule: Pipeline) -> Mapping[Any, Array]:
        """What layers hold from moment to moment."""
        mine = self.pricer.units_of(self.way, recompute)
        key = id(mine), kind.held, id(kind.line), schedule.keeps_output, schedule.delays, repr(self.way.offload)
        if key not in self.pricer.stocks:
            plan = self.pricer.plan_of(self.way, recompute)
            name = next(name for name, one in PIPELINES.items() if one is schedule)
            plan = replace(plan, parallelism=replace(plan.parallelism, schedule=name))
            units = held_units(mine, plan, kind.role)
            self.pricer.stocks[key] = evaluated(
                self.pricer.grid(TILE),
                lambda inputs: tile_stocks(plan, units, kind.line, inputs),
                self.legal(TILE),
            )
        found: Mapping[Any, Array] = self.pricer.stocks[key]
        return found

    def counted(self, times: Any, shape: Shape, slot: Slot, variant: int) -> Array:
        """What a formula of layers and micro-batches in flight is, over the counts of micro-batches."""
        key = times, id(shape), id(slot), variant
        if key not in self.world.counted:
            role = slot.variants[min(variant, len(slot.variants) - 1)]
            self.world.counted[key] = exact(place_values(role, self.plan, shape.mesh))(times)
        return self.world.counted[key]

    # --- facts of sharing ---

    def layer_list(self, held: tuple[bool, ...]) -> list[tuple[int, ...]]:
        """The layers that stages of a kind may hold."""
        if held not in self.world.layer_lists:
            roles = (slot.role for shape in self.world.shapes for slot in shape.slots)
            found = {role.layers for role in roles if held_by(role) == held}
            self.world.layer_lists[held] = sorted(found)
        return self.world.layer_lists[held]

    def state_grid(self, held: tuple[bool, ...]) -> dict[str, Array]:
        """The degrees, and the layers of stages of a kind, to broadcast against each other."""
        axes = self.pricer.grid(STATE)
        grid = {name: column[..., None] for name, column in axes.items()}
        rest = grid["tensor"] * grid["context"] * grid["data"]
        grid["pipeline"] = np.maximum(1, self.plan.cluster.devices // rest)
        for group, _ in enumerate(self.plan.model.groups):
            if held[2 + group]:
                counts = np.array([layers[group] for layers in self.layer_list(held)], dtype=float)
                grid[f"layers.{group}"] = counts[None, None, None, None, None, :]
        return grid

    @cached_property
    def sharing(self) -> Sharing:
        """The way of sharing, for the rules."""
        return Sharing(self.plan, self.pricer.units_of(self.way, "none"), self.several)

    @cached_property
    def legal_states(self) -> Array:
        """Which degrees occur in any piece whose weights are cut alike."""
        found = np.zeros([self.lengths[axis] for axis in STATE], bool)
        cells = self.pricer.cells(self.way, ("tensor", "expert"))
        found[tuple(cells[axis] for axis in STATE)] = True
        return found[..., None]

    def state_work(self, kind: Kind) -> Mapping[PassOf, UnitWork]:
        """What stages of a kind spend for weights and gradients in a micro-batch, of one layer of each group."""
        key = self.key, kind.held
        if key not in self.world.works:
            way = self.sharing
            grid = {**self.pricer.grid(STATE), "pipeline": self.state_grid(kind.held)["pipeline"][..., 0]}
            self.world.works[key] = evaluated(
                grid, lambda inputs: state_work(way, kind.role, inputs), self.legal_states[..., 0]
            )
        return self.world.works[key]

    def update_times(self, kind: Kind) -> UpdateTimes:
        """What stages of a kind spend for weights and gradients once a step."""
        key = self.key, kind.held
        if key not in self.world.times:
            way = self.sharing
            self.world.times[key] = evaluated(
                self.state_grid(kind.held), lambda inputs: update_times(way, kind.role, inputs), self.legal_states
            )
        return self.world.times[key]

    def point_facts(self, kind: Kind) -> tuple[PointFacts, ...]:
        """What stages of a kind hold of weights and gradients, moment by moment."""
        key = self.key, kind.held, id(kind.line)
        if key not in self.world.points:
            way = self.sharing
            self.world.points[key] = evaluated(
                self.state_grid(kind.held),
                lambda inputs: point_facts(way, kind.role, kind.line, inputs),
                self.legal_states,
            )
        return self.world.points[key]
