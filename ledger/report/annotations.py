"""Problems as annotations of a pull request."""

from __future__ import annotations

from ledger.spec.problems import Problem

GITHUB_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
GITHUB_PROPERTY_ESCAPES = GITHUB_ESCAPES | str.maketrans({":": "%3A", ",": "%2C"})


def annotation(problem: Problem, level: str) -> str:
    """The problem as a GitHub workflow command, which shows it beside the line in a pull request."""
    where = problem.where
    text = f"{problem.message}\n{problem.help}".strip().translate(GITHUB_ESCAPES)
    file = where.file.translate(GITHUB_PROPERTY_ESCAPES)
    return f"::{level} file={file},line={where.line},col={where.column}::{text}"
