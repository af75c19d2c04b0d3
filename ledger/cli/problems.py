"""How problems reach the user: as text with the source line, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from ledger.spec.problems import Problem


def tell(problems: Iterable[Problem], sources: Mapping[str, str] | None = None) -> None:
    """Writes the problems to stderr, each in its line of the source."""
    from ledger.spec.render import render_problems

    if text := render_problems(problems, sources):
        click.echo(text, err=True)


def as_record(problem: Problem) -> dict[str, Any]:
    """The problem for machines."""
    where = problem.where
    return {
        "file": where.file,
        "line": where.line,
        "column": where.column,
        "message": problem.message,
        "help": problem.help,
        "rule": problem.rule,
    }


def no_such_name(problem: Problem) -> click.UsageError:
    """A name that a plan does not have is bad usage: it is an argument, and in no file."""
    return click.UsageError(f"{problem.message}; {problem.help}")
