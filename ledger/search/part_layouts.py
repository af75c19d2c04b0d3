"""A part of the library in a plan: in the plan's own layout, or in the fastest that a quick search finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.books.absent import absent
from ledger.books.compiled_roles import whole
from ledger.books.counts import has_peak, whole_parameters, with_token_count
from ledger.books.least import least_totals
from ledger.books.what_if.answer import Question
from ledger.books.what_if.combinations import Candidate, Refused, missing, reasons
from ledger.books.what_if.product import Ranking
from ledger.books.what_if.sought import Unknown, Value
from ledger.books.what_if.trial import totals
from ledger.report.recommendations import Recommendation
from ledger.search.choices import VALUES
from ledger.search.extent import kept_values
from ledger.search.layout_pass import row_changes, searched
from ledger.search.space import space_of
from ledger.search.workers import Run
from ledger.spec.load import revised
from ledger.spec.overrides import assignments
from ledger.units import unit_of

if TYPE_CHECKING:
    from ledger.spec.plan import Plan
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
