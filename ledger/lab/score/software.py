"""The software of a row: its stack, and what its publication states beside its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ledger.lab.score.facts import Facts
from ledger.lab.score.spelled import UnknownWordError, meaning, meets
from ledger.spec.library import Library
from ledger.spec.load import load_publication, load_stack
from ledger.spec.near import nearest
from ledger.spec.problems import SpecError
from ledger.spec.publication import UNSTATED, Publication, SomeRuns
from ledger.spec.stack import Stack


class SkippedError(Exception):
    """A row that no plan can be made of, with the reason."""


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
    chosen = tuple(_chosen(row, publication))
    memory, rank, unread = _convention(row, publication, library)
    stated = {**(publication.plan if publication else {}), **{k: v for some in chosen for k, v in some.plan.items()}}
    stack = of_plan or _stack_of(row, publication, chosen, library)
    return Software(stack, memory, rank, unread, stated, publication.devices if publication else {})


def _stack_of(row: Facts, publication: Publication | None, chosen: Sequence[SomeRuns], library: Library) -> Stack:
    """The stack that the row names, else its publication: raises SkippedError where neither does."""
    other = _first(some.software for some in chosen)
    if other and not row.stack:
        raise SkippedError(f"no stack on file is of {other}, which ran; a `stack` column may name the nearest one")
    name = row.stack or _first(some.stack for some in chosen) or (publication.stack if publication else "")
    if not name:
        near = nearest(row.source_id or row.source, list(library.names("publication")))
        raise SkippedError(
            f"the software is not known: no `stack`, and no publication `{row.source_id or row.source}` on file "
            "that names one; "
            f"`ledger list stack` has what there is, {near}"
        )
    stack = _stack(name, library)
    if row.torch_compile and not row.stack and not stack.compiled and stack.defaults.compiled:
        stack = _stack(stack.defaults.compiled, library)
    return stack


def _chosen(row: Facts, publication: Publication | None) -> Iterator[SomeRuns]:
    """The runs of a publication, made in a way of their own, that the row is one of."""
    for some in publication.runs if publication else ():
        if all(meets(row.cells.get(column, ""), wanted) for column, wanted in some.where.items()):
            yield some
            return


def _first(names: Iterator[str]) -> str:
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
    return frozenset(column for some in (publication.runs if publication else ()) for column in some.where)


@cache
def _publication(name: str, library: Library) -> Publication | None:
    return load_publication(name, library=library) if name in library.names("publication") else None


@cache
def _stack(name: str, library: Library) -> Stack:
    try:
        return load_stack(name, library=library)
    except SpecError as error:
        raise SkippedError("; ".join(f"{one.message}, {one.help}" for one in error.problems)) from error
