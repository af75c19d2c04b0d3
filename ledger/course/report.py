"""A lecture as files: one HTML page, a tagged PDF of it, Markdown, and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ledger.books.results import Number
from ledger.course.view import LecturePage, page
from ledger.report import assets
from ledger.report.contract import json_number
from ledger.report.html import content_policy, environment, markdown_environment, share_letters, stylesheet
from ledger.report.pdf import render_pdf
from ledger.whole_files import replace_files

if TYPE_CHECKING:
    from ledger.course.answers import Answer
    from ledger.course.lecture import Lecture

SCHEMA = "ledger-lecture/1"


def write_lecture(lecture: Lecture, answers: Iterable[Answer], out: Path, formats: Iterable[str]) -> list[Path]:
    """The lecture in each of the formats (html, pdf, md, json), whole or not at all; KeyError for another."""
    given = tuple(answers)
    view = page(lecture, given)
    made = {out / f"{lecture.name}.{name}": FORMATS[name](view, given) for name in formats}
    replace_files(made)
    return list(made)


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
    published = {"schema": SCHEMA, "lecture": view.lecture.title, "questions": [record(answer) for answer in answers]}
    return f"{json.dumps(published, indent=1, ensure_ascii=False, allow_nan=False)}\n".encode()


def record(answer: Answer) -> dict[str, Any]:
    """One question for programs, in SI base units."""
    return {
        "id": answer.question.name,
        "asks": answer.question.asks,
        "holds": answer.holds,
        "figures": {
            figure.name: {"value": shown(figure.value), "unit": figure.unit, "formula": figure.formula}
            for figure in answer.found.figures
        },
        "printed": answer.question.printed,
        "why": answer.question.why,
    }


def shown(value: Number | str) -> int | float | str:
    """A JSON number, or a text."""
    return value if isinstance(value, str) else json_number(value)


FORMATS: Mapping[str, Callable[[LecturePage, Iterable[Answer]], bytes]] = {
    "html": html,
    "pdf": pdf,
    "md": markdown,
    "json": records,
}
