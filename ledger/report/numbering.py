"""Figures and tables by number: each is counted where the page prints it, and what refers to one says its number.

A caption prints the anchor of what it is of as a mark, a reference links to the anchor with nothing in it; both get
their words once the whole page is there, since a reference may come before what it refers to. Text of the user is
escaped, so no mark can come from it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

KINDS = {"fig": "Figure", "table": "Table"}  # what an anchor begins with, and what it is called
MARK = re.compile(r'<span class="no">((?:fig|table)-[^<]+)</span>')
REFERENCE = re.compile(r'<a class="ref" href="#((?:fig|table)-[^"]+)"></a>')
UNFIT = re.compile(r"[^a-z0-9]+")


def anchor(kind: str, name: str) -> str:
    """The fragment of an address at which a figure (`fig`) or a table (`table`) of that name is found."""
    return f"{kind}-{UNFIT.sub('-', name.lower()).strip('-')}"


def number_captions(page: str) -> str:
    """The page with `Figure 3` in captions and in references; what is not on the page is not referred to."""
    names = caption_names(MARK.findall(page))
    page = MARK.sub(lambda found: f'<span class="no">{names[found[1]]}</span>', page)
    return REFERENCE.sub(_reference(names), page)


def caption_names(anchors: list[str]) -> dict[str, str]:
    """What each anchor is called, in their order; figures and tables are counted apart."""
    counted: Counter[str] = Counter()
    names = {}
    for one in anchors:
        kind = KINDS[one.partition("-")[0]]
        counted[kind] += 1
        names[one] = f"{kind} {counted[kind]}"
    return names


def _reference(names: dict[str, str]) -> Callable[[re.Match[str]], str]:
    """A link that says the number of what it leads to."""
    return lambda found: f'<a class="ref" href="#{found[1]}">{names[found[1]]}</a>' if found[1] in names else ""
