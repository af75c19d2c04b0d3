"""The report as a tagged PDF, set by WeasyPrint from the page's own HTML.

The same input gives the same bytes on one installation: no clock is read, and the file's identifier is a digest
of its content.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING, Any

from ledger.report.html import render
from ledger.report.seals.seal import published_seal
from ledger.spec.problems import Location, Problem, SpecError
from ledger.whole_files import scratch_files

if TYPE_CHECKING:
    from ledger.report.views.parts import Report


EPOCH = datetime(1980, 1, 1, tzinfo=UTC)  # a date for attachments, the earliest that every archive format knows
PANGO = ("libpango-1.0.so.0", "libpango-1.0.dylib", "pango-1.0")  # by its names on Linux, macOS and elsewhere
INSTALLS = (
    "install them (`apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fontconfig`, "
    "`brew install pango`)"
)
VARIANT = "pdf/ua-1"
SEAL, SEALED = "seal.json", "sealed/"  # names of attachments: the seal, and what the names of its files begin with


@dataclass(frozen=True)
class AttachedFile:
    """A text file within a PDF."""

    name: str
    text: str
    description: str


def pdf(report: Report) -> bytes:
    """The PDF with the plan attached, and of a sealed report its seal and every file of it."""
    return render_pdf(*paper(report))


def paper(report: Report) -> tuple[str, str, str, list[AttachedFile]]:
    """What the PDF is set from, as `render_pdf` takes it: page, name, effective spec, and what else is attached."""
    plan, seal = report.compiled.plan, report.seal
    page = render(report, screen=False)
    if seal is None:
        return page, plan.name, plan.text, []
    record = json.dumps(published_seal(seal, texts=False), indent=1, ensure_ascii=False, allow_nan=False)
    files = [AttachedFile(SEAL, record, "what the report was made from")]
    files += [
        AttachedFile(f"{SEALED}{file.name}", file.text, "a file that the report was made from") for file in seal.files
    ]
    return page, plan.name, seal.effective, files


def require_typesetter(formats: Iterable[str]) -> None:
    """Raises SpecError where a PDF is asked for and this machine cannot set it: before anything is computed for it."""
    if "pdf" in formats and not any(map(_is_library, PANGO)):
        load_weasyprint()  # which knows where else to look


def _is_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def load_weasyprint() -> None:
    """Imports what sets a PDF, a tenth of the time that it takes; SpecError where the system lacks its libraries."""
    try:
        with redirect_stderr(StringIO()):  # it prints a page of advice
            import weasyprint  # noqa: F401 - for what it leaves in memory
    except OSError as error:
        message = "a PDF needs Pango and HarfBuzz, which this machine does not have"
        help_text = f"{INSTALLS}, or leave the PDF out: `--format html,md,json`"
        typed = "--format pdf"
        where = Location(typed, 1, typed.index("pdf") + 1)
        raise SpecError([Problem(where, message, help_text)], {typed: typed}) from error


def render_pdf(page: str, name: str, spec: str, files: Sequence[AttachedFile] = ()) -> bytes:
    """A page set as a PDF, with the spec attached as NAME.yaml, and files beside it."""
    load_weasyprint()
    import weasyprint
    from weasyprint.urls import URLFetcher

    first = [AttachedFile(f"{name}.yaml", spec, "the spec that the report is about")] if spec else []
    attached = (*first, *files)
    attachments = [
        weasyprint.Attachment(
            string=file.text.encode(), name=file.name, description=file.description, created=EPOCH, modified=EPOCH
        )
        for file in attached
    ]
    fetcher = URLFetcher(allowed_protocols={"data"}, allow_redirects=False, fail_on_errors=True)
    with scratch_files():
        content: bytes = weasyprint.HTML(string=page, url_fetcher=fetcher).write_pdf(
            finisher=complete_structure,
            pdf_variant=VARIANT,
            pdf_identifier=hashlib.sha256("".join((page, *(file.text for file in attached))).encode()).digest()[:16],
            attachments=attachments,
        )
    return content


# --- headers of tables, which WeasyPrint leaves untagged ---

HEADER, HEAD = "/TH", "/THead"


def complete_structure(_: Any, pdf: Any) -> None:
    """Puts the identifiers of a PDF's headers into a tree, and their scopes into their attributes."""
    import pydyf

    elements = [element for element in pdf.objects if _has_value(element, "Type", "/StructElem")]
    by_reference = {element.reference: element for element in elements}
    identified = sorted((element["ID"].string, element) for element in elements if "ID" in element)
    names = pydyf.Array(item for _, element in identified for item in (element["ID"], element.reference))
    tree = pydyf.Dictionary({"Names": names})
    if identified:
        root = next(element for element in pdf.objects if _has_value(element, "Type", "/StructTreeRoot"))
        # At one node a name tree has no limits: its names are sorted, however many they are.
        pdf.add_object(tree)
        root["IDTree"] = tree.reference
    for element in elements:
        if element["S"] == HEADER:
            above = {outer["S"] for outer in _enclosing_elements(element, by_reference)}
            element["A"]["Scope"] = "/Column" if HEAD in above else "/Row"


def _has_value(item: Any, key: str, value: str) -> bool:
    return isinstance(item, dict) and item.get(key) == value


def _enclosing_elements(element: Any, by_reference: dict[Any, Any]) -> Iterator[Any]:
    """The elements around one, as far as its table."""
    while (element := by_reference.get(element["P"])) and element["S"] != "/Table":
        yield element
