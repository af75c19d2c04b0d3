"""Every combination of values of several inputs, each read anew from the plan's spec and compiled once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.books.absent import absent
from ledger.books.what_if.answer import Question, Totals
from ledger.books.what_if.inversion import inverted
from ledger.books.what_if.ordered import LARGEST, SMALLEST, Place, place
from ledger.books.what_if.sought import Settings, Unknown, Value, key_fault
from ledger.books.what_if.trial import Trial, totals, with_settings
from ledger.books.what_if.unknowns import unknown
from ledger.spec.load import Draft
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError

MOST = 4096  # combinations that are read; each takes about a hundredth of a second, and a tenth to compile


@dataclass(frozen=True)
class Combination:
    """Values of inputs, with what puts them into the plan, and `details` that are told of them."""

    values: Mapping[str, Value]
    settings: Settings
    details: Mapping[str, str] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class Candidate(Combination):
    """A combination that rules allow, with its totals, and whether it is `met` by all conditions.

    `upper`: of an input whose values have no end, whether the largest that holds is taken, not the smallest.
    """

    totals: Totals
    met: bool
    upper: bool = True
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Refused(Combination):
    """A combination that a rule of the spec refuses, or that has no total of those that are asked for, and why.

    `skipped`: it is not tried, since no layout of it can meet the conditions.
    """

    why: str
    skipped: bool = False


@dataclass(frozen=True)
class Space:
    """All combinations of values of inputs, of which the last may have values without an end.

    `kept`: what stays in proportion to an input, by its path.
    """

    question: Question
    paths: Sequence[str]
    kept: Mapping[str, str]

    def tried(self) -> Iterator[Candidate | Refused]:
        """Every combination, the values without an end bisected; raises SpecError beyond `MOST`.

        Where those are to be the largest (or smallest), the two best are found, and of all others that they fail there.
        """
        start = Draft(self.question.plan, (), {})
        met: list[Candidate] = []
        for count, (found, draft, rest) in enumerate(self._combined(self.paths, Combination({}, {}), start)):
            if count >= MOST:
                message = f"more than {MOST} combinations of {' and '.join(f'`{path}`' for path in self.paths)}"
                raise key_fault(self.paths[-1], message, "name fewer keys, and state the others with `--set`")
            one = self._judged(found, draft) if rest is None else self._last_value(found, draft, rest, met)
            met += [one] if isinstance(one, Candidate) and one.met else []
            yield one

    def _combined(
        self, paths: Sequence[str], outer: Combination, draft: Draft
    ) -> Iterator[tuple[Combination, Draft, Unknown | None]]:
        """Combinations with the plans that they make, and the input that is left, where its values have no end."""
        sought = self._unknown(draft.plan, paths[0]) if paths and draft.plan is not None else None
        if sought is None or not sought.some:
            yield outer, draft, sought
            return
        for value in sought.some:
            settings = {**outer.settings, **sought.settings(value)}
            inner = with_settings(self.question.plan, settings) if settings else draft
            further = Combination({**outer.values, sought.path: value}, settings)
            yield from self._combined(paths[1:], further, inner)

    def _unknown(self, plan: Plan, path: str) -> Unknown | None:
        """The input in a plan with values of others; None where it has no values there."""
        try:
            return unknown(plan, path, self.kept.get(path, ""))
        except SpecError:
            return None

    def _judged(self, found: Combination, draft: Draft) -> Candidate | Refused:
        if draft.problems or draft.plan is None:
            return Refused(found.values, found.settings, reasons(draft.problems))
        known = totals(draft.plan)
        lacking = [key for key in self.question.keys if key not in known]
        if lacking:
            return Refused(found.values, found.settings, missing(draft.plan, lacking))
        met = all(one.holds(known) for one in self.question.conditions)
        return Candidate(found.values, found.settings, known, met, warnings=draft.plan.warnings)

    def _last_value(
        self, outer: Combination, draft: Draft, sought: Unknown, met: Sequence[Candidate]
    ) -> Candidate | Refused:
        """The best of the values without an end, from the closed form on; or one that fails, if it would be third."""
        trial, conditions = Trial(self.question.plan, sought, outer.settings), self.question.conditions
        further = None if self.question.objective else self._beyond_second(sought, met)
        if further is not None and not all(trial.holds(one, further) for one in conditions):
            return self._at(trial, outer, Place(further, met=False, goal=self._goal(met)))
        legal = None if draft.problems else draft.plan
        guess = None if legal is None else inverted(legal, sought, conditions)
        return self._at(trial, outer, place(trial, conditions, self.question.objective, guess))

    def _beyond_second(self, sought: Unknown, met: Sequence[Candidate]) -> int | None:
        """The rank that a value must reach to be better than the second of those that meet the conditions."""
        if len(met) < 2:
            return None
        upper = met[0].upper
        second = sorted((one.values[sought.path] for one in met), reverse=upper)[1]
        rank = sought.rank(second) + (1 if upper else -1)
        return rank if 0 <= rank <= sought.last else None

    def _goal(self, met: Sequence[Candidate]) -> str:
        return LARGEST if met[0].upper else SMALLEST

    def _at(self, trial: Trial, outer: Combination, found: Place) -> Candidate | Refused:
        values = {**outer.values, trial.sought.path: trial.sought.value(found.rank)}
        here, settings = trial(found.rank), trial.settings(found.rank)
        if here is None or any(key not in here for key in self.question.keys):
            return Refused(values, settings, reasons(trial.draft(found.rank).problems))
        plan = trial.draft(found.rank).plan
        upper, warnings = found.goal != SMALLEST, plan.warnings if plan else ()
        return Candidate(values, settings, here, found.met, upper, warnings)


def missing(plan: Plan, keys: Sequence[str]) -> str:
    """That a plan has not the totals that are asked for, and which input it lacks for them."""
    needed = {found.needed: None for key in keys if (found := absent(plan, key))}
    why = f": state {' and '.join(f'`{path}`' for path in needed)}" if needed else ""
    return f"the plan then has no {' and no '.join(keys)}{why}"


def reasons(problems: Sequence[Problem]) -> str:
    """What rules say of a combination."""
    return "; ".join(dict.fromkeys(problem.message for problem in problems))
