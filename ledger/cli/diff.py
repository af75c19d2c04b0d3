"""`ledger diff`: two plans compared."""

from __future__ import annotations

import click

from ledger.cli import completion
from ledger.cli.options import set_option

FORMATS = ("text", "md", "json", "html")
CHANGED = 1


@click.command(name="diff")
@click.argument("specs", nargs=2, metavar="OLD NEW", type=click.Path(allow_dash=True), shell_complete=completion.specs)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--json", "form", flag_value="json", type=click.Choice(FORMATS), help="Print JSON.")
@click.option(
    "--fail-on",
    "gates",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 on such a change: 'memory.peak > +5%', 'time.step > 0', fits.",
)
@set_option
@click.pass_context
def command(
    ctx: click.Context,
    specs: tuple[str, str],
    form: str,
    gates: tuple[str, ...],
    overrides: tuple[str, ...],
) -> None:
    """Compare two plans: verdict, totals, inputs, formulas.

    OLD and NEW are paths, REV:path for a git revision, or -. Each change of a total is attributed to the inputs that
    caused it. `--set` overrides a value of NEW.

    A condition of --fail-on is about the change: NEW less OLD, or in per cent of OLD; `fits`: NEW fits no more.
    """
    import ledger

    first, second = ledger.compile(specs[0]), ledger.compile(specs[1], overrides)
    from ledger.books.what_if.conditions import condition
    from ledger.cli.tables import terminal_width
    from ledger.report.diff import diff, meets_condition
    from ledger.report.diff_views import FORMATS as PRINTED
    from ledger.report.diff_views import as_text

    known = {**first.totals, **second.totals}
    conditions = [condition(gate, known, changes=True) for gate in gates]
    found = diff(first, second)
    click.echo(as_text(found, terminal_width()) if form == "text" else PRINTED[form](found), nl=False)
    tripped = [gate.text for gate in conditions if meets_condition(gate, first, second)]
    for gate in tripped:
        click.echo(f"failed on: {gate}", err=True)
    ctx.exit(CHANGED if tripped else 0)
