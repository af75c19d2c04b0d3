"""`ledger ci`: every plan that a change of the repository affects, in one comment."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import format_options, gates_option
from ledger.cli.verbs import BAD_INPUT
from ledger.report.problem_formats import PROBLEM_FORMATS

if TYPE_CHECKING:
    from ledger.report.pull_request.pairs import Comparison
    from ledger.spec.git import Revision

FORMATS = ("md", "json", *PROBLEM_FORMATS)
FAILED = 1


@click.command(name="ci")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@click.option(
    "--base", metavar="REV", help="What HEAD is compared with; else its merge base with origin/HEAD, or HEAD~1."
)
@click.option("--head", metavar="REV", default="HEAD", show_default=True, help="The revision that is looked at.")
@format_options(FORMATS, "md")
@click.option(
    "--out", "outs", multiple=True, metavar="FILE", help="Write FILE too; .md, .json, .sarif or .xml (JUnit)."
)
@gates_option("'cost.run > +5%', 'cost.run < -50%'")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    base: str | None,
    head: str,
    form: str,
    outs: tuple[str, ...],
    gates: tuple[str, ...],
) -> None:
    """Say what a change does to every plan that it affects, worst first.

    A plan is affected when its resolved document differs between two git revisions: its own file, or any file that it
    names. PATH: plans, or folders of plans, that are looked at; without any, every plan of the repository. What is not
    committed is not seen.

    Exit code 2: a plan does not compile. 1: a condition of --fail-on is met. 0: neither.
    """
    from ledger.cli.options import rarely
    from ledger.cli.tables import write_format
    from ledger.report.pull_request.markdown import PULL_REQUEST_FORMATS as PRINTED
    from ledger.report.pull_request.markdown import format_of
    from ledger.whole_files import replace_files

    written = [(Path(out), format_of(out)) for out in outs]
    with rarely():
        comparison = compared(paths, base, head, gates)
    replace_files({path: PRINTED[chosen](comparison).encode() for path, chosen in written})
    write_format(form, PRINTED[form](comparison))
    tell_failed(comparison)
    ctx.exit(exit_code(comparison))


def tell_failed(comparison: Comparison) -> None:
    """Says on stderr which conditions are met by which plan."""
    from ledger.report.escape import one_line

    for gate in comparison.gates:
        for change in comparison.failed(gate):
            click.echo(f"failed on: {gate} ({one_line(change.label)})", err=True)


def exit_code(comparison: Comparison) -> int:
    """2 where a plan does not compile, 1 where a condition of --fail-on is met, else 0."""
    from ledger.report.pull_request.pairs import BROKEN

    if comparison.of_kind(BROKEN):
        return BAD_INPUT
    return FAILED if any(change.failed for change in comparison.changes) else 0


def compared(paths: tuple[str, ...], base: str | None, head: str, gates: tuple[str, ...]) -> Comparison:
    """The plans of two revisions compared and judged; raises SpecError."""
    from ledger.report.gates import read_gates
    from ledger.report.pull_request.comparison import compare, known_totals, with_gates
    from ledger.report.pull_request.pairs import plan_pairs
    from ledger.spec.git import open_revision
    from ledger.spec.library import default_library
    from ledger.spec.trees import RevisionTree

    new = open_revision(head)
    old = open_revision(base) if base else usual_base(new)
    pairs = plan_pairs(RevisionTree(old), RevisionTree(new), paths, default_library())
    comparison = compare(pairs)
    return with_gates(comparison, read_gates(gates, known_totals(comparison)))


def usual_base(head: Revision) -> Revision:
    """The merge base with the default branch of `origin`; where there is none, or it is `head`, the commit before."""
    from ledger.spec.git import merge_base, open_revision
    from ledger.spec.problems import SpecError

    with suppress(SpecError):
        branch_point = open_revision(merge_base("origin/HEAD", head.name))
        if branch_point.tree != head.tree:
            return branch_point
    return open_revision(f"{head.name}~1")
