"""The report as a tagged PDF, set by WeasyPrint from the page's own HTML.

The same input gives the same bytes on one installation: no clock is read, and the file's identifier is a digest
of its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ledger.report.html import render
from ledger.report.pdf_structure import complete_structure
from ledger.report.seals.seal import published_seal
from ledger.whole_files import scratch_files

if TYPE_CHECKING:
    from ledger.report.views.parts import Report

EPOCH = datetime(1980, 1, 1, tzinfo=UTC)  # a date for attachments, the earliest that every archive format knows
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
        AttachedFile(f"{SEALED}{one.name}", one.text, "a file that the report was made from") for one in seal.files
    ]
    return page, plan.name, seal.effective, files


def load_weasyprint() -> None:
    """Imports what sets a PDF, a tenth of the time that it takes."""
    import weasyprint  # noqa: F401 - for what it leaves in memory


def render_pdf(page: str, name: str, spec: str, files: Sequence[AttachedFile] = ()) -> bytes:
    """A page set as a PDF, with the spec attached as NAME.yaml, and files beside it."""
    import weasyprint
    from weasyprint.urls import URLFetcher

    first = [AttachedFile(f"{name}.yaml", spec, "the spec that the report is about")] if spec else []
    attached = (*first, *files)
    attachments = [
        weasyprint.Attachment(
            string=one.text.encode(), name=one.name, description=one.description, created=EPOCH, modified=EPOCH
        )
        for one in attached
    ]
    fetcher = URLFetcher(allowed_protocols={"data"}, allow_redirects=False, fail_on_errors=True)
    with scratch_files():
        content: bytes = weasyprint.HTML(string=page, url_fetcher=fetcher).write_pdf(
            finisher=complete_structure,
            pdf_variant=VARIANT,
            pdf_identifier=hashlib.sha256("".join((page, *(one.text for one in attached))).encode()).digest()[:16],
            attachments=attachments,
        )
    return content
