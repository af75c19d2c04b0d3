"""What a lecture may hold: chapters, or questions about plans and parts, whose figures are expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.course import formats, operations, serving, states
from ledger.course.answers import Found
from ledger.course.asked import A_PLAN, ACCELERATOR, PLAN, SET, TEXTS, ExpressionText, Sought
from ledger.course.asks import (
    DtypeAsk,
    Find,
    InferenceAsk,
    OperationAsk,
    OptimizerAsk,
    StateAsk,
    TensorAsk,
    move_faults,
    step_faults,
)
from ledger.course.forms import FORMS
from ledger.spec.named_parts import AskOf
from ledger.spec.parts import NAME, SPEC, TITLED, PartOf, header_of
from ledger.spec.structures import NEEDED, SOURCED, AnyOf, Fields, ListOf, Made, MappingOf, Row
from ledger.spec.values import Choice, Flag, Label, String


@dataclass(frozen=True)
class Subject:
    """What a question may be about beside plans: its record, and what is found of it."""

    asked: AskOf
    found: Callable[[Any], Found]


SUBJECTS: Mapping[str, Subject] = {
    "operation": Subject(AskOf(OperationAsk, step_faults), operations.operation),
    "tensor": Subject(AskOf(TensorAsk, move_faults), formats.tensor),
    "dtype": Subject(AskOf(DtypeAsk), formats.dtype),
    "state": Subject(AskOf(StateAsk), states.state),
    "optimizer": Subject(AskOf(OptimizerAsk), states.optimizer),
    "inference": Subject(AskOf(InferenceAsk), serving.inference),
}


SOUGHT = Fields(
    (
        Row("is", ExpressionText(), "An expression over totals, inputs, figures above it and the numbers of `with`.",
            "expression", NEEDED),
        Row("unit", String(), "Its unit, where it does not follow: `%`, `FLOP`, `parameters`.", "unit"),
        Row("title", String(), "What it is, where its name does not say it.", "title"),
    ),
    lambda values: Sought(**values),
)  # fmt: skip
FIGURES = MappingOf(AnyOf((Made(ExpressionText(), Sought), SOUGHT)), 1)
ABOUT = (
    Row("plan", PLAN, A_PLAN, "plan"),
    SET,
    Row("find", PartOf(Find), Find.spec.meaning, "find"),
    Row("accelerator", ACCELERATOR, "A device of the library.", "accelerator"),
    *(Row(name, subject.asked, header_of(subject.asked.cls).meaning, name) for name, subject in SUBJECTS.items()),
    Row("with", MappingOf(Label()), "The numbers in expressions and formulas.", "with"),
    Row("figures", FIGURES, "Figures by name, each an expression: `flops.run / napkin.flops.run`.", "figures"),
)
CASE = AnyOf((Made(TEXTS, lambda texts: {"set": texts}), Fields(ABOUT)))
TABLES = ("moments", "checks")
GENERAL = (
    *ABOUT,
    Row("cases", MappingOf(CASE, 1), "Names, each with `key=value` overrides of the plan, or what it is about instead.",
        "cases"),
    Row("against", String(), "The case that the others are compared with.", "against"),
    Row("most", String(), "The figure that makes one case the best.", "most"),
    Row("least", String(), "The same, the less the better.", "least"),
    Row("then", FIGURES, "Figures over those of cases: `after.memory.peak - before.memory.peak`.", "then"),
    Row("table", Choice(*TABLES), "What is alive at each moment of a step, or lines of checklists.", "table"),
    Row("only", TEXTS, "How the lines of checklists begin that are shown.", "only"),
    Row("curve", ListOf(String(), 2, 2), "Two figures of cases: across and up.", "curve"),
)  # fmt: skip
GONE = {
    "totals": "`plan:` and `figures: {name: total}`",
    "compare": "`plan:`, `cases:`, `against:` and `figures:`",
    "accounts": "`plan:` and `figures:`, in which `forward('decoder/mlp/*')` sums accounts",
    "moments": "`plan:` and `table: moments`",
    "checks": "`plan:`, `cases:` and `table: checks`",
    "fit": "`plan:` and `find: {for: model.layers.NAME.repeat}`",
    "offload": "`state:`, `accelerator:` and `figures:`",
    "activation": "`operation:` with a step `{activation: silu, over: n}`",
}
QUESTION = Fields(
    (
        Row("id", String(pattern="^[a-z0-9_.]+$"), "The name of the question, unique in the lecture.", "id", NEEDED),
        Row("asks", String(least=3), "The question.", "asks", NEEDED),
        Row("expect", MappingOf(AnyOf((Label(), Flag()))),
            "Figures and their values; one with decimals holds to half its last digit, one without exactly."),
        Row("is", MappingOf(String()), "Figures and what one would write for them by hand, over the names of `with`.",
            "is"),
        Row("printed", String(), "What the notes print, where that differs.", "printed"),
        Row("why", String(), "What is right, and why the other is often seen.", "why"),
        Row("show", TEXTS, "The figures to show; all where not given.", "show"),
        Row(SOURCED.key, SOURCED.type, SOURCED.meaning, "source"),
        *GENERAL,
        *(Row(name, form, meaning, name) for name, (meaning, form) in FORMS.items()),
    ),
    gone=GONE,
)  # fmt: skip
LECTURE = Fields(
    (
        Row("spec", SPEC.type, SPEC.meaning, needed=NEEDED),
        Row("lecture", TITLED, "The title of the lecture or of the chapter.", "lecture", NEEDED),
        Row("about", String(), "What it is about, in a sentence or two.", "about"),
        Row(SOURCED.key, SOURCED.type, SOURCED.meaning, "source", NEEDED),
        Row("chapters", ListOf(NAME, 1), "Lectures with questions, in order.", "chapters"),
        Row("questions", ListOf(QUESTION, 1), "The questions of this chapter.", "questions"),
    )
)
