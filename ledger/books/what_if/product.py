"""Choices, and several inputs at once: the best of all combinations, and why each of the others is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

from ledger.books.names import absent
from ledger.books.what_if.answer import Question, Solution, Totals, Tried, unasked
from ledger.books.what_if.inversion import inverted
from ledger.books.what_if.ordered import LARGEST, SMALLEST, Answer, Objective, place, without_effect
from ledger.books.what_if.sought import Settings, Trial, Unknown, Value, key_fault, totals, with_settings
from ledger.books.what_if.unknowns import unknown
from ledger.spec.device_parts import cluster_warnings
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

    `fixed_values`: what stays in proportion to an input, by its path.
    """

    question: Question
    paths: Sequence[str]
    fixed_values: Mapping[str, str]

    def tried(self) -> Iterator[Candidate | Refused]:
        """Every combination, the values without an end bisected; raises SpecError beyond `MOST`.

        Where those are to be the largest (or smallest), the two best are found, and of all others that they fail there.
        """
        start = Draft(self.question.plan, (), {})
        met: list[Candidate] = []
        for count, (chosen, draft, endless) in enumerate(self._combinations(self.paths, Combination({}, {}), start)):
            if count >= MOST:
                message = f"more than {MOST} combinations of {' and '.join(f'`{path}`' for path in self.paths)}"
                raise key_fault(self.paths[-1], message, "name fewer keys, and state the others with `--set`")
            judged = self._judge(chosen, draft) if endless is None else self._last_value(chosen, draft, endless, met)
            met += [judged] if isinstance(judged, Candidate) and judged.met else []
            yield judged

    def _combinations(
        self, paths: Sequence[str], outer: Combination, draft: Draft
    ) -> Iterator[tuple[Combination, Draft, Unknown | None]]:
        """Combinations with the plans that they make, and the input that is left, where its values have no end."""
        sought = self._unknown(draft.plan, paths[0]) if paths and draft.plan is not None else None
        if sought is None or not sought.legal_values:
            yield outer, draft, sought
            return
        for value in sought.legal_values:
            settings = {**outer.settings, **sought.settings(value)}
            inner = with_settings(self.question.plan, settings) if settings else draft
            further = Combination({**outer.values, sought.path: value}, settings)
            yield from self._combinations(paths[1:], further, inner)

    def _unknown(self, plan: Plan, path: str) -> Unknown | None:
        """The input in a plan with values of others; None where it has no values there."""
        try:
            return unknown(plan, path, self.fixed_values.get(path, ""))
        except SpecError:
            return None

    def _judge(self, combination: Combination, draft: Draft) -> Candidate | Refused:
        if draft.problems or draft.plan is None:
            return Refused(combination.values, combination.settings, reasons(draft.problems))
        try:
            amounts = totals(draft.plan)
        except SpecError as error:  # a product in a dtype that the device has no peak for
            return Refused(combination.values, combination.settings, reasons(error.problems))
        lacking = [key for key in self.question.keys if key not in amounts]
        if lacking:
            return Refused(combination.values, combination.settings, missing(draft.plan, lacking))
        met = all(condition.holds(amounts) for condition in self.question.conditions)
        return Candidate(combination.values, combination.settings, amounts, met, warnings=draft.plan.warnings)

    def _last_value(
        self, outer: Combination, draft: Draft, sought: Unknown, met: Sequence[Candidate]
    ) -> Candidate | Refused:
        """The best of the values without an end, from the closed form on; or one that fails, if it would be third."""
        trial, conditions = Trial(self.question.plan, sought, outer.settings), self.question.conditions
        further = None if self.question.objective else self._beyond_second(sought, met)
        if further is not None and not all(trial.holds(condition, further) for condition in conditions):
            return self._judged_at(trial, outer, Answer(further, met=False, goal=LARGEST if met[0].upper else SMALLEST))
        legal = None if draft.problems else draft.plan
        guess = None if legal is None else inverted(legal, sought, conditions)
        return self._judged_at(trial, outer, place(trial, conditions, self.question.objective, guess))

    def _beyond_second(self, sought: Unknown, met: Sequence[Candidate]) -> int | None:
        """The rank that a value must reach to be better than the second of those that meet the conditions."""
        if len(met) < 2:
            return None
        upper = met[0].upper
        second = sorted((candidate.values[sought.path] for candidate in met), reverse=upper)[1]
        rank = sought.rank(second) + (1 if upper else -1)
        return rank if 0 <= rank <= sought.last else None

    def _judged_at(self, trial: Trial, outer: Combination, reached: Answer) -> Candidate | Refused:
        values = {**outer.values, trial.unknown.path: trial.unknown.value(reached.rank)}
        here, settings = trial(reached.rank), trial.settings(reached.rank)
        if here is None or any(key not in here for key in self.question.keys):
            return Refused(values, settings, reasons(trial.draft(reached.rank).problems))
        plan = trial.draft(reached.rank).plan
        upper, warnings = reached.goal != SMALLEST, plan.warnings if plan else ()
        return Candidate(values, settings, here, reached.met, upper, warnings)


def missing(plan: Plan, keys: Sequence[str]) -> str:
    """That a plan has not the totals that are asked for, and which input it lacks for them."""
    needed = {lacking.needed: None for key in keys if (lacking := absent(plan, key))}
    why = f": state {' and '.join(f'`{path}`' for path in needed)}" if needed else ""
    return f"the plan then has no {' and no '.join(keys)}{why}"


def reasons(problems: Sequence[Problem]) -> str:
    """What rules say of a combination."""
    return "; ".join(dict.fromkeys(problem.message for problem in problems))


Note = Callable[[int, int], None]  # combinations that were tried, of about so many
# The first that the plan has: the time of a run or of a step, and of a service its price or its pace.
DEFAULT_OBJECTIVES = ("time.calendar", "time.step", "cost.per_million_tokens", "serve.time_per_token")
REASONS = 3  # why values are refused, that a message names
ANSWER, RUNNER_UP, WORSE, FAILS = "answer", "runner-up", "worse", "fails"
REFUSED, SKIPPED = "refused", "skipped"


def best_of(question: Question, paths: Sequence[str], proportions: Mapping[str, str], note: Note) -> Solution:
    """The best of all combinations of values of inputs, each after those that its values depend on."""
    unknowns = {path: unknown(question.plan, path, proportions.get(path, "")) for path in paths}
    endless = [path for path, sought in unknowns.items() if not sought.legal_values]
    if len(endless) > 1:
        message = f"{' and '.join(f'`{path}`' for path in endless)} have values without an end"
        help_text = f"state all but one of them, as in `--set {endless[0]}={unknowns[endless[0]].plan_value}`"
        raise key_fault(endless[1], message, help_text)
    by_default = question.objective is None
    question = with_time(question) if by_default and not endless else question
    in_order = [*(path for path in paths if path not in endless), *endless]
    count = prod(len(sought.legal_values) or 1 for sought in unknowns.values())
    tried: list[Candidate | Refused] = []
    note(0, count)
    for judged in Space(question, in_order, proportions).tried():
        tried.append(judged)
        note(len(tried), max(count, len(tried)))
    ranking = Ranking(question, unknowns, endless, tuple(tried))
    ranking.check_variety()
    return ranking.solution(by_default=by_default)


def with_time(question: Question) -> Question:
    """The question with the time of a run, or of a step, as its objective."""
    key = next((key for key in DEFAULT_OBJECTIVES if key in question.plan_totals), "")
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
        """Combinations that the rules of the spec allow."""
        return [combination for combination in self.tried if isinstance(combination, Candidate)]

    @property
    def refused(self) -> list[Refused]:
        """Combinations that the rules of the spec refuse."""
        return [combination for combination in self.tried if isinstance(combination, Refused)]

    @property
    def met(self) -> list[Candidate]:
        """Combinations that meet the conditions, the best first."""
        return sorted((candidate for candidate in self.legal if candidate.met), key=self.preference)

    @property
    def misses(self) -> list[Candidate]:
        """Combinations that do not meet the conditions, the nearest first."""
        return sorted((candidate for candidate in self.legal if not candidate.met), key=self.distance)

    @property
    def preference(self) -> Callable[[Candidate], tuple[Fraction, Fraction, bool]]:
        """Sorts the best first: by the objective or the endless value, then by memory, then as the plan has it."""
        stated = {path: sought.plan_value for path, sought in self.unknowns.items()}
        objective = self.question.objective

        def place(candidate: Candidate) -> tuple[Fraction, Fraction, bool]:
            if objective is not None:
                worth = objective.worth(candidate.totals[objective.key])
            else:
                worth = Fraction(candidate.values[self.endless[0]]) * (1 if candidate.upper else -1)
            return -worth, Fraction(candidate.totals.get("memory.reserved", 0)), dict(candidate.values) != stated

        return place

    def distance(self, miss: Candidate) -> float:
        """How far from meeting the conditions: the largest relative excess over a limit."""
        limits = (
            (float(limit.slack(miss.totals)), float(limit.bound(miss.totals))) for limit in self.question.conditions
        )
        return max(-slack / abs(bound or 1) for slack, bound in limits)

    def check_variety(self) -> None:
        """Raises SpecError where rules leave no second value, or where all values of one input give the same."""
        path = next(iter(self.unknowns))
        if len(self.legal) < min(2, len(self.tried)):
            named = " and ".join(f"`{name}`" for name in self.unknowns)
            raise key_fault(path, f"{named} cannot vary in this plan", self.why_refused())
        equal = (legal.totals[key] == self.legal[0].totals[key] for legal in self.legal for key in self.question.keys)
        if len(self.unknowns) == 1 and all(equal):
            raise without_effect(path, self.question.keys)

    def why_refused(self) -> str:
        """The first few of the reasons for which rules refuse combinations."""
        texts = [*dict.fromkeys(combination.why for combination in self.refused)]
        more = [f"and {len(texts) - REASONS} more"] if len(texts) > REASONS else []
        batch = "run.micro_batch"
        wider = any("data x micro_batch" in why for why in texts) and batch not in self.unknowns
        return "; ".join(
            [*texts[:REASONS], *more, *([f"other batches are tried with `--for {batch}` beside it"] * wider)]
        )

    def solution(self, *, by_default: bool) -> Solution:
        """The best with its runner-up, or the nearest miss, and all that was tried."""
        met, misses, unknowns = self.met, self.misses, self.unknowns
        first, *further = [*met, *misses] if met else misses
        second = further[0] if met and further else None
        objective = self.question.objective
        goal = str(objective) if objective else LARGEST if first.upper else SMALLEST
        best = f"the least {objective.key}" if objective else f"the {goal} {self.endless[0]}"
        default = (f"no objective is named: {best} of all that meet the conditions",) if by_default and met else ()
        asides = (*self.question.notes, *default, *(self._side_notes(first) if met else self._exclusion_note()))
        warned = (problem.message for candidate in self.legal for problem in cluster_warnings(candidate.warnings))
        return Solution(
            ", ".join(unknowns),
            next(iter(unknowns.values())).unit if len(unknowns) == 1 else "1",
            _one_or_all({path: sought.plan_value for path, sought in unknowns.items()}),
            goal,
            "; ".join(
                dict.fromkeys(row.why for row in unknowns.values() if row.why and (row.choice or not row.legal_values))
            ),
            "",
            asides,
            value=_one_or_all(first.values) if met else None,
            nearest=_one_or_all(first.values),
            beyond=_one_or_all(second.values) if second else None,
            bounds=self.question.bounds(first.totals, second.totals if second else None, met=bool(met)),
            values=first.values if met else None,
            changes=first.settings if met else {},
            tried=tuple(self._tried_rows(met, misses)),
            counts={"combinations": len(self.tried), "legal": len(self.legal), "meeting": len(met)},
            paths=tuple(unknowns),
            warnings=tuple(dict.fromkeys(warned)),
        )

    def _side_notes(self, best: Candidate) -> Iterator[str]:
        """What follows from the answer, and what was no condition and yet bounds it."""
        follows = {path: value for path, value in best.settings.items() if path not in self.unknowns}
        if follows:
            yield f"with it: {', '.join(f'{path} = {value}' for path, value in follows.items())}"
        plan = with_settings(self.question.plan, best.settings).plan
        if plan is not None:
            yield from unasked(plan, best.totals, tuple(self.unknowns))

    def _exclusion_note(self) -> Iterator[str]:
        """That each condition can be met, and no combination meets all."""
        conditions = self.question.conditions
        each_met = all(any(limit.holds(candidate.totals) for candidate in self.legal) for limit in conditions)
        if len(conditions) > 1 and each_met:
            yield "the conditions exclude each other: each is met by some of what was tried, and all by none"

    def _tried_rows(self, met: Sequence[Candidate], misses: Sequence[Candidate]) -> Iterator[Tried]:
        """What meets the conditions, the best first, then the misses, the nearest first, then what rules refuse."""
        for rank, candidate in enumerate(met):
            verdict = (ANSWER, RUNNER_UP)[rank] if rank < 2 else WORSE
            yield self._tried_row(candidate, verdict, self._worse_by(candidate, met[0]) if rank else "")
        for candidate in misses:
            failed = [limit.text for limit in self.question.conditions if not limit.holds(candidate.totals)]
            yield self._tried_row(candidate, FAILS, " and ".join(failed))
        for refused in self.refused:
            verdict = SKIPPED if refused.skipped else REFUSED
            yield Tried(refused.values, refused.settings, None, verdict, refused.why, refused.details)

    def _tried_row(self, tried: Candidate, verdict: str, why: str) -> Tried:
        keys = (*self.question.keys, *(key for key in self.question.listed_totals if key in tried.totals))
        totals = {key: tried.totals[key] for key in keys}
        return Tried(tried.values, tried.settings, totals, verdict, why, tried.details)

    def _worse_by(self, candidate: Candidate, best: Candidate) -> str:
        """By how much the objective is worse than the best."""
        if self.question.objective is None:
            return ""
        key = self.question.objective.key
        here, most = float(candidate.totals[key]), float(best.totals[key])
        if here == most or not most:
            return f"the same {key}" if here == most else ""
        return f"{100 * (here / most - 1):+.3g} % {key}"


def _one_or_all(values: Mapping[str, Value]) -> Value:
    """The value of one input, the mapping of several."""
    return next(iter(values.values())) if len(values) == 1 else dict(values)
