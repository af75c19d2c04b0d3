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
from ledger.model.formats import average_bytes
from ledger.model.operations import total
from ledger.report.recommendations import Recommendation
from ledger.search.choices import VALUES
from ledger.search.extent import kept_values
from ledger.search.recommend import may_recommend, row_changes, search_spaces
from ledger.search.space import space_of
from ledger.search.workers import Run, in_this_process
from ledger.spec.kernel_classes import COLLECTIVES, KernelClass
from ledger.spec.load import read_with_overrides
from ledger.spec.overrides import assignments
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
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
        """The parameters of its model; 0 where it cannot be read."""
        return int(whole_parameters(whole(self.plan))) if self.plan else 0


@dataclass(frozen=True)
class PartLayouts:
    """The values of one part, each to be laid out for a question; `run`: where layouts are priced, None: nowhere."""

    question: Question
    unknown: Unknown
    run: Run | None

    def entrant(self, value: Value) -> Entrant:
        """The plan with the part; sequences are no longer than another model was made for."""
        settings = dict(self.unknown.settings(value))
        draft = read_with_overrides(self.question.plan, assignments(settings))
        if (
            draft.plan
            and settings
            and self.unknown.path == MODEL
            and 0 < draft.plan.model.max_seq_len < draft.plan.run.seq_len
        ):
            settings[LENGTH] = draft.plan.model.max_seq_len
            draft = read_with_overrides(self.question.plan, assignments(settings))
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
        try:
            return self._priced(entrant, plan, skip=skip)
        except SpecError as error:  # a product in a dtype that the device has no peak for
            return self._refused(entrant, reasons(error.problems))

    def _priced(self, entrant: Entrant, plan: Plan, *, skip: bool) -> Candidate | Refused:
        in_plans_layout = None if entrant.problems else self._candidate(entrant, entrant.settings)
        if in_plans_layout and in_plans_layout.met:
            return in_plans_layout
        if skip and (reason_and_least := self._refutation(plan)):
            refused = self._refused(entrant, reason_and_least[0])
            return replace(refused, skipped=True, details={**refused.details, LEAST: reason_and_least[1]})
        in_searched_layout = self._search_layouts(entrant, self.run) if self.run else None
        candidates = [candidate for candidate in (in_searched_layout, in_plans_layout) if candidate]
        if not candidates:
            return self._refused(entrant, reasons(entrant.problems) or "no layout is legal")
        ranking = Ranking(self.question, {self.unknown.path: self.unknown}, (), tuple(candidates))
        return (ranking.met or ranking.misses)[0]

    def _refutation(self, plan: Plan) -> tuple[str, str] | None:
        """Why no layout can meet a condition, as arithmetic or states alone exceed its limit, and the least total."""
        least = least_totals(plan)
        for condition in self.question.conditions:
            if condition.relation in BELOW and condition.key in least and not condition.holds(least):
                why = f"at least so much {condition.key} {IN_ANY_LAYOUT}: `{condition.text}` fails"
                return why, numbers.with_unit(least[condition.key], unit_of(condition.key))
        return None

    def _search_layouts(self, entrant: Entrant, run: Run) -> Candidate | None:
        """The part in the fastest layout that leaves the headroom free, or in the one that misses least.

        After SECONDS, the best layout so far is taken.
        """
        assert entrant.plan is not None  # noqa: S101 - our own mistake
        space = space_of(entrant.plan, near_values(entrant.plan))
        (result,), complete, error = search_spaces([space], run, lambda *_: None, SECONDS)
        if error:
            raise error
        rows = result.front if len(result.front) else result.nearest
        if not len(rows):
            return None
        changes = row_changes(self.question.plan, space, rows, 0, entrant.settings)
        candidate = None if changes is None else self._candidate(entrant, changes)
        if complete or candidate is None:
            return candidate
        return replace(candidate, details={**candidate.details, STOPPED: f"after {SECONDS:g} s"})

    def _candidate(self, entrant: Entrant, settings: Mapping[str, Any]) -> Candidate | None:
        """The part with these settings, compiled; None where it has not all totals that are asked for."""
        plan = read_with_overrides(self.question.plan, assignments(settings)).plan
        if plan is None:
            return None
        all_totals = totals(plan)
        if any(key not in all_totals for key in self.question.keys):
            return None
        met = all(condition.holds(all_totals) for condition in self.question.conditions)
        details = self._details(plan, {key: value for key, value in settings.items() if key != self.unknown.path})
        if self.unknown.path == ACCELERATOR:
            reserved, capacity = float(all_totals["memory.reserved"]), float(all_totals["memory.capacity"])
            fits = f"{'yes' if reserved <= capacity else 'no'}, of {numbers.with_unit(capacity, 'B')}"
            details = {**details, "fits": fits}
        values = {self.unknown.path: entrant.value}
        return Candidate(values, settings, all_totals, met, warnings=plan.warnings, details=details)

    def _refused(self, entrant: Entrant, why: str) -> Refused:
        details = self._details(entrant.plan, {}) if entrant.plan and self.unknown.path == ACCELERATOR else {}
        return Refused({self.unknown.path: entrant.value}, entrant.settings, why, details=details)

    def _details(self, plan: Plan, changes: Mapping[str, Any]) -> Mapping[str, str]:
        layout = {"layout": Recommendation(changes, {}).label if changes else OWN_LAYOUT}
        if self.unknown.path == ACCELERATOR:
            price = plan.assumptions.price
            return {"price": f"{numbers.money(price.per_device_hour)}, {price.date}" if price else NO_PRICE, **layout}
        count = with_token_count(plan).run.token_count
        return {"tokens": numbers.with_unit(count, "1"), **layout} if count else layout


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
            policy for policy in recomputes if not isinstance(policy, str) or policy in {"none", "selective", "full"}
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
    question = replace(asked_of(plan, subject_to, maximize, minimize), listed_totals=SHOWN[asked[0]])
    by_size = asked[0] == MODEL and question.objective in {None, SIZE}
    by_default = question.objective is None
    if by_default:
        question = replace(question, objective=SIZE) if by_size else with_time(question)
    layouts = PartLayouts(question, library_part(plan, asked[0]), run)
    return _solve_largest(layouts, note) if by_size else _solve_best(layouts, note, by_default=by_default)


def _solve_best(layouts: PartLayouts, note: Note, *, by_default: bool) -> Solution:
    """The best part by the objective, of all of them."""
    entrants = [layouts.entrant(value) for value in layouts.unknown.legal_values]
    tried: list[Tried] = []
    for count, entrant in enumerate(entrants):
        note(count, len(entrants))
        tried.append(layouts.judged(entrant))
    return _solution(layouts, _with_a_miss(layouts, entrants, tried), by_default=by_default)


def _solve_largest(layouts: PartLayouts, note: Note) -> Solution:
    """The largest part that meets the conditions: larger ones are tried first, smaller ones not at all."""
    in_order = sorted(map(layouts.entrant, layouts.unknown.legal_values), key=lambda entrant: -entrant.parameters)
    tried = [*_try_until_met(layouts, in_order, note)]
    answer = tried[-1]
    if isinstance(answer, Refused) or not answer.met:
        return _solution(layouts, _with_a_miss(layouts, in_order, tried), by_default=False)
    larger = _next_larger(layouts, in_order, tried)
    solution = _solution(layouts, tried, by_default=False)
    not_tried = [entrant.value for entrant in in_order[len(tried) :]]
    notes = [*solution.notes, *_miss_notes(layouts, larger)]
    if not_tried:
        notes.append(f"smaller, and not tried: {', '.join(not_tried)}")
    return replace(
        solution,
        beyond=larger.values[layouts.unknown.path] if larger else None,
        bounds=layouts.question.bounds(answer.totals, larger.totals if larger else None, met=True),
        notes=tuple(notes),
        next_name="next larger",
    )


def _try_until_met(layouts: PartLayouts, in_order: Sequence[Entrant], note: Note) -> Iterator[Tried]:
    """Each entrant judged, in this order, up to the first that meets the conditions."""
    for count, entrant in enumerate(in_order):
        note(count, len(in_order))
        tried = layouts.judged(entrant)
        yield tried
        if isinstance(tried, Candidate) and tried.met:
            return


def _next_larger(layouts: PartLayouts, in_order: Sequence[Entrant], tried: list[Tried]) -> Candidate | None:
    """The smallest part above the answer that has a legal layout; `tried` gets its result."""
    for place in range(len(tried) - 2, -1, -1):
        larger = tried[place]
        if isinstance(larger, Refused) and larger.skipped:
            tried[place] = larger = layouts.judged(in_order[place], skip=False)
        if isinstance(larger, Candidate):
            return larger
    return None


def _miss_notes(layouts: PartLayouts, larger: Candidate | None) -> Iterator[str]:
    """A note for each condition that the next larger part misses, with the difference."""
    for condition in layouts.question.conditions if larger else ():
        if larger and not condition.holds(larger.totals):
            bound, here = float(condition.bound(larger.totals)), float(larger.totals[condition.key])
            by = f" by {numbers.percent(abs(here / bound - 1))}" if bound else ""
            name = larger.values[layouts.unknown.path]
            size = numbers.with_unit(larger.totals["parameters"], "1")
            yield f"the next larger, {name} with {size} parameters, misses `{condition.text}`{by}"


def _with_a_miss(layouts: PartLayouts, entrants: Sequence[Entrant], results: list[Tried]) -> list[Tried]:
    """The results; where all parts were skipped or refused, skipped ones are tried in the plan's own layout.

    Where that is legal for none of them, the last one's layouts are searched, so that there is a miss to report.
    """
    if any(isinstance(result, Candidate) for result in results):
        return results
    unsearched = replace(layouts, run=None)
    for place, (entrant, result) in enumerate(zip(entrants, results, strict=False)):
        if isinstance(result, Refused) and result.skipped:
            in_plans_layout = unsearched.judged(entrant, skip=False)
            results[place] = in_plans_layout if isinstance(in_plans_layout, Candidate) else result
    for place in range(len(results) - 1, -1, -1):
        if any(isinstance(result, Candidate) for result in results):
            break
        if isinstance(result := results[place], Refused) and result.skipped:
            results[place] = layouts.judged(entrants[place], skip=False)
    return results


def _solution(layouts: PartLayouts, tried: Sequence[Tried], *, by_default: bool) -> Solution:
    """The answer, or the nearest miss, among what was tried; raises SpecError where rules refuse all of it."""
    path = layouts.unknown.path
    ranking = Ranking(layouts.question, {path: layouts.unknown}, (), tuple(tried))
    if not ranking.legal:
        raise key_fault(path, f"no `{path}` of the library can stand in this plan", ranking.why_refused())
    solution = ranking.solution(by_default=by_default)
    stopped = [candidate.values[path] for candidate in ranking.legal if STOPPED in candidate.details]
    notes = [NOTES[path], *([LAYOUTS] if layouts.run else [])]
    if path == ACCELERATOR and layouts.question.plan.cluster.devices > 1:
        values = (candidate.values[path] for candidate in ranking.legal)
        plans = {str(value): layouts.entrant(value).plan for value in values}
        notes += unmeasured_links({name: plan.accelerator for name, plan in plans.items() if plan})
    if stopped:
        names = ",".join(stopped)
        notes.append(f"some layouts were not looked at in time: `ledger sweep SPEC --over {path}={names}` looks at all")
    return replace(solution, notes=(*solution.notes, *notes))


def unmeasured_links(devices: Mapping[str, Accelerator]) -> list[str]:
    """A note where transfers were measured on some of these devices only: data sheets flatter the others."""
    classes = [KernelClass(kind) for kind in COLLECTIVES]
    without = [name for name, device in devices.items() if not any(curve(device, kind) for kind in classes)]
    if not without or len(without) == len(devices):
        return []
    basis = "by data sheet, which transfers seldom reach, where those of the others are as measured"
    return [f"transfers between devices are priced {basis}: {', '.join(without)}"]


# --- lower bounds over all layouts of a plan ---

ACTIVATIONS = "activations"
HELD = ("memory.peak", "memory.reserved")
GROWS = ("time.step", "time.run", "time.calendar", "cost.run", "energy.run", "carbon.run")  # with the time of a step


def least_totals(plan: Plan) -> Mapping[str, Amount]:
    """The totals of GROWS and HELD that a plan has, each at most what it is in any layout, legal or not.

    Of a plan that keeps weights or states on the host none of HELD; of one that serves HELD alone.
    """
    least: dict[str, Amount] = {}
    if not plan.serve:
        counted = with_token_count(plan)
        step = least_flops(counted) / (counted.cluster.devices * peak(counted))
        of_run = {"time.step": step, **dict(run(counted, step, saved_bytes(counted)))}
        least = {key: of_run[key] for key in GROWS if key in of_run}
    if {*plan.parallelism.offload.kinds} - {ACTIVATIONS}:
        return least
    state_bytes_per_device = least_state(plan) / plan.cluster.devices
    return {**least, **dict.fromkeys(HELD, state_bytes_per_device), "memory.capacity": plan.accelerator.memory}


def least_state(plan: Plan) -> float:
    """Bytes of the weights as they are stored, and of the copies and states that an optimizer has of those trained."""
    model, bytes_of_states = whole(plan), state_bytes(plan)
    trained = 0.0 if plan.serve else float(bytes_of_states["master"] + bytes_of_states["optimizer"])
    return sum(
        float(model.value(layers * weight.elements()))
        * (float(average_bytes(plan.precision, weight)) + (0 if weight.frozen else trained))
        for layers, weight in model.weights()
    )


def least_flops(plan: Plan) -> float:
    """Matmul FLOPs of a step of the whole job, forward and backward; nothing twice, and no scores that a mask hides."""
    model = whole(plan)
    flops_of_micro_batch = sum(
        model.value(
            unit.count
            * total(
                operation.in_all(lambda run: run.useful() - run.redone())
                for operation in (*unit.forward, *unit.backward)
            )
        )
        for unit in model.units
    )
    return float(flops_of_micro_batch) * plan.run.global_batch / plan.run.micro_batch
