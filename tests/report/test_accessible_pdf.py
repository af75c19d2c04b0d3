"""Rules of PDF/UA-1 (ISO 14289-1) that a program can check, of the report on paper.

Checked: 5 the file says that it conforms; 7.1 it is marked as tagged, has its title shown in place of the file's name,
and all that is painted is tagged or an artifact; 7.2 it has a language; 7.3 figures have alternative texts; 7.4.2
headings skip no level; 7.5 tables have rows of cells, headers have a scope, and cells name headers that there are; 7.11
attached files have both of their names; 7.18 annotations are in the structure, with a description, and pages read in
its order; 7.21 fonts are embedded and map to Unicode.

Not checked: whether texts and their order say what a reader needs, contrast, and rules about what these reports do not
have (forms, notes, media, scripts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from typing import Any

import pytest
from pypdf import PdfReader
from pypdf.generic import ContentStream

from ledger.books.compiled import Compiled
from ledger.report.pdf import pdf
from ledger.report.views.parts import Report

# ISO 32000-1, 14.8.4: types that need no map of roles.
STANDARD = {
    *(
        "Document",
        "Part",
        "Art",
        "Sect",
        "Div",
        "BlockQuote",
        "Caption",
        "TOC",
        "TOCI",
        "Index",
        "NonStruct",
        "Private",
    ),
    *("P", "H", "H1", "H2", "H3", "H4", "H5", "H6", "L", "LI", "Lbl", "LBody", "Table", "TR", "TH", "TD", "THead"),
    *("TBody", "TFoot", "Span", "Quote", "Note", "Reference", "BibEntry", "Code", "Link", "Annot", "Figure", "Formula"),
}
PAINTING = {b"Tj", b"TJ", b"'", b'"', b"Do", b"f", b"F", b"f*", b"S", b"s", b"B", b"B*", b"b", b"b*", b"sh", b"EI"}


@pytest.fixture(scope="module")
def document(compiled: Compiled) -> PdfReader:
    """The PDF of the design review's plan."""
    return PdfReader(BytesIO(pdf(Report(compiled))))


@pytest.fixture(scope="module")
def elements(document: PdfReader) -> list[tuple[Any, str]]:
    """Every element of the structure in reading order, with the type of the element around it."""
    return list(structure(document.trailer["/Root"]["/StructTreeRoot"], ""))


def structure(node: Any, around: str) -> Iterator[tuple[Any, str]]:
    """The elements below a node of the structure."""
    kids = node.get("/K", [])
    kids = kids.get_object() if hasattr(kids, "get_object") else kids
    for kid in kids if isinstance(kids, list) else [kids]:
        element = kid.get_object() if hasattr(kid, "get_object") else kid
        if isinstance(element, dict) and "/S" in element:
            yield element, around
            yield from structure(element, element["/S"][1:])


def of_type(elements: list[tuple[Any, str]], *kinds: str) -> list[Any]:
    """The elements of some types."""
    return [element for element, _ in elements if element["/S"][1:] in kinds]


def test_it_says_what_it_is(document: PdfReader) -> None:
    """Tagged, conforming, in a language, and shown by its title (5, 7.1, 7.2)."""
    root = document.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"]
    assert not root["/MarkInfo"].get("/Suspects", False)
    assert root["/Lang"] == "en"
    assert root["/ViewerPreferences"]["/DisplayDocTitle"]
    metadata = root["/Metadata"].get_data().decode()
    assert 'pdfuaid:part="1"' in metadata
    assert "dc:title" in metadata
    assert not document.is_encrypted


def test_all_that_is_painted_is_tagged_or_an_artifact(document: PdfReader) -> None:
    """No text, line or picture is outside of marked content (7.1)."""
    outside: Counter[bytes] = Counter()
    for page in document.pages:
        depth = 0
        for _, operator in ContentStream(page.get_contents(), document).operations:
            depth += (operator in {b"BDC", b"BMC"}) - (operator == b"EMC")
            outside[operator] += operator in PAINTING and depth == 0
    assert not +outside


def test_types_are_standard(elements: list[tuple[Any, str]]) -> None:
    """No element is of a type that a reader does not know (7.1)."""
    assert {element["/S"][1:] for element, _ in elements} <= STANDARD


def test_figures_have_alternative_texts(elements: list[tuple[Any, str]]) -> None:
    """Charts and formulas are said in words (7.3)."""
    figures = of_type(elements, "Figure", "Formula")
    assert figures
    assert all(str(figure.get("/Alt", "")).strip() for figure in figures)


def test_headings_skip_no_level(elements: list[tuple[Any, str]]) -> None:
    """The first is H1, and a heading is at most one level below the one before (7.4.2)."""
    levels = [int(heading["/S"][2:]) for heading in of_type(elements, *(f"H{level}" for level in range(1, 7)))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_tables_are_rows_of_cells_with_headers(document: PdfReader, elements: list[tuple[Any, str]]) -> None:
    """Rows are in tables, cells in rows; headers have a scope; what a cell names identifies a header (7.5)."""
    for element, around in elements:
        kind = element["/S"][1:]
        if kind == "TR":
            assert around in {"Table", "THead", "TBody", "TFoot"}
        if kind in {"TH", "TD"}:
            assert around == "TR"
    headers = of_type(elements, "TH")
    assert {header["/A"]["/Scope"] for header in headers} == {"/Column", "/Row"}
    named = document.trailer["/Root"]["/StructTreeRoot"]["/IDTree"]["/Names"]
    identifiers = [str(name) for name in named[::2]]
    assert identifiers == sorted({*identifiers})
    assert {str(header["/ID"]) for header in headers} == {*identifiers}
    for cell in of_type(elements, "TD"):
        assert {str(name) for name in cell["/A"].get("/Headers", [])} <= {*identifiers}
    tables = of_type(elements, "Table")
    assert all(any(kid["/S"] == "/TH" for kid, _ in structure(table, "Table")) for table in tables)


def test_attached_files_have_both_names(document: PdfReader) -> None:
    """Old and new readers find the plan (7.11)."""
    names = document.trailer["/Root"]["/Names"]["/EmbeddedFiles"]["/Names"]
    specifications = [one.get_object() for one in names[1::2]]
    assert specifications
    assert all(one["/F"] == one["/UF"] and one["/Desc"] for one in specifications)


def test_links_are_in_the_structure_and_described(document: PdfReader, elements: list[tuple[Any, str]]) -> None:
    """Whoever goes from link to link hears where each leads, in the order of the structure (7.18)."""
    annotations = [one.get_object() for page in document.pages for one in page.get("/Annots", [])]
    assert annotations
    assert all(one["/Subtype"] == "/Link" and one["/Contents"] and "/StructParent" in one for one in annotations)
    assert all(page["/Tabs"] == "/S" for page in document.pages)
    objects = [kid.get_object() for link in of_type(elements, "Link") for kid in link["/K"] if not isinstance(kid, int)]
    found = {id_of(kid["/Obj"]) for kid in objects if kid.get("/Type") == "/OBJR"}
    assert len(found) == len(annotations)


def id_of(annotation: Any) -> object:
    """What tells an annotation from others: the number under which its place in the structure is found."""
    return annotation.get_object()["/StructParent"]


def test_fonts_are_embedded_and_say_which_letters_they_draw(document: PdfReader) -> None:
    """What is drawn can be read aloud and copied (7.21)."""
    fonts = [font.get_object() for page in document.pages for font in page["/Resources"]["/Font"].values()]
    assert fonts
    for font in fonts:
        assert "/ToUnicode" in font
        (drawn,) = (one.get_object() for one in font["/DescendantFonts"])
        assert {"/FontFile2", "/FontFile3"} & drawn["/FontDescriptor"].keys()
