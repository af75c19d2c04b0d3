"""A lecture ready to print: chapters of questions, each with its figures, its table and what the notes say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ledger import numbers
from ledger.course.answers import Amount, Answer, Figure, Grid, Outcome, Plot
from ledger.course.lecture import Chapter, Lecture, Question
from ledger.course.wording import ROUNDED_FROM, difference, spoken, written
from ledger.model.number_bits import Bits
from ledger.report.charts import bits, curve
from ledger.report.views.formulas import formula_cell
from ledger.report.views.parts import Cell, Chart, Column, Table, draw_chart
from ledger.spec.quantity_expressions import Value

WHOLE_TO = 10**27  # more digits than that are not printed
WHOLE_FROM = 1000  # below, a count that is printed with three figures is printed whole
NAMES: Mapping[str, str] = {"B": "bytes", "FLOP": "FLOP", "parameters": "parameters", "tokens": "tokens"}


@dataclass(frozen=True)
class Line:
    """One figure: what it is, the closed form it came from, its value, and every digit where that is whole."""

    title: str
    formula: Cell | None
    value: str
    whole: str


@dataclass(frozen=True)
class Article:
    """One question with its answer. `by_hand` are formulas to compare with; `checked` says which expectations agree."""

    question: Question
    lines: tuple[Line, ...]
    table: Table | None
    chart: Chart | None
    by_hand: tuple[Line, ...]
    checked: str
    holds: bool


@dataclass(frozen=True)
class AnsweredChapter:
    """A chapter with the answers to its questions."""

    chapter: Chapter
    articles: tuple[Article, ...]


@dataclass(frozen=True)
class LecturePage:
    """The whole lecture: where the notes are wrong, then chapter by chapter."""

    lecture: Lecture
    summary: str
    corrections: Table
    parts: tuple[AnsweredChapter, ...]


def page(lecture: Lecture, answers: Iterable[Answer]) -> LecturePage:
    """The answers in the order of the lecture."""
    given = {id(answer.question): answer for answer in answers}
    mine = [given[id(question)] for chapter in lecture.chapters for question in chapter.questions]
    return LecturePage(
        lecture,
        summary(mine),
        corrections(mine),
        tuple(part(chapter, [given[id(question)] for question in chapter.questions]) for chapter in lecture.chapters),
    )


def summary(answers: Sequence[Answer]) -> str:
    """How many questions, how many expectations hold, and how often the notes print something else."""
    outcomes = [outcome for answer in answers for outcome in answer.outcomes]
    held = sum(outcome.holds for outcome in outcomes)
    printed = sum(bool(answer.question.printed) for answer in answers)
    agree = f"all {held}" if held == len(outcomes) else f"{held} of {len(outcomes)}"
    return (
        f"{len(answers)} questions; {agree} expected values come out; "
        f"in {printed} {'place' if printed == 1 else 'places'} the notes print something else, or in other words."
    )


def corrections(answers: Sequence[Answer]) -> Table:
    """What the notes print where that differs, beside what is right."""
    rows = tuple(
        (
            Cell(answer.question.asks),
            Cell(answer.question.printed),
            Cell(right(answer)),
            Cell(answer.question.why.replace("`", "")),
        )
        for answer in answers
        if answer.question.printed
    )
    columns = (Column("question"), Column("the notes print"), Column("right is"), Column("how it comes"))
    return Table("Where the notes print something else", columns, rows, sortable=False)


def right(answer: Answer) -> str:
    """The answer in a line: its first figures, or those of its table's last rows."""
    shown = lines(answer)
    if shown:
        return "; ".join(f"{line.value}" if len(shown) == 1 else f"{line.title}: {line.value}" for line in shown[:3])
    if answer.found.grid is None:
        return ""
    last = answer.found.grid.columns[-1][1]
    cells = ((row[0], cell(row[-1], last)) for row in answer.found.grid.rows)
    return "; ".join(f"{name}: {found.text}{f' ({found.note})' if found.note else ''}" for name, found in cells)


def part(chapter: Chapter, answers: Sequence[Answer]) -> AnsweredChapter:
    """A chapter with the article of each of its answers."""
    return AnsweredChapter(chapter, tuple(article(answer) for answer in answers))


def article(answer: Answer) -> Article:
    """One question. Where it chooses its figures, a table is shown only for a curve that it belongs to."""
    question, found = answer.question, answer.found
    drawn = found.curve if found.curve and len(found.curve.points) > 1 else None
    return Article(
        question,
        lines(answer),
        table(found.grid) if found.grid and (drawn or not question.show) else None,
        chart(drawn) if drawn else bit_chart(found.bits) if found.bits else None,
        tuple(by_hand(question)),
        checked(answer.outcomes),
        answer.holds,
    )


def lines(answer: Answer) -> tuple[Line, ...]:
    """The figures a question shows, those without a title being for expectations alone."""
    titled = {figure.name: figure for figure in answer.found.figures if figure.title}
    return tuple(line(titled[name]) for name in answer.question.show or titled if name in titled)


def line(found: Figure) -> Line:
    """One figure; a whole number in every digit, beside its rounded form where it is long."""
    value, unit = found.value, found.unit
    spelt = ""
    if (
        unit in NAMES
        and not isinstance(value, str | bool)
        and value == int(value)
        and WHOLE_FROM <= abs(float(value)) < WHOLE_TO
    ):
        spelt = f"{numbers.integer(value)}{numbers.THIN}{NAMES[unit]}"
    short = spelt and abs(float(value)) < ROUNDED_FROM and unit != "B"
    plain = found.formula.replace(".", "").replace("_", "").isidentifier() or found.formula.isdigit()
    formula = formula_cell(found.formula) if found.formula and not plain else None
    return Line(found.title, formula, spelt if short else written(value, unit), "" if short else spelt)


def by_hand(question: Question) -> Iterable[Line]:
    """The formulas that an answer is compared with, and the numbers put in them."""
    given = ", ".join(f"{name} = {spoken(value)}" for name, value in question.values.items())
    for name, formula in question.formulas.items():
        yield Line(name.replace("_", " "), formula_cell(formula), given, "")


def checked(outcomes: Sequence[Outcome]) -> str:
    """Expectations in a line: how many agree, or which do not."""
    missed = [outcome for outcome in outcomes if not outcome.holds]
    if missed:
        return "; ".join(f"{o.expected.figure} should be {o.expected.text}" for o in missed)
    return f"{len(outcomes)} expected values agree" if len(outcomes) > 1 else "agrees" if outcomes else ""


def table(grid: Grid) -> Table:
    """A grid as a table: numbers to the right, outcomes with their sign."""
    kinds = {"": "text", "yes": "text", "status": "status"}
    columns = tuple(Column(title, kinds.get(unit, "number")) for title, unit in grid.columns)
    rows = tuple(
        tuple(cell(value, unit) for value, (_, unit) in zip(row, grid.columns, strict=True)) for row in grid.rows
    )
    return Table(grid.caption, columns, rows, sortable=False)


def cell(value: Value | Amount, unit: str) -> Cell:
    """One value of a grid; how an amount differs from the first of its row is said below it."""
    text = written(value, unit)
    note = difference(value.change) if isinstance(value, Amount) and value.change is not None else ""
    return Cell(text.replace("_", " ") if unit == "" else text, note=note, status=text if unit == "status" else "")


def chart(found: Plot) -> Chart:
    """A curve; points whose names say more than a number are out of reach."""
    places = [curve.CurvePoint(x, y, label, reached=label.isdigit()) for x, y, label in found.points]
    across, up = (curve.Axis(*axis) for axis in (found.across, found.up))
    return draw_chart(found.title, "", lambda width: curve.chart(places, across, up, found.title, width))


def bit_chart(found: Bits) -> Chart:
    """The bits of a number format."""
    said = f"Bits of {found.name}: {', '.join(f'{part} {count}' for part, count in found.parts)}"
    return draw_chart(f"Bits of {found.name}", "", lambda width: bits.chart(found.parts, found.beside, said, width))
