"""Recommendations as they were found before: in this process, or in the user's cache folder.

A file is found again only by the same program, for the same plan as it is written: nothing stale is used. One that
this user's programs did not write, or that cannot be written, is found out again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ledger.caches import Cache
from ledger.report.recommendations import Recommendations, as_record, from_record
from ledger.search.extent import Extent, extent_of_report, reason
from ledger.search.recommend import recommend
from ledger.spec.version import program_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.books.results import Number
    from ledger.search.sweep import Progress
    from ledger.search.workers import Run
    from ledger.spec.plan import Plan

FOUND = Cache("recommendations")


def recommendations(
    plan: Plan,
    run: Run | None = None,
    progress: Progress = lambda *_: None,
    extent: Extent | None = None,
    totals: Mapping[str, Number] | None = None,
) -> Recommendations:
    """What the layouts of a plan recommend; `extent`: how far to look, None: as far as a report does.

    A lesser search will do where no thorough one was made before; one that was stopped, or failed, is not kept. No
    error is raised: whatever becomes of a search, the plan has its verdict, and the result says why it has no layouts.
    """
    try:
        extent = extent or extent_of_report(plan)
        for whole in (True,) if extent.whole else (True, False):
            for thorough in (True,) if extent.thorough else (True, False):
                if kept := known(plan, whole=whole, thorough=thorough):
                    return kept
        made = recommend(plan, run, progress, extent, totals)
        if made.complete:
            keep(plan, made, whole=extent.whole, thorough=extent.thorough)
    except Exception as error:  # noqa: BLE001 - as the docstring says
        return Recommendations(complete=False, failure=reason(error))
    return made


def known(plan: Plan, *, whole: bool, thorough: bool) -> Recommendations | None:
    """What was found before; None where nothing was, or where its file is damaged."""
    key = _key(plan, whole=whole, thorough=thorough)
    if key in _in_process():
        return _in_process()[key]
    kept = FOUND.read(f"{key}.json")
    if kept is None:
        return None
    found = from_record(json.loads(kept))
    _in_process()[key] = found
    return found


def keep(plan: Plan, found: Recommendations, *, whole: bool, thorough: bool) -> None:
    """Keeps what was found, as far as that can be done."""
    key = _key(plan, whole=whole, thorough=thorough)
    _in_process()[key] = found
    FOUND.keep(f"{key}.json", json.dumps(as_record(found)).encode())


@cache
def _in_process() -> dict[str, Recommendations]:
    return {}


def _key(plan: Plan, *, whole: bool, thorough: bool) -> str:
    """A digest of all that the recommendations follow from."""
    overrides = plan.reading.overrides if plan.reading else ()
    values = replace(plan, reading=None, origins={}, warnings=())
    told = (program_digest(), plan.digest, repr(values), repr(overrides), repr((whole, thorough)))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
