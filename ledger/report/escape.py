"""Text from files in Markdown: shown as it is, and never as markup, a mention, a reference or a link."""

from __future__ import annotations

import html
import re
import unicodedata

LONGEST = 160  # characters of one text
UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"}  # control characters, reading order, line ends
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./,-()")
BACKQUOTES = re.compile("`+")
SITE = re.compile(r"www\.", re.IGNORECASE)  # becomes a link where Markdown is read
ZERO_WIDTH = "&#8203;"
LITERALLY = (  # what Markdown and services read in a text -> how it is written to stay a text; in this order
    (re.compile(r"&"), "&amp;"),
    (re.compile(r"<"), "&lt;"),
    (re.compile(r">"), "&gt;"),
    (re.compile(r"([\\`*|~\[\]])"), r"\\\1"),
    (re.compile(r"([@#])(?=\w)(?<!&#)"), rf"\1{ZERO_WIDTH}"),
    (re.compile(r"://"), ":&#47;&#47;"),
    (SITE, "www&#46;"),
)


def seen(text: str) -> str:
    """The text with a space for each character that is not seen."""
    return "".join(" " if unicodedata.category(one) in UNSEEN else one for one in text)


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text on one line, without characters that are not seen, cut where it is long."""
    words = " ".join(seen(text).split())
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
    line = seen(text)
    for pattern, replacement in LITERALLY:
        line = pattern.sub(replacement, line)
    return line


def html_code(text: str, longest: int = LONGEST) -> str:
    """The text in HTML as code, also where Markdown is read within HTML: signs are character references."""
    written = "".join(map(_reference, one_line(text, longest) or "–"))
    return f"<code>{SITE.sub('www&#46;', written)}</code>"


def html_text(text: str) -> str:
    """A text of our own in HTML."""
    return html.escape(text)


def _reference(character: str) -> str:
    if character in PLAIN or not character.isascii():
        return character
    return f"&#{ord(character)};{ZERO_WIDTH if character in '@#' else ''}"
