"""`ledger score`: measured runs beside what the compiler says of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.options import json_option, set_option

if TYPE_CHECKING:
    from ledger.evidence.runs import Score, Summary


@click.command()
@click.argument("runs")
@set_option
@json_option
def command(runs: str, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Predict the step time of measured runs and print the error of each.

    RUNS is an evidence file with whole runs, or its name in the library (korthikanti-2022). --set changes every
    run's plan, to see what an effect is worth.
    """
    from ledger.cli.tables import print_json, print_table
    from ledger.evidence.runs import read_runs, scored, summary

    scores = tuple(scored(read_runs(_found(runs)), overrides))
    if as_json:
        print_json(contract(scores))
        return
    rows = [
        (
            s.run.name,
            f"{s.measured:.2f} s",
            f"{s.predicted:.2f} s",
            f"{s.band[0]:.2f} to {s.band[1]:.2f} s",
            f"{s.error:+.1%}",
        )
        for s in scores
    ]
    columns = ("run", "measured", "predicted", "band", "error")
    print_table(columns, rows, right=columns[1:])
    click.echo(_sentence(summary(scores)))


def _found(name: str) -> Path:
    """The file of that path, or of that name in the library; raises SpecError with near misses."""
    from ledger.spec.library import default_library
    from ledger.spec.near import nearest
    from ledger.spec.problems import Location, Problem, SpecError

    library = default_library()
    if Path(name).exists():
        return Path(name)
    if name in library.names("evidence"):
        return library.folder("evidence") / f"{name}.yaml"
    help_text = nearest(name, library.names("evidence"))
    raise SpecError([Problem(Location(name), "there is no such file, nor evidence of that name", help_text)])


def _sentence(found: Summary) -> str:
    return (
        f"{found.rows} runs: mean absolute error {found.absolute:.1%}, mean signed error {found.signed:+.1%}, "
        f"worst {found.worst:+.1%}"
    )


def contract(scores: tuple[Score, ...]) -> dict[str, Any]:
    """The object of the published contract `ledger-score/1`; memory is null where none was published."""
    from ledger.evidence.runs import summary

    sources = {score.run.source for score in scores}
    whole = summary(scores)
    return {
        "schema": "ledger-score/1",
        "rows": [
            {
                "id": score.run.name,
                "source": score.run.source,
                "predicted_step_s": score.predicted,
                "time_error": score.error,
                "predicted_peak_mem_gib": score.peak / 2**30,
                "mem_error": None,
                "skipped": None,
            }
            for score in scores
        ],
        "sources": {
            source: vars(summary([score for score in scores if score.run.source == source]))
            for source in sorted(sources)
        },
        "overall": {
            "time_mape": whole.absolute,
            "time_bias": whole.signed,
            "mem_mape": None,
            "time_rows": whole.rows,
            "mem_rows": 0,
            "skipped": 0,
        },
    }
