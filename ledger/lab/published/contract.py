"""Scores as the published contract `ledger-score/1`: rows, sources, overall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ledger.lab.published.facts import GIB
from ledger.lab.published.scores import Scored, summary

SCHEMA = "ledger-score/1"


def contract(scores: Sequence[Scored]) -> dict[str, Any]:
    """Every row, every source, and overall figures that give each source the same weight.

    Errors are predicted over measured, minus one; sources and overall are made of rows graded A or not graded.
    """
    groups = by_source(scores)
    return {
        "schema": SCHEMA,
        "rows": [record(score) for score in scores],
        "sources": groups,
        "overall": overall(groups),
        "uncounted": uncounted(scores),
    }


def uncounted(scores: Sequence[Scored]) -> dict[str, dict[str, Any]]:
    """By reason, rows whose step is predicted and in no sum, with their errors; each source weighs the same."""
    reasons: dict[str, list[Scored]] = {}
    for score in scores:
        if score.uncounted and score.time_error is not None:
            reasons.setdefault(score.uncounted, []).append(score)
    return {reason: macro(rows) for reason, rows in sorted(reasons.items(), key=lambda pair: (-len(pair[1]), pair[0]))}


def macro(rows: Sequence[Scored]) -> dict[str, Any]:
    """Errors of time of these rows, means over their sources."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        errors.setdefault(row.group, []).append(row.time_error or 0.0)
    found = [summary(one) for one in errors.values()]
    return {"rows": len(rows), **{name: fmean(one[name] for one in found) for name in ("mape", "median", "bias")}}


def record(score: Scored) -> dict[str, Any]:
    """One row of the contract, with its measurements and what was assumed."""
    return {
        "id": score.id,
        "source": score.source,
        "source_id": score.group,
        "predicted_step_s": score.step,
        "measured_step_s": score.measured_step,
        "time_error": score.time_error,
        "predicted_peak_mem_gib": None if score.memory is None else score.memory / GIB,
        "measured_peak_mem_gib": None if score.measured_memory is None else score.measured_memory / GIB,
        "mem_error": score.memory_error,
        "counts": {"time": score.counts_time, "mem": score.counts_memory},
        "fits": score.fits,
        "assumed": list(score.assumed),
        "uncounted": score.uncounted or None,
        "unpriced": score.unpriced or None,
        "skipped": score.skipped,
    }


def by_source(scores: Sequence[Scored]) -> dict[str, dict[str, Any]]:
    """Errors of each publication, in the order of the table."""
    groups: dict[str, list[Scored]] = {}
    for score in scores:
        groups.setdefault(score.group, []).append(score)
    return {
        name: {
            "rows": len(rows),
            "skipped": sum(row.skipped is not None for row in rows),
            "time": summary(row.time_error for row in rows if row.counts_time and row.time_error is not None),
            "mem": summary(row.memory_error for row in rows if row.counts_memory and row.memory_error is not None),
        }
        for name, rows in groups.items()
    }


def overall(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Means over sources, so that one with a thousand rows weighs no more than one with ten."""
    found: dict[str, Any] = {}
    for kind in ("time", "mem"):
        mine = [group[kind] for group in groups.values() if group[kind]["rows"]]
        found[f"{kind}_mape"] = fmean(one["mape"] for one in mine) if mine else None
        found[f"{kind}_median"] = fmean(one["median"] for one in mine) if mine else None
        found[f"{kind}_bias"] = fmean(one["bias"] for one in mine) if mine else None
        found[f"{kind}_rows"] = sum(one["rows"] for one in mine)
    found["skipped"] = sum(group["skipped"] for group in groups.values())
    found["rows"] = sum(group["rows"] for group in groups.values())
    return found
