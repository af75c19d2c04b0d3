"""The page of a score: published runs beside their predictions, by source, and the worst of them first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ledger import numbers
from ledger.report import assets
from ledger.report.charts.measured import Point
from ledger.report.charts.parity import chart
from ledger.report.files import replace_file
from ledger.report.html import environment, policy, stylesheet
from ledger.report.views.parts import Cell, Column, Figure, Table, figure

if TYPE_CHECKING:
    from ledger.lab.published.scores import Scored

WORST = 200  # rows that are listed
KINDS = (("time", "Step time"), ("mem", "Peak memory"))  # by their keys in a score
SOURCES = (
    Column("source"),
    *(Column(name, "number") for name in ("rows", "skipped", "scored", "mean absolute")),
    *(Column(name, "number") for name in ("median", "mean signed", "worst")),
)
ROWS = (
    Column("run", "code"),
    Column("step", "number"),
    Column("measured", "number"),
    Column("error", "number"),
    Column("memory", "number"),
    Column("measured", "number"),
    Column("error", "number"),
)


def write_page(
    scores: Sequence[Scored], sources: Mapping[str, Any], overall: Mapping[str, Any], runs: Path, path: Path
) -> bool:
    """The page at that path, whole or not at all; whether it had to be written."""
    return replace_file(path, page(scores, sources, overall, runs).encode())


def page(scores: Sequence[Scored], sources: Mapping[str, Any], overall: Mapping[str, Any], runs: Path) -> str:
    """One file that needs no network."""
    style, script = stylesheet(), assets.text("script.js")
    counted = sorted((one for one in scores if worst(one)), key=worst, reverse=True)
    skipped = [one for one in scores if one.skipped]
    return (
        environment()
        .get_template("score.html")
        .render(
            screen=True,
            title=runs.name,
            numbers=headlines(overall),
            command=f"ledger score {shlex.quote(str(runs))} --explain RUN",
            figures=list(figures(scores)),
            sources=by_source(sources),
            worst=table("Rows with the largest errors", counted[:WORST]),
            beyond=len(counted) - WORST,
            skipped=reasons(skipped),
            style=Markup(style),  # noqa: S704 - the project's own file
            script=Markup(script),  # noqa: S704 - the project's own file
            policy=policy(style, script),
        )
    )


def worst(score: Scored) -> float:
    """The larger of the errors that count; 0 where none does."""
    errors = ((score.time_error, score.counts_time), (score.memory_error, score.counts_memory))
    return max((abs(error) for error, counts in errors if counts and error is not None), default=0.0)


def headlines(overall: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Title, figure and note of the overall errors, of what there are rows for."""
    found = []
    for kind, title in KINDS:
        if rows := overall[f"{kind}_rows"]:
            signed = numbers.change(overall[f"{kind}_bias"])
            note = f"of {numbers.integer(rows)} rows, each source weighing the same; signed {signed}"
            found.append((f"{title.lower()}, mean absolute error", numbers.percent(overall[f"{kind}_mape"]), note))
    return found


def figures(scores: Sequence[Scored]) -> list[Figure]:
    """Predicted over measured, of time and of memory, as far as there are any."""
    time = [Point(s.id, s.measured_step, s.step) for s in scores if s.counts_time and s.measured_step and s.step]
    held = [
        Point(s.id, s.measured_memory, s.memory) for s in scores if s.counts_memory and s.measured_memory and s.memory
    ]
    said = (
        "Each point is a run; on the line prediction and measurement are equal, between the broken lines within 10 %."
    )
    return [
        figure(title, said, partial(chart, points, unit, title))
        for title, points, unit in (("Step time", time, "s"), ("Peak memory", held, "B"))
        if points
    ]


def by_source(sources: Mapping[str, Any]) -> list[Table]:
    """Errors of each publication: of the time of a step, and of peak memory."""
    return [
        Table(f"{title}, by source", SOURCES, tuple(_source(name, one, one[kind]) for name, one in scored))
        for kind, title in KINDS
        if (scored := [(name, one) for name, one in sources.items() if one[kind]["rows"]])
    ]


def _source(name: str, counted: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[Cell, ...]:
    counts = (Cell(numbers.integer(n), numbers.machine(n)) for n in (counted["rows"], counted["skipped"]))
    return (Cell(name), *counts, *_figures(found))


def _figures(found: Mapping[str, Any]) -> tuple[Cell, ...]:
    plain = [Cell(numbers.percent(found[name]), numbers.machine(found[name])) for name in ("mape", "median")]
    signed = [Cell(numbers.change(found[name]), numbers.machine(found[name])) for name in ("bias", "worst")]
    return (Cell(numbers.integer(found["rows"]), numbers.machine(found["rows"])), *plain, *signed)


def table(title: str, scores: Sequence[Scored]) -> Table:
    """Rows with what was assumed of each."""
    return Table(title, ROWS, tuple(_row(score) for score in scores))


def _row(score: Scored) -> tuple[Cell, ...]:
    return (
        Cell(score.id, note="; ".join(score.assumed)),
        *_pair(score.step, score.measured_step, score.time_error, "s"),
        *_pair(score.memory, score.measured_memory, score.memory_error, "B"),
    )


def _pair(predicted: float | None, measured: float | None, error: float | None, unit: str) -> tuple[Cell, ...]:
    given = (predicted, measured)
    cells = [Cell(numbers.written(one, unit), numbers.machine(one)) if one else Cell("–") for one in given]
    return (*cells, Cell(numbers.change(error), numbers.machine(error)) if error is not None else Cell("–"))


def reasons(skipped: Sequence[Scored]) -> list[tuple[str, int]]:
    """Why rows were skipped, and how many for each reason, the most frequent first."""
    counted: dict[str, int] = {}
    for one in skipped:
        counted[one.skipped or ""] = counted.get(one.skipped or "", 0) + 1
    return sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
