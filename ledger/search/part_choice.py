"""Which model a budget allows, or which device is cheapest: parts of the library in turn, each in a layout of its own.

A part is tried in the plan's own layout; where that is illegal or misses the conditions, in the fastest that a quick
search finds and that leaves the plan's headroom free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.books.prices import curve
from ledger.books.what_if.answer import Solution
from ledger.books.what_if.combinations import Candidate, Refused
from ledger.books.what_if.options import library_part
from ledger.books.what_if.ordered import Objective
from ledger.books.what_if.product import Note, Ranking, with_time
from ledger.books.what_if.solve import asked_of
from ledger.books.what_if.solve import solve as solved
from ledger.books.what_if.sought import key_fault
from ledger.search.part_layouts import ACCELERATOR, MODEL, STOPPED, Entrant, PartLayouts
from ledger.search.recommend import may_recommend
from ledger.search.workers import Run, in_this_process
from ledger.spec.kernel_classes import KernelClass
from ledger.spec.kernel_families import COLLECTIVES

if TYPE_CHECKING:
    from ledger.spec.plan import Accelerator, Plan

Tried = Candidate | Refused
SIZE = Objective("parameters", 1)
COST = "cost.run"
SHOWN: Mapping[str, tuple[str, ...]] = {  # totals that are told of each part, where it has them
    MODEL: ("time.calendar", COST),
    ACCELERATOR: ("time.calendar", COST, f"{COST}.low", f"{COST}.high"),
}
NOTES: Mapping[str, str] = {
    MODEL: "each model runs on the plan's devices, with sequences no longer than it was made for",
    ACCELERATOR: "each device is priced in the number that the plan has, with its network, operations and headroom",
}
LAYOUTS = (
    "layouts: the plan's own where that meets the conditions, else the fastest of a quick search that leaves the "
    "headroom free"
)


def solve(  # noqa: PLR0913 - a question has these parts, and callers name those they use
    plan: Plan,
    paths: str | Sequence[str],
    subject_to: Sequence[str] = (),
    *,
    maximize: str = "",
    minimize: str = "",
    keep: str = "",
    note: Note = lambda *_: None,
    run: Run | None = in_this_process,
) -> Solution:
    """The values of the inputs at `paths`, as ledger/books/what_if/solve.py has them; of one part, with its layouts.

    Of models without another objective it is the largest. `run` is where other layouts are priced; None: nowhere, and
    every part has the plan's own. Raises SpecError as that does.
    """
    asked = (paths,) if isinstance(paths, str) else tuple(paths)
    if asked not in {(MODEL,), (ACCELERATOR,)} or keep or not may_recommend(plan):
        return solved(plan, paths, subject_to, maximize=maximize, minimize=minimize, keep=keep, note=note)
    question = replace(asked_of(plan, subject_to, maximize, minimize), shown=SHOWN[asked[0]])
    by_size = asked[0] == MODEL and question.objective in {None, SIZE}
    by_default = question.objective is None
    if by_default:
        question = replace(question, objective=SIZE) if by_size else with_time(question)
    layouts = PartLayouts(question, library_part(plan, asked[0]), run)
    return _largest(layouts, note) if by_size else _best(layouts, note, by_default=by_default)


def _best(layouts: PartLayouts, note: Note, *, by_default: bool) -> Solution:
    """Of all that are tried, the best by the objective."""
    entrants = [layouts.entrant(value) for value in layouts.sought.some]
    tried: list[Tried] = []
    for count, entrant in enumerate(entrants):
        note(count, len(entrants))
        tried.append(layouts.judged(entrant))
    return _told(layouts, _with_a_miss(layouts, entrants, tried), by_default=by_default)


def _largest(layouts: PartLayouts, note: Note) -> Solution:
    """The largest that meets the conditions: larger ones are tried first, and smaller ones not at all."""
    in_order = sorted(map(layouts.entrant, layouts.sought.some), key=lambda one: -one.parameters)
    tried = [*_until_met(layouts, in_order, note)]
    answer = tried[-1]
    if isinstance(answer, Refused) or not answer.met:
        return _told(layouts, _with_a_miss(layouts, in_order, tried), by_default=False)
    larger = _next_larger(layouts, in_order, tried)
    found = _told(layouts, tried, by_default=False)
    left = [entrant.value for entrant in in_order[len(tried) :]]
    notes = (*found.notes, *_missed(layouts, larger), *([f"smaller, and not tried: {', '.join(left)}"] if left else []))
    return replace(
        found,
        beyond=larger.values[layouts.sought.path] if larger else None,
        bounds=layouts.question.bounds(answer.totals, larger.totals if larger else None, met=True),
        notes=notes,
        next_name="next larger",
    )


def _until_met(layouts: PartLayouts, in_order: Sequence[Entrant], note: Note) -> Iterator[Tried]:
    """What is tried in this order, up to the first that meets the conditions."""
    for count, entrant in enumerate(in_order):
        note(count, len(in_order))
        one = layouts.judged(entrant)
        yield one
        if isinstance(one, Candidate) and one.met:
            return


def _next_larger(layouts: PartLayouts, in_order: Sequence[Entrant], tried: list[Tried]) -> Candidate | None:
    """The smallest of what is larger than the answer and has a legal layout; it is put among what was tried."""
    for place in range(len(tried) - 2, -1, -1):
        one = tried[place]
        if isinstance(one, Refused) and one.skipped:
            tried[place] = one = layouts.judged(in_order[place], skip=False)
        if isinstance(one, Candidate):
            return one
    return None


def _missed(layouts: PartLayouts, larger: Candidate | None) -> Iterator[str]:
    """By how much the next larger one misses each condition."""
    for condition in layouts.question.conditions if larger else ():
        if larger and not condition.holds(larger.totals):
            bound, here = float(condition.bound(larger.totals)), float(larger.totals[condition.key])
            by = f" by {numbers.percent(abs(here / bound - 1))}" if bound else ""
            name = larger.values[layouts.sought.path]
            size = numbers.said(larger.totals["parameters"], "1")
            yield f"the next larger, {name} with {size} parameters, misses `{condition.text}`{by}"


def _with_a_miss(layouts: PartLayouts, entrants: Sequence[Entrant], tried: list[Tried]) -> list[Tried]:
    """What was tried; where all of it was skipped or refused, what was skipped in the plan's own layout after all.

    Where that is legal of none of them, the last is laid out, so that there is a miss to tell.
    """
    if any(isinstance(one, Candidate) for one in tried):
        return tried
    unsearched = replace(layouts, run=None)
    for place, (entrant, one) in enumerate(zip(entrants, tried, strict=False)):
        if isinstance(one, Refused) and one.skipped:
            own = unsearched.judged(entrant, skip=False)
            tried[place] = own if isinstance(own, Candidate) else one
    for place in range(len(tried) - 1, -1, -1):
        if any(isinstance(one, Candidate) for one in tried):
            break
        if isinstance(one := tried[place], Refused) and one.skipped:
            tried[place] = layouts.judged(entrants[place], skip=False)
    return tried


def _told(layouts: PartLayouts, tried: Sequence[Tried], *, by_default: bool) -> Solution:
    """The answer, or the nearest miss, among what was tried; raises SpecError where rules refuse all of it."""
    path = layouts.sought.path
    ranking = Ranking(layouts.question, {path: layouts.sought}, (), tuple(tried))
    if not ranking.legal:
        raise key_fault(path, f"no `{path}` of the library can stand in this plan", ranking.why_refused())
    found = ranking.solution(by_default=by_default)
    stopped = [one.values[path] for one in ranking.legal if STOPPED in one.details]
    notes = [NOTES[path], *([LAYOUTS] if layouts.run else [])]
    if path == ACCELERATOR and layouts.question.plan.cluster.devices > 1:
        plans = {str(one.values[path]): layouts.entrant(one.values[path]).plan for one in ranking.legal}
        notes += unmeasured_links({name: plan.accelerator for name, plan in plans.items() if plan})
    if stopped:
        names = ",".join(stopped)
        notes.append(f"some layouts were not looked at in time: `ledger sweep SPEC --over {path}={names}` looks at all")
    return replace(found, notes=(*found.notes, *notes))


def unmeasured_links(devices: Mapping[str, Accelerator]) -> list[str]:
    """That transfers were measured on some of these devices and not on others, whose data sheets flatter them."""
    classes = [KernelClass(kind) for kind in COLLECTIVES]
    without = [name for name, device in devices.items() if not any(curve(device, one) for one in classes)]
    if not without or len(without) == len(devices):
        return []
    told = "by data sheet, which transfers seldom reach, where those of the others are as measured"
    return [f"transfers between devices are priced {told}: {', '.join(without)}"]
