"""The pages of the PDF, measured where they are set: what lies where, how full each is, and where it is cut.

A page is measured as WeasyPrint lays it out, before it is drawn: boxes in CSS pixels, with the element that each is of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import groupby
from typing import Any

import pytest
import weasyprint
from pypdf import PdfReader

from ledger.books.compiled import Compiled
from ledger.report.html import render
from ledger.report.pdf import pdf
from ledger.report.views.parts import Report
from tests.report.test_html import full

FILLED = 0.25  # of a page's height, below which it is mostly empty
NEAR = 0.5  # px that rounding may put a letter beyond the margin
KINDS = ("fits", "too large", "bare", "full")


@dataclass(frozen=True)
class Page:
    """One page: its boxes of content, those of its margins, and the area between its margins."""

    boxes: tuple[Any, ...]
    heads: tuple[str, ...]
    left: float
    top: float
    right: float
    bottom: float

    @property
    def texts(self) -> tuple[Any, ...]:
        """Its lines of text that say something."""
        return tuple(box for box in self.boxes if getattr(box, "text", "").strip())

    @property
    def filled(self) -> float:
        """How far down text and pictures reach, as a share of the height."""
        seen = [*self.texts, *(box for box in self.boxes if hasattr(box, "replacement"))]
        lowest = max(box.position_y + box.height for box in seen)
        return (lowest - self.top) / (self.bottom - self.top)


def measured(page: Any) -> Page:
    """A page as WeasyPrint laid it out."""
    box = page._page_box
    margins = {id(inner) for child in box.children if "Margin" in type(child).__name__ for inner in within(child)}
    heads = tuple(
        "".join(inner.text for inner in within(child) if hasattr(inner, "text"))
        for child in box.children
        if "Margin" in type(child).__name__
    )
    content = tuple(inner for inner in within(box) if id(inner) not in margins)
    left, top = box.content_box_x(), box.content_box_y()
    return Page(content, heads, left, top, left + box.width, top + box.height)


def within(box: Any) -> Iterator[Any]:
    """A box and all that it holds, in order."""
    yield box
    for child in getattr(box, "children", ()):
        yield from within(child)


@cache
def pages_of(html: str) -> tuple[Page, ...]:
    """The pages of a report."""
    return tuple(map(measured, weasyprint.HTML(string=html).render().pages))


@pytest.fixture(params=KINDS)
def html(request: pytest.FixtureRequest, variants: dict[str, Compiled]) -> str:
    """The report on paper of one plan at a time."""
    report = full(variants["fits"]) if request.param == "full" else Report(variants[request.param])
    return render(report, screen=False)


def test_nothing_lies_beyond_the_margins(html: str) -> None:
    """No word of a wide table or a long key is cut off by the edge of the paper."""
    for number, page in enumerate(pages_of(html), start=1):
        beyond = [
            box.text
            for box in page.texts
            if box.position_x < page.left - NEAR or box.position_x + box.width > page.right + NEAR
        ]
        assert beyond == [], number
        assert page.filled <= 1, number


def test_no_page_is_mostly_empty(html: str) -> None:
    """What does not fit moves on without leaving a page nearly blank; the last page may be short."""
    shares = [page.filled for page in pages_of(html)[:-1]]
    assert [round(share, 2) for share in shares if share < FILLED] == []


def test_running_heads_name_the_section_at_the_top(html: str) -> None:
    """A reader who opens any page after the first knows which section it begins in."""
    titles = section_titles(html)
    for number, page in list(enumerate(pages_of(html), start=1))[1:]:
        first = next(box for box in page.boxes if box.element is not None and box.element.get("id") in titles)
        assert titles[first.element.get("id")] in page.heads, number


def section_titles(html: str) -> dict[str, str]:
    """The title of each section, and of the contents, by the name of the element that it heads."""
    found = re.findall(r'<h2 id="([^"]+?)(?:-title)?"[^>]*>(.*?)</h2>', html)
    return {name: re.sub(r"<[^>]+>", "", title) for name, title in found}


def test_rows_of_a_table_are_never_alone(html: str) -> None:
    """Where a table goes on, two rows at least stand on either page, below its headings."""
    for table, parts in groupby(table_parts(html), key=lambda part: part[0]):
        counts = [rows for _, rows, _ in parts]
        assert len(counts) == 1 or min(counts) >= 2, (table, counts)


def table_parts(html: str) -> Iterator[tuple[str, int, bool]]:
    """Each page's part of each table: its name, how many of its rows are there, and whether its headings are."""
    for page in pages_of(html):
        for table in (box for box in page.boxes if type(box).__name__ == "TableBox"):
            groups = [box for box in table.children if type(box).__name__ == "TableRowGroupBox"]
            rows = sum(len(group.children) for group in groups if not group.is_header)
            yield table.element.get("id", ""), rows, any(group.is_header for group in groups)


def test_headings_of_a_table_are_on_each_of_its_pages(html: str) -> None:
    """A column is named where its numbers are."""
    assert [table for table, _, headed in table_parts(html) if not headed] == []


def test_captions_stand_with_what_they_are_of(html: str) -> None:
    """A table's caption is above its first rows, and no figure is cut."""
    for page in pages_of(html):
        for wrapper in (box for box in page.boxes if getattr(box, "is_table_wrapper", False)):
            parts = {type(child).__name__ for child in wrapper.children}
            assert "TableBox" in parts, wrapper.element.get("id")
    figures = [names for page in pages_of(html) if (names := elements(page, "figure"))]
    assert [name for name, times in Counter(name for names in figures for name in names).items() if times > 1] == []


def elements(page: Page, tag: str) -> set[str]:
    """The names of the elements of a kind that have a part on the page."""
    return {box.element.get("id") for box in page.boxes if box.element_tag == tag and box.element is not None}


def test_figures_and_tables_are_numbered_once_in_order(html: str) -> None:
    """Figure 1, 2, 3, Table 1, 2, 3: as a reader meets them, and each under an anchor of its own."""
    for kind in ("Figure", "Table"):
        numbers = [int(found) for found in re.findall(rf'<span class="no">{kind} (\d+)</span>', html)]
        assert numbers == list(range(1, len(numbers) + 1))
    anchors = re.findall(r'<(?:figure|table) id="((?:fig|table)-[a-z0-9-]+)"', html)
    captions = re.findall(r'<span class="no">(?:Figure|Table) \d+</span>', html)
    assert len(anchors) == len(set(anchors)) == len(captions)


def test_references_say_the_number_of_what_they_lead_to(html: str) -> None:
    """`Table 5` in a sentence is the table whose caption says so."""
    named = dict(
        re.findall(r'<(?:figure|table) id="([^"]+)"[^>]*>\s*<(?:h3|caption)><span class="no">([^<]+)</span>', html)
    )
    references = re.findall(r'<a class="ref" href="#([^"]+)">([^<]*)</a>', html)
    assert all(named[anchor] == said for anchor, said in references)


@pytest.fixture(scope="module")
def document(compiled: Compiled) -> PdfReader:
    """The PDF of the design review's plan."""
    return PdfReader(BytesIO(pdf(full(compiled))))


def test_every_link_of_the_paper_leads_somewhere(document: PdfReader) -> None:
    """A link inside the file has its destination in it; one that leaves it has a web address."""
    actions = [annotation.get_object() for page in document.pages for annotation in page.get("/Annots", [])]
    inside = [str(link["/Dest"]) for link in actions if "/Dest" in link]
    outside = [str(link["/A"]["/URI"]) for link in actions if "/A" in link]
    assert len(inside) + len(outside) == len(actions)
    assert set(inside) <= set(document.named_destinations)
    assert outside
    assert all(address.startswith("https://") for address in outside)


def test_references_to_sections_say_their_page(document: PdfReader) -> None:
    """On paper a reader turns to a page."""
    text = " ".join(" ".join(page.extract_text().split()) for page in document.pages)
    number, page = re.findall(r"section (\d+), Evidence, page (\d+)", text)[0]
    assert f"{number} Evidence" in " ".join(document.pages[int(page) - 1].extract_text().split())
