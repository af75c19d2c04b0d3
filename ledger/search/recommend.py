"""What to change in a plan: the smallest edit that fits, the cheapest and the fastest layout, and a front of them.

A pass finds layouts as arrays, and a search that has a second looks at few that are near the plan. Either proposes:
what is recommended was compiled by itself, from the fewest keys that a user must write, and is what the compiler says
of it. What then misses anything that the plan asks for is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.books.compiler import compile_totals
from ledger.mistakes import mistake_in_words
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.search.aims import aim_of
from ledger.search.blocks import Block
from ledger.search.candidates import Candidate, Requirements
from ledger.search.choices import VALUES
from ledger.search.edits import EDIT_RANK, fewest_changes
from ledger.search.found import Found, Rows, add, nothing
from ledger.search.headroom import kept_free, kept_free_words
from ledger.search.near_layouts import near_layouts
from ledger.search.pricing import Piece, pieces
from ledger.search.question import CAPACITY, MEMORY
from ledger.search.shapes import is_priced_at_once
from ledger.search.space import Space, space_of
from ledger.search.tasks import Job, Task
from ledger.search.time_limit import OutOfTimeError, time_limit
from ledger.search.workers import Run, WorkerError, in_this_process
from ledger.spec.load import revised
from ledger.spec.overrides import assignments
from ledger.spec.problems import SpecError

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.search.sweep import Progress
    from ledger.spec.plan import Plan

QUICK = 30.0  # seconds of a search that goes by what it has
WHOLE = 5e9  # combinations of values up to which a report searches all of them: a minute or two on two cores
COMPILED = 24  # of a front, evenly from the fastest to the one with least memory
TRIED = 4  # of those that a pass puts first, until one of them is sound
DEVICES, COST = "cluster.devices", "cost.run"
AFTER = 1.5  # times the seconds of a pass, after which what is still priced is not waited for
TICK = 1e-3  # seconds: the least that a limit can be
PASS_FROM = 5.0  # seconds of a search, below which a pass would be over before it has priced a layout
NEAR_SHARE = 0.2  # of the time of a search that has a pass too, for layouts near the plan
NEAR_MOST = 24  # of them, where a pass is made too
COMPILING_SHARE = 0.1  # of the time that is left to a pass, for compiling what it proposes
WORTH = 0.02  # of the cost: what fewer devices must save, since the run takes so much longer on them
# Keys that a quick search leaves as the plan has them: most layouts differ in these alone.
KEPT = (
    "parallelism.context",
    "parallelism.context_exchange",
    "parallelism.interleave",
    "parallelism.schedule",
    "parallelism.offload",
)


def may_recommend(plan: Plan) -> bool:
    """Whether a plan has layouts that are priced at once, and a spec in which one could be written.

    Those of a model with an encoder are compiled one by one, in minutes: `sweep` does so where it is asked.
    """
    return may_edit(plan) and not plan.model.encoder_groups


def may_edit(plan: Plan) -> bool:
    """Whether a plan has layouts at all, and a spec in which one could be written."""
    return not plan.model.bare and plan.reading is not None


@dataclass(frozen=True)
class Extent:
    """How far a search goes: to all layouts (`whole`), or those that keep the keys of KEPT; `seconds` (0: to its end).

    Without a limit the cheapest is looked for on fewer devices too, and layouts of the whole front are compiled.
    """

    whole: bool = True
    seconds: float = 0.0


@dataclass(frozen=True)
class Passed:
    """What a pass found in the spaces of a plan: its own, and by their number of devices smaller ones."""

    space: Space
    found: Found
    fewer: Mapping[int, tuple[Space, Found]]
    complete: bool


@dataclass
class Findings:
    """What a search has by now, also where its time or an error ends it.

    `near`: layouts near the plan, compiled. `passed`: what a pass found. `proposed`: layouts of it, compiled; `front`:
    those of its front; `fewer`: on fewer devices.
    """

    near: list[Candidate] = field(default_factory=list)
    passed: Passed | None = None
    proposed: list[Candidate] = field(default_factory=list)
    front: list[Candidate] = field(default_factory=list)
    fewer: list[Candidate] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    on_time: bool = True


def recommend(
    plan: Plan,
    run: Run = in_this_process,
    progress: Progress = lambda *_: None,
    extent: Extent = Extent(),
    totals: Mapping[str, Number] | None = None,
) -> Recommendations:
    """What the layouts of a plan that was read from a spec recommend; `totals`: the plan's own, where they are known.

    When its time is over, it goes by what it found by then. Where a part of it fails, the result says why.
    """
    requirements = Requirements(plan, totals or compile_totals(plan))
    return _summed_up(requirements, extent, _looked(requirements, extent, run, progress))


def extent_of_report(plan: Plan) -> Extent:
    """How far a report looks: at all layouts of a space that is not too large, and to the end if that is near."""
    if plan.serve is None and not is_priced_at_once(plan):
        return Extent(whole=False, seconds=QUICK)
    return Extent(whole=space_of(plan).combinations <= WHOLE)


def reason(error: Exception) -> str:
    """Why a search ended early, in plain words."""
    if isinstance(error, SpecError):
        return "; ".join(problem.message for problem in error.problems)
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, WorkerError) and error.__cause__ is None:
        return str(error)
    cause = error.__cause__ if isinstance(error, WorkerError) else None
    return f"a mistake of ledger itself, {mistake_in_words(cause or error)}"


# --- spaces -------------------------------------------------------------------------------------


def kept_values(plan: Plan) -> Mapping[str, tuple[Any, ...]]:
    """The values of the keys of KEPT: the plan's own, and those that a layout without them, or a pipeline, needs."""
    mesh = plan.parallelism
    several = mesh.interleave > 1
    own = [mesh.schedule] if mesh.schedule else []
    offloads = VALUES["parallelism.offload"](plan)
    return {
        "parallelism.context": (mesh.context,),
        "parallelism.context_exchange": (mesh.context_exchange if mesh.context > 1 else None,),
        "parallelism.interleave": tuple(sorted({1, mesh.interleave})),
        "parallelism.schedule": tuple(dict.fromkeys((None, "1f1b", *(["interleaved"] if several else []), *own))),
        "parallelism.offload": tuple(one for one in offloads if one != ["activations"] or mesh.offload),
    }


def fewer_devices(plan: Plan) -> dict[int, Space]:
    """The plan on half of its devices, where these are whole nodes: nobody waits for much less.

    A run on an eighth costs a few per cent less, and takes eight times as long.
    """
    half, odd = divmod(plan.cluster.devices, 2)
    made = None if odd or half % plan.cluster.devices_per_node else revised(plan, [f"{DEVICES}={half}"]).plan
    return {half: space_of(made, kept_values(made))} if made else {}


def searched(spaces: Sequence[Space], run: Run, progress: Progress, seconds: float = 0.0) -> tuple[list[Found], bool]:
    """What is found of each space, and whether all of it was looked at; what is most like the plan comes first."""
    tasks: list[Task] = []
    of: list[int] = []
    question = aim_of(spaces[0].plan).question
    for number, space in enumerate(spaces):
        limits = question.limits(space.plan, kept_free(space.plan), kept_free_words(space.plan))
        for piece in pieces(space):
            tasks.append(Task(len(tasks), piece, space, {}, limits))
            of.append(number)
    ordered = sorted(tasks, key=lambda task: (of[task.number], _unlike(task.piece, task.space.plan)))
    found = [nothing(question) for _ in spaces]
    until = time.monotonic() + seconds if seconds else 0.0
    try:
        with time_limit(AFTER * seconds):
            for done, (task, part) in enumerate(run(ordered, Job(question, until=until)), 1):
                number = of[task.number]
                found[number] = add(found[number], part, question)
                progress(done, len(tasks), sum(one.legal for one in found))
                if not part.complete and (not until or time.monotonic() < until):
                    raise KeyboardInterrupt
    except OutOfTimeError:
        return found, False
    return found, all(one.complete for one in found)


def _unlike(piece: Piece, plan: Plan) -> int:
    """In how many ways the layouts of a piece differ from the plan."""
    mesh = plan.parallelism
    cut: int = sum(used != (getattr(mesh, axis) > 1) for axis, used in piece.cut.items())
    others = (piece.zero != mesh.zero) + (bool(piece.offload) != bool(mesh.offload))
    return cut + others + bool(piece.recomputes and plan.recompute.policy not in piece.recomputes)


# --- what is looked at --------------------------------------------------------------------------


def _looked(requirements: Requirements, extent: Extent, run: Run, progress: Progress) -> Findings:
    """Layouts near a plan that is to be mended in some seconds, then a pass; near ones too where the pass fails."""
    plan, seconds, findings = requirements.plan, extent.seconds, Findings()
    end = time.monotonic() + seconds if seconds else inf
    has_pass = may_recommend(plan) and not 0 < seconds < PASS_FROM
    mends = not requirements.plan_as_it_is.is_sound

    def look_near() -> None:
        _look_near(requirements, findings, progress, end - seconds * (1 - NEAR_SHARE) if has_pass else end)

    def look_everywhere() -> None:
        left = max(TICK, end - time.monotonic()) if seconds else 0.0
        findings.passed = _pass_over(plan, replace(extent, seconds=left), run, progress)
        _compile_proposed(requirements, findings, 0 if seconds else COMPILED)

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


def _pass_over(plan: Plan, extent: Extent, run: Run, progress: Progress) -> Passed:
    """A pass over the layouts of a plan; those on fewer devices too, where it has the time and the run a price."""
    thorough = not extent.seconds
    fewer = fewer_devices(plan) if thorough and plan.assumptions.price and plan.serve is None else {}
    space = space_of(plan, {} if is_whole(plan, extent) else kept_values(plan))
    seconds = extent.seconds * (1 - COMPILING_SHARE) / AFTER
    (found, *others), complete = searched([space, *fewer.values()], run, progress, seconds)
    at = {devices: (smaller, other) for (devices, smaller), other in zip(fewer.items(), others, strict=True)}
    return Passed(space, found, at, complete)


def is_whole(plan: Plan, extent: Extent) -> bool:
    """Whether all layouts of a plan are looked at: those of a service are few."""
    return extent.whole or plan.serve is not None


def _compile_proposed(requirements: Requirements, findings: Findings, most: int) -> None:
    """Compiles what a pass puts first: smallest edits, the fastest here and on fewer devices, `most` of its front."""
    passed = findings.passed
    if passed is None:
        return
    own = Proposals(requirements, passed.space)
    findings.proposed += own.until_sound(passed.found.front)
    if not requirements.plan_as_it_is.is_sound:
        findings.proposed += own.smallest(passed.found.best)
    for devices, (space, found) in passed.fewer.items():
        findings.fewer += Proposals(requirements, space, {DEVICES: devices}).until_sound(found.front)
    count = len(passed.found.front)
    places = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
    findings.front += [one for place in places if (one := own.candidate(passed.found.front, int(place)))]
    if not any(one.is_sound for one in (*findings.near, *findings.proposed, *findings.front)):
        findings.proposed += filter(None, [own.candidate(passed.found.nearest, 0)] if len(passed.found.nearest) else [])


@dataclass(frozen=True)
class Proposals:
    """Rows of a pass over a space, each compiled by itself, with changes of the plan that are `fixed`."""

    requirements: Requirements
    space: Space
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def candidate(self, rows: Rows, place: int) -> Candidate | None:
        """A row; None where the rules refuse it."""
        changes = row_changes(self.requirements.plan, self.space, rows, place, self.fixed)
        return None if changes is None else self.requirements.compiled(changes)

    def until_sound(self, rows: Rows) -> list[Candidate]:
        """The first of some rows, and those after it while none is sound."""
        tried: list[Candidate] = []
        for place in range(min(len(rows), TRIED)):
            candidate = self.candidate(rows, place)
            tried += [candidate] if candidate else []
            if candidate and candidate.is_sound:
                break
        return tried

    def smallest(self, rows: Rows) -> list[Candidate]:
        """Rows in the order of the keys that they should change, as long as one may change the fewest."""
        tried: list[Candidate] = []
        ranks = rows.totals[:, aim_of(self.requirements.plan).question.keys.index(EDIT_RANK)]
        for place, rank in enumerate(ranks):
            fewest = min((len(one.changes) for one in tried if one.is_sound), default=inf)
            if int(rank) > fewest:
                break
            candidate = self.candidate(rows, place)
            tried += [candidate] if candidate else []
        return tried


def row_changes(plan: Plan, space: Space, rows: Rows, place: int, fixed: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fewest keys that make a plan a row of a space, with those that are `fixed`; None where rules refuse it."""
    choices = {key: rows.choices[place : place + 1, column] for column, key in enumerate(space.keys)}
    layout = {**fixed, **Block(space, choices, {}).layout(0)}
    draft = revised(plan, assignments(layout))
    return None if draft.problems or draft.plan is None else fewest_changes(plan, layout)


# --- what is recommended ------------------------------------------------------------------------


def _summed_up(requirements: Requirements, extent: Extent, findings: Findings) -> Recommendations:
    """The best of the candidates that meet everything; without one, that which misses least."""
    plan, passed, aim = requirements.plan, findings.passed, aim_of(requirements.plan)
    own = requirements.plan_as_it_is
    looked = [own, *findings.proposed, *findings.front, *findings.near]
    sound = [one for one in looked if one.is_sound]
    smallest = min(sound, key=lambda one: (len(one.changes), aim.pace(one.totals)), default=None)
    fastest = min(sound, key=lambda one: aim.pace(one.totals), default=None)
    near = passed is None or not passed.found.legal
    legal = len(findings.near) if near or passed is None else passed.found.legal
    fitting = sum(one.is_sound for one in findings.near) if near or passed is None else passed.found.meeting
    misses = [one for one in looked if not one.broken and one.excess < inf and one is not own]
    nearest = None if sound else min(misses, key=lambda one: one.excess, default=None)

    def told(candidate: Candidate | None) -> Recommendation | None:
        if candidate is None:
            return None
        shown = {key: float(candidate.totals[key]) for key in aim.shown if key in candidate.totals}
        return Recommendation(candidate.changes, shown)

    front = [one for one in findings.front if one.is_sound] or [one for one in [fastest] if one]
    return Recommendations(
        smallest=told(smallest),
        fastest=told(fastest),
        cheapest=told(cheapest(fastest, [one for one in findings.fewer if one.is_sound])),
        front=tuple(filter(None, map(told, front))) if legal else (),
        points=_points(plan, passed.found) if passed and sound else (),
        legal=legal,
        fitting=fitting if sound else 0,
        kept=() if near or is_whole(plan, extent) else KEPT,
        fewer={devices: other.legal for devices, (_, other) in passed.fewer.items()} if passed else {},
        nearest=told(nearest),
        headroom=kept_free(plan),
        complete=findings.on_time and not findings.failures and passed is not None and passed.complete,
        near=near,
        failure="; ".join(dict.fromkeys(findings.failures)),
    )


def cheapest(fastest: Candidate | None, fewer: Sequence[Candidate]) -> Candidate | None:
    """The layout that costs least: of those on as many devices it is the fastest, and fewer must save WORTH of it."""
    best = fastest if fastest and COST in fastest.totals else None
    least = min((one for one in fewer if COST in one.totals), key=lambda one: float(one.totals[COST]), default=None)
    if best and least and float(least.totals[COST]) > (1 - WORTH) * float(best.totals[COST]):
        return best
    return least or best


def _points(plan: Plan, found: Found) -> tuple[tuple[float, float], ...]:
    """Memory of the front's layouts, and what each is fast by."""
    aim = aim_of(plan)
    memory, total = (aim.question.keys.index(key) for key in (MEMORY, aim.total))
    return tuple((float(row[memory]), float(row[total])) for row in found.front.totals)
