"""Faults of a value by itself, in the user's words, each with its place and near misses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.spec.near import meant, nearest
from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import QuantityError
from ledger.spec.reader import Node

Steps = tuple[str | int, ...]
LONGEST_QUOTED = 80  # characters of a value that a message repeats
WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


@dataclass(frozen=True)
class Fault:
    """A problem and the path it is about; `harmless`: the rest of the part can still be read.

    `near`: the value is all but what is due, so this is what was meant where several forms may be written.
    """

    path: Steps
    problem: Problem
    harmless: bool = False
    near: bool = False


Faults = list[Fault]


@dataclass(frozen=True, slots=True)
class StatedValue:
    """A value as it stands in a document: its node, its path, and what its field means."""

    node: Node
    path: Steps = ()
    meaning: str = ""

    def inner(self, step: str | int, node: Node, meaning: str = "") -> StatedValue:
        """An entry of this value; one of which nothing else is said means what the whole means."""
        return StatedValue(node, (*self.path, step), meaning or self.meaning)


def label(path: Steps) -> str:
    """A path in quotes, as messages name it."""
    return f"`{'.'.join(str(step) for step in path)}`" if path else "this spec"


def quote(value: object) -> str:
    """A value in quotes, shortened, as messages have it."""
    if value is None:
        return "empty"
    if isinstance(value, Mapping | list | tuple):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    return f"`{shortened(yaml_text(value))}`"


def shortened(text: str) -> str:
    """A text cut to the length that messages have room for."""
    return text if len(text) <= LONGEST_QUOTED else f"{text[: LONGEST_QUOTED - 3]}..."


def yaml_text(value: object) -> str:
    """A scalar as YAML spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def fault_at(written: StatedValue, message: str, help_text: str, *, harmless: bool = False) -> Fault:
    """A fault about this very value."""
    return Fault(written.path, Problem(written.node.where, f"{label(written.path)}{message}", help_text), harmless)


def wrong_type(written: StatedValue, types: Iterable[str]) -> Fault:
    """A value of another JSON type than those that are due."""
    words = " or ".join(dict.fromkeys(WORDS[name] for name in types))
    return fault_at(written, f" must be {words}, not {quote(written.node.value)}", written.meaning)


def wrong_choice(written: StatedValue, choices: Sequence[object]) -> Fault:
    """A value that is none of the choices."""
    names = [yaml_text(choice) for choice in choices]
    if isinstance(written.node.value, str) and written.node.value in names:
        message = f" cannot be the text {quote(written.node.value)}"
        fault = fault_at(written, message, f"without quotes it is a value: one of {', '.join(names)}")
        return replace(fault, near=True)
    help_text = nearest(str(written.node.plain()), names)
    near = help_text.startswith("did")
    help_text = f"{help_text} ({', '.join(names)})" if near else f"one of {', '.join(names)}"
    return replace(fault_at(written, f" cannot be {quote(written.node.value)}", help_text), near=near)


def no_alternative(written: StatedValue, forms: Sequence[str], faults: Iterable[Fault]) -> Fault:
    """A value of none of several forms, with what is wrong of each; the one that was all but met says what it is."""
    due = f"{', '.join(forms[:-1])} or {forms[-1]}"
    nearest_form = next((fault for fault in faults if fault.near), None)
    if nearest_form is None:
        return fault_at(written, f" cannot be {quote(written.node.value)}", f"it may be {due}")
    problem = nearest_form.problem
    nearly = re.sub(r"\? \([^()]*\)$", "?", problem.help)  # the choices are among what is due
    help_text = f"{nearly} It may be {due}" if nearly.endswith("?") else f"{nearly}; it may be {due}"
    return replace(nearest_form, problem=replace(problem, help=help_text), harmless=False)


def wrong_constant(written: StatedValue, due: str) -> Fault:
    """Another value than the only one."""
    message = f" must be `{due}`, not {quote(written.node.value)}"
    return fault_at(written, message, f"write `{written.path[-1]}: {due}`", harmless=True)


def out_of_bounds(written: StatedValue, bound: str, limit: float) -> Fault:
    """A number on the wrong side of its bound (`at least`, `above`, `at most`)."""
    return replace(fault_at(written, f" must be {bound} {limit}, not {written.node.value}", written.meaning), near=True)


def no_quantity(written: StatedValue, error: QuantityError) -> Fault:
    """A text that is no quantity of the dimension; `value` of a sourced value goes without saying."""
    named = label(tuple(step for step in written.path if step != "value"))
    near = error.near or "did you mean" in error.help
    return Fault(written.path, Problem(written.node.where, f"{named}: {error.message}", error.help), near=near)


def wrong_amount(written: StatedValue, bound: str, limit: int) -> Fault:
    """Too few or too many entries, or letters."""
    value = written.node.value
    entries = value if isinstance(value, str | tuple | Mapping) else ()
    noun = "letters" if isinstance(entries, str) else "entries"
    message = f" has {len(entries)} {noun}, and {bound} {limit} are due"
    if not entries:
        message = " is empty"
    elif limit == 1 and isinstance(entries, Mapping):
        message = f" has {' and '.join(f'`{key}`' for key in entries)}, of which one is due"
    return fault_at(written, message, written.meaning)


def duplicate_entry(written: StatedValue, entry: object) -> Fault:
    """A list that has an entry twice."""
    return fault_at(written, f" has {quote(entry)} twice", "each entry once")


def wrong_form(written: StatedValue, text: str, pattern: str) -> Fault:
    """A text that is not written as it must be."""
    return fault_at(written, f": {quote(text)} is not of the form `{pattern}`", written.meaning)


def cut_short(written: StatedValue) -> Fault:
    """A value whose other entries were not read."""
    return fault_at(written, " holds more than is told here", "mend what is told first")


def unknown_field(written: StatedValue, key: str, known_keys: Sequence[str], instead: str = "") -> Fault:
    """A key that the mapping does not have; `instead` is what stands for it, where it once had one."""
    where: Location = written.node.keys.get(key, written.node.where)
    help_text = instead or meant(key, known_keys) or nearest(key, known_keys)
    problem = Problem(where, f"`{key}` is no field of {label(written.path)}", help_text)
    return Fault((*written.path, key), problem, harmless=True)


def missing_key(written: StatedValue, key: str, meaning: str) -> Fault:
    """A key that the mapping needs."""
    problem = Problem(written.node.where, f"{label(written.path)} lacks `{key}`", f"`{key}:` {meaning}")
    return Fault((*written.path, key), problem)


def missing_companion_key(written: StatedValue, present: str, key: str, meaning: str) -> Fault:
    """A key that another one needs beside it; `spec` marks a file of its own, which has a title and a source."""
    message, help_text = f"{label(written.path)} has `{present}`, which needs `{key}` beside it", f"`{key}:` {meaning}"
    if present == "spec":
        message = f"{label(written.path)} lacks `{key}`, which a file of its own needs"
    return Fault((*written.path, key), Problem(written.node.where, message, help_text), harmless=present == "spec")
