"""Sections of documents that are made from data: where one stands, and how a table is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ledger.report.escape import plain, sentence


@dataclass(frozen=True)
class MadeSection:
    """A section of a document between two comments, which no hand writes."""

    begin: str
    end: str

    def stands_in(self, document: str) -> bool:
        """Whether the document has a place for it."""
        return self.begin in document and self.end in document

    def put_into(self, document: str, lines: Iterable[str]) -> str:
        """The document with the section made anew; ValueError where it has no place for it."""
        before, begin, rest = document.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not (begin and end):
            raise ValueError(f"the document has no lines {self.begin!r} and {self.end!r}")
        return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n{end}{after}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table, or nothing where it has no rows; no text of a file is markup, names in backticks are code."""
    lines = [f"| {' | '.join(cell if isinstance(cell, Markup) else sentence(cell) for cell in row)} |" for row in rows]
    if lines:
        yield from (f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, "")


def bold(text: str) -> Markup:
    """A text that must not be overlooked."""
    return Markup(f"**{plain(text)}**")  # noqa: S704 - escaped
