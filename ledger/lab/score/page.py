"""The page of a score: measured runs beside their predictions, by source, and the worst of them first."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from markupsafe import Markup

from ledger import numbers
from ledger.lab.score.rows import ErrorSummary, Score, ScoreRow, SourceErrors
from ledger.report import assets
from ledger.report.charts.measured import MeasuredPoint, parity_chart
from ledger.report.html import content_policy, environment, stylesheet
from ledger.report.views.parts import Cell, Chart, Column, Table, draw_chart
from ledger.whole_files import replace_file

WORST_LISTED = 200  # worst rows that are listed
QUANTITIES = (("time", "Step time"), ("mem", "Peak memory"))  # by their keys in a score
SOURCE_COLUMNS = (
    Column("source"),
    *(Column(name, "number") for name in ("rows", "skipped", "scored", "mean absolute")),
    *(Column(name, "number") for name in ("median", "mean signed", "worst")),
)
RUN_COLUMNS = (
    Column("run", "code"),
    Column("step", "number"),
    Column("measured", "number"),
    Column("error", "number"),
    Column("memory", "number"),
    Column("measured", "number"),
    Column("error", "number"),
)
CAPTION = "Each point is a run; on the line prediction and measurement are equal, between the broken lines within 10 %."


def write_page(score: Score, runs: Path, path: Path) -> bool:
    """The page at that path, whole or not at all; whether it had to be written."""
    return replace_file(path, page(score, runs).encode())


def page(score: Score, runs: Path) -> str:
    """An HTML page in one file, which needs no network, about the runs of a file."""
    style, script = stylesheet(), assets.text("script.js")
    counted = sorted((row for row in score.rows if row.worst_error), key=lambda row: -row.worst_error)
    return (
        environment()
        .get_template("score.html")
        .render(
            screen=True,
            title=runs.name,
            numbers=list(headlines(score)),
            command=f"ledger score {shlex.quote(str(runs))} --explain RUN",
            figures=list(figures(score.rows)),
            sources=list(tables_by_source(score)),
            worst=Table("Rows with the largest errors", RUN_COLUMNS, tuple(map(_row, counted[:WORST_LISTED]))),
            beyond=len(counted) - WORST_LISTED,
            skipped=skip_reasons(score.rows),
            style=Markup(style),  # noqa: S704 - the project's own file
            script=Markup(script),  # noqa: S704 - the project's own file
            policy=content_policy(style, script),
        )
    )


def headlines(score: Score) -> Iterator[tuple[str, str, str]]:
    """Title, figure and note of the overall errors and of runs that are said not to fit, where there are any."""
    for kind, title in QUANTITIES:
        errors: ErrorSummary = getattr(score.overall, kind)
        if errors.rows:
            signed = numbers.change(errors.signed or 0.0)
            note = f"of {numbers.integer(errors.rows)} rows, each source weighing the same; signed {signed}"
            yield f"{title.lower()}, mean absolute error", numbers.percent(errors.absolute or 0.0), note
    ran = sum(row.seen_fits is True and row.fits is not None for row in score.rows)
    if count := score.overall.said_not_to_fit:
        yield "runs said not to fit", numbers.integer(count), f"of {numbers.integer(ran)} that ran"


def figures(rows: Sequence[ScoreRow]) -> list[Chart]:
    """Predicted over measured, of time and of memory, as far as there are any."""
    times = [
        MeasuredPoint(row.id, row.measured_step, row.step)
        for row in rows
        if row.counts_time and row.measured_step and row.step
    ]
    peaks = [
        MeasuredPoint(row.id, row.measured_memory, row.memory)
        for row in rows
        if row.counts_memory and row.measured_memory and row.memory
    ]
    return [
        draw_chart(title, CAPTION, partial(parity_chart, points, unit, title))
        for title, points, unit in (("Step time", times, "s"), ("Peak memory", peaks, "B"))
        if points
    ]


def tables_by_source(score: Score) -> Iterator[Table]:
    """Errors of each source: of the time of a step, and of peak memory."""
    for kind, title in QUANTITIES:
        rows = [
            _source(name, source, errors)
            for name, source in score.sources.items()
            if (errors := getattr(source, kind)).rows
        ]
        if rows:
            yield Table(f"{title}, by source", SOURCE_COLUMNS, tuple(rows))


def _source(name: str, source: SourceErrors, errors: ErrorSummary) -> tuple[Cell, ...]:
    counts = (Cell(numbers.integer(n), numbers.machine(n)) for n in (source.rows, source.skipped, errors.rows))
    sizes = [Cell(numbers.percent(n), numbers.machine(n)) for n in (errors.absolute or 0.0, errors.median or 0.0)]
    signed = [Cell(numbers.change(n), numbers.machine(n)) for n in (errors.signed or 0.0, errors.worst or 0.0)]
    return (Cell(name), *counts, *sizes, *signed)


def _row(row: ScoreRow) -> tuple[Cell, ...]:
    """A run with what was assumed of it."""
    return (
        Cell(row.id, note="; ".join(row.assumed)),
        *_cells(row.step, row.measured_step, row.time_error, "s"),
        *_cells(row.memory, row.measured_memory, row.memory_error, "B"),
    )


def _cells(predicted: float | None, measured: float | None, error: float | None, unit: str) -> tuple[Cell, ...]:
    sides = [Cell(numbers.amount_text(n, unit), numbers.machine(n)) if n else Cell("–") for n in (predicted, measured)]
    return (*sides, Cell(numbers.change(error), numbers.machine(error)) if error is not None else Cell("–"))


def skip_reasons(rows: Iterable[ScoreRow]) -> list[tuple[str, int]]:
    """Why rows were skipped, and how many for each reason, the most frequent first."""
    counted = Counter(row.skipped for row in rows if row.skipped)
    return sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
