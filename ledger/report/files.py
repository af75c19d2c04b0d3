"""The files of a report: their formats, and whether they can be written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from ledger.spec.problems import Location, Problem, SpecError

REPORT_FORMATS = ("html", "pdf", "md", "json")
LAYOUTS_BY_PREFERENCE = (
    "fastest",
    "cheapest",
    "smallest",
)  # layouts that a report may take in place of the plan's own, by preference
SEARCHED = ("html", "pdf", "md")  # those that show what a search of other layouts recommends


def valid_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats, each once, in this order; SpecError for one that there is not."""
    names = tuple(dict.fromkeys(formats))
    there_are = f"there are {', '.join(REPORT_FORMATS)}"
    problems = [
        Problem(Location("formats"), f"no format {name!r}", there_are) for name in names if name not in REPORT_FORMATS
    ]
    if problems:
        raise SpecError(problems)
    return names


def valid_layout(name: str) -> str:
    """The layout that a report may take in place of the plan's own, or none; SpecError for one that there is not."""
    if name and name not in LAYOUTS_BY_PREFERENCE:
        raise SpecError(
            [Problem(Location("layout"), f"no layout {name!r}", f"there are {', '.join(LAYOUTS_BY_PREFERENCE)}")]
        )
    return name


def require_writable(folder: Path) -> None:
    """Raises OSError where a folder, or the nearest above it that exists, takes no new file; leaves nothing behind."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(folder)) from error
