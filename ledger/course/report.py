"""A lecture as files: one HTML page, a tagged PDF of it, Markdown, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ledger import numbers
from ledger.books.results import Number
from ledger.course import claims
from ledger.course.answers import Amount, Figure, Grid, Outcome, Plot
from ledger.course.lecture import Answer, Chapter, Lecture, Question
from ledger.model.dtypes import Bits
from ledger.report import assets
from ledger.report.charts import bits, curve
from ledger.report.contract import json_number
from ledger.report.html import content_policy, environment, markdown_environment, share_letters, stylesheet
from ledger.report.pdf import render_pdf
from ledger.report.views.formulas import formula_cell
from ledger.report.views.parts import Cell, Chart, Column, Table, draw_chart
from ledger.spec.quantity_expressions import Value
from ledger.whole_files import replace_files

SCHEMA = "ledger-lecture/1"


def write_lecture(lecture: Lecture, answers: Iterable[Answer], out: Path, formats: Iterable[str]) -> list[Path]:
    """The lecture in each of the formats (html, pdf, md, json), whole or not at all; KeyError for another."""
    all_answers = tuple(answers)
    view = page(lecture, all_answers)
    files = {out / f"{lecture.name}.{name}": FORMATS[name](view, all_answers) for name in formats}
    replace_files(files)
    return list(files)


def render(view: LecturePage, *, screen: bool = True) -> str:
    """The page, for the screen or for paper."""
    style, script = "\n".join((stylesheet(), assets.text("lecture.css"))), assets.text("script.js")
    text = (
        environment()
        .get_template("lecture.html")
        .render(
            screen=screen,
            page=view,
            style=Markup(style),  # noqa: S704 - the project's own file
            script=Markup(script),  # noqa: S704 - the project's own file
            policy=content_policy(style, script),
        )
    )
    return share_letters(text) if screen else text


def html(view: LecturePage, answers: Iterable[Answer]) -> bytes:  # noqa: ARG001 - the signature of FORMATS
    """The lecture as one page that needs no network, in UTF-8."""
    return render(view).encode()


def pdf(view: LecturePage, answers: Iterable[Answer]) -> bytes:  # noqa: ARG001 - the signature of FORMATS
    """The page on paper, the specs attached."""
    return render_pdf(render(view, screen=False), view.lecture.name, view.lecture.text)


def markdown(view: LecturePage, answers: Iterable[Answer]) -> bytes:  # noqa: ARG001 - the signature of FORMATS
    """Questions and answers as tables."""
    return markdown_environment().get_template("lecture.md").render(page=view).encode()


def records(view: LecturePage, answers: Iterable[Answer]) -> bytes:
    """Every figure with every digit, and whether expectations hold, as `ledger-lecture/1`."""
    all_answers = tuple(answers)
    published = {
        "schema": SCHEMA,
        "lecture": view.lecture.title,
        "questions": [record(answer) for answer in all_answers],
        "claims": [
            {
                "says": claim.words or {expected.figure: expected.text for expected in claim.figures},
                "question": claim.question,
                "of": claim.of,
                "outside": claim.outside,
                "outcome": met,
            }
            for claim, met in met_claims(view.lecture, all_answers)
        ],
    }
    return f"{json.dumps(published, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()


def record(answer: Answer) -> dict[str, Any]:
    """One question for programs, in SI base units."""
    return {
        "id": answer.question.name,
        "asks": answer.question.asks,
        "holds": answer.holds,
        "figures": {
            figure.name: {"value": value_or_text(figure.value), "unit": figure.unit, "formula": figure.formula}
            for figure in answer.found.figures
        },
        "printed": answer.question.printed,
        "why": answer.question.why,
    }


def value_or_text(value: Number | str) -> int | float | str:
    """A JSON number, or a text."""
    return value if isinstance(value, str) else json_number(value)


FORMATS: Mapping[str, Callable[[LecturePage, Iterable[Answer]], bytes]] = {
    "html": html,
    "pdf": pdf,
    "md": markdown,
    "json": records,
}


# --- a lecture ready to print ---

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
    """The whole lecture: where the notes are wrong, chapter by chapter, then claim by claim, and how many are `met`."""

    lecture: Lecture
    summary: str
    corrections: Table
    parts: tuple[AnsweredChapter, ...]
    claims: Table | None
    met: str


def page(lecture: Lecture, answers: Iterable[Answer]) -> LecturePage:
    """The answers in the order of the lecture."""
    by_question = {id(answer.question): answer for answer in answers}
    in_order = [by_question[id(question)] for chapter in lecture.chapters for question in chapter.questions]
    return LecturePage(
        lecture,
        summary(in_order),
        corrections(in_order),
        tuple(
            part(chapter, [by_question[id(question)] for question in chapter.questions]) for chapter in lecture.chapters
        ),
        *claimed(lecture, in_order),
    )


def summary(answers: Sequence[Answer]) -> str:
    """A sentence on the number of questions, the expectations that hold, and where the notes print something else."""
    outcomes = [outcome for answer in answers for outcome in answer.outcomes]
    holding = sum(outcome.holds for outcome in outcomes)
    printed = sum(bool(answer.question.printed) for answer in answers)
    agree = f"all {holding}" if holding == len(outcomes) else f"{holding} of {len(outcomes)}"
    places = f"in {printed} {'place' if printed == 1 else 'places'}"
    parts = [
        f"{len(answers)} {'question' if len(answers) == 1 else 'questions'}",
        f"{agree} expected {'value comes' if len(outcomes) == 1 else 'values come'} out" if outcomes else "",
        f"{places} the notes print something else, or in other words" if printed else "",
    ]
    return f"{'; '.join(filter(None, parts))}."


def corrections(answers: Sequence[Answer]) -> Table:
    """A table of what the notes print where that differs, beside what is right."""
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


def met_claims(lecture: Lecture, answers: Iterable[Answer]) -> Iterable[tuple[claims.Claim, str]]:
    """Each claim of the notes, and how the answer to its question meets it."""
    by_name = {answer.question.name: answer for answer in answers}
    for claim in lecture.claims:
        answer = by_name.get(claim.question)
        yield claim, claims.outcome(claim, answer.question.printed if answer else "", answer.figures if answer else {})


def claimed(lecture: Lecture, answers: Sequence[Answer]) -> tuple[Table | None, str]:
    """A table of what the notes claim beside the answers, and how many claims are answered, corrected, outside."""
    met, by_name = tuple(met_claims(lecture, answers)), {answer.question.name: answer for answer in answers}
    rows = tuple(
        (
            Cell(claim.of or by_name[claim.question].question.asks),
            *map(Cell, both_said(claim, outcome, by_name.get(claim.question))),
            Cell(outcome, note=claim.question),
        )
        for claim, outcome in met
    )
    columns = (Column("of"), Column("the notes print"), Column("the lecture"), Column("outcome"))
    table = Table("Each number, and what answers it", columns, rows, printed=len(rows), sortable=False)
    return (table, claims.counted(outcome for _, outcome in met)) if rows else (None, "")


def both_said(claim: claims.Claim, outcome: str, answer: Answer | None) -> tuple[str, str]:
    """A claim as printed, and its answer: the same figures, else the answer in a line, or why there is none."""
    if answer is None:
        return claim.words, claim.outside
    if not claim.figures:
        return claim.words, right(answer, most=2)
    printed, found = [], []
    for expected in claim.figures:
        is_flag = isinstance(expected.value, bool)
        figure, text = answer.figures.get(expected.figure), "yes" if expected.value is True else "no"
        title = f"{figure.title or expected.figure.replace('_', ' ')}: " if figure and len(claim.figures) > 1 else ""
        printed.append(f"{title}{text if is_flag else spoken(expected.text)}")
        found.append(f"{title}{figure_line(figure).value if figure else ''}")
    agree = outcome == claims.ANSWERED and len(printed) > 1
    return "; ".join(printed), "the same" if agree else "; ".join(found)


def right(answer: Answer, most: int = 3) -> str:
    """The answer in a line: the figures that its question names; else its first, or the first of its table's cases."""
    grid, shown_lines = answer.found.grid, lines(answer)
    if answer.question.right:
        return "; ".join(named_figure(answer, name) for name in answer.question.right)
    if shown_lines:
        return "; ".join(
            f"{line.value}" if len(shown_lines) == 1 else f"{line.title}: {line.value}" for line in shown_lines[:most]
        )
    if grid is None:
        return ""
    if grid.figures:
        return named_figure(answer, grid.figures[0])
    cells = [[cell.text for cell in row if cell.text] for row in table(grid).rows[:most]]
    return "; ".join(f"{texts[0]}: {texts[-1]}" for texts in cells)


def named_figure(answer: Answer, name: str) -> str:
    """A figure with its title; one of a table with its value in each case, and by how much that differs."""
    grid = answer.found.grid
    if grid is None or name in answer.figures:
        figure = answer.figures[name]
        return f"{figure.title or name.replace('_', ' ')}: {figure_line(figure).value}"
    place = grid.figures.index(name)
    if grid.of_rows:
        title, *values = grid.rows[place]
        of_cases = [
            (case, grid_cell(value, "mixed")) for (case, _), value in zip(grid.columns[1:], values, strict=True)
        ]
        said = [(cell.text, ", ".join(filter(None, (case, cell.note)))) for case, cell in of_cases]
    else:
        (of_rows, row_unit), (title, unit) = grid.columns[0], grid.columns[place + 1]
        said = [(grid_cell(row[place + 1], unit).text, grid_cell(row[0], row_unit).text.strip()) for row in grid.rows]
        title += f", by {of_rows}" if of_rows != "case" else ""
    return f"{title}: {'; '.join(f'{text} ({case})' for text, case in said)}"


def part(chapter: Chapter, answers: Sequence[Answer]) -> AnsweredChapter:
    """A chapter with the article of each of its answers."""
    return AnsweredChapter(chapter, tuple(article(answer) for answer in answers))


def article(answer: Answer) -> Article:
    """One question. Where it chooses its figures, a table is shown only for a curve that it belongs to."""
    question, result = answer.question, answer.found
    curve_drawn = result.curve if result.curve and len(result.curve.points) > 1 else None
    return Article(
        question,
        lines(answer),
        table(result.grid) if result.grid and (curve_drawn or not question.show) else None,
        chart(curve_drawn) if curve_drawn else bit_chart(result.bits) if result.bits else None,
        tuple(by_hand(question)),
        checked(answer.outcomes),
        answer.holds,
    )


def lines(answer: Answer) -> tuple[Line, ...]:
    """The figures a question shows, those without a title being for expectations alone."""
    titled = {figure.name: figure for figure in answer.found.figures if figure.title}
    return tuple(figure_line(titled[name]) for name in answer.question.show or titled if name in titled)


def figure_line(figure: Figure) -> Line:
    """One figure; a whole number in every digit, beside its rounded form where it is long."""
    value, unit = figure.value, figure.unit
    spelt = ""
    if (
        unit in NAMES
        and not isinstance(value, str | bool)
        and value == int(value)
        and WHOLE_FROM <= abs(float(value)) < WHOLE_TO
    ):
        spelt = f"{numbers.integer(value)}{numbers.THIN}{NAMES[unit]}"
    short = spelt and abs(float(value)) < ROUNDED_FROM and unit != "B"
    plain = figure.formula.replace(".", "").replace("_", "").isidentifier() or figure.formula.isdigit()
    formula = formula_cell(figure.formula) if figure.formula and not plain else None
    return Line(figure.title, formula, spelt if short else amount_text(value, unit), "" if short else spelt)


def by_hand(question: Question) -> Iterable[Line]:
    """The formulas that an answer is compared with, and the numbers put in them."""
    numbers_put_in = ", ".join(f"{name} = {spoken(value)}" for name, value in question.values.items())
    for name, formula in question.formulas.items():
        yield Line(name.replace("_", " "), formula_cell(formula), numbers_put_in, "")


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
        tuple(grid_cell(value, unit) for value, (_, unit) in zip(row, grid.columns, strict=True)) for row in grid.rows
    )
    return Table(grid.caption, columns, rows, sortable=False)


def grid_cell(value: Value | Amount, unit: str) -> Cell:
    """One value of a grid; how an amount differs from the first of its row is said below it."""
    text = amount_text(value, unit)
    note = difference(value.change) if isinstance(value, Amount) and value.change is not None else ""
    return Cell(text.replace("_", " ") if unit == "" else text, note=note, status=text if unit == "status" else "")


def chart(plot: Plot) -> Chart:
    """A curve; points whose names say more than a number are out of reach."""
    places = [curve.CurvePoint(x, y, label, reached=label.isdigit()) for x, y, label in plot.points]
    across, up = (curve.Axis(*axis) for axis in (plot.across, plot.up))
    return draw_chart(plot.title, "", lambda width: curve.chart(places, across, up, plot.title, width))


def bit_chart(form: Bits) -> Chart:
    """The bits of a number format, or of a value in it."""
    text = f"Bits of {form.name}: {', '.join(f'{part} {count}' for part, count in form.parts)}"
    text += f"; {form.digits}" if form.digits else ""
    notes = [note for note in (form.block_scale, form.worked) if note]
    return draw_chart(f"Bits of {form.name}", "", lambda width: bits.chart(form.parts, notes, text, width, form.digits))


# --- numbers as people write them, exact where the notes are ---

DIGITS = 6
SPELT_OUT = 1e-3, 1e6  # numbers between these are written without a power of ten
ROUNDED_FROM = 10**9
SAME = 0.0005  # a smaller relative change is called none


def amount_text(value: Value | Amount, unit: str) -> str:
    """A value in its unit, for people."""
    if isinstance(value, Amount):
        return amount_text(value.value, value.unit)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    form = FORMS.get(unit)
    return form(value) if form else numbers.amount_text(value, unit)


def several(value: numbers.Number) -> str:
    """Up to six figures, without zeros at the end."""
    return numbers.trimmed(numbers.plain(value, DIGITS))


def range_end(value: numbers.Number) -> str:
    """A number of any size."""
    low, high = SPELT_OUT
    if low <= abs(float(value)) < high or value == 0:
        return several(value)
    mantissa, _, power = numbers.scientific(value, digits=4).partition("×")
    return f"{numbers.trimmed(mantissa)}×{power}"


FORMS = {
    "B each": lambda value: f"{several(value) if value > Fraction(1, 100) else numbers.plain(value)}{numbers.THIN}B",
    "GiB": lambda value: f"{several(value)}{numbers.THIN}GiB",
    "FLOP/s": lambda value: numbers.si(value, "FLOP/s", 4),
    "FLOP/B": lambda value: f"{numbers.trimmed(numbers.plain(value, 5))}{numbers.THIN}FLOP/B",
    "FLOP/day": lambda value: numbers.scientific(value, "FLOP a day"),
    "parameters": numbers.count,
    "tokens": numbers.count,
    "tokens/s": numbers.rate,
    "x": lambda value: f"{numbers.plain(value)} times",
    "plain": range_end,
}


def spoken(value: str) -> str:
    """A number of a formula as people write it; one with a unit stays as it is."""
    try:
        number = Fraction(value)
    except ValueError:
        return value
    is_whole = number.denominator == 1 and abs(number) < ROUNDED_FROM
    return numbers.integer(number) if is_whole else range_end(number)


def difference(change: numbers.Number) -> str:
    """A relative change in words."""
    return numbers.change(change) if abs(float(change)) >= SAME else "the same"
