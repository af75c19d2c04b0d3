"""`ledger verify`: a plan before PyTorch, which runs its training step on fake tensors."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from ledger.cli.options import installed, json_option, set_option, spec_argument

if TYPE_CHECKING:
    from ledger.evidence.verdicts import ComparedFigure
    from ledger.evidence.verification import Verification

DISAGREES = 1
COLUMNS = ("figure", "predicted", "found", "difference", "allowed", "outcome", "because")


@click.command(name="verify")
@spec_argument
@click.option("--layers", type=click.IntRange(min=1), metavar="N", help="Compare a plan with N layers of each group.")
@click.option("--full", is_flag=True, help="Run every layer, where a few stand for all otherwise.")
@click.option("--quick", is_flag=True, help="Of a suite, only the cases that are checked at every change.")
@click.option("--record", is_flag=True, help="Keep the verdicts in the library, as evidence for reports.")
@set_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, spec: str, **options: Any) -> None:
    """Run one training step of SPEC, a plan or a suite of plans, in PyTorch on fake tensors, and compare.

    Parameters, FLOPs, saved bytes, memory at each moment and collectives, predicted beside found. Of a plan that
    serves: parameters, the cache of a sequence, FLOPs of a prompt and of the token after it, and what a token reads. It
    needs no GPU and no memory for the model. Exits with 1 where a difference has no named cause and no tolerance covers
    it.
    """
    asked = Asked(spec, **options)
    if asked.full and asked.layers is not None:
        raise click.UsageError("--full runs every layer, --layers so many: give one of them")
    installed("PyTorch is the judge here")
    from ledger.spec.suite import is_suite

    agrees = _verify_suite(asked) if is_suite(spec) else _verify_plan(asked)
    if not agrees:
        ctx.exit(DISAGREES)


@dataclass(frozen=True)
class Asked:
    """The options of the command as they were typed."""

    spec: str
    layers: int | None
    overrides: tuple[str, ...]
    full: bool
    quick: bool
    record: bool
    as_json: bool

    @property
    def command(self) -> str:
        """The command that repeats this."""
        depth = ["--full"] if self.full else [] if self.layers is None else ["--layers", str(self.layers)]
        changes = [word for text in self.overrides for word in ("--set", text)]
        return join(["ledger", "verify", self.spec, *changes, *depth])


def _verify_plan(asked: Asked) -> bool:
    """One plan: its verdicts, and whether they agree."""
    if asked.quick:
        raise click.UsageError("--quick chooses among the cases of a suite, and this is a plan")
    from ledger.cli.tables import print_json
    from ledger.evidence.verification import published
    from ledger.lab.verification.suites import Depth, verify
    from ledger.spec.load import load_plan

    plan = load_plan(asked.spec, asked.overrides)
    verification = verify(plan, Depth(asked.layers, asked.full), asked.command, progress)
    if asked.as_json:
        print_json(published(verification, asked.spec))
    else:
        show(verification)
    _write_record(verification, asked)
    return verification.agrees


def _verify_suite(asked: Asked) -> bool:
    """Every case of a suite: a line each, and whether all agree."""
    if asked.overrides:
        raise click.UsageError("--set changes a plan, and a suite holds many; write `set:` beside the case it is about")
    from ledger.cli.tables import print_json
    from ledger.evidence.verification import VERIFY_SCHEMA, Verification, published
    from ledger.lab.verification.suites import Depth, verify_suite
    from ledger.spec.suite import load_suite

    agree, objects = True, []
    depth = Depth(asked.layers, asked.full)
    for verification in verify_suite(load_suite(asked.spec), depth, quick=asked.quick, progress=progress):
        if not isinstance(verification, Verification):
            click.echo(f"{verification.name}: {verification.problem}", err=True)
            agree = False
            continue
        agree = agree and verification.agrees
        objects.append(published(verification, verification.name))
        if not asked.as_json:
            summarize(verification)
        _write_record(verification, asked)
    if asked.as_json:
        print_json({"schema": VERIFY_SCHEMA, "suite": objects})
    return agree


def _write_record(verification: Verification, asked: Asked) -> None:
    """Writes the record that was asked for."""
    if asked.record:
        from ledger.evidence import verification as records

        click.echo(records.write(verification, records.folder()), err=True)


def summarize(verification: Verification) -> None:
    """One line for a plan, and one for each figure that disagrees."""
    click.echo(f"{verification.name}: {verification.sentence}")
    for verdict in verification.verdicts:
        if not verdict.agrees:
            click.echo(f"  {'  '.join(verdict_row(verdict))}")


def progress(what: str) -> None:
    """Says on standard error what runs."""
    click.echo(what, err=True)


def show(verification: Verification) -> None:
    """Prints the verdicts for people."""
    from ledger.cli.tables import print_table

    click.echo(f"{verification.title}\n{verification.sentence}\n{verification.layers}")
    for note in verification.judged_as:
        click.echo(f"judged with {note}")
    click.echo()
    print_table(COLUMNS, [verdict_row(verdict) for verdict in verification.verdicts], right=COLUMNS[1:4])


def verdict_row(verdict: ComparedFigure) -> tuple[str, ...]:
    """One line of the table; bytes and FLOPs are written out, since it is about the last digits."""
    if verdict.found is None or verdict.predicted is None:
        return verdict.account, "", "", "", "", verdict.status, verdict.skipped
    difference = f"{verdict.difference:+,}" if verdict.difference else "0"
    causes = [f"{cause.amount:+,} {verdict.unit} {cause.name}" for cause in verdict.causes]
    unexplained = [f"{-verdict.unexplained:+,} {verdict.unit} left"] if verdict.unexplained and verdict.causes else []
    where = [f"at {verdict.where}"] if verdict.where.startswith(("forward/", "backward/")) else []
    return (
        verdict.account,
        f"{verdict.predicted:,}",
        f"{verdict.found:,}",
        difference,
        verdict.tolerance.title,
        verdict.status,
        "; ".join([*where, *causes, *unexplained]),
    )
