"""The formats of a comparison: how each is printed, and how a file of it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePath

from ledger.report.problem_formats import FORMATS as PROBLEM_FORMATS
from ledger.report.problem_formats import Judgement
from ledger.report.pull_request.findings import judgement
from ledger.report.pull_request.markdown import as_markdown
from ledger.report.pull_request.plan_changes import (
    Comparison,
)
from ledger.report.pull_request.record import as_json
from ledger.spec.problems import Location, Problem, SpecError


def as_findings(write: Callable[[Judgement], str], comparison: Comparison) -> str:
    """What is found of each plan, in a format of lists of problems."""
    return write(judgement(comparison))


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "md": as_markdown,
    "json": as_json,
    **{name: partial(as_findings, write) for name, write in PROBLEM_FORMATS.items()},
}
SUFFIXES = {".md": "md", ".json": "json", ".sarif": "sarif", ".xml": "junit"}


def format_of(file: str) -> str:
    """The format of a file by its name; raises SpecError."""
    suffix = PurePath(file).suffix
    if suffix not in SUFFIXES:
        there_are = ", ".join(f"{end} ({name})" for end, name in SUFFIXES.items())
        raise SpecError([Problem(Location(file), f"no format has the suffix {suffix!r}", f"there are {there_are}")])
    return SUFFIXES[suffix]
