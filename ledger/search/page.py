"""The page of a sweep: all layouts as a density, the front and the best as tables, a filter by one value of a key.

Its size does not grow with the layouts: it holds a small grid for each value of a key, and tables of bounded length.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ledger import numbers
from ledger.numbers import with_unit
from ledger.report import assets
from ledger.report.charts.density import LEVELS, DensityGrid, DensityPoint, chart
from ledger.report.html import content_policy, environment, stylesheet
from ledger.report.views.parts import draw_chart
from ledger.search.batches import text_of
from ledger.search.density import MOST_VALUES, PER_DECADE, REACH, SHORTEST, Density, Layers
from ledger.search.found import Rows
from ledger.search.question import MEMORY
from ledger.search.space import with_layout
from ledger.search.sweep import Search, SweepResult
from ledger.spec.edit import flow
from ledger.spec.inputs import changes
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
        counted = counts[self.first : self.first + part.shape[0], : part.shape[1]]
        part[: counted.shape[0], : counted.shape[1]] = counted
        return np.asarray(part.reshape(self.rows, self.by_row, self.columns, self.by_column).sum(axis=(1, 3)))


def write_page(swept: SweepResult, path: Path) -> bool:
    """The page at that path, whole or not at all; whether it had to be written."""
    return replace_file(path, page(swept).encode())


def page(swept: SweepResult) -> str:
    """One file that needs no network."""
    search, layers, density = swept.search, swept.layers, swept.result.density
    if layers is None or density is None:
        raise ValueError("a page needs a sweep that counted densities")
    frame = frame_of(density.layer(0))
    largest_count = int(frame.grid(density.layer(0)).max())
    style = stylesheet() + assets.text("live.css") + assets.text("sweep.css")
    script = f"{_data(layers, density, frame, largest_count)}{assets.text('sweep.js')}{assets.text('script.js')}"
    return (
        environment()
        .get_template("sweep.html")
        .render(
            title=search.plan.title,
            digest=short_digest(search.plan.digest),
            numbers=list(_headlines(swept)),
            complete=swept.complete,
            screen=True,
            chart=_density_chart(swept, layers, density, frame, largest_count),
            filters=list(layers.values),
            unfiltered=[key for key, values in search.space.items() if len(values) > MOST_VALUES],
            keys=search.question.keys,
            objective=("most " if search.question.largest else "least ") + search.question.objective,
            front_keys=" and ".join(search.question.front),
            tables=[
                ("front", "The front", *_lines(search, swept.result.front)),
                ("best", "The best", *_lines(search, swept.result.best)),
            ],
            own=_cells(search, {key: float(value) for key, value in search.plan_totals.items()}),
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
    packed, layouts_of_layer = [], []
    for number in range(layers.count):
        counts = density.layer(number)
        flat = levels(frame.grid(counts), most).ravel()
        flat = np.append(flat, np.zeros(len(flat) % 2, np.uint8))
        packed.append((flat[::2] << 4 | flat[1::2]).tobytes())
        layouts_of_layer.append(int(counts.sum()))
    content = {
        "rows": frame.rows,
        "columns": frame.columns,
        "levels": base64.b64encode(b"".join(packed)).decode("ascii"),
        "sums": layouts_of_layer,
        "first": {key: layers.first(key) for key in layers.values},
        "values": {key: [text_of(value) for value in values] for key, values in layers.values.items()},
    }
    return f'"use strict";\nconst SWEEP = {json.dumps(content).replace("<", chr(92) + "u003c")};\n'


def _density_chart(swept: SweepResult, layers: Layers, density: Density, frame: Frame, most: int) -> Any:
    search = swept.search
    front = swept.result.front
    time, memory = (search.question.keys.index(key) for key in (layers.time, MEMORY))
    points = [
        DensityPoint(str(place + 1), short_changes(search, front, place), row[memory], row[time])
        for place, row in enumerate(front.totals[:ROWS_SHOWN].tolist())
    ]
    plan_point = DensityPoint(
        "the plan", "the plan itself", float(search.plan_totals[MEMORY]), float(search.plan_totals[layers.time])
    )
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
    return draw_chart("All layouts", caption, partial(chart, grid, points, plan_point, limits))


def _headlines(swept: SweepResult) -> Iterator[tuple[str, str, str]]:
    search, result = swept.search, swept.result
    scope = f"of {numbers.integer(search.combinations)} combinations"
    yield "legal layouts", numbers.integer(result.legal), scope
    yield "fit", numbers.integer(result.fitting), "with the headroom that was asked for"
    if search.question.conditions:
        texts = "; ".join(condition.text for condition in search.question.conditions)
        yield "meet the conditions", numbers.integer(result.meeting), texts
    if len(result.best):
        best, objective = totals(search, result.best, 0), search.question.objective
        of_plan, unit = search.plan_totals.get(objective), unit_of(objective)
        note = objective if of_plan is None else f"{objective}; the plan: {numbers.amount_text(float(of_plan), unit)}"
        yield "the best", numbers.amount_text(best[objective], unit), note


def _lines(search: Search, rows: Rows) -> tuple[list[Line], int]:
    """The rows of a table, and how many more there are."""
    table_lines = [
        Line(
            short_changes(search, rows, place),
            _cells(search, totals(search, rows, place)),
            json.dumps({key: text_of(value) for key, value in search.changes(rows, place).items()}),
        )
        for place in range(min(len(rows), ROWS_SHOWN))
    ]
    return table_lines, len(rows) - len(table_lines)


def _cells(search: Search, row_totals: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    values = ((row_totals.get(key), unit_of(key)) for key in search.question.keys)
    return tuple(
        ("–", "") if value is None else (numbers.amount_text(value, unit), numbers.machine(value))
        for value, unit in values
    )


# --- the published record of a sweep ---

SCHEMA = "ledger-sweep/1"


def sweep_record(swept: SweepResult) -> dict[str, Any]:
    """The object that `sweep --json` prints; `nearest` is there where no layout meets everything."""
    search, result = swept.search, swept.result
    best = rows_record(search, result.best)
    miss = {} if best or not len(result.nearest) else {"nearest": rows_record(search, result.nearest)[0]}
    return {
        "schema": SCHEMA,
        "spec": search.asked.name or search.asked.spec,
        "digest": search.plan.digest,
        "complete": swept.complete,
        "space": {key: list(values) for key, values in search.space.items()},
        "counts": {"combinations": search.combinations, "legal": result.legal, "fitting": result.fitting},
        "seconds": swept.seconds,
        "per_second": result.legal / swept.seconds if swept.seconds else 0.0,
        "best": best[0] if best else None,
        "front": rows_record(search, result.front),
        "top": best,
        **miss,
    }


def rows_record(search: Search, rows: Rows) -> list[dict[str, Any]]:
    """Each row with its complete changes and its totals."""
    return [
        {"changes": search.changes(rows, place), "totals": totals(search, rows, place)} for place in range(len(rows))
    ]


def totals(search: Search, rows: Rows, place: int) -> dict[str, float | int]:
    """The totals of a row by key: whole numbers as integers; none that it does not have."""
    values = zip(search.question.keys, map(float, rows.totals[place]), strict=True)
    return {
        key: int(value) if value.is_integer() and abs(value) < 2**53 else value
        for key, value in values
        if math.isfinite(value)
    }


# --- rows in words ---

OWN = "the plan itself"
SHORT = ("parallelism.", "run.", "serve.")  # parts whose keys are clear without them


def short_changes(search: Search, rows: Rows, place: int) -> str:
    """The changes that a row makes to the plan, in words: `tensor 2, recompute full`."""
    stated = search.changes(rows, place)
    base = search.bases[search.base_of[int(rows.tasks[place])]]
    layout = {key: stated[key] for key in base.space.keys}
    paths = [change.path for change in changes(search.plan, with_layout(base.plan, layout))]
    return ", ".join(_differing(stated, paths)) or OWN


def _differing(stated: Mapping[str, Any], paths: list[str]) -> Iterator[str]:
    for key, value in stated.items():
        if not any(path == key or path.startswith(f"{key}.") for path in paths):
            continue
        name = next((key.removeprefix(part) for part in SHORT if key.startswith(part)), key)
        yield f"without {name}" if value is None else f"{name} {value if isinstance(value, str) else flow(value)}"


def misses(search: Search, rows: Rows, place: int = 0) -> list[str]:
    """A sentence for each limit that a row misses, with the difference."""
    base = search.bases[search.base_of[int(rows.tasks[place])]]
    values = dict(zip(search.question.keys, rows.totals[place : place + 1].T, strict=True))
    texts = []
    for limit in search.limits(base):
        if limit.excess(values[limit.key])[0] == 0:
            continue
        value, unit = float(values[limit.key][0]), unit_of(limit.key)
        if math.isnan(value):
            texts.append(f"{limit.text}: it has no {limit.key}")
            continue
        difference = with_unit(abs(value - limit.bound), unit)
        side = "more" if value > limit.bound else "less"
        amount, bound = with_unit(value, unit), with_unit(limit.bound, unit)
        missed = f"{difference} {side}" if amount == bound else f"{amount} is {difference} {side} than {bound}"
        texts.append(f"{limit.text}: {missed}")
    return texts
