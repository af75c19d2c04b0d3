"""The seal that the file of a report carries: HTML as a block of data, PDF as attachments, JSON under a key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from ledger.report.pdf import SEAL, SEALED
from ledger.report.seals.reading import HELP, read_seal
from ledger.report.seals.seal import Seal
from ledger.spec.bounded_files import read_bounded
from ledger.spec.problems import Location, Problem, SpecError

LARGEST_REPORT = 64_000_000  # bytes
MOST_VALUES = 1_000_000  # of JSON; a report has some ten thousand
DEFLATED = (None, "/FlateDecode", ["/FlateDecode"])  # how attachments of a report are packed
OPENING, CLOSING = b'<script type="application/json" id="seal">', b"</script>"
CARRIERS = "the HTML, PDF and JSON of a report carry what it was made from; Markdown names the files only"


class NoSealError(ValueError):
    """Why a file carries no seal."""


def carried_seal(path: Path, content: bytes) -> tuple[str, Seal]:
    """The format of a report (html, pdf or json) and its seal; SpecError for what carries none, or a damaged one."""
    kind = kind_of(content)
    try:
        record = READERS[kind](content)
    except NoSealError as error:
        raise SpecError([Problem(Location(str(path)), f"no sealed report: {error}", CARRIERS)]) from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise SpecError([Problem(Location(str(path)), f"the seal cannot be read: {error}", HELP)]) from error
    return kind, read_seal(record, str(path))


def report_bytes(path: Path) -> bytes:
    """The file of a report; SpecError where it is too large for one, OSError where it cannot be read."""
    content = read_bounded(path, LARGEST_REPORT)
    if len(content) > LARGEST_REPORT:
        raise SpecError([Problem(Location(str(path)), f"larger than {LARGEST_REPORT} bytes: no report is")])
    return content


def kind_of(content: bytes) -> str:
    """Which of the formats that carry a seal a file begins like; html for any other text."""
    start = content[:1024].lstrip()
    return "pdf" if start.startswith(b"%PDF-") else "json" if start.startswith(b"{") else "html"


def _of_html(content: bytes) -> Any:
    before, opening, rest = content.partition(OPENING)
    block, closing, after = rest.partition(CLOSING)
    if not opening or not closing:
        raise NoSealError("it has no seal")
    if OPENING in after or not before.lstrip().lower().startswith(b"<!doctype html"):
        raise NoSealError("it is not as a report is written")
    return _parsed(block)


def _of_json(content: bytes) -> Any:
    record = _parsed(content)
    if not isinstance(record, Mapping) or "seal" not in record:
        raise NoSealError("it has no seal")
    return record["seal"]


def _of_pdf(content: bytes) -> Any:
    attached = pdf_attachments(content)
    if SEAL not in attached:
        raise NoSealError("it has no seal attached")
    record = _parsed(attached[SEAL])
    for one in record["files"]:
        one["text"] = attached[f"{SEALED}{one['name']}"].decode()
    return record


def _parsed(content: bytes) -> Any:
    """The values of a text of JSON; NoSealError where it has far more of them than any report."""
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MOST_VALUES:
        raise NoSealError(f"it has more than {MOST_VALUES} values")
    return json.loads(content)


def pdf_attachments(content: bytes) -> dict[str, bytes]:
    """The attachments of a PDF by name; ValueError where it cannot be read, or has two of a name."""
    from pypdf import PdfReader

    found: dict[str, bytes] = {}
    size = 0
    try:
        for one in PdfReader(BytesIO(content)).attachment_list:
            if not _is_deflated(one.pdf_object["/EF"]):
                break
            text = bytes(one.content)
            size += len(text)
            if one.name in found or size > LARGEST_REPORT:
                break
            found[one.name] = text
        else:
            return found
    except Exception as error:  # whatever a damaged file makes the library raise
        raise ValueError(str(error) or type(error).__name__) from error
    raise NoSealError("its attachments are too large, are packed as no report packs them, or two have one name")


def _is_deflated(packed: Any) -> bool:
    """Whether each form of an attachment is packed as a report packs it: other packings unfold beyond bounds."""
    return all(packed[form].get_object().get("/Filter") in DEFLATED for form in packed)


READERS: Mapping[str, Callable[[bytes], Any]] = {"html": _of_html, "pdf": _of_pdf, "json": _of_json}
