"""`ledger score`: measured runs beside what the compiler says of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, set_option

if TYPE_CHECKING:
    from ledger.lab.score.rows import Score


@click.command()
@click.argument("runs")
@set_option
@json_option
@click.option("--rows", is_flag=True, help="Of a table, print every row beside the sources.")
@click.option(
    "--over",
    type=click.FloatRange(0),
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
def command(
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
    """Predict step time and peak memory of measured runs and print the error of each.

    RUNS is a table of published runs (CSV), an evidence file with whole runs, or its name in the library
    (korthikanti-2022). --set changes every run's plan, to see what an effect is worth.
    """
    from ledger.cli import score_print
    from ledger.cli.score_input import RunFile, find_runs
    from ledger.cli.tables import print_json
    from ledger.lab.score.contract import published
    from ledger.report.files import require_writable

    measured = find_runs(runs)
    if wanted is not None:
        click.echo(measured.plan_of(wanted), nl=False)
        return
    if out or form:
        require_writable(out or Path("reports"))
    score = measured.predicted(overrides)
    if out or form:
        click.echo(_write_page(score, measured.path, out or Path("reports")), err=as_json)
    if form:
        return
    if as_json:
        print_json(published(score))
        return
    if over and not rows:
        worst = [row for row in score.rows if row.worst_error >= over / 100]
        worst.sort(key=lambda row: -row.worst_error)
        score_print.print_rows(worst, measured.errors_otherwise(worst))
    elif rows or over == 0 or isinstance(measured, RunFile):
        score_print.print_rows(score.rows, {})
    score_print.print_sources(score)
    for sentence in score_print.sentences(score):
        click.echo(sentence)


def _write_page(score: Score, path: Path, folder: Path) -> Path:
    """The page of a score in a folder; where it was written."""
    from ledger.lab.score.page import write_page

    page = folder / f"{path.stem}.html"
    folder.mkdir(parents=True, exist_ok=True)
    write_page(score, path, page)
    return page
