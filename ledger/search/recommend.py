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
from typing import TYPE_CHECKING

from ledger.books.compiler import compile_totals
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.search.aims import aim_of
from ledger.search.candidates import Candidate, Requirements
from ledger.search.extent import EVERYTHING, KEPT, Extent, is_whole
from ledger.search.failures import reason
from ledger.search.headroom import kept_free
from ledger.search.near_layouts import near_layouts
from ledger.search.question import CAPACITY, MEMORY
from ledger.search.time_limit import OutOfTimeError, time_limit

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.search.layout_pass import Passed
    from ledger.search.sweep import Progress
    from ledger.search.workers import Run
    from ledger.spec.plan import Plan

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
    run: Run | None = None,
    progress: Progress = lambda *_: None,
    extent: Extent = EVERYTHING,
    totals: Mapping[str, Number] | None = None,
) -> Recommendations:
    """What the layouts of a plan that was read from a spec recommend; `totals`: the plan's own, where they are known.

    `run`: where a pass prices layouts, None: in this process. When its time is over, it goes by what it found by then.
    Where a part of it fails, the result says why.
    """
    requirements = Requirements(plan, totals or compile_totals(plan))
    return _summed_up(requirements, extent, _looked(requirements, extent, run, progress))


# --- what is looked at --------------------------------------------------------------------------


def _looked(requirements: Requirements, extent: Extent, run: Run | None, progress: Progress) -> Findings:
    """Layouts near a plan that is to be mended in some seconds, then a pass; near ones too where the pass fails."""
    plan, seconds, findings = requirements.plan, extent.seconds, Findings()
    end = time.monotonic() + seconds if seconds else inf
    has_pass = may_recommend(plan) and not 0 < seconds < PASS_FROM
    mends = not requirements.plan_as_it_is.is_sound

    def look_near() -> None:
        _look_near(requirements, findings, progress, end - seconds * (1 - NEAR_SHARE) if has_pass else end)

    def look_everywhere() -> None:
        left = max(TICK, end - time.monotonic()) if seconds else 0.0
        _look_everywhere(requirements, findings, (run, progress), replace(extent, seconds=left))

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
    from ledger.search.layout_pass import DEVICES, Proposals, pass_over  # loads arrays, which a second has no time for
    from ledger.search.workers import in_this_process

    run, progress = priced_by
    findings.passed = passed = pass_over(requirements.plan, extent, run or in_this_process, progress)
    if passed.error:
        findings.failures.append(reason(passed.error))
    own, found = Proposals(requirements, passed.space), passed.found
    findings.proposed.extend(own.until_sound(found.front))
    if not requirements.plan_as_it_is.is_sound:
        findings.proposed.extend(own.smallest(found.best))
    for devices, (space, other) in passed.fewer.items():
        findings.fewer.extend(Proposals(requirements, space, {DEVICES: devices}).until_sound(other.front))
    findings.front.extend(own.along(found.front, COMPILED if extent.thorough else 0))
    if not any(one.is_sound for one in (*findings.near, *findings.proposed, *findings.front)):
        findings.proposed.extend(own.until_sound(found.nearest))


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
    misses = [one for one in looked if not one.broken and one.excess < inf]
    nearest = None if sound or not legal else min(misses, key=lambda one: one.excess, default=None)

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
        points=_front_points(plan, passed) if passed and sound else (),
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


def _front_points(plan: Plan, passed: Passed) -> tuple[tuple[float, float], ...]:
    """Bytes of the layouts of a pass's front, and the total that each is fast by."""
    aim = aim_of(plan)
    memory, total = (aim.question.keys.index(key) for key in (MEMORY, aim.total))
    return tuple((float(row[memory]), float(row[total])) for row in passed.found.front.totals)
