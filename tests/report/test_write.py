from __future__ import annotations

import json
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfReader

from ledger.books.compiled import Compiled
from ledger.cli.report import prepare_in_background
from ledger.report.pdf import load_weasyprint, pdf, render_pdf
from ledger.report.views import filled_sections, section_numbers
from ledger.report.views.parts import Report
from ledger.report.write import write_report
from ledger.whole_files import replace_file

HERE = Path(__file__).resolve()


@pytest.fixture(scope="module")
def document(compiled: Compiled) -> PdfReader:
    """The PDF of the design review's plan."""
    return PdfReader(BytesIO(pdf(Report(compiled))))


def test_every_format_is_written(variants: dict[str, Compiled], tmp_path: Path) -> None:
    """One file per format, named after the plan."""
    compiled = variants["bare"]
    paths = write_report(Report(compiled), tmp_path / "new", ("html", "md", "json"))
    assert [path.name for path in paths] == [f"{compiled.plan.name}.{kind}" for kind in ("html", "md", "json")]
    assert all(path.stat().st_size > 0 for path in paths)


def test_a_report_is_touched_only_when_it_changes(variants: dict[str, Compiled], tmp_path: Path) -> None:
    """Two runs leave the same file, with the time of the first."""
    compiled = variants["bare"]
    path = write_report(Report(compiled), tmp_path, ("html",))[0]
    before = path.stat()
    write_report(Report(compiled), tmp_path, ("html",))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_an_unknown_format_writes_nothing(compiled: Compiled, tmp_path: Path) -> None:
    """Either all the formats are written or none."""
    with pytest.raises(KeyError):
        write_report(Report(compiled), tmp_path, ("md", "docx"))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A file appears whole or not at all, and nothing temporary stays behind."""
    path = tmp_path / "report.md"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        replace_file(path, "text, not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_json_holds_every_total_exactly(compiled: Compiled, tmp_path: Path) -> None:
    """Integers beyond 2**53 keep their last digit."""
    found = json.loads(write_report(Report(compiled), tmp_path, ("json",))[0].read_text())["totals"]
    assert found["flops.step"] == compiled.totals["flops.step"]
    assert set(found) == set(compiled.totals)


def test_the_markdown_agrees_with_the_page(compiled: Compiled, tmp_path: Path) -> None:
    """Every number of the verdict is written alike in both."""
    page, text = (path.read_text() for path in write_report(Report(compiled), tmp_path, ("html", "md")))
    head = text.partition("## ")[0]
    for number in re.findall(r"^\|[^|]+\| ([^|]+) \|", head, re.MULTILINE)[2:]:
        assert f">{number}</data>" in page


def test_the_pdf_is_a_document_for_everyone(document: PdfReader, compiled: Compiled) -> None:
    """It is tagged, has a language, a title, bookmarks for its sections, and the plan attached."""
    root = document.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"]
    assert root["/Lang"] == "en"
    assert "/StructTreeRoot" in root
    assert document.metadata is not None
    assert compiled.plan.title in str(document.metadata.title)
    titles = {entry.title for entry in document.outline if not isinstance(entry, list)}
    sections = filled_sections(Report(compiled))
    numbers = section_numbers(sections)
    assert titles == {f"{numbers[section.name]} {section.title}" for section, _ in sections}
    assert document.attachments[f"{compiled.plan.name}.yaml"] == [compiled.plan.text.encode()]
    assert b"pdfuaid:part" in root["/Metadata"].get_data()


def test_every_page_says_where_it_stands(document: PdfReader, compiled: Compiled) -> None:
    """Page x of y, and contents that lead to the pages."""
    count = len(document.pages)
    for at, page in enumerate(document.pages, start=1):
        assert f"page {at} of {count}" in page.extract_text()
    contents = document.pages[0].extract_text()
    assert "Contents" in contents
    assert filled_sections(Report(compiled))[-1][0].title in contents


def test_the_pdf_carries_its_own_letters(document: PdfReader) -> None:
    """Every font is embedded and is the project's own, so that a page looks the same everywhere."""
    fonts = [font.get_object() for page in document.pages for font in page["/Resources"]["/Font"].values()]
    assert fonts
    assert {re.sub(r"^/[A-Z]{6}\+", "", font["/BaseFont"]).rpartition("-")[0].split("-")[0] for font in fonts} == {
        "Ledger"
    }


def test_long_tables_are_cut_on_paper_and_say_so(document: PdfReader) -> None:
    """The reader of the paper learns how many rows the page has."""
    text = "".join(page.extract_text() for page in document.pages)
    assert re.search(r"\d+ more rows in the HTML report", text)


@pytest.mark.long
def test_two_runs_write_the_same_pdf(variants: dict[str, Compiled], tmp_path: Path) -> None:
    """The bytes depend on the plan alone: not on the time, the process, or the order of a set."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import conftest; from ledger.report.pdf import pdf; "
        "from ledger.report.views.parts import Report; import hashlib; "
        "print(hashlib.sha256(pdf(Report(conftest.bare(conftest.llama())))).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(HERE.parent)],
            cwd=HERE.parents[2],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    """An error names the file that was asked for, not the one that it was to be renamed from; nothing is left."""
    (tmp_path / "plan.md").mkdir()
    with pytest.raises(OSError, match=r"plan\.md'$"):
        replace_file(tmp_path / "plan.md", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.md"]


def test_paper_of_another_process_is_the_same(variants: dict[str, Compiled], tmp_path: Path) -> None:
    """The order of the files and every byte are those of one process."""
    report, formats = Report(variants["bare"]), ("pdf", "html")
    alone = write_report(report, tmp_path / "alone", formats)
    beside = write_report(
        report, tmp_path / "beside", formats, setting=prepare_in_background(render_pdf, load_weasyprint)
    )
    assert [path.name for path in beside] == [path.name for path in alone]
    assert [path.read_bytes() for path in beside] == [path.read_bytes() for path in alone]
