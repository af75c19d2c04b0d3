"""The report as a tagged PDF, set by WeasyPrint from the page's own HTML.

The same input gives the same bytes on one installation: no clock is read, and the file's identifier is a digest
of its content.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ledger.report.html import render

if TYPE_CHECKING:
    from ledger.report.views.parts import Report

EPOCH = datetime(1980, 1, 1, tzinfo=UTC)  # a date for attachments, the earliest that every archive format knows
VARIANT = "pdf/ua-1"


def pdf(report: Report) -> bytes:
    """The PDF with the plan as written attached."""
    plan = report.compiled.plan
    return render_pdf(render(report, screen=False), plan.name, plan.text)


def render_pdf(page: str, name: str, spec: str) -> bytes:
    """A page set as a PDF, with the spec as written attached."""
    import weasyprint
    from weasyprint.urls import URLFetcher

    attachments = [
        weasyprint.Attachment(
            string=spec.encode(),
            name=f"{name}.yaml",
            description="the spec as written",
            created=EPOCH,
            modified=EPOCH,
        )
    ]
    fetcher = URLFetcher(allowed_protocols={"data"}, allow_redirects=False, fail_on_errors=True)
    document = weasyprint.HTML(string=page, url_fetcher=fetcher)
    content: bytes = document.write_pdf(
        pdf_variant=VARIANT,
        pdf_identifier=hashlib.sha256(page.encode() + spec.encode()).digest()[:16],
        attachments=attachments if spec else [],
    )
    return content
