"""`ledger score`: measured runs beside what the compiler says of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, set_option

if TYPE_CHECKING:
    from ledger.evidence.runs import Score, Summary


@click.command()
@click.argument("runs")
@set_option
@json_option
@click.option("--rows", is_flag=True, help="Of a table, print every row beside the sources.")
@click.option(
    "--over",
    type=click.FloatRange(0),
    metavar="PERCENT",
    help="Of a table, print rows with larger errors, also under what they leave open.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Of a table, write the page NAME.html here: charts, sources, worst rows first.",
)
@click.option("--format", "form", type=click.Choice(["html"]), help="The page alone; without --out, into reports/.")
@click.option("--explain", "wanted", metavar="ID", help="Of a table, print the plan of one row, as a spec.")
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
    path = _found(runs)
    if path.suffix.lower() != ".csv":
        if out or form:
            raise click.UsageError("a page is made of a table of runs (CSV); evidence files are printed")
        _evidence(path, overrides, as_json=as_json)
        return
    from ledger.cli import score_table
    from ledger.report.files import writable

    if wanted is not None:
        score_table.print_plan(path, wanted)
        return
    if out or form:
        writable(out or Path("reports"))
    scores = score_table.with_progress(path, overrides)
    if out or form:
        click.echo(score_table.write_page(scores, path, out or Path("reports")), err=as_json)
    if not form:
        score_table.show(scores, path, as_json=as_json, over=0.0 if rows else over)


def _evidence(path: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """The runs of an evidence file, one by one: their step times, or whether they fit."""
    from ledger.cli.tables import print_json, print_table
    from ledger.evidence.runs import contract, holds, read_runs, scored, summary, unpriced
    from ledger.spec.problems import SpecError

    if problem := unpriced(path, overrides):
        raise SpecError([problem], {str(path): path.read_text("utf-8-sig")})
    if holds(path, "fit"):
        from ledger.cli.score_fit import show_fits

        show_fits(path, overrides, as_json=as_json)
        return
    scores = tuple(scored(read_runs(path), overrides))
    if as_json:
        print_json(contract(scores))
        return
    columns = ("run", "measured", "predicted", "band", "error")
    peaks = ("measured peak", "predicted", "error") if any(s.memory_error is not None for s in scores) else ()
    print_table((*columns, *peaks), [_row(s, peaked=bool(peaks)) for s in scores], right=(*columns[1:], *peaks))
    click.echo(_sentence(summary(scores)))


def _row(score: Score, *, peaked: bool) -> tuple[str, ...]:
    """Step time, and peak memory where a run of the file has it, measured and predicted."""
    from ledger.cli.tables import amount
    from ledger.evidence.runs import PEAK

    measured, predicted = amount(score.measured, "s"), amount(score.predicted, "s")
    band = f"{amount(score.band[0], 's')} to {amount(score.band[1], 's')}"
    times = (score.run.name, measured, predicted, band, f"{score.error:+.1%}")
    if not peaked:
        return times
    if score.memory_error is None:
        return (*times, "", "", "")
    return (*times, amount(score.run.measured[PEAK], "B"), amount(score.peak, "B"), f"{score.memory_error:+.1%}")


def _found(name: str) -> Path:
    """The file of that path, or of that name in the library; raises SpecError with near misses."""
    from ledger.spec.library import default_library
    from ledger.spec.near import nearest
    from ledger.spec.problems import Location, Problem, SpecError

    library = default_library()
    if Path(name).exists():
        return Path(name)
    carried = library.folder("evidence") / f"{name}.csv"
    if name in library.names("evidence"):
        return library.folder("evidence") / f"{name}.yaml"
    if name.isprintable() and "/" not in name and carried.exists():
        return carried
    help_text = nearest(name, library.names("evidence"))
    raise SpecError([Problem(Location(name), "there is no such file, nor evidence of that name", help_text)])


def _sentence(found: Summary) -> str:
    return (
        f"{found.rows} run{'' if found.rows == 1 else 's'}: "
        f"mean absolute error {found.absolute:.1%}, mean signed error {found.signed:+.1%}, "
        f"worst {found.worst:+.1%}"
    )
