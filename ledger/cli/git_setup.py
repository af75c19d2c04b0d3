"""`ledger git-setup`: `git diff` shows what a change does to a plan."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click

ATTRIBUTES = ".gitattributes"
DRIVER = "diff.ledger.textconv"
HUNKS = ("diff.ledger.xfuncname", "^[a-z_]+:.*$")  # what git prints behind the @@ of a hunk


@click.command(name="git-setup")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
def command(patterns: tuple[str, ...]) -> None:
    """Have `git diff` show what plans come to, beside what is written in them.

    Writes the driver `ledger` to the configuration of this repository, and names it in .gitattributes for files that
    match PATTERN (without any: *.yaml). Who clones the repository runs it once. What is there already is left.
    """
    from ledger.spec.git import ask_git
    from ledger.whole_files import replace_file

    top = Path(ask_git(["rev-parse", "--show-toplevel"]).decode().rstrip("\n"))
    for key, value in ((DRIVER, f"{program()} git-text"), HUNKS):
        known = ask_git(["config", "--local", "--default", "", "--get", key], top).decode().rstrip("\n")
        if known != value:
            ask_git(["config", "--local", key, value], top)
        click.echo(f"{'left' if known == value else 'set'}: git config {key} {shlex.quote(value)}")
    path = top / ATTRIBUTES
    text = path.read_text("utf-8") if path.exists() else ""
    wanted = [f"{pattern} diff=ledger" for pattern in patterns or ("*.yaml",)]
    missing = [line for line in wanted if line not in text.splitlines()]
    if missing:
        ended = text if not text or text.endswith("\n") else f"{text}\n"
        replace_file(path, (ended + "".join(f"{line}\n" for line in missing)).encode())
    for line in wanted:
        click.echo(f"{'added' if line in missing else 'left'}: {ATTRIBUTES}: {line}")


def program() -> str:
    """How git calls this program: by its name where a shell finds it, else by its interpreter."""
    return "ledger" if shutil.which("ledger") else f"{shlex.quote(sys.executable)} -m ledger"
