"""One pass over the layouts of a plan: their front, the smallest edit that fits, the cheapest, the fastest.

The pass finds layouts as arrays; what is recommended is then compiled by itself, from the fewest keys that a user must
write, and held to what the pass found.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isclose
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.books.compiler import compile_plan
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.search.aims import aim_of
from ledger.search.blocks import Block
from ledger.search.choices import VALUES
from ledger.search.edits import EDIT_RANK, fewest_changes
from ledger.search.found import Found, Rows, add, nothing
from ledger.search.headroom import kept_free, kept_free_words
from ledger.search.pricing import Piece, pieces
from ledger.search.question import CAPACITY, MEMORY
from ledger.search.space import Space, space_of
from ledger.search.tasks import Job, Task
from ledger.search.time_limit import OutOfTimeError, time_limit
from ledger.search.workers import Run, in_this_process
from ledger.spec.load import revised
from ledger.spec.overrides import assignments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.books.results import Number
    from ledger.search.sweep import Progress
    from ledger.spec.plan import Plan

COMPILED = 24  # of a front, evenly from the fastest to the one with least memory
DEVICES, COST = "cluster.devices", "cost.run"
AFTER = 1.5  # times the seconds of a search, after which what is still priced is not waited for
WORTH = 0.02  # of the cost: what fewer devices must save, since the run takes so much longer on them
TOLERANCE = 1e-9  # of figures of the pass, relative to those of the compiler
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
    return not plan.model.bare and not plan.model.encoder_groups and plan.reading is not None


def recommend(
    plan: Plan,
    run: Run = in_this_process,
    progress: Progress = lambda *_: None,
    *,
    whole: bool = True,
    seconds: float = 0.0,
) -> Recommendations:
    """What the layouts of a plan that was read from a spec recommend: all of them, or those that keep the keys of KEPT.

    Without a limit of `seconds`, the cheapest is looked for on fewer devices too, among layouts that keep these keys,
    and layouts of the whole front are compiled. When its time is over, it goes by what it found by then.
    """
    thorough = not seconds
    whole = whole or plan.serve is not None
    fewer = fewer_devices(plan) if thorough and plan.assumptions.price and plan.serve is None else {}
    spaces = [space_of(plan, {} if whole else kept_values(plan)), *fewer.values()]
    (found, *others), complete = searched(spaces, run, progress, seconds)
    at = {devices: (space, other) for (devices, space), other in zip(fewer.items(), others, strict=True)}
    front = _front(plan, spaces[0], found, COMPILED if thorough else 1)
    fastest = front[0] if front else None
    return Recommendations(
        smallest=smallest_edit(plan, spaces[0], found),
        fastest=fastest,
        cheapest=cheapest(plan, fastest, at),
        front=front,
        points=_points(plan, found),
        legal=found.legal,
        fitting=found.meeting,
        kept=() if whole else KEPT,
        fewer={devices: other.legal for devices, (_, other) in at.items()},
        nearest=None if front or not len(found.nearest) else _compiled(plan, spaces[0], found.nearest, 0),
        headroom=kept_free(plan),
        complete=complete,
    )


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


# --- what is recommended ------------------------------------------------------------------------


def smallest_edit(plan: Plan, space: Space, found: Found) -> Recommendation | None:
    """The fewest changed keys, then the least time of a step: of the plan itself, none, where it fits as it is."""
    own, aim = compile_plan(plan).totals, aim_of(plan)
    if own[MEMORY] <= own[CAPACITY] - kept_free(plan):
        return Recommendation({}, _shown(plan, own))

    def size(one: Recommendation) -> tuple[int, float]:
        return len(one.changes), aim.pace(one.totals)

    best: Recommendation | None = None
    for place, rank in enumerate(found.best.totals[:, aim.question.keys.index(EDIT_RANK)]):
        if best and int(rank) > len(best.changes):
            break
        other = _compiled(plan, space, found.best, place)
        if best is None or size(other) < size(best):
            best = other
    return best


def cheapest(
    plan: Plan, fastest: Recommendation | None, fewer: Mapping[int, tuple[Space, Found]]
) -> Recommendation | None:
    """The layout that costs least: of those on as many devices it is the fastest, and fewer must save WORTH of it."""
    others = [
        _compiled(plan, space, found.front, 0, {DEVICES: devices})
        for devices, (space, found) in fewer.items()
        if len(found.front)
    ]
    best = fastest if fastest and COST in fastest.totals else None
    least = min((one for one in others if COST in one.totals), key=lambda one: one.totals[COST], default=None)
    if best and least and least.totals[COST] > (1 - WORTH) * best.totals[COST]:
        return best
    return least or best


def _front(plan: Plan, space: Space, found: Found, most: int) -> tuple[Recommendation, ...]:
    """So many of the front, from the fastest to the one with least memory, each compiled."""
    count = len(found.front)
    places = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
    return tuple(_compiled(plan, space, found.front, int(place)) for place in places)


def _compiled(
    plan: Plan, space: Space, rows: Rows, place: int, fixed: Mapping[str, Any] | None = None
) -> Recommendation:
    """A row compiled by itself; held to what the pass found of it."""
    changes, totals = compiled_row(plan, space, rows, place, fixed)
    return Recommendation(changes, _shown(plan, totals))


def compiled_row(
    plan: Plan, space: Space, rows: Rows, place: int, fixed: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], Mapping[str, Number]]:
    """The fewest keys that make the plan a row, with those that are `fixed`, and its totals compiled.

    They are held to what the pass found of it.
    """
    choices = {key: rows.choices[place : place + 1, column] for column, key in enumerate(space.keys)}
    changes = fewest_changes(plan, {**(fixed or {}), **Block(space, choices, {}).layout(0)})
    made = revised(plan, assignments(changes))
    assert made.plan is not None, f"{changes} makes no plan of {plan.name}"  # noqa: S101 - our own mistake
    totals = compile_plan(made.plan).totals
    aim = aim_of(plan)
    for key in (aim.total, MEMORY):
        found = float(rows.totals[place, aim.question.keys.index(key)])
        same = isclose(float(totals[key]), found, rel_tol=TOLERANCE)
        assert same, f"{changes}: {key} is {totals[key]} compiled, {found} in the search"  # noqa: S101 - as above
    return changes, totals


def _shown(plan: Plan, totals: Mapping[str, Number]) -> dict[str, float]:
    return {key: float(totals[key]) for key in aim_of(plan).shown if key in totals}


def _points(plan: Plan, found: Found) -> tuple[tuple[float, float], ...]:
    """Memory of the front's layouts, and what each is fast by."""
    aim = aim_of(plan)
    memory, total = (aim.question.keys.index(key) for key in (MEMORY, aim.total))
    return tuple((float(row[memory]), float(row[total])) for row in found.front.totals)
