"""What `ledger score` is given: a table of runs or a file of evidence, the plan of one run, and all runs predicted."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from itertools import repeat
from pathlib import Path
from time import monotonic

import click

from ledger.cli.garbage import UNTOUCHED
from ledger.cli.progress import TOLD_EVERY
from ledger.evidence.documents import Evidence, read_document, read_evidence
from ledger.evidence.run_records import FIT, STEP, MeasuredRun
from ledger.evidence.tables import TableRow, read_table
from ledger.lab.score.facts import FACT_COLUMNS, NEEDED_COLUMNS, is_path
from ledger.lab.score.predictions import (
    memory_errors_otherwise,
    predict_rows,
    predict_runs,
    row_plan_text,
    run_plan_text,
)
from ledger.lab.score.rows import Score, ScoreRow
from ledger.lab.score.serving_facts import GRADE, SERVING_COLUMNS, ServingFacts, is_served
from ledger.lab.score.software import columns_told_apart
from ledger.processes import interrupt_held, process_pool
from ledger.spec.bounded_files import YAML
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError

MOST_NAMED = 8  # columns that are not read
EVERY = 50  # rows between two signs of progress
ALIKE = 0.85  # of the letters of two columns, from where one may be meant by the other
MANY = 300  # rows that are worth several processes
IDS_LISTED = 20  # ids that a help line names
PORTION = 90  # rows of one piece of work: neighbours in a table share plans and books


@dataclass(frozen=True)
class RunTable:
    """A table of runs (CSV)."""

    path: Path
    rows: tuple[TableRow, ...]

    def predicted(self, overrides: tuple[str, ...]) -> Score:
        """Every row predicted; how far that is goes to standard error, on a terminal alone.

        Raises SpecError where a change leaves no row that can be compiled, with what is wrong in the first plan.
        """
        score = Score(tuple(_with_progress(_predicted(self.rows, overrides), len(self.rows))))
        if overrides and all(row.skipped for row in score.rows):
            self._raise_for(overrides)
        return score

    def _raise_for(self, overrides: tuple[str, ...]) -> None:
        for row in self.rows:
            try:
                text = row_plan_text(row, default_library())
            except SpecError:
                continue
            load_plan(text, overrides)
            return

    @property
    def unread(self) -> Iterator[str]:
        """Columns that are not read, in words: each that is written like one that is, then the others together."""
        known = (*FACT_COLUMNS, *(one.name for one in fields(ServingFacts)), GRADE)
        sources, library = {row.text("source_id") or row.text("source") for row in self.rows}, default_library()
        told_apart = {name for source in sources for name in columns_told_apart(source, library)}
        others = []
        for name in self.rows[0].cells:
            near = get_close_matches(name, known, n=1, cutoff=ALIKE)
            if near and name not in known:
                yield f"column `{name}` is not read; did you mean `{near[0]}`?"
            elif name not in (*known, *told_apart) and not is_path(name):
                others.append(f"`{name}`")
        if others:
            more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
            yield f"columns that are not read: {', '.join(others[:MOST_NAMED])}{more}"

    def plan_of(self, wanted: str) -> str:
        """The plan of one row as a spec; raises SpecError for an unknown id, and for a row that has no plan."""
        sources = {row.text("id"): row.text("source_id") or row.text("source") for row in self.rows}
        _known(wanted, sources, self.path)
        return row_plan_text(next(row for row in self.rows if row.text("id") == wanted), default_library())

    def errors_otherwise(self, rows: Sequence[ScoreRow]) -> dict[str, str]:
        """By row, the error of memory under each way to read what the row does not say."""
        wanted, library = {row.id for row in rows}, default_library()
        chosen = [row for row in self.rows if row.text("id") in wanted]
        errors = {row.text("id"): memory_errors_otherwise(row, library) for row in chosen}
        return {
            name: "; ".join(f"with {way} {error:+.1%}" for way, error in ways.items()) for name, ways in errors.items()
        }


@dataclass(frozen=True)
class RunFile:
    """A file of evidence with whole runs, or plans that ran or did not."""

    evidence: Evidence

    unread = ()  # a file of evidence has its schema

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.evidence.path

    @property
    def runs(self) -> tuple[MeasuredRun, ...]:
        """Every run that the evidence has: those with a time, then those that say only whether they fitted."""
        return self.evidence.runs + self.evidence.fits

    def predicted(self, overrides: tuple[str, ...]) -> Score:
        """Every run predicted; raises SpecError for a plan that cannot be read, and for a device that has no prices."""
        if problem := self._without_prices(overrides):
            raise SpecError([problem], {str(self.evidence.path): read_document(self.evidence.path).text})
        return Score(tuple(_with_progress(predict_runs(self.evidence, overrides), len(self.runs))))

    def _without_prices(self, overrides: Sequence[str]) -> Problem | None:
        """What to do about a device that is none of the library's, as one's own is; None where there are prices."""
        plan = self.evidence.node.fields["plan"].fields
        device = plan.get("accelerator")
        if device is None or not isinstance(device.value, str) or device.value.endswith(YAML):
            return None
        stated = any(override.startswith("accelerator") for override in overrides)
        if stated or default_library().spelt("accelerator", device.value):
            return None
        own = f"{device.value}.yaml"
        calibrate = f"`ledger calibrate {self.evidence.path} --out {own}` makes its spec"
        message = f"no accelerator of the library is named `{device.value}`"
        return Problem(device.where, message, f"{calibrate}; then add `--set accelerator={own}`")

    def plan_of(self, wanted: str) -> str:
        """The plan of one run as a spec; raises SpecError for an unknown id."""
        runs = {run.id: run for run in self.runs}
        _known(wanted, dict.fromkeys(runs, self.evidence.path.stem), self.evidence.path)
        return run_plan_text(runs[wanted])

    def errors_otherwise(self, _: Sequence[ScoreRow]) -> dict[str, str]:
        """Nothing: the plans of evidence files leave nothing open."""
        return {}


def find_runs(name: str) -> RunTable | RunFile:
    """The runs of a path, or of that name in the library; raises SpecError with everything that is wrong with them."""
    path = _find(name)
    if path.suffix.lower() == ".csv":
        rows = read_runs(path)
        if not rows:
            raise SpecError([Problem(Location(str(path)), "the table has a header and no rows", "a row is a run")])
        return RunTable(path, rows)
    if "evidence" in read_document(path).node.fields and (found := RunFile(read_evidence(path))).runs:
        return found
    message = f"holds no whole runs: it needs a `plan` and records of `what: {STEP}` or `what: {FIT}`"
    raise SpecError([Problem(Location(str(path)), message, "give an evidence file such as korthikanti-2022")])


def read_runs(path: Path) -> tuple[TableRow, ...]:
    """The rows of a table of runs; raises SpecError where it lacks what runs that train need, or those that serve."""
    rows = read_table(path, NEEDED_COLUMNS[:3])
    serves = bool(rows) and all(map(is_served, rows))
    return read_table(path, SERVING_COLUMNS if serves else NEEDED_COLUMNS)


def _find(name: str) -> Path:
    """The file of that path, or of that name in the library; raises SpecError with near misses."""
    library = default_library()
    if Path(name).exists():
        return Path(name)
    table = library.folder("evidence") / f"{name}.csv"
    if name in library.names("evidence"):
        return library.path("evidence", name)
    if name.isprintable() and "/" not in name and table.exists():
        return table
    help_text = nearest(name, library.names("evidence"))
    raise SpecError([Problem(Location(name), "there is no such file, nor evidence of that name", help_text)])


def _known(wanted: str, sources: Mapping[str, str], path: Path) -> None:
    """Raises SpecError for an id that no run has, with those written most like it, else with one of each source."""
    if wanted in sources:
        return
    help_text = nearest(wanted, list(sources))
    if not help_text.startswith("did you mean") and len(sources) > IDS_LISTED:
        firsts = {source: name for name, source in reversed(list(sources.items()))}
        some = ", ".join(f"`{one}`" for one in list(firsts.values())[: -IDS_LISTED - 1 : -1])
        help_text = f"ids are such as {some}; --rows prints all {len(sources)}"
    raise SpecError([Problem(Location(str(path)), f"no row has the id `{wanted}`", help_text)])


def _with_progress(rows: Iterable[ScoreRow], total: int) -> Iterator[ScoreRow]:
    told = monotonic()
    for count, row in enumerate(rows, 1):
        yield row
        if sys.stderr.isatty():
            if count % EVERY == 0 or count == total:
                click.echo(f"\r{count} of {total} rows", err=True, nl=count == total)
        elif monotonic() - told > TOLD_EVERY:
            told = monotonic()
            click.echo(f"{count} of {total} rows", err=True)


def _predicted(rows: Sequence[TableRow], overrides: tuple[str, ...]) -> Iterator[ScoreRow]:
    """The rows predicted in order, long tables in as many processes as there are processors."""
    if len(rows) < MANY:
        yield from _portion(rows, overrides)
        return
    portions = [rows[start : start + PORTION] for start in range(0, len(rows), PORTION)]
    with process_pool(min(os.cpu_count() or 1, len(portions)), begin=partial(gc.set_threshold, UNTOUCHED)) as pool:
        with interrupt_held():
            portioned = pool.map(_portion, portions, repeat(overrides))
        for found in portioned:
            yield from found


def _portion(rows: Sequence[TableRow], overrides: tuple[str, ...]) -> tuple[ScoreRow, ...]:
    return tuple(predict_rows(rows, default_library(), overrides))
