"""How problems reach the user: as text with the source line, as JSON, or as annotations of a pull request."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from ledger.spec.problems import Problem

GITHUB_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
GITHUB_PROPERTY_ESCAPES = GITHUB_ESCAPES | str.maketrans({":": "%3A", ",": "%2C"})


def tell(problems: Iterable[Problem]) -> None:
    """Writes the problems to stderr."""
    for problem in problems:
        click.echo(rendered(problem), err=True)


def rendered(problem: Problem) -> str:
    """`file:line:column: message`, the source line with a caret where the file can be read, and a help line."""
    lines = [str(problem), *pointed_at(problem)]
    if problem.help:
        lines.append(f"  help: {problem.help}")
    return "\n".join(lines)


def pointed_at(problem: Problem) -> list[str]:
    """The line of the problem and a caret under its column; nothing where there is no such line."""
    where = problem.where
    try:
        line = Path(where.file).read_text(encoding="utf-8").splitlines()[where.line - 1]
    except (OSError, UnicodeDecodeError, IndexError):
        return []
    return [f"    {line}", f"    {' ' * (where.column - 1)}^"]


def as_record(problem: Problem) -> dict[str, Any]:
    """The problem for machines."""
    where = problem.where
    return {
        "file": where.file,
        "line": where.line,
        "column": where.column,
        "message": problem.message,
        "help": problem.help,
    }


def annotation(problem: Problem) -> str:
    """The problem as a GitHub workflow command, which shows it beside the line in a pull request."""
    where = problem.where
    text = f"{problem.message}\n{problem.help}".strip().translate(GITHUB_ESCAPES)
    file = where.file.translate(GITHUB_PROPERTY_ESCAPES)
    return f"::error file={file},line={where.line},col={where.column}::{text}"
