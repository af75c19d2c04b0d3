"""A plan for a model of which nothing is known but its shape: common choices, and the fastest layout that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.compiler import compile_plan
from ledger.search.first_text import LAYOUT, Start, start_text
from ledger.search.headroom import kept_free
from ledger.spec.edit import edited
from ledger.spec.imports.parts import ImportedSpec
from ledger.spec.load import load_plan
from ledger.spec.problems import Location, Problem, SpecError

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

    Search = Callable[[Plan], Recommendations | None]

# Kernels to try in turn where the stack's own cannot run a model (sinks of attention).
KERNELS: tuple[Mapping[str, str], ...] = ({}, {"attention": "cudnn_grouped"}, {"attention": "eager"})


def first_plan(start: Start, file: str, search: Search) -> ImportedSpec:
    """The text of the plan, each of whose assumptions is a comment; `file` is where the model is from.

    Its layout is the fastest that `search` finds and that leaves the headroom free; where none does, it is the one that
    misses least, and a note says by how much. Raises SpecError where the model or the device makes no plan.
    """
    text = start_text(_begun(runnable(start, file)))
    found = search(load_plan(text))
    if found is None or not found.legal:
        notes = (Problem(Location(file), found.note, "`ledger sweep` looks at them"),) if found and found.note else ()
        return ImportedSpec(text.replace(LAYOUT, "assumed: a replica on every device"), notes)
    layout = found.fastest or found.nearest
    said = f"assumed: {'the fastest' if found.fastest else 'what misses least'} of {found.scope}"
    text = edited(text.replace(LAYOUT, said.replace(numbers.THIN, " ")), layout.changes if layout else {})
    return ImportedSpec(text, () if found.fastest else (_no_layout(found, file),))


def runnable(start: Start, file: str) -> Start:
    """The same with the first kernels that can run the model; raises SpecError, of the file, where there are none."""
    start_text(start)  # an unknown device is no matter of kernels
    refused: tuple[Problem, ...] = ()
    for kernels in KERNELS:
        try:
            load_plan(start_text(replace(start, kernels=kernels)))
        except SpecError as error:
            refused = refused or error.problems
        else:
            return replace(start, kernels=kernels)
    raise SpecError(Problem(Location(file), f"no plan of this model: {one.message}", one.help) for one in refused)


def _begun(start: Start) -> Start:
    """The same with the degree of experts that a search begins at, since it looks first at what is like its plan.

    That is the fastest that fits, else the one that needs least memory.
    """
    plans = {degree: load_plan(start_text(replace(start, expert=degree))) for degree in start.expert_degrees}
    totals_of = {degree: compile_plan(plan).totals for degree, plan in plans.items()}
    degree = min(plans, key=lambda one: _rank(plans[one], totals_of[one]))
    return replace(start, expert=degree)


def _rank(plan: Plan, totals: Mapping[str, Number]) -> tuple[bool, float]:
    """What fits before what does not; of those that fit the fastest first, of others the one with least memory."""
    needed = float(totals["memory.reserved"])
    fits = needed <= float(totals["memory.capacity"]) - kept_free(plan)
    return not fits, float(totals["time.step"]) if fits else needed


def _no_layout(found: Recommendations, file: str) -> Problem:
    message = "no layout leaves the headroom free on so many devices"
    if found.nearest:
        message += f"; the one that misses least needs {numbers.size(found.nearest.totals['memory.reserved'])} of each"
    help_text = "more of them with `--devices`, or larger ones with `--accelerator`"
    return Problem(Location(file), message.replace(numbers.THIN, " "), help_text)
