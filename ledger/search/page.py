"""The page of a sweep: all layouts as a density, the front and the best as tables, a filter by one value of a key.

Its size does not grow with the layouts: it holds a small grid for each value of a key, and tables of bounded length.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ledger import numbers
from ledger.report import assets
from ledger.report.charts.density import LEVELS, DensityGrid, DensityPoint, chart
from ledger.report.html import content_policy, environment, stylesheet
from ledger.report.views.parts import draw_chart
from ledger.search.batches import text_of
from ledger.search.contract import totals
from ledger.search.density import MOST_VALUES, PER_DECADE, REACH, SHORTEST, Density, Layers
from ledger.search.found import Rows
from ledger.search.question import MEMORY
from ledger.search.sweep import Search, Swept
from ledger.search.words import short_changes
from ledger.spec.version import short_digest
from ledger.units import unit_of
from ledger.whole_files import replace_file

ROWS_SHOWN = 400  # of the front and of the best
SIDE = 64  # cells of the page's grid, at most, in each direction


@dataclass(frozen=True)
class Line:
    """A row of a table: what it changes, its totals as text and to sort by, and its value of each key as JSON."""

    changes: str
    cells: tuple[tuple[str, str], ...]
    values: str


@dataclass(frozen=True)
class Frame:
    """The part of the histogram that the page shows, and how many of its cells make one of the page's."""

    first: int
    rows: int
    columns: int
    by_row: int
    by_column: int

    def grid(self, counts: np.ndarray) -> np.ndarray:
        """The counts of a layer in the page's cells."""
        part = np.zeros((self.rows * self.by_row, self.columns * self.by_column), np.int64)
        there = counts[self.first : self.first + part.shape[0], : part.shape[1]]
        part[: there.shape[0], : there.shape[1]] = there
        return np.asarray(part.reshape(self.rows, self.by_row, self.columns, self.by_column).sum(axis=(1, 3)))


def write_page(swept: Swept, path: Path) -> bool:
    """The page at that path, whole or not at all; whether it had to be written."""
    return replace_file(path, page(swept).encode())


def page(swept: Swept) -> str:
    """One file that needs no network."""
    search, layers, density = swept.search, swept.layers, swept.found.density
    if layers is None or density is None:
        raise ValueError("a page needs a sweep that counted densities")
    frame = frame_of(density.layer(0))
    most = int(frame.grid(density.layer(0)).max())
    style = stylesheet() + assets.text("live.css") + assets.text("sweep.css")
    script = f"{_data(layers, density, frame, most)}{assets.text('sweep.js')}{assets.text('script.js')}"
    return (
        environment()
        .get_template("sweep.html")
        .render(
            title=search.plan.title,
            digest=short_digest(search.plan.digest),
            numbers=list(_headlines(swept)),
            complete=swept.complete,
            screen=True,
            chart=_figure(swept, layers, density, frame, most),
            filters=list(layers.values),
            unfiltered=[key for key, values in search.space.items() if len(values) > MOST_VALUES],
            keys=search.question.keys,
            objective=("most " if search.question.largest else "least ") + search.question.objective,
            front_keys=" and ".join(search.question.front),
            tables=[
                ("front", "The front", *_lines(search, swept.found.front)),
                ("best", "The best", *_lines(search, swept.found.best)),
            ],
            own=_cells(search, {key: float(value) for key, value in search.own.items()}),
            style=Markup(style),  # noqa: S704 - the project's own files
            script=Markup(script),  # noqa: S704 - the project's own files, and data in which no markup can end a script
            policy=content_policy(style, script),
        )
    )


def frame_of(counts: np.ndarray) -> Frame:
    """The rows of time in which there is a layout, and the columns of memory from none up to the last that is used."""
    times, memory = np.flatnonzero(counts.any(axis=1)), np.flatnonzero(counts.any(axis=0))
    first, last = (int(times[0]), int(times[-1])) if len(times) else (0, 0)
    columns = int(memory[-1]) + 1 if len(memory) else 1
    by_row, by_column = math.ceil((last - first + 1) / SIDE), math.ceil(columns / SIDE)
    return Frame(first, math.ceil((last - first + 1) / by_row), math.ceil(columns / by_column), by_row, by_column)


def levels(grid: np.ndarray, most: int) -> np.ndarray:
    """0 where there is nothing, then 1 for one layout up to LEVELS for the most that a cell has, in equal factors."""
    with np.errstate(divide="ignore"):
        share = np.log(grid) / math.log(most) if most > 1 else np.ones(grid.shape)
    return np.where(grid > 0, np.clip(np.ceil(share * LEVELS), 1, LEVELS), 0).astype(np.uint8)


def _data(layers: Layers, density: Density, frame: Frame, most: int) -> str:
    """The grids of all layers for the script: two cells a byte."""
    packed, sums = [], []
    for number in range(layers.count):
        counts = density.layer(number)
        flat = levels(frame.grid(counts), most).ravel()
        flat = np.append(flat, np.zeros(len(flat) % 2, np.uint8))
        packed.append((flat[::2] << 4 | flat[1::2]).tobytes())
        sums.append(int(counts.sum()))
    content = {
        "rows": frame.rows,
        "columns": frame.columns,
        "levels": base64.b64encode(b"".join(packed)).decode("ascii"),
        "sums": sums,
        "first": {key: layers.first(key) for key in layers.values},
        "values": {key: [text_of(value) for value in values] for key, values in layers.values.items()},
    }
    return f'"use strict";\nconst SWEEP = {json.dumps(content).replace("<", chr(92) + "u003c")};\n'


def _figure(swept: Swept, layers: Layers, density: Density, frame: Frame, most: int) -> Any:
    search = swept.search
    front = swept.found.front
    time, memory = (search.question.keys.index(key) for key in (layers.time, MEMORY))
    points = [
        DensityPoint(str(place + 1), short_changes(search, front, place), row[memory], row[time])
        for place, row in enumerate(front.totals[:ROWS_SHOWN].tolist())
    ]
    own = DensityPoint("the plan", "the plan itself", float(search.own[MEMORY]), float(search.own[layers.time]))
    shortest = SHORTEST * 10 ** (frame.first / PER_DECADE)
    longest = shortest * 10 ** (frame.rows * frame.by_row / PER_DECADE)
    reach = frame.columns * frame.by_column * layers.unit
    grid = DensityGrid(levels(frame.grid(density.layer(0)), most).tolist(), shortest, longest, reach, most)
    limits = sorted({search.limits(base)[0].bound for base in search.bases})
    beyond = (
        f" What needs more than {numbers.size(REACH * layers.unit)} is in the last column."
        if reach >= REACH * layers.unit
        else ""
    )
    caption = (
        f"Every legal layout, in cells: the darkest has {numbers.integer(most)}. A layout left of the line fits, "
        f"with the headroom that was asked for. Orange: the front, numbered as in its table.{beyond}"
    )
    return draw_chart("All layouts", caption, partial(chart, grid, points, own, limits))


def _headlines(swept: Swept) -> Iterator[tuple[str, str, str]]:
    search, found = swept.search, swept.found
    of = f"of {numbers.integer(search.combinations)} combinations"
    yield "legal layouts", numbers.integer(found.legal), of
    yield "fit", numbers.integer(found.fitting), "with the headroom that was asked for"
    if search.question.conditions:
        yield (
            "meet the conditions",
            numbers.integer(found.meeting),
            "; ".join(one.text for one in search.question.conditions),
        )
    if len(found.best):
        best, objective = totals(search, found.best, 0), search.question.objective
        own = search.own.get(objective)
        note = objective if own is None else f"{objective}; the plan: {numbers.written(float(own), unit_of(objective))}"
        yield "the best", numbers.written(best[objective], unit_of(objective)), note


def _lines(search: Search, rows: Rows) -> tuple[list[Line], int]:
    """The rows of a table, and how many more there are."""
    shown = [
        Line(
            short_changes(search, rows, place),
            _cells(search, totals(search, rows, place)),
            _values(search, rows, place),
        )
        for place in range(min(len(rows), ROWS_SHOWN))
    ]
    return shown, len(rows) - len(shown)


def _cells(search: Search, found: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    keys = search.question.keys
    written = ((numbers.written(found[key], unit_of(key)), numbers.machine(found[key])) for key in keys if key in found)
    there = iter(written)
    return tuple(next(there) if key in found else ("–", "") for key in keys)


def _values(search: Search, rows: Rows, place: int) -> str:
    return json.dumps({key: text_of(value) for key, value in search.changes(rows, place).items()})
