"""`ledger git-text`: what `git diff` compares of a plan."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="git-text")
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path) -> None:
    """Print a file as `git diff` shows it: a plan below what it comes to, all else as it is.

    `ledger git-setup` has git call this. A plan that does not compile says so, and the exit code is 0: git goes on.
    """
    from ledger.report.plan_text import annotated_text

    click.echo(annotated_text(file), nl=False)
