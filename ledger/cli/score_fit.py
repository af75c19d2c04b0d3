"""`ledger score` of plans that were seen to fit, or to run out of memory."""

from __future__ import annotations

from pathlib import Path

import click

from ledger.cli.tables import print_json, print_table
from ledger.lab.fit import Fit, fitted, read_fits

GIB = 2**30


def show_fits(path: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Prints what each plan asks of its fullest device beside what there is, and what was seen."""
    found = tuple(fitted(read_fits(path), overrides))
    if as_json:
        print_json({"schema": "ledger-fit/1", "rows": [_record(fit) for fit in found]})
        return
    columns = ("plan", "needed", "capacity", "predicted", "seen", "first rank")
    lines = [
        (
            fit.run.name,
            f"{fit.needed / GIB:.1f} GiB",
            f"{fit.capacity / GIB:.1f} GiB",
            _said(fits=fit.fits),
            _said(fits=fit.seen),
            "-" if fit.error is None else f"{fit.error:+.1%}",
        )
        for fit in found
    ]
    print_table(columns, lines, right=("needed", "capacity", "first rank"))
    click.echo(f"{sum(fit.fits == fit.seen for fit in found)} of {len(found)} as seen")


def _said(*, fits: bool) -> str:
    return "fits" if fits else "out of memory"


def _record(fit: Fit) -> dict[str, object]:
    return {
        "id": fit.run.name,
        "needed_bytes": fit.needed,
        "capacity_bytes": fit.capacity,
        "predicted_fits": fit.fits,
        "seen_fits": fit.seen,
        "first_rank_error": fit.error,
    }
