"""The one error record, and the one exception that carries many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Made = TypeVar("Made")
MOST_PROBLEMS = 100  # that are reported of one input; who has more has one cause
FLAG = "--set "  # begins the file of a place in what was typed


@dataclass(frozen=True, order=True)
class Location:
    """A place in a text: `file` as the user typed it, `line` and `column` counted from 1.

    `because`: why a value that is written elsewhere, or nowhere, has its problems reported here.
    """

    file: str
    line: int = 1
    column: int = 1
    because: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with an input: where, what in the user's words, and what to type instead.

    `rule` names what found it, for programs that list problems by rule; empty where a value's type did. `vain` is the
    path of a value that has no effect.
    """

    where: Location
    message: str
    help: str = ""
    rule: str = field(default="", compare=False)
    vain: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def _sort_key(problem: Problem) -> tuple[str, int, int, str, str]:
    """The key that problems are sorted by: comparing tens of thousands of records field by field takes seconds."""
    where = problem.where
    return where.file, where.line, where.column, problem.message, problem.help


class SpecError(Exception):
    """Everything wrong with an input, at once, sorted by place; `sources` are the texts it stands in, by file."""

    def __init__(self, problems: Iterable[Problem], sources: Mapping[str, str] | None = None) -> None:
        self.problems = tuple(sorted(set(problems), key=_sort_key))
        self.sources = dict(sources or {})
        super().__init__("\n".join(str(problem) for problem in self.problems))


def collect_results(makers: Iterable[Callable[[], Made]]) -> list[Made]:
    """The result of each maker; where some raise SpecError, one with the problems of all of them is raised."""
    results: list[Made] = []
    errors: list[SpecError] = []
    for maker in makers:
        try:
            results.append(maker())
        except SpecError as error:
            errors.append(error)
    if errors:
        texts = {file: text for error in errors for file, text in error.sources.items()}
        raise SpecError([problem for error in errors for problem in error.problems], texts)
    return results
