"""Closed forms to copy: as lines for people, as a Python function, in LaTeX, for sympy, as a record."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.arithmetic.formula_text import number_text
from ledger.books.closed_forms import ClosedForm, Definition
from ledger.report.contract import json_number
from ledger.report.typesetting.latex import latex, symbol
from ledger.units import unit_of

if TYPE_CHECKING:
    import sympy

WIDTH = 110  # of a line of a form that is printed
INDENT = "    "
WORD = re.compile(r"\W+")


# --- Python ---


def python_text(form: ClosedForm) -> str:
    """A function of the form's letters, with the plan's values, that gives the total; it needs `math` alone."""
    body = list(body_lines(form))
    needs_math = any("math." in line for line in body)
    arguments = ", ".join(f"{name}={value!r}" for name, value in form.letters.items())
    head = wrapped(f"def {WORD.sub('_', form.total)}({arguments}):", INDENT)
    lines = [*(["import math", "", ""] if needs_math else []), *head, *docstring(form)]
    return "\n".join([*lines, *(f"{INDENT}{line}" if line else "" for line in body)]) + "\n"


def docstring(form: ClosedForm) -> Iterator[str]:
    """What the function gives, and where it holds."""
    unit = unit_of(form.total)
    yield f'{INDENT}"""{form.total} of {plain(form.title)}{f", {unit}" if unit and unit != "1" else ""}.'
    yield ""
    yield from textwrap.wrap(
        conditions_text(form), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_long_words=False
    )
    yield f'{INDENT}"""'


def plain(text: str) -> str:
    """A text that may stand in a docstring."""
    return text.replace("\\", "/").replace('"', "'")


def conditions_text(form: ClosedForm) -> str:
    """Where a form holds, in a sentence."""
    fixed = "the plan's formats, policies, stack and device, its stages and groups of layers as they are"
    if form.service:
        fixed = "the plan's layout, formats, stack and device, its lengths and sequences in flight as they are"
    stated = "; ".join(form.conditions)
    return f"Holds for sizes that the plan may have where {stated}; {fixed}." if stated else f"Holds with {fixed}."


def body_lines(form: ClosedForm) -> Iterator[str]:
    """The statements of the function: numbers, forms of prices, what is named, the total."""
    written, result = form.written(python=True)
    numbers = {name: value for entry, _ in written if not entry.terms for name, value in entry.numbers.items()}
    for names in by_kernel(numbers):
        yield f"{', '.join(names)} = {', '.join(number_text(numbers[name]) for name in names)}"
    for definition, texts in written:
        if definition.algebra is not None:
            parameters = [
                *definition.arguments,
                *(f"{name}={number_text(value)}" for name, value in definition.numbers.items()),
            ]
            yield from wrapped(f"def {definition.name}({', '.join(parameters)}):", INDENT)
            yield from (f"{INDENT}{line}" for line in assigned("return ", texts[0]))
        elif definition.terms:
            yield from statement(definition, texts)
    yield from assigned("return ", result)


def by_kernel(names: Sequence[str] | dict[str, float]) -> list[list[str]]:
    """Names of fitted numbers, those of one kernel together."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition("_")[0], []).append(name)
    return list(groups.values())


def statement(definition: Definition, texts: Sequence[str]) -> Iterator[str]:
    """A name with what it stands for; a sum of terms with notes has a line for each of those."""
    comment = f"  # {definition.comment}" if definition.comment else ""
    if len(texts) == 1:
        lines = list(assigned(f"{definition.name} = ", texts[0]))
        if len(lines) == 1 and len(lines[0]) + len(comment) <= WIDTH:
            yield lines[0] + comment
            return
        yield from ([comment.strip()] if comment else [])
        yield from lines
        return
    plain_terms = [text for text, (_, note) in zip(texts, definition.terms, strict=True) if not note]
    noted = [(text, note) for text, (_, note) in zip(texts, definition.terms, strict=True) if note]
    yield f"{definition.name} = ({comment}"
    first = [(" + ".join(plain_terms), "")] if plain_terms else []
    for place, (text, note) in enumerate([*first, *noted]):
        *lines, last = textwrap.wrap(text, WIDTH, break_long_words=False)
        lead = f"{INDENT}+ " if place else INDENT
        for line in lines:
            yield lead + line
            lead = INDENT * 2
        yield f"{lead}{last}{f'  # {note}' if note else ''}"
    yield ")"


def assigned(lead: str, text: str) -> list[str]:
    """A statement on one line, or in parentheses on several."""
    if len(lead) + len(text) <= WIDTH:
        return [lead + text]
    inside = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"{lead}(", *(INDENT + line for line in inside), ")"]


def wrapped(text: str, indent: str) -> list[str]:
    """A line broken where it is too long, what follows further in."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent * 2, break_long_words=False, break_on_hyphens=False)


# --- LaTeX and sympy ---


def latex_text(form: ClosedForm) -> str:
    """The form as aligned equations: the total first, then what its terms are."""
    written, result = form.written(python=False)
    rows = [equation(latex_name(form.total), result)]
    for definition, texts in reversed(written):
        if definition.algebra is not None:
            numbers = ", ".join(
                f"{symbol(name)} = {latex(number_text(value))}" for name, value in definition.numbers.items()
            )
            called = f"{latex_name(definition.name)}({', '.join(map(symbol, definition.arguments))})"
            rows.append(equation(called, texts[0]) + (rf",\quad {numbers}" if numbers else ""))
        elif definition.terms:
            rows.append(equation(symbol(definition.name), " + ".join(texts)))
        else:
            rows += [equation(symbol(name), number_text(value)) for name, value in definition.numbers.items()]
    return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}\n"


def latex_name(name: str) -> str:
    """A total or a function by its name, upright."""
    return rf"\operatorname{{{WORD.sub(' ', name).replace('_', ' ')}}}".replace(" ", r"\ ")


def equation(name: str, text: str) -> str:
    """A name and what it is equal to."""
    return f"{name} &= {latex(text)}"


def sympy_text(form: ClosedForm) -> str:
    """The form as `srepr` writes an expression of sympy, over its letters alone."""
    import sympy

    return f"{sympy.srepr(sympy_expression(form))}\n"


def sympy_expression(form: ClosedForm) -> sympy.Expr:
    """The form as an expression of sympy, over its letters alone."""
    import sympy

    names: dict[str, Any] = {name: sympy.Symbol(name, positive=True, integer=True) for name in form.letters}
    names |= {
        "max": lambda *of: sympy.Max(*of, evaluate=False),
        "min": lambda *of: sympy.Min(*of, evaluate=False),
        "ceil": lambda of: sympy.ceiling(of, evaluate=False),
        "floor": lambda of: sympy.floor(of, evaluate=False),
        "sqrt": sympy.sqrt,
        "log": sympy.log,
        "abs": sympy.Abs,
        "mod": sympy.Mod,
        "power_of_two": lambda of: 2 ** sympy.ceiling(sympy.log(of, 2), evaluate=False),  # the next, or itself
        "choose": lambda condition, yes, no: sympy.Piecewise((yes, condition), (no, True), evaluate=False),
        "less": lambda left, right: sympy.Lt(left, right, evaluate=False),
        "less_equal": lambda left, right: sympy.Le(left, right, evaluate=False),
        "equal": lambda left, right: sympy.Eq(left, right, evaluate=False),
        "both": sympy.And,
        "opposite": sympy.Not,
        "of_largest": largest_of_pairs,
    }
    written, result = form.written(python=False)
    with sympy.evaluate(False):  # as it is written: what sympy would make of so many sums takes minutes
        for definition, texts in written:
            if definition.algebra is not None:
                names[definition.name] = sympy_function(definition, texts[0], names)
            elif definition.terms:
                names[definition.name] = computed(" + ".join(texts), names)
            else:
                names |= {name: sympy.Float(value) for name, value in definition.numbers.items()}
        return computed(result, names)


def sympy_function(definition: Definition, text: str, names: dict[str, Any]) -> Any:
    """A form of a price as a function of expressions."""
    import sympy

    numbers = {name: sympy.Float(value) for name, value in definition.numbers.items()}

    def called(*arguments: Any) -> Any:
        return computed(text, {**names, **numbers, **dict(zip(definition.arguments, arguments, strict=True))})

    return called


def largest_of_pairs(*keys_and_values: Any) -> Any:
    """The value whose key is the largest, of keys that are each followed by their value."""
    import sympy

    keys, values = keys_and_values[::2], keys_and_values[1::2]
    largest = sympy.Max(*keys, evaluate=False)
    pieces = [(value, sympy.Eq(key, largest, evaluate=False)) for key, value in zip(keys, values, strict=True)]
    return sympy.Piecewise(*pieces[:-1], (values[-1], True), evaluate=False)


def computed(text: str, names: dict[str, Any]) -> Any:
    """What a formula comes to, its whole numbers as exact ones; only names that are known are in reach."""
    import sympy

    exact = re.sub(r"(?<![\w.])(?<!e-)(\d+)(?![\w.])", r"whole(\1)", text)
    return eval(exact, {"__builtins__": {}, "whole": sympy.Integer, **names})  # noqa: S307 - a formula that was written here


# --- lines for people ---


@dataclass(frozen=True)
class FormRow:
    """What a form names: its `formula`, and its `source`: accounts, a moment, or the kernel that has its price."""

    name: str
    formula: str
    source: str


def total_line(form: ClosedForm) -> str:
    """The total in one line."""
    return f"{form.total} = {form.written(python=False)[1]}"


def form_rows(form: ClosedForm) -> Iterator[FormRow]:
    """What the form names, each before what it needs itself; the fitted numbers of a kernel in one row."""
    numbers: dict[str, float] = {}
    for definition, texts in reversed(form.written(python=False)[0]):
        if definition.algebra is not None:
            called = f"{definition.name}({', '.join(definition.arguments)})"
            fitted = ", ".join(f"{name} = {number_text(value)}" for name, value in definition.numbers.items())
            yield FormRow(
                called, texts[0], f"price of {definition.comment}: {fitted}" if fitted else definition.comment
            )
        elif definition.terms:
            notes = [
                f"{text} [{note}]" if note else text for text, (_, note) in zip(texts, definition.terms, strict=True)
            ]
            yield FormRow(definition.name, " + ".join(notes), definition.comment)
        else:
            numbers |= definition.numbers
    for names in by_kernel(numbers):
        yield FormRow(
            ", ".join(names), ", ".join(number_text(numbers[name]) for name in names), "fitted, or a data sheet's"
        )


def form_lines(form: ClosedForm) -> Iterator[str]:
    """The form line by line: the total, then what its terms are, each with where it comes from."""
    yield total_line(form)
    for row in form_rows(form):
        yield f"  {row.name} = {row.formula}"
        if row.source:
            yield f"      {row.source}"


def form_record(form: ClosedForm) -> dict[str, Any]:
    """The form for programs, as each of the formats has it."""
    return {
        "lines": list(form_lines(form)),
        "python": python_text(form),
        "latex": latex_text(form),
        "letters": {name: json_number(value) for name, value in form.letters.items()},
        "conditions": list(form.conditions),
        "candidates": [
            {"name": candidate.name, "title": candidate.title, "value": json_number(candidate.value)}
            for candidate in form.candidates
        ],
    }


NOTATIONS: Mapping[str, Callable[[ClosedForm], str]] = {
    "python": python_text,
    "latex": latex_text,
    "sympy": sympy_text,
}
