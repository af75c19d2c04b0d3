"""Recommended changes of a plan: the smallest edit that fits, the cheapest and the fastest layout, and a front.

A pass prices all layouts as arrays; a search that has only seconds looks at a few near the plan. Both only propose:
each recommendation is compiled by itself, from the fewest keys that a user must write, and candidates that miss
anything that the plan asks for are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.books.compiler import compile_totals
from ledger.books.verdict import expectations, operated
from ledger.books.what_if.conditions import served_conditions
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.search.aims import aim_of
from ledger.search.batches import PricedLayouts
from ledger.search.edits import fewest_changes
from ledger.search.extent import (
    EVERYTHING,
    FIXED_KEYS,
    Extent,
    OutOfTimeError,
    is_whole,
    kept_values,
    reason,
    time_limit,
)
from ledger.search.found import Rows, SearchResult, add, nothing
from ledger.search.near_layouts import near_layouts
from ledger.search.pricing import SpacePiece, pieces
from ledger.search.question import CAPACITY, EDIT_RANK, MEMORY, kept_free, kept_free_words
from ledger.search.space import Space, space_of
from ledger.search.tasks import Task, TaskQuestion
from ledger.search.workers import Run
from ledger.spec.load import read_with_overrides
from ledger.spec.overrides import assignments

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.search.sweep import Progress
    from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

HOST_PLACES = ("host", "nvme")  # where a node may keep what its devices do not
UNSTATED = "host memory that no file states"


@dataclass(frozen=True)
class Candidate:
    """Changes of a plan, as `--set` takes them, with the totals of the plan compiled with these and nothing else.

    `excess`: by how much memory, host or service miss what they are held to, as a share of the limit that is missed
    most; 0 where all hold. `broken`: expectations and other requirements that the plan itself meets, and this does not.
    """

    changes: Mapping[str, Any]
    totals: Mapping[str, Number]
    excess: float = 0.0
    broken: frozenset[str] = frozenset()

    @property
    def is_sound(self) -> bool:
        """Whether it meets everything."""
        return not self.excess and not self.broken


@dataclass(frozen=True)
class Requirements:
    """The requirements on a plan's layouts: memory with its headroom free, on hosts too, and the plan's expectations.

    What the plan as it is does not meet, its other layouts need not meet either, but for room.
    """

    plan: Plan
    totals: Mapping[str, Number]

    @property
    def plan_as_it_is(self) -> Candidate:
        """The plan without a change."""
        return Candidate({}, self.totals, excess(self.plan, self.totals))

    def compiled(self, changes: Mapping[str, Any]) -> Candidate | None:
        """The plan with these changes; None where they are refused."""
        draft = read_with_overrides(self.plan, assignments(changes))
        if draft.problems or draft.plan is None:
            return None
        try:
            totals = compile_totals(draft.plan)
        except SpecError:  # a product in a dtype that the device has no peak for
            return None
        broken = _broken(draft.plan, totals) - _broken(self.plan, self.totals)
        if _unstated_bytes(totals) > _unstated_bytes(self.totals):
            broken |= {UNSTATED}
        return Candidate(dict(changes), totals, excess(draft.plan, totals), frozenset(broken))


def excess(plan: Plan, totals: Mapping[str, Number]) -> float:
    """How far a plan misses its room, or what its service is asked, as a share of the limit that it misses most."""
    room = float(totals[CAPACITY]) - kept_free(plan)
    missed = [(float(totals[MEMORY]) - room) / float(totals[CAPACITY])]
    for place in HOST_PLACES:
        used, capacity = totals.get(f"memory.{place}", 0), totals.get(f"memory.{place}.capacity", inf)
        missed.append(float(used) / float(capacity) - 1 if capacity else inf if used else 0.0)
    for condition in served_conditions(plan):
        slack, limit = float(condition.slack(totals)), float(condition.bound(totals))
        missed.append(-slack / max(abs(limit), 1.0))
    return max(0.0, *missed)


def _broken(plan: Plan, totals: Mapping[str, Number]) -> set[str]:
    """The expectations that a plan misses, and whether its run gets nowhere."""
    checks = (*expectations(plan, totals), *operated(plan, totals))
    return {check.name for check in checks if check.status == "fail"}


def _unstated_bytes(totals: Mapping[str, Number]) -> float:
    """Bytes in memory of a host of which nobody says how much it has."""
    return 0.0 if "memory.host.capacity" in totals else float(totals.get("memory.host", 0))


# --- a pass over the layouts of a plan as arrays ---

TRIED = 4  # rows that a pass puts first, until one of them is sound
DEVICES = "cluster.devices"
AFTER = 1.2  # times the seconds of a pass, after which what is still priced is not waited for
COMPILING_SHARE = 0.1  # of the time that is left to a pass, for compiling what it proposes
FRONT_SHARE = 0.3  # the same where layouts of the front are compiled too


@dataclass(frozen=True)
class PassResult:
    """The result of a pass over a plan's own space, and over spaces on fewer devices, by their number.

    `error`: what ended the pass early, if anything did.
    """

    space: Space
    result: SearchResult
    fewer: Mapping[int, tuple[Space, SearchResult]]
    complete: bool
    error: Exception | None = None


def pass_over(plan: Plan, extent: Extent, run: Run, progress: Progress) -> PassResult:
    """A pass over the layouts of a plan; those on fewer devices too, where it has the time and the run a price."""
    fewer = fewer_devices(plan) if extent.thorough and plan.assumptions.price and plan.serve is None else {}
    space = space_of(plan, {} if is_whole(plan, extent) else kept_values(plan))
    compiling = FRONT_SHARE if extent.thorough else COMPILING_SHARE
    seconds = extent.seconds * (1 - compiling) / AFTER
    (result, *results_on_fewer), complete, error = search_spaces([space, *fewer.values()], run, progress, seconds)
    by_devices = dict(zip(fewer, zip(fewer.values(), results_on_fewer, strict=True), strict=True))
    return PassResult(space, result, by_devices, complete, error)


def fewer_devices(plan: Plan) -> dict[int, Space]:
    """The plan's space on half of its devices, where these are whole nodes.

    Nobody waits for much less: a run on an eighth costs a few per cent less, and takes eight times as long.
    """
    half, odd = divmod(plan.cluster.devices, 2)
    halved = (
        None if odd or half % plan.cluster.devices_per_node else read_with_overrides(plan, [f"{DEVICES}={half}"]).plan
    )
    return {half: space_of(halved, kept_values(halved))} if halved else {}


def search_spaces(
    spaces: Sequence[Space], run: Run, progress: Progress, seconds: float = 0.0
) -> tuple[list[SearchResult], bool, Exception | None]:
    """The result for each space, whether all of it was priced, and the error that ended the search, where one did.

    Pieces that are most like the plan come first.
    """
    tasks: list[Task] = []
    space_of: list[int] = []
    question = aim_of(spaces[0].plan).question
    for number, space in enumerate(spaces):
        limits = question.limits(space.plan, kept_free(space.plan), kept_free_words(space.plan))
        for piece in pieces(space):
            tasks.append(Task(len(tasks), piece, space, {}, limits))
            space_of.append(number)
    ordered = sorted(tasks, key=lambda task: (space_of[task.number], _differences(task.piece, task.space.plan)))
    results = [nothing(question) for _ in spaces]
    until = time.monotonic() + seconds if seconds else 0.0
    try:
        with time_limit(AFTER * seconds):
            for done, (task, task_result) in enumerate(run(ordered, TaskQuestion(question, until=until)), 1):
                number = space_of[task.number]
                results[number] = add(results[number], task_result, question)
                progress(done, len(tasks), sum(result.legal for result in results))
                if not task_result.complete and (not until or time.monotonic() < until):
                    raise KeyboardInterrupt  # noqa: TRY301 - which no handler here takes
    except OutOfTimeError:
        return results, False, None
    except Exception as error:  # noqa: BLE001 - what was found before counts
        return results, False, error
    return results, all(result.complete for result in results), None


def _differences(piece: SpacePiece, plan: Plan) -> int:
    """How many choices of a piece's layouts differ from the plan's."""
    mesh = plan.parallelism
    cut: int = sum(used != (getattr(mesh, axis) > 1) for axis, used in piece.cut.items())
    sharding = (piece.zero != mesh.zero) + (bool(piece.offload) != bool(mesh.offload))
    return cut + sharding + bool(piece.recomputes and plan.recompute.policy not in piece.recomputes)


# --- rows as changes of the plan ---


@dataclass(frozen=True)
class Proposals:
    """Candidates from the rows of a pass over a space, compiled one by one with the changes in `fixed`."""

    requirements: Requirements
    space: Space
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def candidate(self, rows: Rows, place: int) -> Candidate | None:
        """The compiled plan of a row; None where the rules refuse it."""
        changes = row_changes(self.requirements.plan, self.space, rows, place, self.fixed)
        return None if changes is None else self.requirements.compiled(changes)

    def until_sound(self, rows: Rows) -> Iterator[Candidate]:
        """Candidates from the first rows, at most TRIED, up to the first that is sound."""
        for place in range(min(len(rows), TRIED)):
            if candidate := self.candidate(rows, place):
                yield candidate
                if candidate.is_sound:
                    return

    def smallest(self, rows: Rows) -> Iterator[Candidate]:
        """Candidates in the order of their edit rank, as long as one may change fewer keys than those before."""
        fewest = inf
        ranks = rows.totals[:, aim_of(self.requirements.plan).question.keys.index(EDIT_RANK)]
        for place, rank in enumerate(ranks):
            if int(rank) > fewest:
                return
            if candidate := self.candidate(rows, place):
                fewest = min(fewest, len(candidate.changes)) if candidate.is_sound else fewest
                yield candidate

    def along(self, rows: Rows, most: int) -> Iterator[Candidate]:
        """Candidates from at most `most` rows, evenly from the first to the last."""
        places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(int))
        return (candidate for place in places if (candidate := self.candidate(rows, int(place))))


def row_changes(plan: Plan, space: Space, rows: Rows, place: int, fixed: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fewest keys that make a plan a row of a space, with those that are `fixed`; None where rules refuse it."""
    choices = {key: rows.choices[place : place + 1, column] for column, key in enumerate(space.keys)}
    layout = {**fixed, **PricedLayouts(space, choices, {}).layout(0)}
    draft = read_with_overrides(plan, assignments(layout))
    return None if draft.problems or draft.plan is None else fewest_changes(plan, layout)


# --- recommendations of a plan ---

COMPILED = 24  # of a front, evenly from the fastest to the one with least memory
COST = "cost.run"
TICK = 1e-3  # seconds: the least that a limit can be
PASS_FROM = 5.0  # seconds of a search, below which a pass would be over before it has priced a layout
NEAR_SHARE = 0.2  # of the time of a search that has a pass too, for layouts near the plan
NEAR_MOST = 24  # of them
WORTH = 0.02  # of the cost: what fewer devices must save, since the run takes so much longer on them


def may_recommend(plan: Plan) -> bool:
    """Whether a plan has layouts that are priced at once, and a spec in which one could be written.

    Those of a model with an encoder are compiled one by one, in minutes: `sweep` does so where it is asked.
    """
    return may_edit(plan) and not plan.model.encoder_groups


def may_edit(plan: Plan) -> bool:
    """Whether a plan has layouts at all, and a spec in which one could be written."""
    return not plan.model.bare and plan.reading is not None


@dataclass
class Findings:
    """The findings of a search so far, also where its time or an error ends it.

    `near`: layouts near the plan, compiled. `passed`: what a pass found. `proposed`: layouts of it, compiled; `front`:
    those of its front; `fewer`: on fewer devices.
    """

    near: list[Candidate] = field(default_factory=list)
    passed: PassResult | None = None
    proposed: list[Candidate] = field(default_factory=list)
    front: list[Candidate] = field(default_factory=list)
    fewer: list[Candidate] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    on_time: bool = True


def recommend(
    plan: Plan,
    run: Run | None = None,
    progress: Progress = lambda *_: None,
    extent: Extent = EVERYTHING,
    totals: Mapping[str, Number] | None = None,
) -> Recommendations:
    """Recommended layouts of a plan that was read from a spec; `totals`: the plan's own, where they are known.

    `run`: where a pass prices layouts, None: in this process. When its time is over, it goes by what it found by then.
    Where a part of it fails, the result says why.
    """
    requirements = Requirements(plan, totals or compile_totals(plan))
    return _best_candidates(requirements, extent, _look(requirements, extent, run, progress))


# --- the search ---


def _look(requirements: Requirements, extent: Extent, run: Run | None, progress: Progress) -> Findings:
    """Layouts near a plan that is to be mended in some seconds, then a pass; near ones too where the pass fails."""
    plan, seconds, findings = requirements.plan, extent.seconds, Findings()
    end = time.monotonic() + seconds if seconds else inf
    has_pass = may_recommend(plan) and not 0 < seconds < PASS_FROM
    mends = not requirements.plan_as_it_is.is_sound

    def look_near() -> None:
        _look_near(requirements, findings, progress, end - seconds * (1 - NEAR_SHARE) if has_pass else end)

    def look_everywhere() -> None:
        seconds_left = max(TICK, end - time.monotonic()) if seconds else 0.0
        _look_everywhere(requirements, findings, (run, progress), replace(extent, seconds=seconds_left))

    steps = [*([look_near] if seconds and mends else []), *([look_everywhere] if has_pass else [])]
    try:
        with time_limit(seconds):
            for step in steps:
                try:
                    step()
                except Exception as error:  # noqa: BLE001 - what the others find counts
                    findings.failures.append(reason(error))
            if mends and not seconds and findings.failures:
                look_near()
    except OutOfTimeError:
        findings.on_time = False
    return findings


def _look_near(requirements: Requirements, findings: Findings, progress: Progress, until: float) -> None:
    """Compiles layouts near the plan one after the other: so many of them, or until a time (s of time.monotonic)."""
    plan, totals = requirements.plan, requirements.totals
    proposals = near_layouts(plan, totals, float(totals[CAPACITY]) - kept_free(plan))
    changes = next(proposals, None)
    while changes is not None and len(findings.near) < NEAR_MOST and time.monotonic() < until:
        candidate = requirements.compiled(changes)
        if candidate:
            findings.near.append(candidate)
            progress(len(findings.near), NEAR_MOST, len(findings.near))
        try:
            changes = proposals.send(float(candidate.totals[MEMORY]) if candidate else None)
        except StopIteration:
            return


def _look_everywhere(
    requirements: Requirements, findings: Findings, priced_by: tuple[Run | None, Progress], extent: Extent
) -> None:
    """Compiles what a pass puts first: smallest edits, the fastest here and on fewer devices, and some of its front."""
    from ledger.search.workers import in_this_process

    run, progress = priced_by
    findings.passed = passed = pass_over(requirements.plan, extent, run or in_this_process, progress)
    if passed.error:
        findings.failures.append(reason(passed.error))
    proposals, result = Proposals(requirements, passed.space), passed.result
    findings.proposed.extend(proposals.until_sound(result.front))
    if not requirements.plan_as_it_is.is_sound:
        findings.proposed.extend(proposals.smallest(result.best))
    for devices, (space, result_on_fewer) in passed.fewer.items():
        findings.fewer.extend(Proposals(requirements, space, {DEVICES: devices}).until_sound(result_on_fewer.front))
    findings.front.extend(proposals.along(result.front, COMPILED if extent.thorough else 0))
    if not any(candidate.is_sound for candidate in (*findings.near, *findings.proposed, *findings.front)):
        findings.proposed.extend(proposals.until_sound(result.nearest))


# --- the choice among candidates ---


def _best_candidates(requirements: Requirements, extent: Extent, findings: Findings) -> Recommendations:
    """The best candidates that meet everything; without one, the candidate that misses least."""
    plan, passed, aim = requirements.plan, findings.passed, aim_of(requirements.plan)
    candidates = [requirements.plan_as_it_is, *findings.proposed, *findings.front, *findings.near]
    sound = [candidate for candidate in candidates if candidate.is_sound]
    smallest = min(sound, key=lambda candidate: (len(candidate.changes), aim.pace(candidate.totals)), default=None)
    fastest = min(sound, key=lambda candidate: aim.pace(candidate.totals), default=None)
    near = passed is None or not passed.result.legal
    legal = len(findings.near) if near or passed is None else passed.result.legal
    fitting = (
        sum(candidate.is_sound for candidate in findings.near) if near or passed is None else passed.result.meeting
    )
    misses = [candidate for candidate in candidates if not candidate.broken and candidate.excess < inf]
    nearest = None if sound or not legal else min(misses, key=lambda candidate: candidate.excess, default=None)

    memory, total = (aim.question.keys.index(key) for key in (MEMORY, aim.total))

    def recommendation(candidate: Candidate | None) -> Recommendation | None:
        if candidate is None:
            return None
        totals = {key: float(candidate.totals[key]) for key in aim.listed_totals if key in candidate.totals}
        return Recommendation(candidate.changes, totals)

    front = [candidate for candidate in findings.front if candidate.is_sound] or [
        candidate for candidate in [fastest] if candidate
    ]
    return Recommendations(
        smallest=recommendation(smallest),
        fastest=recommendation(fastest),
        cheapest=recommendation(cheapest(fastest, [candidate for candidate in findings.fewer if candidate.is_sound])),
        front=tuple(filter(None, map(recommendation, front))) if legal else (),
        points=tuple((float(row[memory]), float(row[total])) for row in passed.result.front.totals)
        if passed and sound
        else (),
        legal=legal,
        fitting=fitting if sound else 0,
        fixed_keys=() if near or is_whole(plan, extent) else FIXED_KEYS,
        fewer={devices: result.legal for devices, (_, result) in passed.fewer.items()} if passed else {},
        nearest=recommendation(nearest),
        headroom=kept_free(plan),
        complete=findings.on_time and not findings.failures and passed is not None and passed.complete,
        near=near,
        failure="; ".join(dict.fromkeys(findings.failures)),
    )


def cheapest(fastest: Candidate | None, fewer: Sequence[Candidate]) -> Candidate | None:
    """The layout that costs least: of those on as many devices it is the fastest, and fewer must save WORTH of it."""
    best = fastest if fastest and COST in fastest.totals else None
    priced = [candidate for candidate in fewer if COST in candidate.totals]
    least = min(priced, key=lambda candidate: float(candidate.totals[COST]), default=None)
    if best and least and float(least.totals[COST]) > (1 - WORTH) * float(best.totals[COST]):
        return best
    return least or best
