"""The form of a lecture: chapters, or questions about plans and parts, whose figures are expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ledger.course import number_formats, subjects
from ledger.course.answers import AnswerContent
from ledger.course.asks import (
    A_PLAN,
    ACCELERATOR,
    COUNT,
    FORMAT,
    OPTIMIZER,
    PLAN,
    PRECISION,
    SET,
    TEXTS,
    DtypeAsk,
    Expression,
    ExpressionText,
    Find,
    InferenceAsk,
    OperationAsk,
    OptimizerAsk,
    Sought,
    StateAsk,
    TensorAsk,
    dtype_faults,
    move_faults,
    step_faults,
)
from ledger.course.claims import CLAIM
from ledger.spec.headroom import POLICIES
from ledger.spec.named_parts import AskOf, StatedRecord
from ledger.spec.parts import NAME, SPEC, TITLED, PartOf, header_of
from ledger.spec.plan import DATE
from ledger.spec.sources import YAML
from ledger.spec.structures import NEEDED, SOURCED, AnyOf, DerivedType, Fields, ListOf, MappingOf, Row, Values, quantity
from ledger.spec.values import Choice, Constant, Flag, Label, String, ValueType

Asked = Mapping[str, tuple[str, str, str]]  # name: expression, unit, title
KEPT = "memory.static.weights + memory.static.master + memory.static.gradients + memory.static.optimizer"


def figures_by_name(figures: Asked) -> dict[str, Sought]:
    """The figures of a form, by name, from rows of expression, unit and title."""
    return {name: Sought(Expression(text), unit, title) for name, (text, unit, title) in figures.items()}


def needed(key: str, kind: ValueType, meaning: str) -> Row:
    """A field that a form cannot do without."""
    return Row(key, kind, meaning, key, NEEDED)


RIDGE: Asked = {
    "peak": ("accelerator.peak[dtype]", "", "dense peak"),
    "sparse": ("accelerator.sparse_peak[dtype]", "", "with 2:4 sparsity, as data sheets print it"),
    "bandwidth": ("accelerator.bandwidth", "", "memory bandwidth"),
    "ridge": ("peak / bandwidth", "", "intensity from which it computes"),
}
NO_INTERVAL = (
    "'does not pay: saves, restarts and work done again take more time than there is' if failures > 0 else "
    "'as seldom as one likes'"
)
LARGEST: Asked = {
    "parameters": ("devices * accelerator.memory_labelled / total", "parameters", "largest model"),
    "memory": ("devices * accelerator.memory_labelled", "", "memory of the devices"),
    "per_parameter": ("total", "B each", "state a parameter"),
}
STORAGE: Asked = {
    "bytes": ("checkpoint.bytes", "", "bytes of one checkpoint"),
    "seconds": ("bytes / bandwidth", "", "seconds to write it"),
    "between_failures": (
        "1 / failures if failures > 0 else 'the plan states no failures'",
        "s",
        "time between failures of the job",
    ),
    # Young's interval loses as much to saves as to work done again: a root of 2 x seconds x failures in all.
    "remaining": ("1 - sqrt(2 * seconds * failures) - failures * restart", "1", ""),
    "interval": (
        f"sqrt(2 * seconds / failures) if failures * max(0, remaining) > 0 else {NO_INTERVAL}",
        "s",
        "best interval",
    ),
    "goodput": ("max(0, remaining)", "%", "share of the time that trains, at that interval"),
}
LEVEL: Asked = {
    "recompute": ("recompute.policy", "", "recompute"),
    "peak": ("memory.peak", "", "peak"),
    "free": ("headroom", "", "kept free"),
    "whole": ("peak + free", "", "to plan for"),
}
SEGMENT: Asked = {
    "segment": ("recompute.segment", "", "layers at once"),
    "peak": ("memory.peak", "", "peak"),
    "activations": ("memory.activations", "", "activations then"),
    "redone": ("flops.recompute", "", "repeated"),
    "forward": ("flops.forward", "", "forward pass"),
    "time": ("time.step", "", "time of a step"),
}
SEGMENTS: Asked = {
    "best": ("best.segment", "", "layers in the best segment, of all whole lengths"),
    "forwards": ("1 + (best.redone - none.redone) / none.forward", "1", "forward passes in a step, with that segment"),
}
OFFER: Asked = {
    "device": ("accelerator.title", "", ""),
    "price": ("price", "USD", "an hour"),
    "asked": ("date", "", "asked"),
    "hours": ("dollars / price", "", "device-hours"),
    "flops": ("3600 * hours * accelerator.peak[format] * mfu", "FLOP", "FLOPs"),
    "parameters": ("sqrt(flops / (6 * tokens_per_parameter))", "parameters", "parameters"),
    "tokens": ("tokens_per_parameter * parameters", "tokens", "tokens"),
    "state": ("total * parameters", "B", "state"),
    "memory": ("accelerator.memory_labelled", "", "memory"),
}
BOUGHT: Asked = {
    "device": ("title", "", ""),
    "price": ("assumptions.price.per_device_hour", "USD", "an hour"),
    "hours": ("dollars / price", "", "device-hours"),
    "parameters": ("parameters", "", "parameters"),
    "fits": ("fits", "", "fits"),
    "reserved": ("memory.reserved", "", "reserved"),
    "memory": ("memory.capacity", "", "memory"),
    "tokens": (
        "3600 * hours / cluster.devices * tokens_per_second if fits else 'none: it does not fit'",
        "tokens",
        "tokens",
    ),
    "per_parameter": ("tokens / parameters if fits else ''", "1", "tokens a parameter"),
}


def _ridge(fields: Values) -> Values:
    return {"accelerator": fields["accelerator"], "with": {"dtype": fields["dtype"]}, "figures": figures_by_name(RIDGE)}


def _storage(fields: Values) -> Values:
    return {**fields, "with": {"bandwidth": f"{fields.pop('bandwidth')} B/s"}, "figures": figures_by_name(STORAGE)}


def _largest(fields: Values) -> Values:
    state = StatedRecord(StateAsk, {"precision": fields["precision"], "optimizer": fields["optimizer"]})
    about = {"state": state, "accelerator": fields["accelerator"], "with": {"devices": str(fields["devices"])}}
    return {**about, "figures": figures_by_name(LARGEST)}


def _segments(fields: Values) -> Values:
    best = Find("recompute.segment", ("memory.peak >= 1 B",), minimize="memory.peak")
    cases = {
        "none": {"set": ("recompute=none",)},
        "each": {"set": ("recompute={segment: 1}",)},
        "best": {"set": ("recompute={segment: 1}",), "find": best},
    }
    return {**fields, "figures": figures_by_name(SEGMENT), "cases": cases, "then": figures_by_name(SEGMENTS)}


def _levels(fields: Values) -> Values:
    cases = {
        name: {"set": (*changes, f"assumptions.headroom={name}")} for name, changes in fields.pop("levels").items()
    }
    return {**fields, "cases": cases, "figures": figures_by_name(LEVEL)}


def _unused(name: str, cases: Mapping[str, Values]) -> str:
    """The name for a case, with a number where it is not the first of that name."""
    numbered = (f"{name}_{number}" if number > 1 else name for number in range(1, len(cases) + 2))
    return next(candidate for candidate in numbered if candidate not in cases)


def _budget(fields: Values) -> Values:
    numbers = {
        "dollars": f"{fields['dollars']} USD",
        **{key: str(fields[key]) for key in ("mfu", "tokens_per_parameter")},
    }
    state = StatedRecord(StateAsk, {"precision": fields["precision"], "optimizer": fields["optimizer"]})
    cases: dict[str, Values] = {}
    for offer in fields["offers"]:
        cases[_unused(offer["accelerator"].name, cases)] = {
            "accelerator": offer["accelerator"],
            "state": state,
            "with": {"price": f"{offer['price']} USD", "date": offer["date"]},
            "figures": figures_by_name(OFFER),
        }
    for plan in fields.get("plans", ()):
        path = plan["plan"].name
        name = Path(path).stem if path.endswith(YAML) else path
        cases[_unused(name, cases)] = {**plan, "figures": figures_by_name(BOUGHT)}
    return {"cases": cases, "with": numbers, "most": "flops"}


FIELDS: Mapping[str, Row] = {
    row.key: row
    for row in (
        needed("plan", PLAN, A_PLAN),
        SET,
        needed("accelerator", ACCELERATOR, "The device."),
        needed("dtype", FORMAT, "What it multiplies."),
        needed("precision", PRECISION, "The number formats."),
        needed("optimizer", OPTIMIZER, "What updates the weights."),
        needed("devices", COUNT, "How many devices there are."),
        needed("bandwidth", quantity("B/s"), "What storage takes in: `100 GB/s`."),
        needed("price", quantity("USD"), "Of one device for an hour."),
        needed("date", DATE, "Date of the offer: `2026-05-18`."),
        replace(SOURCED, attribute="source", needed=NEEDED),
        needed("dollars", quantity("USD"), "What there is to spend."),
        needed("mfu", quantity("1", greatest=1), "The utilisation that is assumed."),
        needed("tokens_per_parameter", COUNT, "How long the model is trained."),
    )
}


def form(keys: str, make: Callable[[Values], Values] = dict, *more: Row) -> Fields:
    """A mapping with these fields, and `more`, of which a question is made."""
    return Fields((*(FIELDS[key] for key in keys.split()), *more), make)


FOR = Row("for", Constant("parameters"), "What is looked for.", needed=NEEDED)
OFFERS = needed("offers", ListOf(form("accelerator price date source"), 1), "Devices and what they cost.")
PLANS = Row("plans", ListOf(form("plan set")), "Plans to be compared with.", "plans")
LEVEL_ROWS = tuple(Row(name, TEXTS, "Overrides of the plan that is to leave so much free.", name) for name in POLICIES)
LEVELS = needed("levels", Fields(LEVEL_ROWS, least=1), "Headroom policies, each with overrides.")

# By name: the meaning of each form, and its fields.
FORMS: Mapping[str, tuple[str, Fields]] = {
    "ridge": ("Rate over bandwidth of a device.", form("accelerator dtype", _ridge)),
    "solve": (
        "The largest model whose state fits: memory <= devices x capacity.",
        form("precision optimizer devices accelerator", _largest, FOR),
    ),
    "storage": ("Weights and states written to storage, and how often.", form("plan set bandwidth", _storage)),
    "levels": ("The peak and what a headroom policy keeps free.", form("plan set", _levels, LEVELS)),
    "segments": (
        "Layers recomputed in segments: none, of one layer, and of the best whole length.",
        form("plan set", _segments),
    ),
    "budget": (
        "What an amount of money trains: the model for which so many tokens a parameter are just paid for.",
        form("dollars mfu tokens_per_parameter precision optimizer", _budget, OFFERS, PLANS),
    ),
}


@dataclass(frozen=True)
class Subject:
    """A subject of questions other than a plan: the type of its record, and the function that answers it."""

    asked: AskOf
    found: Callable[[Any], AnswerContent]


SUBJECTS: Mapping[str, Subject] = {
    "operation": Subject(AskOf(OperationAsk, step_faults), subjects.operation),
    "tensor": Subject(AskOf(TensorAsk, move_faults), subjects.tensor),
    "dtype": Subject(AskOf(DtypeAsk, dtype_faults), number_formats.dtype),
    "state": Subject(AskOf(StateAsk), subjects.state),
    "optimizer": Subject(AskOf(OptimizerAsk), subjects.optimizer),
    "inference": Subject(AskOf(InferenceAsk), subjects.inference),
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
FIGURES = MappingOf(AnyOf((DerivedType(ExpressionText(), Sought), SOUGHT)), 1)
ABOUT = (
    Row("plan", PLAN, A_PLAN, "plan"),
    SET,
    Row("find", PartOf(Find), Find.spec.meaning, "find"),
    Row("accelerator", ACCELERATOR, "A device of the library.", "accelerator"),
    *(Row(name, subject.asked, header_of(subject.asked.cls).meaning, name) for name, subject in SUBJECTS.items()),
    Row("with", MappingOf(Label()), "The numbers in expressions and formulas.", "with"),
    Row("figures", FIGURES, "Figures by name, each an expression: `flops.run / napkin.flops.run`.", "figures"),
)
CASE = AnyOf((DerivedType(TEXTS, lambda texts: {"set": texts}), Fields(ABOUT)))
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
        Row("right", TEXTS, "The figures to print beside the notes, in each case of a table; else the first.",
            "right"),
        Row(SOURCED.key, SOURCED.type, SOURCED.meaning, "source"),
        *GENERAL,
        *(Row(name, form, meaning, name) for name, (meaning, form) in FORMS.items()),
    ),
    replaced_keys=GONE,
)  # fmt: skip
LECTURE = Fields(
    (
        Row("spec", SPEC.type, SPEC.meaning, needed=NEEDED),
        Row("lecture", TITLED, "The title of the lecture or of the chapter.", "lecture", NEEDED),
        Row("about", String(), "What it is about, in a sentence or two.", "about"),
        Row(SOURCED.key, SOURCED.type, SOURCED.meaning, "source", NEEDED),
        Row("chapters", ListOf(NAME, 1), "Lectures with questions, in order.", "chapters"),
        Row("questions", ListOf(QUESTION, 1), "The questions of this chapter.", "questions"),
        Row(
            "claims",
            ListOf(CLAIM, 1),
            "What the notes claim, number by number, each with the question that answers it.",
            "claims",
        ),
    )
)
