"""Every total of many layouts at once, as the compiler names them: arrays, a value for each layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ledger.arithmetic.operations import WHOLE
from ledger.arithmetic.values import largest_of, parts_of
from ledger.books import calendar, totals
from ledger.books.compiled_roles import whole
from ledger.books.compiler import compile_plan
from ledger.books.counts import CHECKPOINT, PER_DEVICE, checkpoint, counters, flops, napkin, of_model
from ledger.books.intervals import MEMORY, known_as
from ledger.books.price_changes import PRICES, shares
from ledger.books.spending import HELD
from ledger.books.time import bounded
from ledger.model.offloading import keeps_on_host
from ledger.search.blocks import Block
from ledger.search.combining import Rows, Stage
from ledger.search.facts import Array
from ledger.search.held import held_parts
from ledger.search.repriced import repriced
from ledger.search.shapes import Kind
from ledger.search.space import LAYOUT, laid_out
from ledger.search.spent import TOTAL
from ledger.search.sums import CellSums, added
from ledger.spec.plan import Plan

WITH_ENDS = ("time.step", "time.calendar", "cost.run")
OF_HOSTS = (
    "memory.host",
    "memory.paged",
    "memory.nvme",
    "traffic.nvme",
    "time.host",
    "traffic.host",
    "host_link",
)
# Which part of RowTotals has a total: by the longest of these that its name begins with, part by part.
SOURCES: Mapping[str, str] = {
    **dict.fromkeys(("time.step", "memory.peak", "memory.reserved", "memory.capacity"), "front"),
    **dict.fromkeys(("time.run", "time.calendar", "cost.run", "energy.run", "carbon.run", "goodput"), "of_run"),
    **dict.fromkeys(("checkpoint.interval", "checkpoint.time"), "of_run"),
    **dict.fromkeys(("tokens_per_second", "tokens_per_second_per_device", "images_per_second"), "of_run"),
    **dict.fromkeys(("parameters", "napkin", "flops.counter", "flops.unmasked", "saved"), "counted"),
    **dict.fromkeys(("kv_cache", CHECKPOINT), "counted"),
    "flops": "work",
    **dict.fromkeys(("parameters.per_device", "memory.static"), "held"),
    **dict.fromkeys(("comm", "traffic"), "traffic"),
    **dict.fromkeys(OF_HOSTS, "host"),
    **dict.fromkeys(("time", *(f"{key}.{end}" for key in WITH_ENDS for end in ("low", "high"))), "times"),
    "memory": "parts",
    "pace": "paces",
    **dict.fromkeys(("mfu", "hfu", "prefill", "decode"), "times"),
}
FRONT = ("front", "of_run")  # which need no more than a step and its memory
# Totals that not every plan has: those that it lacks are no numbers.
OPTIONAL = ("comm", "flops.update", "kv_cache", "prefill", "decode", "images_per_second", *OF_HOSTS)


def source(key: str) -> str:
    """Which part has a total; nothing where none has."""
    parts = key.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((SOURCES[name] for name in names if name in SOURCES), "")


def detailed(keys: Sequence[str]) -> bool:
    """Whether any of these totals needs more than a step and its memory."""
    return any(source(key) not in FRONT for key in keys)


class RowTotals:
    """The totals of some rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.stack, self.world = rows, rows.stack, rows.world
        self.cells, self.size = CellSums(rows.stack), rows.rows["cell"].size

    # --- blocks ---

    def block(self, keys: Sequence[str]) -> Block:
        """The rows with their totals; raises KeyError for one that is not put together here."""
        found = {key: np.broadcast_to(np.asarray(self.total(key), float), self.size) for key in keys}
        return Block(self.world.space, self.choices, found)

    def compiled(self, keys: Sequence[str]) -> Block:
        """The rows with their totals, each compiled by itself; raises KeyError for a total that no plan has."""
        block = Block(self.world.space, self.choices, {})
        found = [compile_plan(laid_out(self.world.plan, block.layout(row))).totals for row in range(self.size)]
        for key in keys:
            if found and not any(key in totals for totals in found) and not optional(key):
                raise KeyError(key)
        return replace(block, totals={key: np.array([float(one.get(key, np.nan)) for one in found]) for key in keys})

    @property
    def choices(self) -> dict[str, Array]:
        """The keys of the layouts, as places among the values of the space."""
        chosen = self.stack.chosen(self.rows.rows, self.rows.listed)
        return {key: np.asarray(chosen[key], np.int32) for key in LAYOUT}

    def total(self, key: str) -> Array:
        """One total of every row."""
        part = source(key)
        if not part:
            raise KeyError(key)
        found = getattr(self, part)
        if not optional(key):
            return found[key]
        amount = found.get(key, np.nan)
        return np.where(amount == 0, np.nan, amount) if key.startswith(("comm.", "flops.")) else amount

    # --- a step, and what follows from it ---

    @cached_property
    def front(self) -> Mapping[str, Array]:
        """A step, and its memory."""
        return _Front(self.rows)

    @cached_property
    def of_run(self) -> dict[str, Array]:
        """The run's totals, and rates, which follow from the step."""
        plan, step = self.world.plan, self.rows.step
        return {**dict(totals.rates(plan, step)), **dict(calendar.run(plan, step, lambda: self.counted[CHECKPOINT]))}

    @cached_property
    def plan(self) -> Plan:
        """The plan with the sizes that totals read, as arrays."""
        plan = self.world.plan
        offload = self.rows.plan.parallelism.offload
        mesh = replace(
            plan.parallelism, tensor=self.number("tensor"), pipeline=self.number("pipeline"), offload=offload
        )
        return replace(plan, parallelism=mesh, run=replace(plan.run, micro_batch=self.number("micro_batch")))

    def number(self, axis: str) -> Array:
        """A size of every row."""
        return np.array(self.world.lists[axis])[self.stack.cells[axis][self.rows.rows["cell"]]]

    @cached_property
    def times(self) -> dict[str, Array]:
        """Bounds and parts of the step, and utilisation."""
        time = bounded(self.stages, self.rows.path, self.plan)
        return dict(totals.times(self.plan, time, {**self.counted, **self.work}))

    @cached_property
    def stages(self) -> list[Stage]:
        """Each kind of stages with what its kernels add up to."""
        pairs = zip(self.rows.stages, self.sums, strict=True)
        return [
            replace(stage, totals={key: one for key, one in mine.items() if key[0] != TOTAL}) for stage, mine in pairs
        ]

    @cached_property
    def paces(self) -> dict[str, Array]:
        """By how much each price shortens the step."""
        rows = self.rows
        stacks = (repriced(self.stack, place) for place, _ in enumerate(PRICES))
        return shares(rows.step, [Rows(one, rows.kinds, rows.listed, rows.rows).step for one in stacks])

    # --- what stages spend ---

    @cached_property
    def sums(self) -> list[dict[Any, Array]]:
        """What each kind of stages spends in a step."""
        return [self.spent(place, kind) for place, kind in enumerate(self.rows.kinds)]

    def spent(self, place: int, kind: Kind) -> dict[Any, Array]:
        """What one kind of stages spends in a step."""
        rows, cells = self.rows, self.cells
        slots = rows.slots(place)
        (sends, returns), layers = rows.crossed(slots), rows.layers(slots)
        parts = [(1, cells.ends(kind)), *((held, cells.layer(unit, kind)) for unit, held in layers.items())]
        for name, here, there in (("forward", returns, sends), ("backward", sends, returns)):
            parts += [(here, cells.passed_on(name, kind)), (there, cells.sent(name))]
        recurring = added([(count, self.of_cells(one)) for count, one in parts if np.any(count)])
        once = {key: rows.layered(amount, kind, slots) for key, amount in cells.by_role(kind).items()}
        more = [(rows.times_once(unit, kind, layers), self.of_cells(cells.once(unit))) for unit in rows.once]
        return added([(rows.count, recurring), (1, once), *more])

    def of_cells(self, found: Mapping[Any, Array]) -> dict[Any, Array]:
        """What is known of cells, for every row."""
        return {key: self.rows.cell(amount) for key, amount in found.items()}

    @cached_property
    def named(self) -> list[dict[str, Array]]:
        """The same by the total that it is part of."""
        return [{key[1]: amount for key, amount in mine.items() if key[0] == TOTAL} for mine in self.sums]

    @cached_property
    def work(self) -> dict[str, Array]:
        """FLOPs of the whole job."""
        devices = self.plan.cluster.devices // self.plan.parallelism.pipeline
        return dict(
            flops(
                self.plan,
                [(one.number * devices, mine) for one, mine in zip(self.rows.stages, self.named, strict=True)],
            )
        )

    @cached_property
    def traffic(self) -> dict[str, Array]:
        """Transfers and memory traffic of the device that has most of each."""
        return dict(totals.traffic(self.named))

    @cached_property
    def host(self) -> dict[str, Array]:
        """Memory of the host, and what goes there."""
        if not keeps_on_host(self.rows.plan):
            return {}
        pairs = zip(self.named, self.hosted, strict=True)
        return dict(totals.host(self.plan, [{**mine, HELD: mine.get(HELD, 0) + more} for mine, more in pairs]))

    @property
    def hosted(self) -> Iterator[Array]:
        """Bytes of activations in host memory, of each kind of stages."""
        amounts = self.of_cells(self.cells.hosted())
        for place, _ in enumerate(self.rows.kinds):
            slots = self.rows.slots(place)
            variants = range(max(len(slot.variants) for slot in slots))
            yield largest_of(
                whole_where_it_is(
                    sum(amount * self.rows.times(times, slots, variant) for times, amount in amounts.items())
                )
                for variant in variants
            )

    # --- counts, and what is held ---

    @cached_property
    def parts(self) -> dict[str, Array]:
        """What the device with the highest peak holds then, by category."""
        return {f"memory.{category}": amount for category, amount in held_parts(self.rows).items()}

    @cached_property
    def counted(self) -> dict[str, Array]:
        """What depends on the model and the micro-batch alone."""
        sizes, places = self.world.lists["micro_batch"], self.stack.cells["micro_batch"][self.rows.rows["cell"]]
        tables = self.world.once("counted", lambda: counted(self.world.plan, sizes))
        return {key: np.array(table, float)[places] for key, table in tables.items()}

    @cached_property
    def held(self) -> dict[str, Array]:
        """State of the device with the highest peak, and parameters of the one that has most."""
        each = []
        for place, kind in enumerate(self.rows.kinds):
            slots = self.rows.slots(place)
            amounts = self.cells.held(kind).items()
            each.append({name: self.rows.layered(amount, kind, slots) for name, amount in amounts})
        memory = self.rows.memory
        fullest = np.array([which.kind for which in memory.moments])[memory.moment]
        found = parts_of(np.broadcast_to(fullest, self.size), each, lambda mine: mine)
        return {**found, PER_DEVICE: largest_of(mine[PER_DEVICE] for mine in each)}


class _Front(dict[str, Array]):
    """A step, and its memory, each computed when it is asked for."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        ends = MEMORY[known_as(rows.plan)]
        self.asked: Mapping[str, Callable[[], Array]] = {
            "time.step": lambda: rows.step,
            "memory.peak": lambda: rows.memory.peak,
            "memory.reserved": lambda: rows.memory.reserved,
            "memory.reserved.low": lambda: np.trunc(rows.memory.reserved * ends.low),
            "memory.reserved.high": lambda: np.trunc(rows.memory.reserved * ends.high),
            "memory.capacity": lambda: rows.plan.accelerator.memory,
        }

    def __missing__(self, key: str) -> Array:
        return self.asked[key]()


def optional(key: str) -> bool:
    """Whether a plan may lack a total."""
    return any(key == name or key.startswith(f"{name}.") for name in OPTIONAL)


def whole_where_it_is(amount: Array) -> Array:
    """What is a whole number but for rounding: layers may hold a fraction of a micro-batch each."""
    return np.where(np.abs(amount - np.rint(amount)) < WHOLE, np.rint(amount), amount)


def counted(plan: Plan, sizes: Sequence[int]) -> dict[str, list[float]]:
    """Totals of the model, and of one micro-batch of each of these sizes."""
    mine = whole(plan)
    always = dict(of_model(mine))
    always |= dict(napkin(plan, mine)) | dict(checkpoint(plan, mine))
    found: dict[str, list[float]] = {}
    for size in sizes:
        sized = replace(plan, run=replace(plan.run, micro_batch=size))
        own = {**always, **dict(counters(sized, whole(sized, mine.units))), **dict(totals.caches(sized))}
        for key, amount in own.items():
            found.setdefault(key, []).append(float(amount))
    return found
