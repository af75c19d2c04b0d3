"""`ledger git-text`: what `git diff` compares of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import click

from ledger.books import compile_totals
from ledger.numbers import with_unit
from ledger.report.escape import one_line
from ledger.report.gates import free_bytes, plan_outcome
from ledger.spec.git import ask_git
from ledger.spec.library import default_library
from ledger.spec.load import plan_of
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from ledger.spec.reader import LARGEST_TEXT
from ledger.spec.sources import Source, read_bounded
from ledger.spec.trees import is_plan
from ledger.units import unit_of


@click.command(name="git-text")
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path) -> None:
    """Print a file as `git diff` shows it: a plan below what it comes to, all else as it is.

    `ledger git-setup` has git call this. A plan that does not compile says so, and the exit code is 0: git goes on.
    """
    click.echo(annotated_text(file), nl=False)


# --- a plan as git shows it: its totals in comments, then its text ---

SHOWN = (
    *("memory.reserved", "time.step", "time.calendar", "cost.run", "mfu"),
    *("serve.ttft", "serve.time_per_token", "serve.tokens_per_second", "cost.per_million_tokens"),
)


def annotated_text(path: Path) -> str:
    """The text of a file; of a plan, below its totals. Raises OSError where there is no file."""
    content = read_bounded(path, LARGEST_TEXT)
    text = content.decode(errors="replace")
    if not is_plan(content, str(path)):
        return text
    return "\n".join((*(f"# {one_line(line)}" for line in plan_lines(path, text)), text))


def plan_lines(path: Path, text: str) -> Iterator[str]:
    """The totals of a plan in lines, or why it does not compile."""
    problems: tuple[str, ...] = ()
    for folder in plan_folders(path):
        try:
            plan = plan_of(Source(str(path), text, path.stem, str(folder)), (), default_library())
            yield from total_lines(plan)
        except SpecError as error:
            problems = problems or tuple(problem.message for problem in error.problems)
        else:
            return
    yield f"does not compile: {problems[0]}"


def total_lines(plan: Plan) -> Iterator[str]:
    """Whether the plan fits, and its totals."""
    totals = compile_totals(plan)
    outcome = plan_outcome(plan, totals)
    free = free_bytes(outcome)
    yield (f"fits: {with_unit(free, 'B')} free" if outcome.fits else f"does not fit: {with_unit(-free, 'B')} missing")
    for key in SHOWN:
        if key in totals:
            yield f"{key}: {with_unit(totals[key], unit_of(key))}"


def plan_folders(path: Path) -> Iterable[Path]:
    """The folder of a file; of a copy that git made of one, those in which a file of that name is tracked.

    Parts that a plan names by paths are looked for there, as they are now.
    """
    yield path.parent
    try:
        top = Path(ask_git(["rev-parse", "--show-toplevel"]).decode().rstrip("\n"))
        tracked = ask_git(["ls-files", "-z"], top).decode(errors="replace").split("\0")
    except SpecError:
        return
    files = [PurePosixPath(name) for name in tracked if name]
    yield from dict.fromkeys(top / file.parent for file in files if path.name.endswith(file.name))
