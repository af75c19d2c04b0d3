"""The published form of a sweep: `ledger-sweep/1`, as ledger/cli/schemas/sweep.schema.json describes it."""

from __future__ import annotations

import math
from typing import Any

from ledger.search.found import Rows
from ledger.search.sweep import Search, Swept

SCHEMA = "ledger-sweep/1"


def sweep_record(swept: Swept) -> dict[str, Any]:
    """The object that `sweep --json` prints; `nearest` is there where no layout meets everything."""
    search, found = swept.search, swept.found
    best = rows_record(search, found.best)
    missed = {} if best or not len(found.nearest) else {"nearest": rows_record(search, found.nearest)[0]}
    return {
        "schema": SCHEMA,
        "spec": search.asked.name or search.asked.spec,
        "digest": search.plan.digest,
        "complete": swept.complete,
        "space": {key: list(values) for key, values in search.space.items()},
        "counts": {"combinations": search.combinations, "legal": found.legal, "fitting": found.fitting},
        "seconds": swept.seconds,
        "per_second": found.legal / swept.seconds if swept.seconds else 0.0,
        "best": best[0] if best else None,
        "front": rows_record(search, found.front),
        "top": best,
        **missed,
    }


def rows_record(search: Search, rows: Rows) -> list[dict[str, Any]]:
    """Each row with its complete changes and its totals."""
    return [
        {"changes": search.changes(rows, place), "totals": totals(search, rows, place)} for place in range(len(rows))
    ]


def totals(search: Search, rows: Rows, place: int) -> dict[str, float | int]:
    """The totals of a row by key: whole numbers as integers; none that it does not have."""
    values = zip(search.question.keys, map(float, rows.totals[place]), strict=True)
    return {key: _number(value) for key, value in values if math.isfinite(value)}


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
