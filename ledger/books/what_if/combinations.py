"""Every combination of values of several inputs, each read anew from the plan's spec and compiled once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ledger.books.what_if.answer import Question, Totals
from ledger.books.what_if.ordered import SMALLEST, place
from ledger.books.what_if.sought import Settings, Unknown, Value, key_fault
from ledger.books.what_if.trial import Trial, totals, with_settings
from ledger.books.what_if.unknowns import unknown
from ledger.spec.load import Draft
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError

MOST = 4096  # combinations that are read; each takes about a hundredth of a second, and a tenth to compile


@dataclass(frozen=True)
class Combination:
    """Values of inputs, with what puts them into the plan."""

    values: Mapping[str, Value]
    settings: Settings


@dataclass(frozen=True)
class Candidate(Combination):
    """A combination that rules allow, with its totals, and whether it is `met` by all conditions.

    `upper`: of an input whose values have no end, whether the largest that holds is taken, not the smallest.
    """

    totals: Totals
    met: bool
    upper: bool = True


@dataclass(frozen=True)
class Refused(Combination):
    """A combination that a rule of the spec refuses, and why."""

    why: str


@dataclass(frozen=True)
class Space:
    """All combinations of values of inputs, of which the last may have values without an end.

    `kept`: what stays in proportion to an input, by its path.
    """

    question: Question
    paths: Sequence[str]
    kept: Mapping[str, str]

    def tried(self) -> Iterator[Candidate | Refused]:
        """Every combination, the values without an end bisected; raises SpecError beyond `MOST`."""
        start = Draft(self.question.plan, (), {})
        for count, (found, draft, rest) in enumerate(self._combined(self.paths, Combination({}, {}), start)):
            if count >= MOST:
                message = f"more than {MOST} combinations of {' and '.join(f'`{path}`' for path in self.paths)}"
                raise key_fault(self.paths[-1], message, "name fewer keys, and state the others with `--set`")
            yield self._judged(found, draft) if rest is None else self._last_value(found, rest)

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
        met = all(one.holds(known) for one in self.question.conditions)
        return Candidate(found.values, found.settings, known, met)

    def _last_value(self, outer: Combination, sought: Unknown) -> Candidate | Refused:
        """The best of the values without an end."""
        trial = Trial(self.question.plan, sought, outer.settings)
        best = place(trial, self.question.conditions, self.question.objective, None)
        values = {**outer.values, sought.path: sought.value(best.rank)}
        here, settings = trial(best.rank), trial.settings(best.rank)
        if here is None:
            return Refused(values, settings, reasons(trial.draft(best.rank).problems))
        return Candidate(values, settings, here, best.met, upper=best.goal != SMALLEST)


def reasons(problems: Sequence[Problem]) -> str:
    """What rules say of a combination."""
    return "; ".join(dict.fromkeys(problem.message for problem in problems))
