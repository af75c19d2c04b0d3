"""`ledger verify`: a plan before PyTorch, which runs its training step on fake tensors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option, set_option, spec_argument

if TYPE_CHECKING:
    from ledger.evidence.verification.outcome import Verification
    from ledger.evidence.verification.verdicts import Verdict

DISAGREES = 1
COLUMNS = ("figure", "predicted", "found", "difference", "allowed", "outcome", "because")
NEEDED = ("torch", "transformers")


@click.command(name="verify")
@spec_argument
@click.option("--layers", type=click.IntRange(min=1), metavar="N", help="Compare a plan with N layers of each group.")
@click.option("--full", is_flag=True, help="Run every layer, where a few stand for all otherwise.")
@set_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, spec: str, layers: int | None, overrides: tuple[str, ...], *, full: bool, as_json: bool
) -> None:
    """Run one training step of SPEC in PyTorch, on fake tensors, and compare.

    Parameters, FLOPs, saved bytes, memory at each moment and collectives, predicted beside found. It needs no GPU and
    no memory for the model. Exits with 1 where a difference has no named cause and no tolerance covers it.
    """
    if full and layers is not None:
        raise click.UsageError("--full runs every layer, --layers so many: give one of them")
    _installed()
    from ledger.cli.tables import print_json
    from ledger.evidence.verification.outcome import published
    from ledger.evidence.verification.verification import Depth, verify
    from ledger.spec import load_plan

    plan = load_plan(spec, overrides)
    found = verify(plan, Depth(layers, full), typed(spec, overrides, layers, full=full), progress)
    if as_json:
        print_json(published(found, spec))
    else:
        show(found)
    if not found.agrees:
        ctx.exit(DISAGREES)


def _installed() -> None:
    """Raises a usage error that says how to get what is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise click.UsageError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed, and PyTorch is the judge "
            "here; `pip install 'ledger[evidence]'` installs what is needed"
        )


def typed(spec: str, overrides: tuple[str, ...], layers: int | None, *, full: bool) -> str:
    """The command that repeats this."""
    from shlex import join

    depth = ["--full"] if full else [] if layers is None else ["--layers", str(layers)]
    return join(["ledger", "verify", spec, *(word for text in overrides for word in ("--set", text)), *depth])


def progress(what: str) -> None:
    """Says on standard error what runs."""
    click.echo(what, err=True)


def show(found: Verification) -> None:
    """Prints the verdicts for people."""
    from ledger.cli.tables import print_table

    click.echo(f"{found.title}\n{found.sentence}\n{found.layers}")
    for note in found.judged_as:
        click.echo(f"judged with {note}")
    click.echo()
    print_table(COLUMNS, [row(verdict) for verdict in found.verdicts], right=COLUMNS[1:4])


def row(verdict: Verdict) -> tuple[str, ...]:
    """One line of the table; bytes and FLOPs are written out, since it is about the last digits."""
    if verdict.found is None or verdict.predicted is None:
        return verdict.account, "", "", "", "", verdict.status, verdict.skipped
    difference = f"{verdict.difference:+,}" if verdict.difference else "0"
    told = [f"{cause.amount:+,} {verdict.unit} {cause.name}" for cause in verdict.causes]
    left = [f"{-verdict.unexplained:+,} {verdict.unit} left"] if verdict.unexplained and verdict.causes else []
    where = [f"at {verdict.where}"] if verdict.where.startswith(("forward/", "backward/")) else []
    return (
        verdict.account,
        f"{verdict.predicted:,}",
        f"{verdict.found:,}",
        difference,
        verdict.tolerance.title,
        verdict.status,
        "; ".join([*where, *told, *left]),
    )
