"""The lecture's page: every question, the right numbers, and nothing from outside."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pypdf
import pytest
from click.testing import CliRunner

from ledger.cli import main
from ledger.course.answer import answers
from ledger.course.lecture import Lecture, load_lecture
from ledger.course.report import FORMATS, amount_text, page, spoken, summary, write_lecture

FOLDER = Path(__file__).resolve().parents[2] / "specs" / "lecture"


@pytest.fixture(scope="module")
def run() -> Lecture:
    """One chapter, whose plans compile at once."""
    return load_lecture(FOLDER / "run.yaml")


@pytest.fixture(scope="module")
def html(run: Lecture, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its page."""
    (path,) = write_lecture(run, answers(run), tmp_path_factory.mktemp("html"), ["html"])
    return path.read_text(encoding="utf-8")


def test_every_question_is_on_the_page(run: Lecture, html: str) -> None:
    """Each can be linked to by its name."""
    for question in run.chapters[0].questions:
        assert f'<article id="{question.name}">' in html


def test_what_counts_nothing_is_not_counted(run: Lecture, tmp_path: Path) -> None:
    """A lecture that expects nothing and holds it against no notes has questions alone."""
    path = tmp_path / "plain.yaml"
    path.write_text(
        "spec: ledger/1\nlecture: Plain\nsource: nobody\nquestions:\n"
        "  - {id: size, asks: How large?, tensor: {shape: {rows: 3}, dtype: bf16}}\n",
        encoding="utf-8",
    )
    assert summary(tuple(answers(load_lecture(path)))) == "1 question."
    assert re.fullmatch(
        r"\d+ questions; all \d+ expected values come out; "
        r"in \d+ places the notes print something else, or in other words\.",
        summary(tuple(answers(run))),
    )


def test_the_page_needs_no_network(html: str) -> None:
    """Nothing is fetched: no address but those that hold their own content."""
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]+"', html)
    assert "default-src &#39;none&#39;" in html or "default-src 'none'" in html


@pytest.mark.parametrize("name", ["trades", "tensors"])
def test_every_table_has_a_name_of_its_own_and_every_column_a_head(name: str, tmp_path: Path) -> None:
    """Who hears the page jumps from table to table, and many have one caption."""
    chapter = load_lecture(FOLDER / f"{name}.yaml")
    (path,) = write_lecture(chapter, answers(chapter), tmp_path, ["html"])
    html = path.read_text(encoding="utf-8")
    names = re.findall(r'role="region" aria-label="([^"]+)"', html)
    assert len(names) > 2
    assert len(set(names)) == len(names)
    assert not re.findall(r"<th scope=\"col\"[^>]*></th>", html)


def test_right_and_printed_stand_side_by_side(html: str) -> None:
    """The dense peak is shown with its digits, and the notes' figure is called theirs."""
    assert "989.5\u202fTFLOP/s" in html
    assert "143.9\u202fdays" in html
    assert re.search(r"The notes print</em> 4\.4e19", html)


def test_the_pdf_is_the_same_page_with_the_specs_attached(run: Lecture, tmp_path: Path) -> None:
    """Questions and answers are in its text; the questions as written come with it."""
    (path,) = write_lecture(run, answers(run), tmp_path, ["pdf"])
    read = pypdf.PdfReader(io.BytesIO(path.read_bytes()))
    text = " ".join(sheet.extract_text() for sheet in read.pages)
    assert "What is the bf16 peak of an H100?" in text
    (attached,) = read.attachments["run.yaml"]
    assert attached.decode() == (FOLDER / "run.yaml").read_text(encoding="utf-8")


def test_records_hold_every_digit(run: Lecture) -> None:
    """JSON has figures in SI base units, whole numbers as integers."""
    given = tuple(answers(run))
    published = json.loads(FORMATS["json"](page(run, given), given))
    flops = next(record for record in published["questions"] if record["id"] == "run.flops")
    assert flops["figures"]["flops"]["value"] == 63 * 10**23
    assert flops["holds"]


def test_markdown_has_a_row_for_each_question(run: Lecture) -> None:
    """The tables of a pull request hold questions and answers."""
    given = tuple(answers(run))
    text = FORMATS["md"](page(run, given), given).decode()
    for question in run.chapters[0].questions:
        assert f"| {question.asks} |" in text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2415919104, "B", "2.42\u202fGB"),
        (0.5625, "B each", "0.5625\u202fB"),
        (3.4028234663852886e38, "plain", "3.403×10³⁸"),
        (65504, "plain", "65\u202f504"),
        (0.25, "FLOP/B", "0.25\u202fFLOP/B"),
        (True, "1", "yes"),
        ("memory", "1", "memory"),
    ],
)
def test_values_are_written_for_people(value: float | str, unit: str, text: str) -> None:
    """Units are said, digits that carry nothing are not."""
    assert amount_text(value, unit) == text


def test_numbers_in_formulas_read_as_people_write_them() -> None:
    """Large round numbers with a power of ten, sizes in full."""
    assert spoken("70000000000.0") == "7×10¹⁰"
    assert spoken("50257") == "50\u202f257"
    assert spoken("0.5") == "0.5"


def test_the_command_line_reports_and_checks_lectures(tmp_path: Path) -> None:
    """`report` writes files named after the lecture, `check` passes, and overrides are refused."""
    chapter = str(FOLDER / "run.yaml")
    result = CliRunner().invoke(main, ["report", chapter, "--out", str(tmp_path), "--format", "md,json"])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {"run.md", "run.json"}
    assert CliRunner().invoke(main, ["check", chapter]).exit_code == 0
    refused = CliRunner().invoke(main, ["report", chapter, "--set", "run.micro_batch=2"])
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("bytes: 7 B", "`size`: expected bytes 7 B, found 6 B"),
        ("bytes: 6 s", "`size`: expected bytes 6 s, found 6 B"),
        ("contents: 6 B", "and it has no such figure"),
        ("byts: 6 B", "did you mean `bytes`"),
    ],
)
def test_a_missed_expectation_fails_the_check(tmp_path: Path, expect: str, said: str) -> None:
    """A lecture whose answer is not what it says, or in another unit, leaves with 1, where that is expected."""
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "spec: ledger/1\nlecture: Wrong\nsource: nobody\nquestions:\n"
        "  - id: size\n    asks: How large?\n    tensor: {shape: {rows: 3}, dtype: bf16}\n"
        f"    expect: {{{expect}}}\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == 1
    assert "wrong.yaml:8" in result.output
    assert said in result.output.replace("\u202f", " ").replace("\u2009", " ").replace("\xa0", " ")
