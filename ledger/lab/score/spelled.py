"""Words of published tables as the library's spellings have them, and the software that rows name by them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ledger.lab.score.facts import Facts
from ledger.spec.library import Library
from ledger.spec.load import load_publication, load_spelling, load_stack
from ledger.spec.near import nearest
from ledger.spec.problems import SpecError
from ledger.spec.publication import UNSTATED, Publication, SomeRuns, Spelling
from ledger.spec.stack import Stack

WORD = re.compile(r"[a-z0-9][a-z0-9_.-]*")
BRACKETED_WORD = re.compile(r"^(?P<word>[^()]*[^() ]) *\((?P<inside>.*)\)$")


class UnknownWordError(ValueError):
    """A word of a column that no spelling of the library explains; the message says the nearest."""


@dataclass(frozen=True)
class Meaning:
    """The meaning of a cell: `value`, what words in brackets add to it, and those of them that nobody knows."""

    value: Any
    added: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def meaning(column: str, text: str, library: Library) -> Meaning:
    """The value that a text stands for in a column; raises UnknownWordError with the nearest spelling."""
    spelling = _spelling(column, library)
    value = _stated_value(spelling, text)
    if value is not None:
        return Meaning(value)
    bracketed = BRACKETED_WORD.match(text)
    if bracketed and (value := _stated_value(spelling, bracketed["word"])) is not None:
        said = [part.strip() for part in re.split(r"[,;]", bracketed["inside"])]
        qualifiers = {folded(name): value for name, value in spelling.qualifiers.items()}
        added = [qualifiers[folded(part)] for part in said if folded(part) in qualifiers]
        unread = tuple(part for part in said if folded(part) not in qualifiers)
        return Meaning(value, {path: value for values in added for path, value in values.items()}, unread)
    words = set(WORD.findall(text.lower()))
    marked = [name for name, marks in spelling.marks.items() if words & set(marks)]
    if len(marked) == 1:
        return Meaning(marked[0])
    raise UnknownWordError(f"`{column}` = `{text}` is not known; {nearest(text, list(spelling.spellings))}")


def _stated_value(spelling: Spelling, text: str) -> Any:
    """The value of a spelling, None where there is none; one that names another spelling has that one's value."""
    table = {folded(spelt): value for spelt, value in spelling.spellings.items()}
    value = table.get(folded(text))
    return table.get(folded(value), value) if isinstance(value, str) else value


def folded(text: str) -> str:
    """A text without case and with single blanks."""
    return " ".join(text.lower().split())


@cache
def _spelling(column: str, library: Library) -> Spelling:
    return load_spelling(column, library=library)


# --- conditions of publications ---

BOUNDS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}


def meets_condition(text: str, condition: Any) -> bool:
    """Whether a cell is what a condition of a publication asks for: a text with `*`, a truth, a bound, one of several.

    An empty cell meets nothing but an empty text.
    """
    if isinstance(condition, list | tuple):
        return any(meets_condition(text, alternative) for alternative in condition)
    if isinstance(condition, bool):
        return text.lower() in (("true", "yes", "1") if condition else ("false", "no", "0"))
    sign, _, bound = str(condition).partition(" ")
    if sign in BOUNDS:
        return text.isdecimal() and BOUNDS[sign](float(text), float(bound))
    parts = (re.escape(part) for part in folded(str(condition)).split("*"))
    return re.fullmatch(".*".join(parts), folded(text), re.DOTALL) is not None


# --- the software of a row ---


class SkippedError(Exception):
    """A row that no plan can be made of, with the reason."""


def row_meaning(column: str, text: str, library: Library) -> Meaning:
    """The meaning of a word of a row; raises SkippedError where no spelling explains it."""
    try:
        return meaning(column, text, library)
    except UnknownWordError as error:
        raise SkippedError(str(error)) from error


@dataclass(frozen=True)
class Software:
    """What ran: the stack, which memory is printed and of which rank, and paths of the plan that a publication states.

    `devices` are the parts that names of hardware stand for on its machines; `unread` says why a figure of memory
    cannot be compared.
    """

    stack: Stack
    memory: str = UNSTATED
    rank: str = "worst"
    unread: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)


def software_of(row: Facts, library: Library, of_plan: Stack | None = None) -> Software:
    """The software of a row, or of the plan that it starts from; raises SkippedError where nobody names it."""
    publication = _publication(row.source_id or row.source, library)
    chosen = tuple(_matching_runs(row, publication))
    memory, rank, unread = _convention(row, publication, library)
    stated = {**(publication.plan if publication else {}), **{k: v for runs in chosen for k, v in runs.plan.items()}}
    stack = of_plan or _stack_of(row, publication, chosen, library)
    return Software(stack, memory, rank, unread, stated, publication.devices if publication else {})


def _stack_of(row: Facts, publication: Publication | None, chosen: Sequence[SomeRuns], library: Library) -> Stack:
    """The stack that the row names, else its publication: raises SkippedError where neither does."""
    software = _first_named(runs.software for runs in chosen)
    if software and not row.stack:
        raise SkippedError(f"no stack on file is of {software}, which ran; a `stack` column may name the nearest one")
    name = row.stack or _first_named(runs.stack for runs in chosen) or (publication.stack if publication else "")
    if not name:
        near = nearest(row.source_id or row.source, list(library.names("publication")))
        raise SkippedError(
            f"the software is not known: no `stack`, and no publication `{row.source_id or row.source}` on file "
            f"that names one; `ledger list stack` has what there is, {near}"
        )
    stack = _stack(name, library)
    if row.torch_compile and not row.stack and not stack.compiled and stack.defaults.compiled:
        stack = _stack(stack.defaults.compiled, library)
    return stack


def _matching_runs(row: Facts, publication: Publication | None) -> Iterator[SomeRuns]:
    """The runs of a publication, made in a way of their own, that the row is one of."""
    for runs in publication.runs if publication else ():
        if all(meets_condition(row.cells.get(column, ""), condition) for column, condition in runs.where.items()):
            yield runs
            return


def _first_named(names: Iterator[str]) -> str:
    return next((name for name in names if name), "")


def _convention(row: Facts, publication: Publication | None, library: Library) -> tuple[str, str, str]:
    """Which bytes were printed and of which rank, and why that cannot be said."""
    memory, rank = (publication.memory, publication.rank) if publication else (UNSTATED, "worst")
    if not row.mem_convention:
        return memory, rank, ""
    try:
        said = meaning("mem_convention", row.mem_convention, library).value
    except UnknownWordError as error:
        return memory, rank, str(error)
    stated = said if isinstance(said, Mapping) else {"memory": said}
    return stated.get("memory", memory), stated.get("rank", rank), ""


def columns_told_apart(source: str, library: Library) -> frozenset[str]:
    """Columns by which a publication tells some of its runs from others."""
    publication = _publication(source, library)
    return frozenset(column for runs in (publication.runs if publication else ()) for column in runs.where)


@cache
def _publication(name: str, library: Library) -> Publication | None:
    return load_publication(name, library=library) if name in library.names("publication") else None


@cache
def _stack(name: str, library: Library) -> Stack:
    try:
        return load_stack(name, library=library)
    except SpecError as error:
        raise SkippedError("; ".join(f"{problem.message}, {problem.help}" for problem in error.problems)) from error
