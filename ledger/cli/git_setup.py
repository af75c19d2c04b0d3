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

    if spoilt := [pattern for pattern in patterns if not pattern.isprintable() or not pattern.strip()]:
        raise click.UsageError(f"{spoilt[0]!a} is no pattern of {ATTRIBUTES}: a line of its own has one")
    path = work_tree() / ATTRIBUTES
    text = attributes(path)
    for key, value in ((DRIVER, f"{program()} git-text"), HUNKS):
        configured = ask_git(["config", "--local", "--default", "", "--get", key], path.parent).decode().rstrip("\n")
        if configured != value:
            ask_git(["config", "--local", key, value], path.parent)
        click.echo(f"{'left' if configured == value else 'set'}: git config {key} {shlex.quote(value)}")
    lines = [f"{pattern} diff=ledger" for pattern in patterns or ("*.yaml",)]
    missing = [line for line in lines if line not in text.splitlines()]
    if missing:
        text_before = text if not text or text.endswith("\n") else f"{text}\n"
        replace_file(path, (text_before + "".join(f"{line}\n" for line in missing)).encode())
    for line in lines:
        click.echo(f"{'added' if line in missing else 'left'}: {ATTRIBUTES}: {line}")


def work_tree() -> Path:
    """The top of the work tree around this folder; raises SpecError where the repository has it elsewhere."""
    from ledger.spec.git import one_line
    from ledger.spec.problems import Location, Problem, SpecError

    top = Path(one_line(["rev-parse", "--show-toplevel"]))
    if not Path.cwd().resolve().is_relative_to(top.resolve()):
        message = f"the files of this repository are in {str(top)!a} (core.worktree)"
        raise SpecError([Problem(Location(".git/config"), message, "go there, if that is meant")])
    return top


def attributes(path: Path) -> str:
    """The text of the file of attributes; raises SpecError where it is no text file of the repository's own."""
    from ledger.spec.problems import Location, Problem, SpecError
    from ledger.spec.sources import from_file

    if path.is_symlink():
        raise SpecError([Problem(Location(str(path)), "a link: git reads no attributes through one", "make it a file")])
    return from_file(path).text if path.exists() else ""


def program() -> str:
    """The command by which git calls this program: its name where a shell finds it, else its interpreter."""
    return "ledger" if shutil.which("ledger") else f"{shlex.quote(sys.executable)} -m ledger"
