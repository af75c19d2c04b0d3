"""One task of a sweep: its layouts are priced, counted and compared and, where asked for, written to a file."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from ledger.search.batches import Batch, PricedLayouts, batches, text_of
from ledger.search.columns import Columns
from ledger.search.density import Density, Layers, density_of, summed
from ledger.search.edits import edit_costs
from ledger.search.found import ROWS, Rows, SearchResult, add_batch, nothing
from ledger.search.pricing import SpacePiece, price_piece
from ledger.search.question import EDIT_RANK, Limit, Question
from ledger.search.space import DATA, Space
from ledger.whole_files import UnfinishedFile, name_errors

if TYPE_CHECKING:
    import pyarrow as pa


PARQUET, CSV = "parquet", "csv"
FORMS = (PARQUET, CSV)


class Writer:
    """Writes the rows of a task to a `file`: it is there complete, or not at all."""

    file: Any

    def __init__(self, path: Path, columns: Columns, fixed: Mapping[str, Any]) -> None:
        self.columns, self.fixed = columns, fixed
        self.unfinished = UnfinishedFile(path)

    def write(self, batch: Batch) -> None:
        """Writes the rows of a batch."""
        raise NotImplementedError

    def close(self) -> None:
        """Puts the file in its place."""
        self.file.close()
        self.unfinished.put_in_place()

    def abandon(self) -> None:
        """Removes the unfinished file; one that is in its place stays."""
        with suppress(OSError):
            self.file.close()
        self.unfinished.abandon()


@dataclass(frozen=True)
class RowFiles:
    """A folder of parts of one form; its name tells the parts of one sweep from those of any other."""

    folder: str
    form: str
    columns: Columns

    def path(self, task: Task) -> Path:
        """The file with the rows of a task."""
        return Path(self.folder) / f"{task.number:06}.{self.form}"

    def writer(self, task: Task) -> Writer:
        """The writer of the rows of a task."""
        writer_type = ParquetWriter if self.form == PARQUET else CsvWriter
        return writer_type(self.path(task), self.columns, task.fixed)

    def keep(self, task: Task, result: SearchResult) -> None:
        """Writes the result of a task whose rows are in their place: from here on the task counts as done."""
        with UnfinishedFile(self.found(task)) as file, file.draft.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **as_arrays(result))
            stream.flush()
            file.put_in_place()

    def done(self, task: Task) -> SearchResult | None:
        """The result of a task that was done before; None where it was not, or its file is damaged."""
        if not (self.found(task).is_file() and self.path(task).is_file()):
            return None
        try:
            with np.load(self.found(task), allow_pickle=False) as arrays:
                return from_arrays(arrays)
        except (OSError, EOFError, ValueError, KeyError, BadZipFile):
            return None

    def found(self, task: Task) -> Path:
        """The file with the result of a task."""
        return self.path(task).with_suffix(".npz")


class ParquetWriter(Writer):
    """Rows as Parquet, a row group for each batch."""

    def __init__(self, path: Path, columns: Columns, fixed: Mapping[str, Any]) -> None:
        import pyarrow.parquet as pq

        super().__init__(path, columns, fixed)
        # A part is read once, soon, and on this machine: it is not worth compressing.
        self.file = pq.ParquetWriter(
            self.unfinished.draft,
            schema(columns),
            compression="none",
            use_dictionary=list(columns.keys),
            write_statistics=False,
        )

    def write(self, batch: Batch) -> None:
        """Writes a row group."""
        import pyarrow as pa

        fields = schema(self.columns)
        arrays = [
            pa.array(values, fields.field(key).type).take(pa.array(places))
            for key, values, places in self.columns.values(batch, self.fixed)
        ]
        arrays += [pa.array(batch.totals[key], pa.float64(), from_pandas=True) for key in self.columns.totals]
        self.file.write_table(pa.Table.from_arrays(arrays, schema=fields))


def schema(columns: Columns) -> pa.Schema:
    """Whole numbers, text, and float64 for totals."""
    import pyarrow as pa

    keys = [(key, pa.int64() if key in columns.integer_keys else pa.string()) for key in columns.keys]
    return pa.schema([*keys, *((key, pa.float64()) for key in columns.totals)])


class CsvWriter(Writer):
    """Rows as CSV without a header; an empty cell where a key is left out or a total has no value."""

    def __init__(self, path: Path, columns: Columns, fixed: Mapping[str, Any]) -> None:
        super().__init__(path, columns, fixed)
        self.file = self.unfinished.draft.open("w", encoding="utf-8", newline="")

    def write(self, batch: Batch) -> None:
        """Writes lines, column by column until there are cells of text."""
        columns: list[Sequence[Any]] = [
            np.array(values, object)[places].tolist() for _, values, places in self.columns.values(batch, self.fixed)
        ]
        for key in self.columns.totals:
            values = batch.totals[key].astype(object)
            values[np.isnan(batch.totals[key])] = None
            columns.append(values.tolist())
        csv.writer(self.file, lineterminator="\n").writerows(zip(*columns, strict=True))


def as_arrays(result: SearchResult) -> dict[str, np.ndarray]:
    """The result of a task, as arrays by name."""
    rows = {f"{part}.{name}": getattr(getattr(result, part), name) for part in PARTS for name in ROWS}
    counts = {"counts": np.array([result.legal, result.fitting, result.meeting], np.int64)}
    used = {f"used.{key}": counted for key, counted in result.used.items()}
    density = {"cells": result.density.cells, "cell_counts": result.density.counts} if result.density else {}
    return {**rows, **counts, **used, **density}


def from_arrays(arrays: Mapping[str, np.ndarray]) -> SearchResult:
    """The result of a task from the arrays that `as_arrays` made of it."""
    rows = {part: Rows(*(arrays[f"{part}.{name}"] for name in ROWS)) for part in PARTS}
    legal, fitting, meeting = map(int, arrays["counts"])
    used = {key.removeprefix("used."): arrays[key] for key in arrays if key.startswith("used.")}
    density = Density(arrays["cells"], arrays["cell_counts"]) if "cells" in arrays else None
    return SearchResult(
        rows["best"], rows["front"], rows["nearest"], legal, fitting, meeting, used=used, density=density
    )


PARTS = ("best", "front", "nearest")


@dataclass(frozen=True)
class Task:
    """A piece of the space of one base: its number among all, the whole space of the base, what holds of all its rows.

    `fixed`: the base's own changes. `limits`: what its layouts are held to. `data`: the data-parallel degrees that
    are wanted, all where there are none.
    """

    number: int
    piece: SpacePiece
    space: Space
    fixed: Mapping[str, Any]
    limits: tuple[Limit, ...]
    data: tuple[int, ...] = ()


@dataclass(frozen=True)
class TaskQuestion:
    """The question to every task. `counted`: keys whose values are counted. `layers`: of a density, where asked for.

    `parts`: where the rows of each task are written, if anywhere. `until`: the time (s of time.monotonic) after which a
    task goes by what it has; 0: none.
    """

    question: Question
    counted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    layers: Layers | None = None
    parts: RowFiles | None = None
    until: float = 0.0


class UnknownTotalError(ValueError):
    """A total that no layout of a plan has."""


@dataclass
class Deadline:
    """A time (s of time.monotonic, 0: none) after which no more blocks are priced; `passed` where some were not."""

    until: float
    passed: bool = False

    def before(self, blocks: Iterator[PricedLayouts]) -> Iterator[PricedLayouts]:
        """The blocks that are begun in time."""
        while not self.until or time.monotonic() < self.until:
            block = next(blocks, None)
            if block is None:
                return
            yield block
        self.passed = True


def run_task(task: Task, job: TaskQuestion) -> SearchResult:
    """The result of a task; interrupted, or out of time, what it had by then: not `complete`, and no rows are kept."""
    result, deadline = nothing(job.question), Deadline(job.until)
    densities: list[Density] = []
    writer = job.parts.writer(task) if job.parts else None
    keys = job.question.keys
    costs = edit_costs(task.space) if EDIT_RANK in keys else None
    try:
        for batch in price_task(task, [key for key in keys if key != EDIT_RANK], deadline):
            if costs:
                batch = replace(batch, totals={**batch.totals, EDIT_RANK: costs.rank(batch)})  # noqa: PLW2901
            result = add_batch(batch, task.number, job.question, task.limits, result)
            result = replace(result, used=_count_values(batch, job.counted, task.fixed, result.used))
            if job.layers:
                densities.append(density_of(batch, job.layers, task.fixed))
            if writer and job.parts:
                with name_errors(job.parts.path(task)):
                    writer.write(batch)
        result = replace(result, complete=not deadline.passed)
    except KeyboardInterrupt:
        result = replace(result, complete=False)
    except BaseException:
        if writer:
            writer.abandon()
        raise
    result = replace(result, density=summed(densities) if densities else None)
    if writer and job.parts:
        try:
            if result.complete:
                with name_errors(job.parts.path(task)):
                    writer.close()
                job.parts.keep(task, result)
        finally:
            writer.abandon()
    return result


def price_task(task: Task, keys: Sequence[str], deadline: Deadline | None = None) -> Iterator[Batch]:
    """The legal layouts of a task that are wanted, in batches; raises UnknownTotalError."""
    blocks = price_piece(task.piece, keys)
    try:
        yield from batches(deadline.before(blocks) if deadline else blocks, task.space, task.data)
    except KeyError as error:
        if error.args and error.args[0] in keys:
            raise UnknownTotalError(f"no layout of this plan has the total `{error.args[0]}`") from error
        raise


def _count_values(
    batch: Batch, counted: Mapping[str, tuple[Any, ...]], fixed: Mapping[str, Any], so_far: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The number of legal layouts with each value of the keys that are counted."""
    layouts_by_key = {}
    for key, values in counted.items():
        places = {text_of(value): place for place, value in enumerate(values)}
        if key in fixed:
            counts = np.zeros(len(values), np.int64)
            counts[places[text_of(fixed[key])]] = len(batch)
        elif key == DATA:
            counts = np.array([np.count_nonzero(batch.data == value) for value in values], np.int64)
        else:
            value_places = np.array([places[text_of(value)] for value in batch.space.values[key]], np.int64)
            counts = np.bincount(value_places[batch.choices[key]], minlength=len(values))
        layouts_by_key[key] = counts + so_far.get(key, 0)
    return layouts_by_key
