"""The formats of a comparison: how each is printed, and how a file of it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath

from ledger.report.pull_request.findings import as_github, as_sarif
from ledger.report.pull_request.junit import as_junit
from ledger.report.pull_request.markdown import as_markdown
from ledger.report.pull_request.plan_changes import (
    Comparison,
)
from ledger.report.pull_request.record import as_json
from ledger.spec.problems import Location, Problem, SpecError

FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "md": as_markdown,
    "json": as_json,
    "github": as_github,
    "sarif": as_sarif,
    "junit": as_junit,
}
SUFFIXES = {".md": "md", ".json": "json", ".sarif": "sarif", ".xml": "junit"}


def format_of(file: str) -> str:
    """The format of a file by its name; raises SpecError."""
    suffix = PurePath(file).suffix
    if suffix not in SUFFIXES:
        there_are = ", ".join(f"{end} ({name})" for end, name in SUFFIXES.items())
        raise SpecError([Problem(Location(file), f"no format has the suffix {suffix!r}", f"there are {there_are}")])
    return SUFFIXES[suffix]
