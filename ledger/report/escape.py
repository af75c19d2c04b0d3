"""Text from files in Markdown: shown as it is, and never as markup, a mention, a reference or a link.

All Markdown that this program writes goes through here: templates by `sentence`, which the environment of Markdown
applies to every value, and what is put together in Python by `code`, `plain` and `html_code`.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

LONGEST = 160  # characters of one text
UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}  # control characters, reading order, line ends
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./,-()")
BACKQUOTES = re.compile("`+")
NAMED = re.compile("(?<!`)`([^`]+)`(?!`)")  # a name that a sentence of ours sets off
SITE = re.compile(r"www\.", re.IGNORECASE)  # becomes a link where Markdown is read
ZERO_WIDTH = "&#8203;"
LITERALLY = (  # what Markdown and services read in a text -> how it is written to stay a text; in this order
    (re.compile(r"&"), "&amp;"),
    (re.compile(r"<"), "&lt;"),
    (re.compile(r">"), "&gt;"),
    (re.compile(r"([\\`*|~\[\]]|(?<![^\W_])_|_(?![^\W_]))"), r"\\\1"),
    (re.compile(r"([@#])(?=\w)(?<!&#)"), rf"\1{ZERO_WIDTH}"),
    (re.compile(r"://"), ":&#47;&#47;"),
    (SITE, "www&#46;"),
    (re.compile(r"\b(GH-)(?=\d)", re.IGNORECASE), rf"\1{ZERO_WIDTH}"),
)
# What makes a heading, an entry of a list or a rule of a line that begins with it.
BLOCK = re.compile(r"(?P<mark>(?:#{1,6}|[-+])(?=\s|$)|[-=_]{2,}\s*$)|(?P<number>\d{1,9})(?=[.)](?:\s|$))")


def with_visible_spaces(text: str) -> str:
    """The text with each invisible character replaced by a space."""
    return "".join(" " if unicodedata.category(character) in UNSEEN else character for character in text)


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text on one line, without characters that are not seen, cut where it is long."""
    words = " ".join(with_visible_spaces(text).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def code(text: str, longest: int = LONGEST) -> str:
    """The text in Markdown as code, also in a cell of a table; in code nothing is a mention, a reference or a link."""
    line = one_line(text, longest) or "–"
    if "|" in line:
        return html_code(line, longest)
    fence = "`" * (1 + max(map(len, BACKQUOTES.findall(line)), default=0))
    pad = " " if "`" in {line[0], line[-1]} else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def plain(text: str) -> str:
    """The text in Markdown as it is: nothing in it is markup, a mention, a reference or a link."""
    line = with_visible_spaces(text)
    for pattern, replacement in LITERALLY:
        line = pattern.sub(replacement, line)
    return line


def sentence(text: str) -> str:
    """A text in Markdown, with the names that stand in backticks as code; it may begin a line."""
    parts = (code(part) if place % 2 else plain(part) for place, part in enumerate(NAMED.split(text)))
    return _escape_block_mark("".join(parts).strip(" "))


def literal(text: str) -> str:
    """A text in Markdown as it is, its backticks too; it may begin a line."""
    return _escape_block_mark(plain(text).strip(" "))


def fenced(lines: Iterable[str], language: str) -> str:
    """Lines of a program in Markdown, each as it is; none ends the block."""
    seen_lines = [with_visible_spaces(line) for line in lines]
    fence = "`" * max(3, 1 + max((len(run) for line in seen_lines for run in BACKQUOTES.findall(line)), default=0))
    return "\n".join((f"{fence}{language}", *seen_lines, fence))


def _escape_block_mark(line: str) -> str:
    match = BLOCK.match(line)
    if not match:
        return line
    return f"\\{line}" if match["mark"] else f"{match['number']}\\{line[match.end() :]}"


def html_code(text: str, longest: int = LONGEST) -> str:
    """The text in HTML as code, also where Markdown is read within HTML: signs are character references."""
    written = "".join(map(_character_reference, one_line(text, longest) or "–"))
    return f"<code>{SITE.sub('www&#46;', written)}</code>"


def html_text(text: str) -> str:
    """A text of our own in HTML."""
    return html.escape(text)


def _character_reference(character: str) -> str:
    if character in PLAIN or not character.isascii():
        return character
    return f"&#{ord(character)};{ZERO_WIDTH if character in '@#' else ''}"


# --- generated sections and tables of documents ---


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
        before, begin, following = document.partition(self.begin)
        _, end, after = following.partition(self.end)
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
