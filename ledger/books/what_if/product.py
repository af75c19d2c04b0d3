"""Choices, and several inputs at once: the best of all combinations, and why each of the others is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from ledger.books.what_if.answer import Question, Solution, Tried, unasked
from ledger.books.what_if.combinations import Candidate, Refused, Space
from ledger.books.what_if.ordered import LARGEST, SMALLEST, Objective, without_effect
from ledger.books.what_if.sought import Unknown, Value, key_fault
from ledger.books.what_if.trial import with_settings
from ledger.books.what_if.unknowns import unknown
from ledger.spec.device_parts import cluster_warnings

Note = Callable[[int, int], None]  # combinations that were tried, of about so many
# The first that the plan has: the time of a run or of a step, and of a service its price or its pace.
DEFAULT_OBJECTIVES = ("time.calendar", "time.step", "cost.per_million_tokens", "serve.time_per_token")
REASONS = 3  # why values are refused, that a message names
ANSWER, RUNNER_UP, WORSE, FAILS = "answer", "runner-up", "worse", "fails"
REFUSED, SKIPPED = "refused", "skipped"


def best_of(question: Question, paths: Sequence[str], kept: Mapping[str, str], note: Note) -> Solution:
    """The best of all combinations of values of inputs, each after those that its values depend on."""
    unknowns = {path: unknown(question.plan, path, kept.get(path, "")) for path in paths}
    endless = [path for path, one in unknowns.items() if not one.some]
    if len(endless) > 1:
        message = f"{' and '.join(f'`{path}`' for path in endless)} have values without an end"
        help_text = f"state all but one of them, as in `--set {endless[0]}={unknowns[endless[0]].given}`"
        raise key_fault(endless[1], message, help_text)
    by_default = question.objective is None
    question = with_time(question) if by_default and not endless else question
    in_order = [*(path for path in paths if path not in endless), *endless]
    count = prod(len(one.some) or 1 for one in unknowns.values())
    tried: list[Candidate | Refused] = []
    note(0, count)
    for one in Space(question, in_order, kept).tried():
        tried.append(one)
        note(len(tried), max(count, len(tried)))
    found = Ranking(question, unknowns, endless, tuple(tried))
    found.check_variety()
    return found.solution(by_default=by_default)


def with_time(question: Question) -> Question:
    """The question with the time of a run, or of a step, as its objective."""
    key = next((key for key in DEFAULT_OBJECTIVES if key in question.given), "")
    if not key:
        raise key_fault("KEY", "nothing says which value is best: this plan has no time", "add `--minimize TOTAL`")
    return replace(question, objective=Objective(key, -1))


@dataclass(frozen=True)
class Ranking:
    """All combinations that were tried, and how good each is."""

    question: Question
    unknowns: Mapping[str, Unknown]
    endless: Sequence[str]
    tried: tuple[Candidate | Refused, ...]

    @property
    def legal(self) -> list[Candidate]:
        """Those that the rules of the spec allow."""
        return [one for one in self.tried if isinstance(one, Candidate)]

    @property
    def refused(self) -> list[Refused]:
        """Those that they refuse."""
        return [one for one in self.tried if isinstance(one, Refused)]

    @property
    def met(self) -> list[Candidate]:
        """Those that meet the conditions, the best first."""
        return sorted((one for one in self.legal if one.met), key=self.preference)

    @property
    def misses(self) -> list[Candidate]:
        """Those that do not, the nearest first."""
        return sorted((one for one in self.legal if not one.met), key=self.distance)

    @property
    def preference(self) -> Callable[[Candidate], tuple[Fraction, Fraction, bool]]:
        """Sorts the best first: by the objective or the endless value, then by memory, then as the plan has it."""
        given = {path: one.given for path, one in self.unknowns.items()}
        objective = self.question.objective

        def place(one: Candidate) -> tuple[Fraction, Fraction, bool]:
            if objective is not None:
                worth = objective.worth(one.totals[objective.key])
            else:
                worth = Fraction(one.values[self.endless[0]]) * (1 if one.upper else -1)
            return -worth, Fraction(one.totals.get("memory.reserved", 0)), dict(one.values) != given

        return place

    def distance(self, one: Candidate) -> float:
        """How far from meeting the conditions: the largest relative excess over a limit."""
        limits = (
            (float(limit.slack(one.totals)), float(limit.bound(one.totals))) for limit in self.question.conditions
        )
        return max(-slack / abs(bound or 1) for slack, bound in limits)

    def check_variety(self) -> None:
        """Raises SpecError where rules leave no second value, or where all values of one input give the same."""
        path = next(iter(self.unknowns))
        if len(self.legal) < min(2, len(self.tried)):
            what = " and ".join(f"`{one}`" for one in self.unknowns)
            raise key_fault(path, f"{what} cannot vary in this plan", self.why_refused())
        same = (one.totals[key] == self.legal[0].totals[key] for one in self.legal for key in self.question.keys)
        if len(self.unknowns) == 1 and all(same):
            raise without_effect(path, self.question.keys)

    def why_refused(self) -> str:
        """What rules say of those that they refuse, the first few."""
        found = [*dict.fromkeys(one.why for one in self.refused)]
        more = [f"and {len(found) - REASONS} more"] if len(found) > REASONS else []
        batch = "run.micro_batch"
        wider = any("data x micro_batch" in why for why in found) and batch not in self.unknowns
        return "; ".join(
            [*found[:REASONS], *more, *([f"other batches are tried with `--for {batch}` beside it"] * wider)]
        )

    def solution(self, *, by_default: bool) -> Solution:
        """The best with its runner-up, or the nearest miss, and all that was tried."""
        met, misses, unknowns = self.met, self.misses, self.unknowns
        first, *others = [*met, *misses] if met else misses
        second = others[0] if met and others else None
        objective = self.question.objective
        goal = str(objective) if objective else LARGEST if first.upper else SMALLEST
        best = f"the least {objective.key}" if objective else f"the {goal} {self.endless[0]}"
        default = (f"no objective is named: {best} of all that meet the conditions",) if by_default and met else ()
        asides = (*self.question.notes, *default, *(self._asides(first) if met else self._exclusive()))
        return Solution(
            ", ".join(unknowns),
            next(iter(unknowns.values())).unit if len(unknowns) == 1 else "1",
            _alone({path: one.given for path, one in unknowns.items()}),
            goal,
            "; ".join(dict.fromkeys(one.why for one in unknowns.values() if one.why and (one.choice or not one.some))),
            "",
            asides,
            value=_alone(first.values) if met else None,
            nearest=_alone(first.values),
            beyond=_alone(second.values) if second else None,
            bounds=self.question.bounds(first.totals, second.totals if second else None, met=bool(met)),
            values=first.values if met else None,
            changes=first.settings if met else {},
            tried=tuple(self._rows(met, misses)),
            counts={"combinations": len(self.tried), "legal": len(self.legal), "meeting": len(met)},
            paths=tuple(unknowns),
            warnings=tuple(dict.fromkeys(self._warnings())),
        )

    def _warnings(self) -> Iterator[str]:
        """That a combination runs on another device than its cluster describes."""
        return (problem.message for one in self.legal for problem in cluster_warnings(one.warnings))

    def _asides(self, best: Candidate) -> Iterator[str]:
        """What follows from the answer, and what was no condition and yet bounds it."""
        follows = {path: value for path, value in best.settings.items() if path not in self.unknowns}
        if follows:
            yield f"with it: {', '.join(f'{path} = {value}' for path, value in follows.items())}"
        plan = with_settings(self.question.plan, best.settings).plan
        if plan is not None:
            yield from unasked(plan, best.totals, tuple(self.unknowns))

    def _exclusive(self) -> Iterator[str]:
        """That each condition can be met, and no combination meets all."""
        conditions = self.question.conditions
        alone = all(any(limit.holds(one.totals) for one in self.legal) for limit in conditions)
        if len(conditions) > 1 and alone:
            yield "the conditions exclude each other: each is met by some of what was tried, and all by none"

    def _rows(self, met: Sequence[Candidate], misses: Sequence[Candidate]) -> Iterator[Tried]:
        """What meets the conditions, the best first, then the misses, the nearest first, then what rules refuse."""
        for place, one in enumerate(met):
            verdict = (ANSWER, RUNNER_UP)[place] if place < 2 else WORSE
            yield self._row(one, verdict, self._behind(one, met[0]) if place else "")
        for one in misses:
            failed = [limit.text for limit in self.question.conditions if not limit.holds(one.totals)]
            yield self._row(one, FAILS, " and ".join(failed))
        for refused in self.refused:
            verdict = SKIPPED if refused.skipped else REFUSED
            yield Tried(refused.values, refused.settings, None, verdict, refused.why, refused.details)

    def _row(self, one: Candidate, verdict: str, why: str) -> Tried:
        keys = (*self.question.keys, *(key for key in self.question.shown if key in one.totals))
        return Tried(one.values, one.settings, {key: one.totals[key] for key in keys}, verdict, why, one.details)

    def _behind(self, one: Candidate, best: Candidate) -> str:
        """By how much the objective is worse than the best."""
        if self.question.objective is None:
            return ""
        key = self.question.objective.key
        here, most = float(one.totals[key]), float(best.totals[key])
        if here == most or not most:
            return f"the same {key}" if here == most else ""
        return f"{100 * (here / most - 1):+.3g} % {key}"


def _alone(values: Mapping[str, Value]) -> Value:
    """The value of one input, the mapping of several."""
    return next(iter(values.values())) if len(values) == 1 else dict(values)
