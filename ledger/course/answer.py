"""Answers to the questions of a lecture: expressions over what each names, for each of its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from ledger.books.results import Compiled
from ledger.course import plans
from ledger.course.answers import Amount, Answer, Figure, Found, Grid, Plot, compared
from ledger.course.cases import Case, case_of, figure_of, quantity
from ledger.course.lecture import Cases, Lecture, Question
from ledger.course.plans import CompiledPlans
from ledger.model.einsums import EinsumError
from ledger.model.strides import MoveError
from ledger.spec.expressions import ExpressionError
from ledger.spec.near import nearest
from ledger.spec.problems import Problem, SpecError, made_of_all
from ledger.spec.quantity_expressions import Names, Quantity, Value

ABSENT = "–"  # in a table, what a case does not have


def answers(lecture: Lecture) -> Iterator[Answer]:
    """Every question of a lecture with its answer, in order; a plan that several ask about is compiled once.

    Raises SpecError with the problems of all questions that have no answer.
    """
    books = CompiledPlans()
    asked = [question for chapter in lecture.chapters for question in chapter.questions]
    yield from made_of_all(partial(answer, question, books) for question in asked)


def answer(question: Question, books: CompiledPlans | None = None) -> Answer:
    """One question with its answer, compared with what is expected of it; raises SpecError with a place."""
    try:
        found = _found(question, books or CompiledPlans())
    except (ExpressionError, EinsumError, MoveError) as error:
        raise SpecError([Problem(question.where, f"`{question.name}`: {error.message}", error.help)]) from error
    by_name = {figure.name: figure for figure in found.figures}
    outcomes = tuple(compared(expected, by_name.get(expected.figure)) for expected in question.expected)
    return Answer(question, found, outcomes)


# --- the whole answer -----------------------------------------------------------------------------


def _found(question: Question, books: CompiledPlans) -> Found:
    if question.table:
        tabled = _compiled(question, books)
        return plans.moments(tabled) if question.table == "moments" else plans.checks(tabled, question.only)
    if question.cases is None:
        case = case_of(question.about, books)
        first = case.found[0] if case.found else Found(())
        return replace(first, figures=tuple(case.figures.values()))
    makers = {name: partial(case_of, about, books) for name, about in question.cases.by_name.items()}
    cases = dict(zip(makers, made_of_all(makers.values()), strict=True))
    figures = [*_named(cases, question.cases.against), *_over(question.cases, cases)]
    curve = _curve(question, cases) if question.curve else None
    return Found(tuple(figures), _grid(question.cases, cases), curve)


def _compiled(question: Question, books: CompiledPlans) -> Mapping[str, Compiled]:
    abouts = question.cases.by_name if question.cases else {"plan": question.about}
    return {name: books(about.plan) for name, about in abouts.items() if about.plan is not None}


def _named(cases: Mapping[str, Case], against: str) -> Iterator[Figure]:
    """Figures of cases as `case.figure`, and `case.figure.ratio` to the case that it is held against."""
    for name, case in cases.items():
        for figure in case.figures.values():
            yield replace(figure, name=f"{name}.{figure.name}", title="")
            first = cases[against].figures.get(figure.name) if against and name != against else None
            if first and not isinstance(first.value, str) and first.value and not isinstance(figure.value, str):
                yield Figure(f"{name}.{figure.name}.ratio", "", _over_first(figure.value, first.value), "x")


def _over_first(value: Value, first: Value) -> Fraction | float:
    return Fraction(value) / Fraction(first)


def _over(asked: Cases, cases: Mapping[str, Case]) -> Iterator[Figure]:
    """The best case with its figures, and figures over those of all cases."""
    if asked.best:
        able = {name: case for name, case in cases.items() if asked.best in case.figures}
        if not able:
            raise ExpressionError(f"no case has a figure `{asked.best}`", "name one of `figures`")
        choose: Callable[..., str] = max if asked.most else min
        best = choose(able, key=lambda name: quantity(able[name].figures[asked.best]))
        title = able[best].figures[asked.best].title
        yield Figure("best", f"{'most' if asked.most else 'least'} {title}", best.replace("_", " "))
        yield from able[best].figures.values()

    def lookup(name: str) -> Quantity:
        case, _, figure = name.partition(".")
        return cases[case].lookup(figure) if figure else quantity(made[name])

    made: dict[str, Figure] = {}
    known = [f"{case}.{figure}" for case, one in cases.items() for figure in one.figures]
    names = Names(lookup, {}, lambda name: ExpressionError(f"no case has `{name}`", nearest(name, known)))
    for name, sought in asked.then.items():
        made[name] = replace(figure_of(name, sought, names), formula="", title=sought.title or name.replace("_", " "))
    yield from made.values()


def _grid(asked: Cases, cases: Mapping[str, Case]) -> Grid:
    """Cases as rows; those that are held against one as columns, each amount with its change."""
    shown = {name: figure for case in [*cases.values()][::-1] for name, figure in case.figures.items() if figure.title}
    shown = {name: shown[name] for case in cases.values() for name in case.figures if name in shown}
    if not asked.against:
        columns = (("case", ""), *((figure.title, _column(figure)) for figure in shown.values()))
        rows = [(name, *(_amount(case.figures.get(key)) for key in shown)) for name, case in cases.items()]
        return Grid("Case by case", columns, tuple(rows))
    columns = (("figure", ""), *((name.replace("_", " "), "mixed") for name in cases))
    base = cases[asked.against].figures
    changed = [
        (
            figure.title,
            *(
                _amount(case.figures.get(key), None if name == asked.against else base.get(key))
                for name, case in cases.items()
            ),
        )
        for key, figure in shown.items()
    ]
    return Grid("What it saves and what it costs", columns, tuple(changed))


def _column(figure: Figure) -> str:
    return "" if isinstance(figure.value, str) else "yes" if isinstance(figure.value, bool) else "mixed"


def _amount(figure: Figure | None, first: Figure | None = None) -> Value | Amount:
    if figure is None:
        return ABSENT
    if isinstance(figure.value, str | bool):
        return figure.value
    numeric = first is not None and not isinstance(first.value, str | bool) and first.value
    change = Fraction(figure.value) / Fraction(first.value) - 1 if first is not None and numeric else None
    return Amount(figure.value, figure.unit, change)


def _curve(question: Question, cases: Mapping[str, Case]) -> Plot:
    for name in question.curve:
        if any(name not in case.figures for case in cases.values()):
            raise ExpressionError(f"not every case has a figure `{name}`", "a curve is drawn over figures of all cases")
    across, up = (next(iter(cases.values())).figures[name] for name in question.curve)
    points: Sequence[tuple[float, float, str]] = [
        (float(case.figures[across.name].value), float(case.figures[up.name].value), name)
        for name, case in cases.items()
    ]
    title = f"{up.title} against {across.title}"
    return Plot(title, (across.title, across.unit), (up.title, up.unit), tuple(points))
