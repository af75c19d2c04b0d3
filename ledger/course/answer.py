"""Answers to the questions of a lecture: one function and one row for each kind of question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ledger.course import asks, limits, operations, plans, serving, states
from ledger.course.answers import Answer, Found, compared
from ledger.course.lecture import Lecture, Question
from ledger.course.plans import CompiledPlans

Function = Callable[[Any], Found]
WithBooks = Callable[[Any, CompiledPlans], Found]

# Kinds of questions that need no compiled plan, then those that do.
ANSWERS: Mapping[type, Function] = {
    asks.OperationAsk: operations.operation,
    asks.ActivationAsk: operations.activation,
    asks.TensorAsk: operations.tensor,
    asks.DtypeAsk: operations.dtype,
    asks.RidgeAsk: operations.ridge,
    asks.StateAsk: states.state,
    asks.OptimizerAsk: states.optimizer,
    asks.SolveAsk: states.solve,
    asks.OffloadAsk: states.offload,
    asks.InferenceAsk: serving.inference,
}
COMPILED: Mapping[type, WithBooks] = {
    asks.PlanAsk: plans.totals,
    asks.CompareAsk: plans.compare,
    asks.LevelsAsk: plans.levels,
    asks.AccountsAsk: plans.accounts,
    asks.MomentsAsk: plans.moments,
    asks.ChecksAsk: plans.checks,
    asks.FitAsk: limits.fit,
    asks.SegmentsAsk: limits.segments,
    asks.StorageAsk: limits.storage,
    asks.BudgetAsk: limits.budget,
}


def answers(lecture: Lecture) -> Iterator[Answer]:
    """Every question of a lecture with its answer, in order; a plan that several ask about is compiled once."""
    books = CompiledPlans()
    for chapter in lecture.chapters:
        for question in chapter.questions:
            yield answer(question, books)


def answer(question: Question, books: CompiledPlans | None = None) -> Answer:
    """One question with its answer, compared with what is expected of it."""
    kind = type(question.ask)
    found = ANSWERS[kind](question.ask) if kind in ANSWERS else COMPILED[kind](question.ask, books or CompiledPlans())
    by_name = {figure.name: figure.value for figure in found.figures}
    outcomes = tuple(compared(expected, by_name.get(expected.figure)) for expected in question.expected)
    return Answer(question, found, outcomes)


__all__ = ["ANSWERS", "COMPILED", "answer", "answers"]
