"""Rows of a sweep in words: what differs from the plan, in short, and by how much the nearest one misses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ledger.numbers import said
from ledger.search.found import Rows
from ledger.search.space import laid_out
from ledger.search.sweep import Search
from ledger.spec.edit import flow
from ledger.spec.inputs import changes
from ledger.units import unit_of

OWN = "the plan itself"
SHORT = ("parallelism.", "run.", "serve.")  # parts whose keys are clear without them


def short_changes(search: Search, rows: Rows, place: int) -> str:
    """What a row changes of the plan: `tensor 2, recompute full`."""
    stated = search.changes(rows, place)
    base = search.bases[search.base_of[int(rows.tasks[place])]]
    layout = {key: stated[key] for key in base.space.keys}
    paths = [change.path for change in changes(search.plan, laid_out(base.plan, layout))]
    return ", ".join(_differing(stated, paths)) or OWN


def _differing(stated: Mapping[str, Any], paths: list[str]) -> Iterator[str]:
    for key, value in stated.items():
        if not any(path == key or path.startswith(f"{key}.") for path in paths):
            continue
        name = next((key.removeprefix(part) for part in SHORT if key.startswith(part)), key)
        yield f"without {name}" if value is None else f"{name} {value if isinstance(value, str) else flow(value)}"


def misses(search: Search, rows: Rows, place: int = 0) -> list[str]:
    """By how much a row misses each limit that it does not meet."""
    base = search.bases[search.base_of[int(rows.tasks[place])]]
    values = dict(zip(search.question.keys, rows.totals[place : place + 1].T, strict=True))
    told = []
    for limit in search.limits(base):
        if limit.excess(values[limit.key])[0] == 0:
            continue
        value, unit = float(values[limit.key][0]), unit_of(limit.key)
        if math.isnan(value):
            told.append(f"{limit.text}: it has no {limit.key}")
            continue
        by = said(abs(value - limit.bound), unit)
        side = "more" if value > limit.bound else "less"
        shown, bound = said(value, unit), said(limit.bound, unit)
        missed = f"{by} {side}" if shown == bound else f"{shown} is {by} {side} than {bound}"
        told.append(f"{limit.text}: {missed}")
    return told
