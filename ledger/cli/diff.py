"""`ledger diff`: two plans compared, or the plans of two folders or of two revisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import format_options, gates_option, set_option, specs_argument

if TYPE_CHECKING:
    from ledger.spec.trees import Tree

FORMATS = ("text", "md", "json", "html")
CHANGED = 1
Texts = tuple[str, ...]


@click.command(name="diff")
@specs_argument("OLD NEW | OLD..NEW [PATH]...")
@format_options(FORMATS, "text")
@gates_option("'memory.peak > +5%', 'time.step > 0'")
@set_option
@click.pass_context
def command(ctx: click.Context, specs: Texts, form: str, gates: Texts, overrides: Texts) -> None:
    """Compare two plans: verdict, totals, inputs, formulas.

    OLD and NEW are paths, REV:path for a git revision, or -; of two folders, or of a range of revisions (main..HEAD, or
    main...HEAD for what HEAD changed since it left main), every plan that differs is compared. Each change of a total
    is attributed to the inputs that caused it. `--set` overrides a value of NEW.

    A condition of --fail-on is about the change: NEW less OLD, or in per cent of OLD; `fits` and `headroom`: NEW fits
    no more, or no longer leaves its headroom free.
    """
    two_trees = trees(specs)
    if two_trees:
        ctx.exit(print_set(*two_trees, specs[1:] if is_range(specs[0]) else (), (form, gates, overrides)))
    if len(specs) != 2:
        raise click.UsageError("OLD and NEW are two plans or two folders; or a range as main..HEAD, and paths")
    import ledger

    first, second = ledger.compile(specs[0]), ledger.compile(specs[1], overrides)
    from ledger.cli.tables import terminal_width
    from ledger.report.diff import diff
    from ledger.report.diff_views import DIFF_FORMATS as PRINTED
    from ledger.report.diff_views import as_text
    from ledger.report.gates import compiled_outcome, read_gates

    conditions = read_gates(gates, {**first.totals, **second.totals})
    compared = diff(first, second)
    click.echo(as_text(compared, terminal_width()) if form == "text" else PRINTED[form](compared), nl=False)
    old, new = compiled_outcome(first), compiled_outcome(second)
    tripped = [gate.text for gate in conditions if gate.trips(old, new)]
    for gate in tripped:
        click.echo(f"failed on: {gate}", err=True)
    ctx.exit(CHANGED if tripped else 0)


def is_range(typed: str) -> bool:
    """Whether a text is a range of revisions, and neither a path nor `REV:path`."""
    from ledger.spec.sources import exists

    return ".." in typed and not any(part in typed for part in (":", "../", "/..")) and not exists(typed)


def trees(specs: Texts) -> tuple[Tree, Tree] | None:
    """The two trees that a range or two folders name; None where it is two plans."""
    from ledger.spec.trees import FolderTree, range_trees

    if is_range(specs[0]):
        return range_trees(specs[0])
    if len(specs) == 2 and all(Path(spec).is_dir() for spec in specs):
        return FolderTree(Path(specs[0])), FolderTree(Path(specs[1]))
    return None


def print_set(old: Tree, new: Tree, paths: Texts, options: tuple[str, Texts, Texts]) -> int:
    """Prints what differs between the plans of two trees; the exit code."""
    from ledger.cli.ci import exit_code, tell_failed
    from ledger.cli.options import rarely
    from ledger.report.diff_sets import DIFF_SET_FORMATS as PRINTED
    from ledger.report.diff_sets import diff_set
    from ledger.report.gates import read_gates
    from ledger.report.pull_request.comparison import compare, known_totals, with_gates
    from ledger.report.pull_request.pairs import plan_pairs
    from ledger.spec.library import default_library

    form, gates, overrides = options
    with rarely():
        comparison = compare(plan_pairs(old, new, paths, default_library(), overrides))
        comparison = with_gates(comparison, read_gates(gates, known_totals(comparison)))
        click.echo(PRINTED[form](diff_set(comparison)), nl=False)
    tell_failed(comparison)
    return exit_code(comparison)
