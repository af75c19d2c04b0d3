"""Recommendations of earlier searches: from this process, or from the user's cache folder.

A file is used only by the same program, for the same plan as it is written: nothing stale is used. Where this user's
programs did not write it, or it cannot be written, the search is made again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from ledger.caches import Cache
from ledger.report.recommendations import Recommendations, as_record, from_record
from ledger.report.seals.seal import search_schema
from ledger.search.extent import Extent, extent_of_report, reason
from ledger.search.recommend import recommend
from ledger.spec.version import program_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.books.results import Number
    from ledger.search.sweep import Progress
    from ledger.search.workers import Run
    from ledger.spec.plan import Plan

RECOMMENDATION_CACHE = Cache("recommendations")


def recommendations(
    plan: Plan,
    run: Run | None = None,
    progress: Progress = lambda *_: None,
    extent: Extent | None = None,
    totals: Mapping[str, Number] | None = None,
) -> Recommendations:
    """Recommended layouts of a plan, from a cache or a new search; `extent`: None is that of a report.

    A lesser search will do where no thorough one was made before; one that was stopped, or failed, is not kept. No
    error is raised: whatever becomes of a search, the plan has its verdict, and the result says why it has no layouts.
    """
    try:
        extent = extent or extent_of_report(plan)
        for whole in (True,) if extent.all_layouts else (True, False):
            for thorough in (True,) if extent.thorough else (True, False):
                if found_before := cached_recommendations(plan, whole=whole, thorough=thorough):
                    return found_before
        result = recommend(plan, run, progress, extent, totals)
        if result.complete:
            cache_recommendations(plan, result, whole=extent.all_layouts, thorough=extent.thorough)
    except Exception as error:  # noqa: BLE001 - as the docstring says
        return Recommendations(complete=False, failure=reason(error))
    return result


def cached_recommendations(plan: Plan, *, whole: bool, thorough: bool) -> Recommendations | None:
    """The recommendations of an earlier search; None where there are none, or their file is damaged."""
    key = _key(plan, whole=whole, thorough=thorough)
    if key in _process_cache():
        return _process_cache()[key]
    stored = RECOMMENDATION_CACHE.read(f"{key}.json")
    if stored is None:
        return None
    record = json.loads(stored)
    if next(search_schema().errors(record), None):
        return None
    result = from_record(record)
    _process_cache()[key] = result
    return result


def cache_recommendations(plan: Plan, result: Recommendations, *, whole: bool, thorough: bool) -> None:
    """Writes recommendations to both caches, as far as that can be done."""
    key = _key(plan, whole=whole, thorough=thorough)
    _process_cache()[key] = result
    RECOMMENDATION_CACHE.keep(f"{key}.json", json.dumps(as_record(result)).encode())


@cache
def _process_cache() -> dict[str, Recommendations]:
    return {}


def _key(plan: Plan, *, whole: bool, thorough: bool) -> str:
    """A digest of all that the recommendations follow from."""
    overrides = plan.reading.overrides if plan.reading else ()
    values = replace(plan, reading=None, origins={}, warnings=())
    parts = (program_digest(), plan.digest, repr(values), repr(overrides), repr((whole, thorough)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
