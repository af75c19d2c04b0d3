"""Whether the answers to a lecture's questions are what the lecture expects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ledger.course.answer import answers
from ledger.course.answers import Answer, Outcome
from ledger.course.lecture import is_lecture, load_lecture
from ledger.numbers import said
from ledger.report.checked import CheckOutcome, check_plan
from ledger.spec.near import nearest
from ledger.spec.problems import Problem, SpecError

if TYPE_CHECKING:
    from ledger.books.results import Compiled


def checked_spec(spec: str, compiler: Callable[[], Compiled]) -> CheckOutcome:
    """What is wrong with a lecture, or else with the plan that `compiler` compiles."""
    try:
        return checked_lecture(spec) if is_lecture(spec) else check_plan(spec, compiler)
    except SpecError as error:
        return CheckOutcome(spec, problems=error.problems, sources=error.sources)


def missed_at(outcome: Outcome, answer: Answer) -> Problem:
    """An expectation that does not hold, in its place, beside what was found."""
    expected, figure = outcome.expected, answer.figure(outcome.expected.figure)
    asked = f"`{answer.question.name}`: expected {expected.figure} {expected.text}"
    if figure is None:
        known = [each.name for each in answer.found.figures]
        return Problem(expected.where, f"{asked}, and it has no such figure", nearest(expected.figure, known))
    value = figure.value if isinstance(figure.value, str | bool) else said(figure.value, figure.unit)
    return Problem(expected.where, f"{asked}, found {str(value).lower() if isinstance(value, bool) else value}")


def checked_lecture(spec: str) -> CheckOutcome:
    """A lecture's answers beside what is expected of them; raises SpecError."""
    given = tuple(answers(load_lecture(spec)))
    missed = tuple(missed_at(one, answer) for answer in given for one in answer.outcomes if not one.holds)
    return CheckOutcome(spec, failures=missed, headline=f"{len(given)} questions")
