"""Which model a budget allows, or which device is cheapest: parts of the library in turn, each in a layout of its own.

A part is tried in the plan's own layout; where that is illegal or misses the conditions, in the fastest that a quick
search finds and that leaves the plan's headroom free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.arithmetic.values import Amount
from ledger.books.calendar import run, saved_bytes
from ledger.books.compiled_roles import whole
from ledger.books.counts import has_peak, peak, state_bytes, whole_parameters, with_token_count
from ledger.books.names import absent
from ledger.books.prices import curve
from ledger.books.what_if.answer import Question, Solution
from ledger.books.what_if.ordered import Objective
from ledger.books.what_if.product import Candidate, Note, Ranking, Refused, missing, reasons, with_time
from ledger.books.what_if.solve import asked_of
from ledger.books.what_if.solve import solve as solved
from ledger.books.what_if.sought import Unknown, Value, key_fault, totals
from ledger.books.what_if.unknowns import library_part
from ledger.model import dtypes
from ledger.model.formats import stored_dtype
from ledger.model.operations import total
from ledger.report.recommendations import Recommendation
from ledger.search.choices import VALUES
from ledger.search.extent import kept_values
from ledger.search.recommend import may_recommend, row_changes, searched
from ledger.search.space import space_of
from ledger.search.workers import Run, in_this_process
from ledger.spec.kernel_classes import COLLECTIVES, KernelClass
from ledger.spec.load import revised
from ledger.spec.overrides import assignments
from ledger.spec.plan import Plan
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.spec.plan import Accelerator
    from ledger.spec.problems import Problem


MODEL, ACCELERATOR, LENGTH = "model", "accelerator", "run.seq_len"
SECONDS = 20.0  # after which the search of one part's layouts goes by what it has
BELOW = ("<", "<=")
LEAST, STOPPED = "least", "search stopped"
IN_ANY_LAYOUT = "in any layout, all devices at their peak rate and states split over all"
OWN_LAYOUT, NO_PRICE = "the plan's", "none on file"


@dataclass(frozen=True)
class Entrant:
    """A part in the plan: what puts it there, the plan with it (None where it cannot be read), and what rules say."""

    value: Value
    settings: Mapping[str, Any]
    plan: Plan | None
    problems: tuple[Problem, ...]

    @property
    def parameters(self) -> int:
        """Of its model; 0 where it cannot be read."""
        return int(whole_parameters(whole(self.plan))) if self.plan else 0


@dataclass(frozen=True)
class PartLayouts:
    """The values of one part, each to be laid out for a question; `run`: where layouts are priced, None: nowhere."""

    question: Question
    sought: Unknown
    run: Run | None

    def entrant(self, value: Value) -> Entrant:
        """The plan with the part; sequences are no longer than another model was made for."""
        settings = dict(self.sought.settings(value))
        draft = revised(self.question.plan, assignments(settings))
        if (
            draft.plan
            and settings
            and self.sought.path == MODEL
            and 0 < draft.plan.model.max_seq_len < draft.plan.run.seq_len
        ):
            settings[LENGTH] = draft.plan.model.max_seq_len
            draft = revised(self.question.plan, assignments(settings))
        return Entrant(value, settings, draft.plan, draft.problems)

    def judged(self, entrant: Entrant, *, skip: bool = True) -> Candidate | Refused:
        """The part in its best layout, or why there is none; with `skip`, none is looked for where none can do."""
        plan = entrant.plan
        if plan is None:
            return self._refused(entrant, reasons(entrant.problems))
        if lacking := [key for key in self.question.keys if absent(plan, key)]:
            return self._refused(entrant, missing(plan, lacking))
        if not has_peak(plan):
            return self._refused(entrant, reasons(entrant.problems))
        own = None if entrant.problems else self._candidate(entrant, entrant.settings)
        if own and own.met:
            return own
        if skip and (why := self._hopeless(plan)):
            refused = self._refused(entrant, why[0])
            return replace(refused, skipped=True, details={**refused.details, LEAST: why[1]})
        found = self._laid_out(entrant, self.run) if self.run else None
        both = [one for one in (found, own) if one]
        if not both:
            return self._refused(entrant, reasons(entrant.problems) or "no layout is legal")
        ranking = Ranking(self.question, {self.sought.path: self.sought}, (), tuple(both))
        return (ranking.met or ranking.misses)[0]

    def _hopeless(self, plan: Plan) -> tuple[str, str] | None:
        """Why no layout can meet a condition, the arithmetic alone taking too long, and the least that it comes to."""
        least = least_totals(plan)
        for one in self.question.conditions:
            if one.relation in BELOW and one.key in least and not one.holds(least):
                why = f"at least so much {one.key} {IN_ANY_LAYOUT}: `{one.text}` fails"
                return why, numbers.said(least[one.key], unit_of(one.key))
        return None

    def _laid_out(self, entrant: Entrant, run: Run) -> Candidate | None:
        """The part in the fastest layout that leaves the headroom free, or in the one that misses least.

        What is found when its time is over counts.
        """
        assert entrant.plan is not None  # noqa: S101 - our own mistake
        space = space_of(entrant.plan, near_values(entrant.plan))
        (found,), complete, error = searched([space], run, lambda *_: None, SECONDS)
        if error:
            raise error
        rows = found.front if len(found.front) else found.nearest
        if not len(rows):
            return None
        changes = row_changes(self.question.plan, space, rows, 0, entrant.settings)
        one = None if changes is None else self._candidate(entrant, changes)
        if complete or one is None:
            return one
        return replace(one, details={**one.details, STOPPED: f"after {SECONDS:g} s"})

    def _candidate(self, entrant: Entrant, settings: Mapping[str, Any]) -> Candidate | None:
        """The part with these settings, compiled; None where it has not all totals that are asked for."""
        plan = revised(self.question.plan, assignments(settings)).plan
        if plan is None:
            return None
        known = totals(plan)
        if any(key not in known for key in self.question.keys):
            return None
        met = all(one.holds(known) for one in self.question.conditions)
        details = self._details(plan, {key: value for key, value in settings.items() if key != self.sought.path})
        if self.sought.path == ACCELERATOR:
            reserved, capacity = float(known["memory.reserved"]), float(known["memory.capacity"])
            fits = f"{'yes' if reserved <= capacity else 'no'}, of {numbers.said(capacity, 'B')}"
            details = {**details, "fits": fits}
        values = {self.sought.path: entrant.value}
        return Candidate(values, settings, known, met, warnings=plan.warnings, details=details)

    def _refused(self, entrant: Entrant, why: str) -> Refused:
        details = self._details(entrant.plan, {}) if entrant.plan and self.sought.path == ACCELERATOR else {}
        return Refused({self.sought.path: entrant.value}, entrant.settings, why, details=details)

    def _details(self, plan: Plan, changes: Mapping[str, Any]) -> Mapping[str, str]:
        layout = {"layout": Recommendation(changes, {}).label if changes else OWN_LAYOUT}
        if self.sought.path == ACCELERATOR:
            price = plan.assumptions.price
            return {"price": f"{numbers.money(price.per_device_hour)}, {price.date}" if price else NO_PRICE, **layout}
        count = with_token_count(plan).run.token_count
        return {"tokens": numbers.said(count, "1"), **layout} if count else layout


def near_values(plan: Plan) -> Mapping[str, tuple[Any, ...]]:
    """The values of a quick search's space: few of the choices that decide which kernels and transfers there are."""
    mesh = plan.parallelism
    recomputes: Iterable[Any] = VALUES["recompute"](plan)
    return {
        **kept_values(plan),
        "parallelism.offload": (VALUES["parallelism.offload"](plan)[-1] if mesh.offload.kinds else None,),
        "parallelism.replicate": tuple(dict.fromkeys((1, mesh.replicate))),
        "parallelism.ends": (None,),
        "parallelism.zero": tuple(dict.fromkeys((mesh.zero, 1, 3))),
        "recompute": tuple(
            one for one in recomputes if not isinstance(one, str) or one in {"none", "selective", "full"}
        ),
    }


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


# --- What no layout of a plan can be below ---

ACTIVATIONS = "activations"
HELD = ("memory.peak", "memory.reserved")
GROWS = ("time.step", "time.run", "time.calendar", "cost.run", "energy.run", "carbon.run")  # with the time of a step


def least_totals(plan: Plan) -> Mapping[str, Amount]:
    """The totals of GROWS and HELD that a plan has, each at most what it is in any layout, legal or not.

    Of a plan that keeps weights or states on the host none of HELD; of one that serves HELD alone.
    """
    least = {} if plan.serve else _least_of_run(with_token_count(plan))
    if {*plan.parallelism.offload.kinds} - {ACTIVATIONS}:
        return least
    held = least_state(plan) / plan.cluster.devices
    return {**least, **dict.fromkeys(HELD, held), "memory.capacity": plan.accelerator.memory}


def _least_of_run(plan: Plan) -> dict[str, Amount]:
    """The totals of GROWS that a plan which trains has."""
    step = least_flops(plan) / (plan.cluster.devices * peak(plan))
    found = {"time.step": step, **dict(run(plan, step, saved_bytes(plan)))}
    return {key: found[key] for key in GROWS if key in found}


def least_state(plan: Plan) -> float:
    """Bytes of the weights as they are stored, and of the copies and states that an optimizer has of those trained."""
    model, beside = whole(plan), state_bytes(plan)
    trained = 0.0 if plan.serve else float(beside["master"] + beside["optimizer"])
    return sum(
        float(model.value(layers * weight.elements()))
        * (float(dtypes.DTYPES[stored_dtype(plan.precision, weight)].average) + (0 if weight.frozen else trained))
        for layers, weight in model.weights()
    )


def least_flops(plan: Plan) -> float:
    """Matmul FLOPs of a step of the whole job, forward and backward; nothing twice, and no scores that a mask hides."""
    model = whole(plan)
    each = sum(
        model.value(
            unit.count
            * total(
                operation.in_all(lambda run: run.useful() - run.redone())
                for operation in (*unit.forward, *unit.backward)
            )
        )
        for unit in model.units
    )
    return float(each) * plan.run.global_batch / plan.run.micro_batch
