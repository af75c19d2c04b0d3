"""`ledger compare`: several plans side by side, as files, with the one that a rule recommends."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ledger.cli.options import conditions_option, json_option, rarely, set_option, specs_argument, total_option
from ledger.cli.progress import search_layouts, search_option
from ledger.cli.report import formats_option

if TYPE_CHECKING:
    from ledger.report.compare.choice import PlanComparison


@click.command(name="compare")
@specs_argument("PLAN PLAN...")
@click.option("--out", default="reports", show_default=True, type=click.Path(file_okay=False, path_type=Path))
@formats_option
@total_option("--for", "What to choose by, as in time.calendar or tokens_per_second; cost.run where nothing is said.")
@conditions_option("What must hold of the chosen plan, as in 'time.calendar < 200 d'; headroom where nothing is said.")
@set_option
@json_option
@search_option
@click.pass_context
@rarely()
def command(
    ctx: click.Context, /, specs: tuple[str, ...], out: Path, formats: tuple[str, ...], *, as_json: bool, **asked: Any
) -> None:
    """Compare two to eight plans side by side: verdict, figures, memory, step, and what makes the difference.

    PLAN is a path, a name of the library, REV:path for a git revision, or -. The others are held against the first.
    `--set` overrides a value of all of them.

    One is recommended: the cheapest of those that fit and keep their headroom, or what --for and --subject-to say; of
    plans that do not do the same work none, unless --for says by what. The files are named by the plans; their
    paths are printed. --json prints JSON, and writes files only with --out or --format.
    """
    writes = not as_json or any(
        ctx.get_parameter_source(name) is not ParameterSource.DEFAULT for name in ("out", "formats")
    )
    if writes:
        from ledger.report.files import require_writable
        from ledger.report.pdf import require_typesetter

        require_writable(out)
        require_typesetter(formats)
    comparison = compared(specs, asked)
    from ledger.report.compare.choice import choice_sentences
    from ledger.report.compare.record import comparison_record
    from ledger.report.compare.write import write_comparison

    paths = write_comparison(comparison, out, formats) if writes else []
    from ledger.cli.tables import print_json
    from ledger.numbers import THIN

    click.echo(" ".join(choice_sentences(comparison.choice)).replace(THIN, " "), err=True)
    if as_json:
        print_json(comparison_record(comparison))
    for path in paths:
        click.echo(path, err=as_json)


def compared(specs: tuple[str, ...], asked: dict[str, Any]) -> PlanComparison:
    """The plans compiled and compared; raises SpecError with what is wrong with any of them."""
    from ledger.report.compare.plans import compile_named

    plans = compile_named(specs, asked["overrides"])
    from ledger.report.compare.choice import WrittenRule, compare_plans

    finder = partial(search_layouts, whole=False) if asked["search"] else None
    return compare_plans(specs, plans, WrittenRule(asked["for"], asked["conditions"]), finder)
