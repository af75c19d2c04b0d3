"""One piece of a sweep, wherever it is run: its rows are counted, compared and, where wanted, written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.search.batches import Batch, Block, batches, text_of
from ledger.search.density import Density, Layers, density_of, summed
from ledger.search.edits import edit_costs
from ledger.search.found import Found, found_in, nothing
from ledger.search.pricing import Piece, price
from ledger.search.question import EDIT_RANK, Limit, Question
from ledger.search.space import DATA, Space
from ledger.whole_files import naming

if TYPE_CHECKING:
    from ledger.search.parts import Parts


@dataclass(frozen=True)
class Task:
    """A piece of the space of one base: its number among all, the whole space of the base, what holds of all its rows.

    `fixed`: the base's own changes. `limits`: what its layouts are held to. `data`: the data-parallel degrees that
    are wanted, all where there are none.
    """

    number: int
    piece: Piece
    space: Space
    fixed: Mapping[str, Any]
    limits: tuple[Limit, ...]
    data: tuple[int, ...] = ()


@dataclass(frozen=True)
class Job:
    """What is asked of every task. `counted`: keys whose values are counted. `layers`: of a density, where wanted.

    `parts`: where the rows of each task are written, if anywhere. `until`: the time (s of time.monotonic) after which a
    task goes by what it has; 0: none.
    """

    question: Question
    counted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    layers: Layers | None = None
    parts: Parts | None = None
    until: float = 0.0


class UnknownTotalError(ValueError):
    """A total that no layout of a plan has."""


@dataclass
class Deadline:
    """A time (s of time.monotonic, 0: none) after which no more blocks are priced; `passed` where some were not."""

    until: float
    passed: bool = False

    def before(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """The blocks that are begun in time."""
        while not self.until or time.monotonic() < self.until:
            block = next(blocks, None)
            if block is None:
                return
            yield block
        self.passed = True


def run_task(task: Task, job: Job) -> Found:
    """What a task finds. Interrupted, or out of time, it returns what it had: not `complete`, and it keeps no rows."""
    found, deadline = nothing(job.question), Deadline(job.until)
    densities: list[Density] = []
    writer = job.parts.writer(task) if job.parts else None
    keys = job.question.keys
    costs = edit_costs(task.space) if EDIT_RANK in keys else None
    try:
        for batch in priced(task, [key for key in keys if key != EDIT_RANK], deadline):
            if costs:
                batch = replace(batch, totals={**batch.totals, EDIT_RANK: costs.rank(batch)})  # noqa: PLW2901
            found = found_in(batch, task.number, job.question, task.limits, found)
            found = replace(found, used=_used(batch, job.counted, task.fixed, found.used))
            if job.layers:
                densities.append(density_of(batch, job.layers, task.fixed))
            if writer and job.parts:
                with naming(job.parts.path(task)):
                    writer.write(batch)
        found = replace(found, complete=not deadline.passed)
    except KeyboardInterrupt:
        found = replace(found, complete=False)
    except BaseException:
        if writer:
            writer.abandon()
        raise
    found = replace(found, density=summed(densities) if densities else None)
    if writer and job.parts:
        try:
            if found.complete:
                with naming(job.parts.path(task)):
                    writer.close()
                job.parts.keep(task, found)
        finally:
            writer.abandon()
    return found


def priced(task: Task, keys: Sequence[str], deadline: Deadline | None = None) -> Iterator[Batch]:
    """The legal layouts of a task that are wanted, in batches; raises UnknownTotalError."""
    blocks = price(task.piece, keys)
    try:
        yield from batches(deadline.before(blocks) if deadline else blocks, task.space, task.data)
    except KeyError as error:
        if error.args and error.args[0] in keys:
            raise UnknownTotalError(f"no layout of this plan has the total `{error.args[0]}`") from error
        raise


def _used(
    batch: Batch, counted: Mapping[str, tuple[Any, ...]], fixed: Mapping[str, Any], so_far: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """How many legal layouts have each value of the keys that are counted."""
    found = {}
    for key, values in counted.items():
        places = {text_of(value): place for place, value in enumerate(values)}
        if key in fixed:
            counts = np.zeros(len(values), np.int64)
            counts[places[text_of(fixed[key])]] = len(batch)
        elif key == DATA:
            counts = np.array([np.count_nonzero(batch.data == value) for value in values], np.int64)
        else:
            own = np.array([places[text_of(value)] for value in batch.space.values[key]], np.int64)
            counts = np.bincount(own[batch.choices[key]], minlength=len(values))
        found[key] = counts + so_far.get(key, 0)
    return found
