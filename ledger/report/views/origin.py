"""What a report was made from: the plan's file and who wrote it, the compiler, and every file with its digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger.report.seals.seal import NOT_VERSIONED
from ledger.report.views.parts import Report, Table, columns, text_cells
from ledger.spec.version import short_digest

if TYPE_CHECKING:
    from ledger.report.seals.seal import Seal

PRINTED = 60  # files on paper


def origin(report: Report) -> Table | None:
    """The seal in a few rows; None of a report without one."""
    if report.seal is None:
        return None
    rows = tuple(text_cells(*row) for row in _seal_rows(report.seal))
    return Table("What this report was made from", columns("text", "what", "which"), rows, sortable=False)


def made_from(report: Report) -> str:
    """Who wrote the plan, of which commit it is, and what compiled it, in a line; empty of a report without a seal."""
    seal = report.seal
    if seal is None:
        return ""
    by = f"by {', '.join(seal.revision.authors)}, " if seal.revision and seal.revision.authors else ""
    revision = f"revision {revision_text(seal, to_the_day=True)}" if seal.revision else NOT_VERSIONED
    compiler = f"ledger {seal.compiler.version} with library {short_digest(seal.compiler.library)}"
    over = f"with {', '.join(seal.overrides)} set over it; " if seal.overrides else ""
    return f"{over}{by}{revision}; compiled by {compiler}"


def files(report: Report) -> Table | None:
    """Every file that decides what the report says, with the digest of its text."""
    if report.seal is None:
        return None
    rows = tuple(text_cells(file.name, short_digest(file.digest)) for file in report.seal.files)
    return Table("Files within this report", columns("code", "file", "sha256 begins with"), rows, PRINTED)


def _seal_rows(seal: Seal) -> Iterator[tuple[str, str]]:
    yield "plan", seal.plan
    for override in seal.overrides:
        yield "set over it", override
    yield "authors", ", ".join(seal.revision.authors) if seal.revision else NOT_VERSIONED
    yield "revision", revision_text(seal)
    yield "compiler", f"ledger {seal.compiler.version}, program {short_digest(seal.compiler.program)}"
    yield "library", short_digest(seal.compiler.library)
    yield "seal", short_digest(seal.digest)


def revision_text(seal: Seal, *, to_the_day: bool = False) -> str:
    """The commit that the plan is of, with its date, or that there is none."""
    if seal.revision is None:
        return NOT_VERSIONED
    date = seal.revision.date[: len("2026-01-31")] if to_the_day else seal.revision.date
    changed = ", with changes that are not committed" if seal.revision.changed else ""
    return f"{short_digest(seal.revision.commit)} of {date}{changed}"
