"""Lectures as specs: what may be written, and how it is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import jsonschema
import pytest

from ledger.course import asks
from ledger.course.asks import ASKS
from ledger.course.lecture import is_lecture, last_digit, load_lecture
from ledger.course.questions import LECTURE
from ledger.spec.kinds import published
from ledger.spec.problems import SpecError
from ledger.spec.reader import read

ROOT = Path(__file__).resolve().parents[2]
HEAD = "spec: ledger/1\nlecture: A lecture\nsource: a course\n"
QUESTION = """questions:
  - id: size
    asks: How large is it?
    tensor: {shape: {rows: 3, columns: 5}, dtype: bf16}
"""


def written(folder: Path, text: str) -> Path:
    """A lecture in a file."""
    path = folder / "mine.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    """What is said about a lecture that cannot be read."""
    with pytest.raises(SpecError) as caught:
        load_lecture(written(folder, text))
    return "\n".join(f"{problem} {problem.help}" for problem in caught.value.problems)


def test_a_question_becomes_a_record(tmp_path: Path) -> None:
    """What is asked for is read into its kind's record; the source of the chapter is that of its questions."""
    (chapter,) = load_lecture(written(tmp_path, QUESTION)).chapters
    (question,) = chapter.questions
    assert question.ask == asks.TensorAsk({"rows": 3, "columns": 5}, "bf16")
    assert question.source == "a course"


def test_formulas_are_expectations_too(tmp_path: Path) -> None:
    """`is` is evaluated exactly over the numbers of `with`."""
    text = QUESTION + "    with: {rows: 3, columns: 5, share: 0.5}\n    is: {bytes: rows * columns / share}\n"
    (expected,) = load_lecture(written(tmp_path, text)).chapters[0].questions[0].expected
    assert expected.figure == "bytes"
    assert expected.value == 30


@pytest.mark.parametrize(
    ("text", "worth"),
    [("24", 0), ("56 GB", 0), ("53.333e9", 10**6), ("143.927", Fraction(1, 1000)), ("1.12 TB", 10**10), ("fp16", 0)],
)
def test_a_number_holds_to_its_last_digit(text: str, worth: Fraction) -> None:
    """Decimals say how exact a printed value is; a number without any is exact."""
    assert last_digit(text) == worth


def test_a_question_asks_for_one_thing(tmp_path: Path) -> None:
    """Nothing asked, and two things asked, are both told with what there is to ask for."""
    nothing = "questions:\n  - {id: a, asks: What is it?}\n"
    assert "`a` asks for nothing" in refused(tmp_path, nothing)
    assert "`size` asks for tensor and dtype" in refused(tmp_path, QUESTION + "    dtype: {name: fp16}\n")


def test_a_name_that_a_formula_lacks_is_told_with_its_place(tmp_path: Path) -> None:
    """The line is that of the formula, and near names are offered."""
    said = refused(tmp_path, QUESTION + "    with: {rows: 3}\n    is: {bytes: 2 * row}\n")
    assert "mine.yaml:9" in said
    assert "`rows`" in said


def test_an_unknown_plan_is_told_where_it_is_named(tmp_path: Path) -> None:
    """A question about a plan that does not exist points into the lecture."""
    said = refused(tmp_path, "questions:\n  - {id: a, asks: What is it?, moments: {plan: plans/none.yaml}}\n")
    assert "mine.yaml:5" in said
    assert "no such file" in said


def test_unknown_fields_are_refused(tmp_path: Path) -> None:
    """A misspelt field is not read past."""
    assert "`printd`" in refused(tmp_path, QUESTION + "    printd: 3\n")


def test_every_kind_of_question_is_in_the_schema() -> None:
    """Editors know each kind that the reader knows, and have nothing against the lectures of the library."""
    schema = published(LECTURE)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(ASKS) <= set(schema["properties"]["questions"]["items"]["properties"])
    for path in (ROOT / "specs" / "lecture").glob("*.yaml"):
        jsonschema.validate(read(path.read_text("utf-8"), path.name).plain(), schema)


def test_lectures_are_told_from_plans() -> None:
    """A plan is no lecture, nor is standard input, nor what is not there."""
    assert is_lecture(str(ROOT / "specs" / "lecture" / "run.yaml"))
    assert is_lecture("lecture")
    assert not is_lecture(str(ROOT / "specs" / "70b.yaml"))
    assert not is_lecture("-")
    assert not is_lecture("nowhere.yaml")


def test_a_chapter_stands_alone() -> None:
    """Each file of questions can be answered without the book that lists it."""
    chapters = load_lecture(ROOT / "specs" / "lecture" / "lecture.yaml").chapters
    alone = load_lecture(ROOT / "specs" / "lecture" / "flops.yaml").chapters
    assert next(chapter for chapter in chapters if chapter.name == "flops").title == alone[0].title
