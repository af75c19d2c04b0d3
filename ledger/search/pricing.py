"""The pieces of a space, each priced by itself: every total of every legal layout, as arrays.

A layout's totals are those of the compiler: the same functions put them together from facts that few keys of a layout
decide (structures.py), over vectors of sizes (evaluation.py). Plans that serve are compiled layout by layout.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import nan
from typing import Any

import numpy as np

from ledger.books import totals
from ledger.books.compiler import compile_totals
from ledger.books.counts import CHECKPOINT
from ledger.books.price_changes import shares
from ledger.books.time import CriticalPath, StepTime, bounded
from ledger.books.totals import PARTS, StageFigures
from ledger.search.batches import PricedLayouts, concatenated, rows_of
from ledger.search.evaluation import FigureDetail, SizeArrays, StructureBatch
from ledger.search.facts import Array
from ledger.search.shapes import PipelineShape
from ledger.search.space import DATA, LAYOUT, MESH, Space, with_layout
from ledger.search.structures import Structure, degrees_of_single_experts
from ledger.search.world import MICRO_BATCH_SIZES, LayerCut, SearchContext, Sharding, search_context
from ledger.spec.plan import Plan

CELLS = 1 << 17  # of a batch: what is known of them is held at once
SLOW_CELLS = 16  # of a batch whose moments are worked out cell by cell: a search that has little time stops between
ROWS = 1 << 16  # layouts of a block, unless so few come in
SECONDS = 0.1  # that a block is not waited for any longer


@dataclass(frozen=True)
class SpacePiece:
    """A part of a space that is priced by itself: layouts whose layers are cut by the same axes, states by one ZeRO.

    `name` tells it from the others of its space, in the order in which they come. `cut`: which of the axes of CUT are
    used at all; `recomputes`: what of the layers is rebuilt.
    """

    space: Space
    name: str
    cut: Mapping[str, bool] = field(default_factory=dict)
    zero: int = 0
    offload: Any = None
    recomputes: tuple[Any, ...] = ()


def pieces(space: Space) -> tuple[SpacePiece, ...]:
    """The pieces that make up a space."""
    values = space.values
    if space.plan.serve is not None:
        tensor = f"{MESH}tensor"
        parts = (replace(space, values={**values, tensor: (degree,)}) for degree in values[tensor])
        return tuple(SpacePiece(part, f"{place:05}") for place, part in enumerate(parts))
    flags = (sorted({value > 1 for value in values[f"parallelism.{axis}"]}) for axis in MICRO_BATCH_SIZES[:3])
    kinds = product(product(*flags), values["parallelism.zero"], values["parallelism.offload"])
    return tuple(
        SpacePiece(
            space, f"{place:05}", dict(zip(MICRO_BATCH_SIZES[:3], cut, strict=True)), zero, offload, values["recompute"]
        )
        for place, (cut, zero, offload) in enumerate(kinds)
    )


def price_piece(piece: SpacePiece, keys: Sequence[str]) -> Iterator[PricedLayouts]:
    """The legal layouts of a piece with these totals, block by block; raises KeyError for a total that no plan has."""
    if piece.space.plan.serve is not None:
        yield from _service_blocks(piece.space, keys)
        return
    yield from gathered_blocks(_blocks(piece, keys))


def _service_blocks(space: Space, keys: Sequence[str]) -> Iterator[PricedLayouts]:
    """The layouts of a plan that serves, a block each; NaN where a layout has none of a total."""
    places = {key: {repr(value): place for place, value in enumerate(space.values[key])} for key in space.keys}
    for layout in space.layouts():
        totals_of_layout = compile_totals(with_layout(space.plan, layout))
        choices = {key: np.array([places[key][repr(layout[key])]], np.int32) for key in space.keys}
        yield PricedLayouts(space, choices, {key: np.array([float(totals_of_layout.get(key, nan))]) for key in keys})


def _blocks(piece: SpacePiece, keys: Sequence[str]) -> Iterator[PricedLayouts]:
    shared = search_context(piece.space)
    detail = FigureDetail(needs_sums(keys), any(source(key) == "categories" for key in keys))
    for batch in _batches(shared, _structures(shared, piece)):
        pipeline_ends = batch.structures[0].ways
        for stages in shared.lists["pipeline"]:
            if (cells := batch.with_stages(stages, detail)) is None:
                continue
            shapes = [
                s for s in shared.shapes if s.mesh.pipeline == stages and s.schedule.pipeline_ends == pipeline_ends
            ]
            for shape in shapes:
                choices = _choices(cells, shape)
                legal = _is_legal(cells, choices, shape)
                if legal.any():
                    block = PricedLayouts(piece.space, choices, ShapeTotals(cells, shape).columns(keys))
                    yield block if legal.all() else rows_of(block, legal)


def gathered_blocks(blocks: Iterator[PricedLayouts]) -> Iterator[PricedLayouts]:
    """Blocks of one space put together until each has many layouts."""
    waiting: list[PricedLayouts] = []
    count, begin = 0, time.monotonic()
    for block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= ROWS or time.monotonic() - begin > SECONDS:
            yield concatenated(waiting)
            waiting, count, begin = [], 0, time.monotonic()
    if waiting:
        yield concatenated(waiting)


# --- structures and layouts ---


def _structures(shared: SearchContext, piece: SpacePiece) -> Iterator[Structure]:
    """The choices of a piece that are no sizes, with the cells of each."""
    values, stack = shared.space.values, shared.plan.stack
    pipeline_ends_of_shapes = sorted({shape.schedule.pipeline_ends for shape in shared.shapes})
    reshards = [reshard for reshard in values["parallelism.reshard"] if (reshard is None) == (piece.zero != 3)]
    for reshard, pipeline_ends in product(reshards, pipeline_ends_of_shapes):
        sharded = Sharding(piece.zero, reshard, piece.offload)
        for cut in _cuts(values, piece):
            cells = shared.legal_sizes(piece.cut, sharded, cut, pipeline_ends)
            # Whether others have copies or shares of the same weights: some stacks keep gradients otherwise then.
            devices_with_same_layers = shared.number(cells, "data") * shared.number(cells, "context")
            shares = devices_with_same_layers > (1 if stack.reduction_buffer or stack.buckets else 0)
            kinds = product(_single_experts(shared, cells), (False, True), (False, True))
            for (single, has_degree), several, alone in kinds:
                chosen = has_degree & (cells["several"] == several) & (shares != alone)
                if chosen.any():
                    chosen_cells = {axis: column[chosen] for axis, column in cells.items() if axis != "several"}
                    chosen_cut = replace(cut, one_expert_each=single)
                    yield Structure(shared, sharded, chosen_cut, several, pipeline_ends, alone, chosen_cells)


def _single_experts(shared: SearchContext, cells: Mapping[str, Array]) -> Iterator[tuple[int, Array]]:
    """Degrees at which devices hold one expert each, with the cells that have them; last, 0 and all others."""
    degrees = np.array(shared.lists["expert"])[cells["expert"]]
    sizes = degrees_of_single_experts(shared.plan)
    yield from ((size, degrees == size) for size in sizes)
    yield 0, ~np.isin(degrees, sizes)


def _cuts(values: Mapping[str, Sequence[Any]], piece: SpacePiece) -> Iterator[LayerCut]:
    """The cuts of a piece's layers, each with a recompute policy."""
    cut = piece.cut
    for sequence, exchange in product(values["parallelism.sequence"], values["parallelism.context_exchange"]):
        if (cut["tensor"] or sequence == "off") and cut["context"] != (exchange is None):
            for recompute in piece.recomputes:
                yield LayerCut(cut["tensor"], cut["context"], cut["expert"], sequence, exchange, recompute)


def _batches(shared: SearchContext, structures: Iterator[Structure]) -> Iterator[StructureBatch]:
    """Structures side by side, at most CELLS cells at a time; by themselves where units or moments are of a stage."""
    structures_of_batch: list[Structure] = []
    size = 0
    for structure in structures:
        if not (structure.is_uniform and structure.is_labelled):  # its facts are of other units or moments
            yield from (StructureBatch(shared, [part]) for part in _in_parts(structure))
            continue
        if structures_of_batch and (size + structure.size > CELLS or structure.ways != structures_of_batch[0].ways):
            yield StructureBatch(shared, structures_of_batch)
            structures_of_batch, size = [], 0
        structures_of_batch.append(structure)
        size += structure.size
    if structures_of_batch:
        yield StructureBatch(shared, structures_of_batch)


def _in_parts(structure: Structure) -> Iterator[Structure]:
    """The structure, or some cells of it at a time where each is worked out by itself."""
    most = structure.size if structure.is_labelled else SLOW_CELLS
    for first in range(0, structure.size, most):
        part = copy(structure)
        part.cells = {axis: column[first : first + most] for axis, column in structure.cells.items()}
        part.size = part.cells["data"].size
        yield part


def _choices(cells: SizeArrays, shape: PipelineShape) -> dict[str, Array]:
    """The keys of layouts, as places among the values of the space."""
    values = cells.world.space.values

    def of_cells() -> dict[str, Array]:
        listed = [cells.world.keys({}, structure.sharded, structure.cut) for structure in cells.batch.structures]
        chosen = {key: np.array([places[key] for places in listed], np.int32)[cells.structure_of] for key in listed[0]}
        for axis, column in cells.columns.items():
            if axis in cells.world.lists:
                chosen["run.micro_batch" if axis == "micro_batch" else f"{MESH}{axis}"] = column.astype(np.int32)
        return chosen

    chosen = cells.once("choices", of_cells)
    places = {key: np.full(cells.size, values[key].index(value), np.int32) for key, value in shape.layout.items()}
    return {key: places.get(key, chosen.get(key)) for key in LAYOUT}


def _is_legal(cells: SizeArrays, choices: Mapping[str, Array], shape: PipelineShape) -> Array:
    """Whether layouts are legal by the rules that read a shape or the recompute policy."""
    shared = cells.world
    chosen: dict[str, Array] = {**choices, DATA: cells.columns["data"]}
    for key in shape.layout:  # one place of each is looked up faster than many equal ones
        chosen[key] = choices[key][:1]
    chosen["parallelism.stages"] = shared.stages.index(shape.mesh.stages)
    del chosen["parallelism.ends"]
    keys_of_shape = ("parallelism.interleave", "parallelism.schedule", "parallelism.stages", "recompute")
    return np.broadcast_to(shared.legality.allowed(chosen, keys_of_shape), cells.size)


# --- totals ---

WITH_ENDS = ("time.step", "time.calendar", "cost.run")
OF_HOSTS = ("memory.host", "memory.paged", "memory.nvme", "traffic.nvme", "time.host", "traffic.host", "host_link")
# Which part of a plan's totals has one: by the longest of these that its name begins with, dot by dot.
SOURCES: Mapping[str, str] = {
    "time.step": "step",
    **dict.fromkeys(("memory.peak", "memory.reserved", "memory.capacity"), "memory"),
    **dict.fromkeys(("time.run", "time.calendar", "cost.run", "energy.run", "carbon.run", "goodput"), "of_run"),
    **dict.fromkeys(("checkpoint.interval", "checkpoint.time", "checkpoint.writing", "checkpoint.host"), "of_run"),
    **dict.fromkeys(("tokens_per_second", "tokens_per_second_per_device", "images_per_second"), "of_run"),
    **dict.fromkeys(("parameters", "napkin", "flops.counter", "flops.unmasked", "saved"), "counts"),
    **dict.fromkeys(("kv_cache", CHECKPOINT), "counts"),
    "flops": "work",
    **dict.fromkeys(("parameters.per_device", "memory.static"), "states"),
    **dict.fromkeys(("comm", "traffic"), "traffic"),
    **dict.fromkeys(OF_HOSTS, "host"),
    **dict.fromkeys(("time", *(f"{key}.{end}" for key in WITH_ENDS for end in ("low", "high"))), "times"),
    "memory": "categories",
    "pace": "paces",
    **dict.fromkeys(("mfu", "hfu", "prefill", "decode"), "times"),
}
FRONT = ("step", "memory", "of_run")  # which need no more than a step and its memory
# Totals that not every plan has: those that it lacks are no numbers.
OPTIONAL = (
    *("comm", "flops.update", "kv_cache", "prefill", "decode", "images_per_second", "traffic.storage", "time.data"),
    *OF_HOSTS,
)


def source(key: str) -> str:
    """Which part has a total; nothing where none has."""
    parts = key.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((SOURCES[name] for name in names if name in SOURCES), "")


def needs_sums(keys: Sequence[str]) -> bool:
    """Whether any of these totals needs more than a step and its memory."""
    return any(source(key) not in FRONT for key in keys)


def is_optional(key: str) -> bool:
    """Whether a plan may lack a total."""
    return any(key == name or key.startswith(f"{name}.") for name in OPTIONAL)


class ShapeTotals(dict[str, Array]):
    """The totals of the layouts that one shape makes of cells, a part of them computed when one of it is asked for."""

    def __init__(self, cells: SizeArrays, shape: PipelineShape) -> None:
        super().__init__()
        self.cells, self.shape, self.made = cells, shape, set[str]()

    def columns(self, keys: Sequence[str]) -> dict[str, Array]:
        """These totals; raises KeyError for one that no plan has."""
        return {key: np.broadcast_to(np.asarray(self.total(key), float), self.cells.size) for key in keys}

    def total(self, key: str) -> Array:
        """One total; NaN where layouts lack it."""
        if not source(key):
            raise KeyError(key)
        if not is_optional(key):
            return self[key]
        try:
            amount = self[key]
        except KeyError:
            return nan
        return np.where(amount == 0, nan, amount) if key.startswith(("comm.", "flops.")) else amount

    def __missing__(self, key: str) -> Array:
        part = source(key)
        if not part or part in self.made:
            raise KeyError(key)
        self.made.add(part)
        self.update(self._totals_of(part))
        return self[key]

    def _totals_of(self, part: str) -> Mapping[str, Array]:
        if part == "step":
            return {"time.step": self.step}
        if part == "counts":
            return self._counts
        if part == "paces":
            return shares(self.step, self.cells.steps_at_better_prices(self.shape))
        return dict(PARTS[part](self, self))

    # --- what totals are made of: see StepFigures ---

    @property
    def plan(self) -> Plan:
        """The plan with the sizes of its layouts as arrays."""
        return self.cells.plan

    @cached_property
    def path(self) -> CriticalPath:
        """The slowest stage's step."""
        return self.cells.path(self.shape)

    @property
    def step(self) -> Array:
        """Seconds of a step."""
        return self.path.estimate

    @cached_property
    def time(self) -> StepTime:
        """The step with its bounds."""
        times = [self.cells.stage_time(slot, self.shape) for slot in self.shape.slots]
        return bounded(times, self.path, self.plan)

    @cached_property
    def stages(self) -> Sequence[StageFigures]:
        """Sums over the kernels and bytes of each kind of device."""
        return tuple(self.cells.figures(self.shape))

    @property
    def _counts(self) -> Mapping[str, Array]:
        """The totals that depend on the model and the micro-batch alone."""
        sizes = self.cells.world.lists["micro_batch"]
        tables = self.cells.world.once("counts", lambda: _counts_by_size(self.cells.world.plan, sizes))
        return {key: table[self.cells.columns["micro_batch"]] for key, table in tables.items()}


def _counts_by_size(plan: Plan, sizes: Sequence[int]) -> dict[str, Array]:
    """Totals of the model and of one micro-batch, for each of these sizes."""
    totals_of_sizes = [totals.counts(replace(plan, run=replace(plan.run, micro_batch=size))) for size in sizes]
    return {key: np.array([float(counts[key]) for counts in totals_of_sizes]) for key in totals_of_sizes[0]}
