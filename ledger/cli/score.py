"""`ledger score`: measured runs beside what the compiler says of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import Amount, json_option, set_option

if TYPE_CHECKING:
    from ledger.cli.score_input import RunFile, RunTable
    from ledger.lab.score.rows import Score, ScoreRow

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
    from ledger.cli.score_input import find_runs
    from ledger.cli.tables import print_json
    from ledger.lab.score.contract import published
    from ledger.report.files import require_writable

    measured = find_runs(runs)
    for told in measured.unread:
        click.echo(f"warning: {told}", err=True)
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
        _print(score, measured, rows=rows, over=over)
    if why := unscored(score):
        click.echo(why, err=True)
        ctx.exit(NOTHING_SCORED)


def _print(score: Score, measured: RunTable | RunFile, *, rows: bool, over: float | None) -> None:
    """The rows that are asked for, every source, and what they come to."""
    from ledger.cli import score_print
    from ledger.cli.score_input import RunFile

    if over and not rows:
        worst = [row for row in score.rows if row.worst_error >= over / 100]
        worst.sort(key=lambda row: -row.worst_error)
        score_print.print_rows(worst, measured.errors_otherwise(worst))
    elif rows or over == 0 or isinstance(measured, RunFile):
        score_print.print_rows(score.rows, {})
    if score.serves:
        score_print.print_served_sources(score)
    if not all(row.served or row.skipped for row in score.rows) or not score.serves:
        score_print.print_sources(score)
    for sentence in score_print.sentences(score):
        click.echo(sentence)


def unscored(score: Score) -> str:
    """Why no row has anything predicted beside what was measured, in a line; empty where one has."""
    if any(is_scored(row) for row in score.rows):
        return ""
    if not score.rows:
        return "no row is scored: there is none"
    reasons = Counter(row.skipped or row.unpriced or "nothing was measured" for row in score.rows)
    (reason, count), *others = reasons.most_common()
    further = (
        f", and {len(others)} further reason{'s' if len(others) > 1 else ''}; --rows prints each" if others else ""
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
