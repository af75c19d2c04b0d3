"""A pass over the layouts of a plan as arrays, and what it proposes: rows that are then compiled by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.search.aims import aim_of
from ledger.search.blocks import Block
from ledger.search.edits import fewest_changes
from ledger.search.extent import Extent, is_whole, kept_values
from ledger.search.found import Found, Rows, add, nothing
from ledger.search.headroom import kept_free, kept_free_words
from ledger.search.pricing import Piece, pieces
from ledger.search.question import EDIT_RANK
from ledger.search.space import Space, space_of
from ledger.search.tasks import Job, Task
from ledger.search.time_limit import OutOfTimeError, time_limit
from ledger.search.workers import Run
from ledger.spec.load import revised
from ledger.spec.overrides import assignments

if TYPE_CHECKING:
    from ledger.search.candidates import Candidate, Requirements
    from ledger.search.sweep import Progress
    from ledger.spec.plan import Plan

TRIED = 4  # rows that a pass puts first, until one of them is sound
DEVICES = "cluster.devices"
AFTER = 1.2  # times the seconds of a pass, after which what is still priced is not waited for
COMPILING_SHARE = 0.1  # of the time that is left to a pass, for compiling what it proposes
FRONT_SHARE = 0.3  # the same where layouts of the front are compiled too


@dataclass(frozen=True)
class Passed:
    """What a pass found in the spaces of a plan: its own, and by their number of devices smaller ones.

    `error`: what ended it before its end, if anything did.
    """

    space: Space
    found: Found
    fewer: Mapping[int, tuple[Space, Found]]
    complete: bool
    error: Exception | None = None


def pass_over(plan: Plan, extent: Extent, run: Run, progress: Progress) -> Passed:
    """A pass over the layouts of a plan; those on fewer devices too, where it has the time and the run a price."""
    fewer = fewer_devices(plan) if extent.thorough and plan.assumptions.price and plan.serve is None else {}
    space = space_of(plan, {} if is_whole(plan, extent) else kept_values(plan))
    compiling = FRONT_SHARE if extent.thorough else COMPILING_SHARE
    seconds = extent.seconds * (1 - compiling) / AFTER
    (found, *others), complete, error = searched([space, *fewer.values()], run, progress, seconds)
    at = {devices: (smaller, other) for (devices, smaller), other in zip(fewer.items(), others, strict=True)}
    return Passed(space, found, at, complete, error)


def fewer_devices(plan: Plan) -> dict[int, Space]:
    """The plan on half of its devices, where these are whole nodes: nobody waits for much less.

    A run on an eighth costs a few per cent less, and takes eight times as long.
    """
    half, odd = divmod(plan.cluster.devices, 2)
    made = None if odd or half % plan.cluster.devices_per_node else revised(plan, [f"{DEVICES}={half}"]).plan
    return {half: space_of(made, kept_values(made))} if made else {}


def searched(
    spaces: Sequence[Space], run: Run, progress: Progress, seconds: float = 0.0
) -> tuple[list[Found], bool, Exception | None]:
    """What is found of each space, whether all of it was looked at, and the error that ended it, where one did.

    What is most like the plan comes first.
    """
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
                    raise KeyboardInterrupt  # noqa: TRY301 - which no handler here takes
    except OutOfTimeError:
        return found, False, None
    except Exception as error:  # noqa: BLE001 - what was found before counts
        return found, False, error
    return found, all(one.complete for one in found), None


def _unlike(piece: Piece, plan: Plan) -> int:
    """In how many ways the layouts of a piece differ from the plan."""
    mesh = plan.parallelism
    cut: int = sum(used != (getattr(mesh, axis) > 1) for axis, used in piece.cut.items())
    others = (piece.zero != mesh.zero) + (bool(piece.offload) != bool(mesh.offload))
    return cut + others + bool(piece.recomputes and plan.recompute.policy not in piece.recomputes)


# --- rows as changes of the plan ----------------------------------------------------------------


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

    def until_sound(self, rows: Rows) -> Iterator[Candidate]:
        """The first of some rows, and those after it while none is sound."""
        for place in range(min(len(rows), TRIED)):
            if candidate := self.candidate(rows, place):
                yield candidate
                if candidate.is_sound:
                    return

    def smallest(self, rows: Rows) -> Iterator[Candidate]:
        """Rows in the order of the keys that they should change, as long as one may change the fewest."""
        fewest = inf
        ranks = rows.totals[:, aim_of(self.requirements.plan).question.keys.index(EDIT_RANK)]
        for place, rank in enumerate(ranks):
            if int(rank) > fewest:
                return
            if candidate := self.candidate(rows, place):
                fewest = min(fewest, len(candidate.changes)) if candidate.is_sound else fewest
                yield candidate

    def along(self, rows: Rows, most: int) -> Iterator[Candidate]:
        """So many of some rows, evenly from the first to the last."""
        places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), most)).round().astype(int))
        return (candidate for place in places if (candidate := self.candidate(rows, int(place))))


def row_changes(plan: Plan, space: Space, rows: Rows, place: int, fixed: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fewest keys that make a plan a row of a space, with those that are `fixed`; None where rules refuse it."""
    choices = {key: rows.choices[place : place + 1, column] for column, key in enumerate(space.keys)}
    layout = {**fixed, **Block(space, choices, {}).layout(0)}
    draft = revised(plan, assignments(layout))
    return None if draft.problems or draft.plan is None else fewest_changes(plan, layout)
