"""A score as the published contract `ledger-score/2`, of tables and of evidence files: rows, sources, overall."""

from __future__ import annotations

from typing import Any

from ledger.lab.score.rows import GIB, OverallErrors, Score, ScoreRow, SourceErrors
from ledger.lab.score.served import UNITS, ServedScore

SCORE_SCHEMA = "ledger-score/2"


def published(score: Score) -> dict[str, Any]:
    """Every row, every source, and overall figures that give each source the same weight.

    Errors are predicted over measured, minus one.
    """
    return {
        "schema": SCORE_SCHEMA,
        "rows": [_row(row) for row in score.rows],
        "sources": {name: _source(errors) for name, errors in score.sources.items()},
        "overall": _overall(score.overall),
        "uncounted": {reason: vars(errors) for reason, errors in score.uncounted.items()},
    }


def _row(row: ScoreRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "source": row.source,
        "source_id": row.source_id,
        "predicted_step_s": row.step,
        "predicted_step_low_s": row.step_low,
        "predicted_step_high_s": row.step_high,
        "measured_step_s": row.measured_step,
        "time_error": row.time_error,
        "predicted_peak_mem_gib": None if row.memory is None else row.memory / GIB,
        "measured_peak_mem_gib": None if row.measured_memory is None else row.measured_memory / GIB,
        "mem_error": row.memory_error,
        "mem_convention": row.convention,
        "counts": {"time": row.counts_time, "mem": row.counts_memory},
        "needed_bytes": row.needed,
        "capacity_bytes": row.capacity,
        "fits": row.fits,
        "seen_fits": row.seen_fits,
        "assumed": list(row.assumed),
        "uncounted": row.uncounted or None,
        "unpriced": row.unpriced or None,
        "skipped": row.skipped or None,
        **({"serving": _serving_figures(row.served)} if row.served else {}),
    }


def _serving_figures(figures: ServedScore) -> dict[str, Any]:
    """Figures of a row that serves, with their units in their names."""
    columns: dict[str, Any] = {"counts": figures.counts, "concurrency": figures.concurrency}
    for name, unit in UNITS.items():
        columns[f"predicted_{unit}"] = figures.predicted.get(name)
        columns[f"measured_{unit}"] = figures.measured.get(name)
        columns[f"{name}_error"] = figures.errors.get(name)
        columns[f"{name}_floor_share"] = figures.floor_shares.get(name)
    return columns


def _source(errors: SourceErrors) -> dict[str, Any]:
    return {
        "rows": errors.rows,
        "skipped": errors.skipped,
        "time": vars(errors.time),
        "mem": vars(errors.mem),
        "mem_unstated": vars(errors.mem_unstated),
        **{name: vars(summary) for name, summary in errors.served.items() if summary.rows},
    }


def _overall(errors: OverallErrors) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    trained = (("time", errors.time), ("mem", errors.mem), ("mem_unstated", errors.mem_unstated))
    served = ((name, summary) for name, summary in errors.served.items() if summary.rows)
    for kind, summary in (*trained, *served):
        figures[f"{kind}_mape"] = summary.absolute
        figures[f"{kind}_median"] = summary.median
        figures[f"{kind}_bias"] = summary.signed
        figures[f"{kind}_rows"] = summary.rows
    counts = ("rows", "skipped", "said_not_to_fit", "said_to_fit")
    return {**figures, **{name: getattr(errors, name) for name in counts}}
