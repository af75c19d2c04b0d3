"""`ledger score` of a table: progress, the plan of a row, and errors by source, by row or as JSON."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import click

from ledger.cli.garbage import UNTOUCHED
from ledger.cli.score_lines import lines
from ledger.cli.tables import print_json, print_table
from ledger.lab.published.contract import by_source, contract, overall
from ledger.lab.published.facts import GIB, NEEDED
from ledger.lab.published.scores import Scored, otherwise, plan_text, scored
from ledger.lab.published.table import Row, read_table
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError

EVERY = 50  # rows between two signs of progress
MANY = 300  # rows that are worth several processes
LISTED = 20  # ids that a help line names
PORTION = 90  # rows of one piece of work: neighbours in a table share plans and books


def with_progress(path: Path, overrides: tuple[str, ...]) -> tuple[Scored, ...]:
    """Every row scored; how far it is goes to standard error, on a terminal alone."""
    rows = read_table(path, NEEDED)
    if not rows:
        raise SpecError([Problem(Location(str(path)), "the table has a header and no rows", "a row is a run")])
    found = []
    for count, score in enumerate(_scored(rows, overrides), 1):
        found.append(score)
        if sys.stderr.isatty() and (count % EVERY == 0 or count == len(rows)):
            click.echo(f"\r{count} of {len(rows)} rows", err=True, nl=count == len(rows))
    _told(found, rows, overrides)
    return tuple(found)


def _told(scores: Sequence[Scored], rows: Sequence[Row], overrides: tuple[str, ...]) -> None:
    """Raises SpecError where a change leaves no row that can be compiled, with what is wrong in the first plan."""
    if not overrides or not all(score.skipped for score in scores):
        return
    for row in rows:
        try:
            text = plan_text(row, default_library())
        except SpecError:
            continue
        load_plan(text, overrides)
        return


def _scored(rows: Sequence[Row], overrides: tuple[str, ...]) -> Iterator[Scored]:
    """The rows scored in order, long tables in as many processes as there are processors."""
    if len(rows) < MANY:
        yield from _portion(rows, overrides)
        return
    portions = [rows[start : start + PORTION] for start in range(0, len(rows), PORTION)]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(portions)), None, gc.set_threshold, (UNTOUCHED,)) as pool:
        for found in pool.map(_portion, portions, repeat(overrides)):
            yield from found


def _portion(rows: Sequence[Row], overrides: tuple[str, ...]) -> tuple[Scored, ...]:
    return tuple(scored(rows, default_library(), overrides))


def print_plan(path: Path, wanted: str) -> None:
    """Prints the plan of one row; raises SpecError for an unknown id, and for a row that no plan can be made of."""
    rows = read_table(path, NEEDED)
    row = next((row for row in rows if row.text("id") == wanted), None)
    if row is None:
        raise SpecError([Problem(Location(str(path)), f"no row has the id `{wanted}`", _meant(wanted, rows))])
    click.echo(plan_text(row, default_library()), nl=False)


def _meant(wanted: str, rows: Sequence[Row]) -> str:
    """The ids written most like it, else one of each source."""
    ids = [row.text("id") for row in rows]
    near = nearest(wanted, ids)
    if near.startswith("did you mean") or len(ids) <= LISTED:
        return near
    firsts = {row.text("source_id") or row.text("source"): row.text("id") for row in reversed(rows)}
    told = ", ".join(f"`{one}`" for one in list(firsts.values())[: -LISTED - 1 : -1])
    return f"ids are such as {told}; --rows prints all {len(ids)}"


def write_page(scores: Sequence[Scored], path: Path, folder: Path) -> Path:
    """The page of a score in a folder; where it was written."""
    from ledger.lab.published.page import write_page as written

    groups = by_source(scores)
    page = folder / f"{path.stem}.html"
    folder.mkdir(parents=True, exist_ok=True)
    written(scores, groups, overall(groups), path, page)
    return page


def show(scores: Sequence[Scored], path: Path, *, as_json: bool, over: float | None) -> None:
    """Prints the contract as JSON, or rows with errors over so many percent (worst first), sources, and sentences.

    Rows that are asked for by their error come with what it is under what they leave open.
    """
    if as_json:
        print_json(contract(scores))
        return
    if over is not None:
        chosen = [score for score in scores if over == 0 or _worst(score) >= over / 100]
        chosen = sorted(chosen, key=_worst, reverse=True) if over else chosen
        _rows(chosen, _open(path, chosen) if over else {})
    groups = by_source(scores)
    _sources(groups)
    for line in lines(scores, groups):
        click.echo(line)


def _worst(score: Scored) -> float:
    errors = [
        error
        for error, counts in ((score.time_error, score.counts_time), (score.memory_error, score.counts_memory))
        if counts and error is not None
    ]
    return max(map(abs, errors), default=-1.0)


def _open(path: Path, scores: Sequence[Scored]) -> dict[str, str]:
    """By row, the error of memory under each way to read what the row does not say."""
    wanted, library = {score.id for score in scores}, default_library()
    rows = [row for row in read_table(path, NEEDED) if row.text("id") in wanted]
    found = {row.text("id"): otherwise(row, library) for row in rows}
    return {name: "; ".join(f"with {way} {error:+.1%}" for way, error in ways.items()) for name, ways in found.items()}


def _rows(scores: Sequence[Scored], open_: Mapping[str, str]) -> None:
    columns = ("run", "step", "measured", "error", "memory", "measured", "error", "assumed")
    cells = [
        (
            score.id,
            _seconds(score.step),
            _seconds(score.measured_step),
            _percent(score.time_error),
            _bytes(score.memory),
            _bytes(score.measured_memory),
            _percent(score.memory_error),
            score.skipped or "; ".join(filter(None, (*score.assumed, _outside(score), open_.get(score.id, "")))),
        )
        for score in scores
    ]
    if cells:
        print_table(columns, cells, right=columns[1:-1])
        click.echo()


def _outside(score: Scored) -> str:
    return f"in no sum: {score.uncounted}" if score.uncounted else ""


def _sources(groups: Mapping[str, Mapping[str, Any]]) -> None:
    figures = ("rows", "median", "mape", "bias", "worst")
    columns = ("source", "rows", "skipped", *(f"{kind} {figure}" for kind in ("time", "mem") for figure in figures))
    cells = [
        (name, str(group["rows"]), str(group["skipped"]), *_figures(group["time"]), *_figures(group["mem"]))
        for name, group in groups.items()
    ]
    print_table(columns, cells, right=columns[1:])


def _figures(found: Mapping[str, Any]) -> tuple[str, ...]:
    absolute = [f"{found[name]:.1%}" if found["rows"] else "-" for name in ("median", "mape")]
    return (str(found["rows"]), *absolute, _percent(found["bias"]), _percent(found["worst"]))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _bytes(value: float | None) -> str:
    return "-" if value is None else f"{value / GIB:.1f} GiB"


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"
