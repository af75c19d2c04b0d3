"""`ledger score`: measured runs beside what the compiler says of them."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from itertools import repeat
from pathlib import Path
from time import monotonic

import click

from ledger.cli.options import UNTOUCHED, Amount, json_option, set_option
from ledger.cli.progress import TOLD_EVERY
from ledger.cli.tables import amount, print_table
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
from ledger.lab.score.rows import GIB, ErrorSummary, Score, ScoreRow
from ledger.lab.score.served import FIGURES as SERVED
from ledger.lab.score.served import GRADE, SERVING_COLUMNS, TITLES, TOKENS_PER_SECOND, ServingFacts, is_served
from ledger.lab.score.spelled import columns_told_apart
from ledger.processes import interrupt_held, process_pool
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.sources import YAML

NOTHING_SCORED = 1


@click.command()
@click.argument("runs")
@set_option
@json_option
@click.option("--rows", is_flag=True, help="Of a table, print every row beside the sources.")
@click.option(
    "--over",
    type=Amount(0),
    metavar="PERCENT",
    help="Print only rows with larger errors, the worst first, also under what they leave open.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the page NAME.html here: charts, sources, worst rows first.",
)
@click.option("--format", "form", type=click.Choice(["html"]), help="The page alone; without --out, into reports/.")
@click.option("--explain", "wanted", metavar="ID", help="Print the plan of one row, as a spec.")
@click.pass_context
def command(
    ctx: click.Context,
    runs: str,
    overrides: tuple[str, ...],
    *,
    as_json: bool,
    rows: bool,
    over: float | None,
    out: Path | None,
    form: str | None,
    wanted: str | None,
) -> None:
    """Predict step time and peak memory of measured runs, or what serving gave, and print the error of each.

    RUNS is a table of published runs (CSV), an evidence file with whole runs, or its name in the library
    (korthikanti-2022). --set changes every run's plan, to see what an effect is worth.

    Exit code 1: no row could be scored.
    """
    from ledger.cli.tables import print_json
    from ledger.lab.score.contract import published
    from ledger.report.files import require_writable

    measured = find_runs(runs)
    for note in measured.unread:
        click.echo(f"warning: {note}", err=True)
    if wanted is not None:
        click.echo(measured.plan_of(wanted), nl=False)
        return
    if out or form:
        require_writable(out or Path("reports"))
    score = measured.predicted(overrides)
    if out or form:
        click.echo(_write_page(score, measured.path, out or Path("reports")), err=as_json)
    if as_json and not form:
        print_json(published(score))
    elif not form:
        _print_score(score, measured, rows=rows, over=over)
    if why := unscored(score):
        click.echo(why, err=True)
        ctx.exit(NOTHING_SCORED)


def _print_score(score: Score, measured: RunTable | RunFile, *, rows: bool, over: float | None) -> None:
    """Prints the rows that are asked for, every source, and the errors over all of them."""
    if over and not rows:
        worst = [row for row in score.rows if row.worst_error >= over / 100]
        worst.sort(key=lambda row: -row.worst_error)
        print_rows(worst, measured.errors_otherwise(worst))
    elif rows or over == 0 or isinstance(measured, RunFile):
        print_rows(score.rows, {})
    if score.serves:
        print_served_sources(score)
    if not all(row.served or row.skipped for row in score.rows) or not score.serves:
        print_sources(score)
    for sentence in sentences(score):
        click.echo(sentence)


def unscored(score: Score) -> str:
    """Why no row has anything predicted beside what was measured, in a line; empty where one has."""
    if any(is_scored(row) for row in score.rows):
        return ""
    if not score.rows:
        return "no row is scored: there is none"
    reasons = Counter(row.skipped or row.unpriced or "nothing was measured" for row in score.rows)
    (reason, count), *more_reasons = reasons.most_common()
    further = (
        f", and {len(more_reasons)} further reason{'s' if len(more_reasons) > 1 else ''}; --rows prints each"
        if more_reasons
        else ""
    )
    return f"no row is scored: {count} of {len(score.rows)}: {reason}{further}"


def is_scored(row: ScoreRow) -> bool:
    """Whether anything of a row is predicted beside what was measured: its step, its memory, or whether it fits."""
    compared = row.time_error is not None or row.memory_error is not None
    if row.served:
        return bool(row.served.errors)
    return compared or (row.seen_fits is not None and row.fits is not None)


def _write_page(score: Score, path: Path, folder: Path) -> Path:
    """The page of a score in a folder; where it was written."""
    from ledger.lab.score.page import write_page

    page = folder / f"{path.stem}.html"
    folder.mkdir(parents=True, exist_ok=True)
    write_page(score, path, page)
    return page


# --- the runs that are scored ---

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
        score = Score(tuple(_with_progress(_predict(self.rows, overrides), len(self.rows))))
        if overrides and all(row.skipped for row in score.rows):
            self._raise_first_problem(overrides)
        return score

    def _raise_first_problem(self, overrides: tuple[str, ...]) -> None:
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
        columns_read = (*FACT_COLUMNS, *(fact_field.name for fact_field in fields(ServingFacts)), GRADE)
        sources, library = {row.text("source_id") or row.text("source") for row in self.rows}, default_library()
        spelled_otherwise = {name for source in sources for name in columns_told_apart(source, library)}
        unread_columns = []
        for name in self.rows[0].cells:
            near = get_close_matches(name, columns_read, n=1, cutoff=ALIKE)
            if near and name not in columns_read:
                yield f"column `{name}` is not read; did you mean `{near[0]}`?"
            elif name not in (*columns_read, *spelled_otherwise) and not is_path(name):
                unread_columns.append(f"`{name}`")
        if unread_columns:
            more = f" and {len(unread_columns) - MOST_NAMED} more" if len(unread_columns) > MOST_NAMED else ""
            yield f"columns that are not read: {', '.join(unread_columns[:MOST_NAMED])}{more}"

    def plan_of(self, row_id: str) -> str:
        """The plan of one row as a spec; raises SpecError for an unknown id, and for a row that has no plan."""
        sources = {row.text("id"): row.text("source_id") or row.text("source") for row in self.rows}
        _require_id(row_id, sources, self.path)
        return row_plan_text(next(row for row in self.rows if row.text("id") == row_id), default_library())

    def errors_otherwise(self, rows: Sequence[ScoreRow]) -> dict[str, str]:
        """By row, the error of memory under each way to read what the row does not say."""
        ids, library = {row.id for row in rows}, default_library()
        chosen = [row for row in self.rows if row.text("id") in ids]
        errors = {row.text("id"): memory_errors_otherwise(row, library) for row in chosen}
        return {
            name: "; ".join(f"with {assumption} {error:+.1%}" for assumption, error in by_assumption.items())
            for name, by_assumption in errors.items()
        }


@dataclass(frozen=True)
class RunFile:
    """A file of evidence with whole runs, or plans that ran or did not."""

    evidence: Evidence

    unread = ()  # a file of evidence has its schema

    @property
    def path(self) -> Path:
        """The path of the evidence file."""
        return self.evidence.path

    @property
    def runs(self) -> tuple[MeasuredRun, ...]:
        """Every run that the evidence has: those with a time, then those that say only whether they fitted."""
        return self.evidence.runs + self.evidence.fits

    def predicted(self, overrides: tuple[str, ...]) -> Score:
        """Every run predicted; raises SpecError for a plan that cannot be read, and for a device that has no prices."""
        if problem := self._missing_prices(overrides):
            raise SpecError([problem], {str(self.evidence.path): read_document(self.evidence.path).text})
        return Score(tuple(_with_progress(predict_runs(self.evidence, overrides), len(self.runs))))

    def _missing_prices(self, overrides: Sequence[str]) -> Problem | None:
        """The problem of a device that the library has no prices of, such as one's own; None where there are prices."""
        plan = self.evidence.node.fields["plan"].fields
        device = plan.get("accelerator")
        if device is None or not isinstance(device.value, str) or device.value.endswith(YAML):
            return None
        stated = any(override.startswith("accelerator") for override in overrides)
        if stated or default_library().matching_names("accelerator", device.value):
            return None
        spec_name = f"{device.value}.yaml"
        calibrate = f"`ledger calibrate {self.evidence.path} --out {spec_name}` makes its spec"
        message = f"no accelerator of the library is named `{device.value}`"
        return Problem(device.where, message, f"{calibrate}; then add `--set accelerator={spec_name}`")

    def plan_of(self, run_id: str) -> str:
        """The plan of one run as a spec; raises SpecError for an unknown id."""
        runs = {run.id: run for run in self.runs}
        _require_id(run_id, dict.fromkeys(runs, self.evidence.path.stem), self.evidence.path)
        return run_plan_text(runs[run_id])

    def errors_otherwise(self, _: Sequence[ScoreRow]) -> dict[str, str]:
        """An empty mapping: the plans of evidence files leave nothing open."""
        return {}


def find_runs(name: str) -> RunTable | RunFile:
    """The runs of a path, or of that name in the library; raises SpecError with everything that is wrong with them."""
    path = _find_file(name)
    if path.suffix.lower() == ".csv":
        rows = read_runs(path)
        if not rows:
            raise SpecError([Problem(Location(str(path)), "the table has a header and no rows", "a row is a run")])
        return RunTable(path, rows)
    if "evidence" in read_document(path).node.fields and (run_file := RunFile(read_evidence(path))).runs:
        return run_file
    message = f"holds no whole runs: it needs a `plan` and records of `what: {STEP}` or `what: {FIT}`"
    raise SpecError([Problem(Location(str(path)), message, "give an evidence file such as korthikanti-2022")])


def read_runs(path: Path) -> tuple[TableRow, ...]:
    """The rows of a table of runs; raises SpecError where it lacks what runs that train need, or those that serve."""
    rows = read_table(path, NEEDED_COLUMNS[:3])
    serves = bool(rows) and all(map(is_served, rows))
    return read_table(path, SERVING_COLUMNS if serves else NEEDED_COLUMNS)


def _find_file(name: str) -> Path:
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


def _require_id(row_id: str, sources: Mapping[str, str], path: Path) -> None:
    """Raises SpecError for an id that no run has, with those written most like it, else with one of each source."""
    if row_id in sources:
        return
    help_text = nearest(row_id, list(sources))
    if not help_text.startswith("did you mean") and len(sources) > IDS_LISTED:
        firsts = {source: name for name, source in reversed(list(sources.items()))}
        examples = ", ".join(f"`{example}`" for example in list(firsts.values())[: -IDS_LISTED - 1 : -1])
        help_text = f"ids are such as {examples}; --rows prints all {len(sources)}"
    raise SpecError([Problem(Location(str(path)), f"no row has the id `{row_id}`", help_text)])


def _with_progress(rows: Iterable[ScoreRow], total: int) -> Iterator[ScoreRow]:
    printed_at = monotonic()
    for count, row in enumerate(rows, 1):
        yield row
        if sys.stderr.isatty():
            if count % EVERY == 0 or count == total:
                click.echo(f"\r{count} of {total} rows", err=True, nl=count == total)
        elif monotonic() - printed_at > TOLD_EVERY:
            printed_at = monotonic()
            click.echo(f"{count} of {total} rows", err=True)


def _predict(rows: Sequence[TableRow], overrides: tuple[str, ...]) -> Iterator[ScoreRow]:
    """The rows predicted in order, long tables in as many processes as there are processors."""
    if len(rows) < MANY:
        yield from _predict_portion(rows, overrides)
        return
    portions = [rows[start : start + PORTION] for start in range(0, len(rows), PORTION)]
    with process_pool(min(os.cpu_count() or 1, len(portions)), begin=partial(gc.set_threshold, UNTOUCHED)) as pool:
        with interrupt_held():
            portioned = pool.map(_predict_portion, portions, repeat(overrides))
        for predicted_rows in portioned:
            yield from predicted_rows


def _predict_portion(rows: Sequence[TableRow], overrides: tuple[str, ...]) -> tuple[ScoreRow, ...]:
    return tuple(predict_rows(rows, default_library(), overrides))


# --- a score on the terminal ---

MISSING = "-"
REASONS_NAMED = 3  # reasons that are named one by one
UNPUBLISHED = "not published"  # begins a reason that names what is missing
FIGURES = ("rows", "median", "mape", "bias", "worst")
# What is predicted and what was seen, in words; None where nobody saw it.
FIT_WORDS: Mapping[tuple[bool | None, bool | None], str] = {
    (True, True): "fits",
    (True, None): "fits",
    (False, None): "out of memory",
    (False, False): "out of memory",
    (False, True): "out of memory, but ran",
    (True, False): "fits, but ran out of memory",
}


def print_rows(rows: Sequence[ScoreRow], open_errors: Mapping[str, str]) -> None:
    """A line for each run, with what it leaves open; columns that nothing stands in are left out."""
    columns = {
        "run": [row.id for row in rows],
        "step": [_seconds(row.step) for row in rows],
        "band": [_band(row) for row in rows],
        "measured": [_seconds(row.measured_step) for row in rows],
        "error": [_percent(row.time_error) for row in rows],
        "memory": [_bytes(row.memory) for row in rows],
        "measured peak": [_bytes(row.measured_memory) for row in rows],
        "peak error": [_percent(row.memory_error) for row in rows],
        "needed": [_bytes(row.needed) for row in rows],
        "capacity": [_bytes(row.capacity) for row in rows],
        "fit": [FIT_WORDS.get((row.fits, row.seen_fits), MISSING) for row in rows],
        **{cell: column for name in SERVED for cell, column in _served_columns(name, rows).items()},
        "assumed": [_notes(row, open_errors) for row in rows],
    }
    printed = {name: cells for name, cells in columns.items() if any(cell not in ("", MISSING) for cell in cells)}
    if rows:
        numbers = [name for name in printed if name not in ("run", "fit", "assumed")]
        print_table(tuple(printed), list(zip(*printed.values(), strict=True)), right=numbers)
        click.echo()


def _served_columns(name: str, rows: Sequence[ScoreRow]) -> Mapping[str, list[str]]:
    """Columns of one figure of rows that serve: predicted, measured, and the error."""
    write = _rate if name == TOKENS_PER_SECOND else _seconds
    served = [row.served for row in rows]
    return {
        TITLES[name]: [write(row.predicted.get(name) if row else None) for row in served],
        f"measured {TITLES[name]}": [write(row.measured.get(name) if row else None) for row in served],
        f"{TITLES[name]} error": [_percent(row.errors.get(name) if row else None) for row in served],
    }


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f}"


def _notes(row: ScoreRow, open_errors: Mapping[str, str]) -> str:
    uncounted = f"in no sum: {row.uncounted}" if row.uncounted else ""
    return row.skipped or "; ".join(filter(None, (*row.assumed, uncounted, open_errors.get(row.id, ""))))


def print_sources(score: Score) -> None:
    """A line for each source with its errors of step time and of peak memory."""
    _print_sources(score, ("time", "mem"), {name: (source.time, source.mem) for name, source in score.sources.items()})


def print_served_sources(score: Score) -> None:
    """A line for each source with its errors of first tokens, of time per token and of throughput."""
    errors = {name: [source.served[figure] for figure in SERVED] for name, source in score.sources.items()}
    _print_sources(score, [TITLES[figure] for figure in SERVED], errors)


def _print_sources(score: Score, titles: Sequence[str], errors: Mapping[str, Sequence[ErrorSummary]]) -> None:
    columns = ("source", "rows", "skipped", *(f"{title} {figure}" for title in titles for figure in FIGURES))
    rows = []
    for name, source in score.sources.items():
        figures = [figure for summary in errors[name] for figure in _error_figures(summary)]
        rows.append((name, str(source.rows), str(source.skipped), *figures))
    print_table(columns, rows, right=columns[1:])


def _error_figures(errors: ErrorSummary) -> tuple[str, ...]:
    sizes = [MISSING if size is None else f"{size:.1%}" for size in (errors.median, errors.absolute)]
    return (str(errors.rows), *sizes, _percent(errors.signed), _percent(errors.worst))


def sentences(score: Score) -> Iterator[str]:
    """Errors over all sources, then every row that is in no sum with the reason; the last counts skipped rows."""
    yield from _sum_sentences(score)
    yield from _fit_sentences(score)
    yield from _uncounted_sentences(score)
    yield from _sources_without_sums(score)
    for reason, count in Counter(row.unpriced for row in score.rows if row.unpriced).most_common():
        yield f"{_row_count(count)} with a peak and no step: {reason}"
    yield _skipped_sentence(score)


def _sum_sentences(score: Score) -> Iterator[str]:
    several = len(score.sources) > 1
    weights, middle = (", each source weighing the same", "mean of medians") if several else ("", "median")
    served = ((score.overall.served[name], TITLES[name]) for name in SERVED)
    for errors, title in ((score.overall.time, "step time"), (score.overall.mem, "peak memory"), *served):
        if errors.rows:
            yield (
                f"{title}: {_row_count(errors.rows)}{weights}, mean absolute error {errors.absolute:.1%}, "
                f"{middle} {errors.median:.1%}, mean signed error {errors.signed:+.1%}"
            )


def _fit_sentences(score: Score) -> Iterator[str]:
    """A sentence on how many runs fit as they were seen to, where some do not."""
    seen = sum(row.seen_fits is not None and row.fits is not None for row in score.rows)
    not_fit, fit = score.overall.said_not_to_fit, score.overall.said_to_fit
    if not_fit or any(row.seen_fits is False for row in score.rows):
        wrong = [f"{not_fit} that ran said not to fit"] if not_fit else []
        wrong += [f"{fit} that ran out of memory said to fit"] if fit else []
        yield f"fit: {seen - not_fit - fit} of {_row_count(seen)} as seen" + (f"; {', '.join(wrong)}" if wrong else "")


def _uncounted_sentences(score: Score) -> Iterator[str]:
    """A sentence for rows that are compared, but whose description is incomplete or of another kind of run."""
    for reason, errors in score.uncounted.items():
        yield (
            f"in no sum: {_row_count(errors.rows)} {reason}, predicted all the same, mean absolute error "
            f"{errors.absolute:.1%}, mean signed error {errors.signed:+.1%}; --rows prints each"
        )


def _sources_without_sums(score: Score) -> Iterator[str]:
    """A sentence for each source of which no row is in a sum, with the reasons."""
    for name, source in score.sources.items():
        counted = source.time.rows + source.mem.rows + sum(errors.rows for errors in source.served.values())
        if not counted:
            reasons = Counter(
                _short_reason(row.skipped or row.uncounted or row.unpriced or "without a measurement that counts")
                for row in score.rows
                if row.source_id == name
            )
            yield f"{name}: nothing of its {_row_count(source.rows)} is in a sum: {_counted_reasons(reasons)}"


def _short_reason(reason: str) -> str:
    """A reason without its details, by which rows are counted."""
    return UNPUBLISHED if reason.startswith(UNPUBLISHED) else reason.partition(";")[0]


def _skipped_sentence(score: Score) -> str:
    text = f"{score.overall.skipped} of {_row_count(len(score.rows))} skipped"
    reasons = Counter(_short_reason(row.skipped) for row in score.rows if row.skipped)
    return f"{text}: {_counted_reasons(reasons)}; --rows or --json has the reason of each" if reasons else text


def _counted_reasons(reasons: Counter[str]) -> str:
    """The most frequent reasons, each with its count, and how many rows have others."""
    ordered = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    named = [f"{count} {reason}" for reason, count in ordered[:REASONS_NAMED]]
    other_rows = sum(count for _, count in ordered[REASONS_NAMED:])
    return ", ".join(named) + (f", {other_rows} for other reasons" if other_rows else "")


def _row_count(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _seconds(value: float | None) -> str:
    return MISSING if value is None else amount(value, "s")


def _band(row: ScoreRow) -> str:
    has_band = row.step_low is not None and row.step_high is not None
    return f"{_seconds(row.step_low)} to {_seconds(row.step_high)}" if has_band else MISSING


def _bytes(value: float | None) -> str:
    return MISSING if value is None else f"{value / GIB:.1f} GiB"


def _percent(error: float | None) -> str:
    return MISSING if error is None else f"{error:+.1%}"
