"""A score on the terminal: a line for each run, a line for each source, then sentences on all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import click

from ledger.cli.tables import amount, print_table
from ledger.lab.score.rows import GIB, ErrorSummary, Score, ScoreRow
from ledger.lab.score.served import FIGURES as SERVED
from ledger.lab.score.served import TITLES, TOKENS_PER_SECOND

MISSING = "-"
REASONS_NAMED = 3  # reasons that are named one by one
UNPUBLISHED = "not published"  # begins a reason that names what is missing
FIGURES = ("rows", "median", "mape", "bias", "worst")
# What is predicted and what was seen, in words; None where nobody saw it.
FIT_WORDS: Mapping[tuple[bool | None, bool | None], str] = {
    (True, True): "fits",
    (True, None): "fits",
    (False, None): "out of memory",
    (False, False): "out of memory",
    (False, True): "out of memory, but ran",
    (True, False): "fits, but ran out of memory",
}


def print_rows(rows: Sequence[ScoreRow], open_errors: Mapping[str, str]) -> None:
    """A line for each run, with what it leaves open; columns that nothing stands in are left out."""
    columns = {
        "run": [row.id for row in rows],
        "step": [_seconds(row.step) for row in rows],
        "band": [_band(row) for row in rows],
        "measured": [_seconds(row.measured_step) for row in rows],
        "error": [_percent(row.time_error) for row in rows],
        "memory": [_bytes(row.memory) for row in rows],
        "measured peak": [_bytes(row.measured_memory) for row in rows],
        "peak error": [_percent(row.memory_error) for row in rows],
        "needed": [_bytes(row.needed) for row in rows],
        "capacity": [_bytes(row.capacity) for row in rows],
        "fit": [FIT_WORDS.get((row.fits, row.seen_fits), MISSING) for row in rows],
        **{cell: column for name in SERVED for cell, column in _served_columns(name, rows).items()},
        "assumed": [_notes(row, open_errors) for row in rows],
    }
    kept = {name: cells for name, cells in columns.items() if any(cell not in ("", MISSING) for cell in cells)}
    if rows:
        numbers = [name for name in kept if name not in ("run", "fit", "assumed")]
        print_table(tuple(kept), list(zip(*kept.values(), strict=True)), right=numbers)
        click.echo()


def _served_columns(name: str, rows: Sequence[ScoreRow]) -> Mapping[str, list[str]]:
    """Columns of one figure of rows that serve: predicted, measured, and the error."""
    written = _rate if name == TOKENS_PER_SECOND else _seconds
    served = [row.served for row in rows]
    return {
        TITLES[name]: [written(one.predicted.get(name) if one else None) for one in served],
        f"measured {TITLES[name]}": [written(one.measured.get(name) if one else None) for one in served],
        f"{TITLES[name]} error": [_percent(one.errors.get(name) if one else None) for one in served],
    }


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f}"


def _notes(row: ScoreRow, open_errors: Mapping[str, str]) -> str:
    uncounted = f"in no sum: {row.uncounted}" if row.uncounted else ""
    return row.skipped or "; ".join(filter(None, (*row.assumed, uncounted, open_errors.get(row.id, ""))))


def print_sources(score: Score) -> None:
    """A line for each source with its errors of step time and of peak memory."""
    columns = ("source", "rows", "skipped", *(f"{kind} {figure}" for kind in ("time", "mem") for figure in FIGURES))
    cells = [
        (name, str(source.rows), str(source.skipped), *_figures(source.time), *_figures(source.mem))
        for name, source in score.sources.items()
    ]
    print_table(columns, cells, right=columns[1:])


def print_served_sources(score: Score) -> None:
    """A line for each source with its errors of first tokens, of time per token and of throughput."""
    columns = ("source", "rows", "skipped", *(f"{TITLES[name]} {figure}" for name in SERVED for figure in FIGURES))
    cells = [
        (
            name,
            str(source.rows),
            str(source.skipped),
            *(one for kind in SERVED for one in _figures(source.served[kind])),
        )
        for name, source in score.sources.items()
    ]
    print_table(columns, cells, right=columns[1:])


def _figures(errors: ErrorSummary) -> tuple[str, ...]:
    sizes = [MISSING if size is None else f"{size:.1%}" for size in (errors.median, errors.absolute)]
    return (str(errors.rows), *sizes, _percent(errors.signed), _percent(errors.worst))


def sentences(score: Score) -> Iterator[str]:
    """Errors over all sources, then every row that is in no sum with the reason; the last counts skipped rows."""
    yield from _sums(score)
    yield from _fits(score)
    yield from _uncounted(score)
    yield from _sources_without_sums(score)
    yield from _unpriced(score)
    yield _skipped(score)


def _sums(score: Score) -> Iterator[str]:
    several = len(score.sources) > 1
    weights, middle = (", each source weighing the same", "mean of medians") if several else ("", "median")
    served = ((score.overall.served[name], TITLES[name]) for name in SERVED)
    for errors, title in ((score.overall.time, "step time"), (score.overall.mem, "peak memory"), *served):
        if errors.rows:
            yield (
                f"{title}: {_rows(errors.rows)}{weights}, mean absolute error {errors.absolute:.1%}, "
                f"{middle} {errors.median:.1%}, mean signed error {errors.signed:+.1%}"
            )


def _fits(score: Score) -> Iterator[str]:
    """How many runs fit as they were seen to, where some do not."""
    seen = sum(row.seen_fits is not None and row.fits is not None for row in score.rows)
    not_fit, fit = score.overall.said_not_to_fit, score.overall.said_to_fit
    if not_fit or any(row.seen_fits is False for row in score.rows):
        wrong = [f"{not_fit} that ran said not to fit"] if not_fit else []
        wrong += [f"{fit} that ran out of memory said to fit"] if fit else []
        yield f"fit: {seen - not_fit - fit} of {_rows(seen)} as seen" + (f"; {', '.join(wrong)}" if wrong else "")


def _uncounted(score: Score) -> Iterator[str]:
    """Rows that are predicted and compared, whose description is not complete or is of another kind of run."""
    for reason, errors in score.uncounted.items():
        yield (
            f"in no sum: {_rows(errors.rows)} {reason}, predicted all the same, mean absolute error "
            f"{errors.absolute:.1%}, mean signed error {errors.signed:+.1%}; --rows prints each"
        )


def _sources_without_sums(score: Score) -> Iterator[str]:
    """Sources of which nothing is in a sum, and why."""
    for name, source in score.sources.items():
        counted = source.time.rows + source.mem.rows + sum(one.rows for one in source.served.values())
        if not counted:
            reasons = Counter(_reason(row) for row in score.rows if row.source_id == name)
            yield f"{name}: nothing of its {_rows(source.rows)} is in a sum: {_counted(reasons)}"


def _reason(row: ScoreRow) -> str:
    return _short(row.skipped or row.uncounted or row.unpriced or "without a measurement that counts")


def _short(reason: str) -> str:
    """A reason without its details, by which rows are counted."""
    return UNPUBLISHED if reason.startswith(UNPUBLISHED) else reason.partition(";")[0]


def _unpriced(score: Score) -> Iterator[str]:
    for reason, count in Counter(row.unpriced for row in score.rows if row.unpriced).most_common():
        yield f"{_rows(count)} with a peak and no step: {reason}"


def _skipped(score: Score) -> str:
    said = f"{score.overall.skipped} of {_rows(len(score.rows))} skipped"
    reasons = Counter(_short(row.skipped) for row in score.rows if row.skipped)
    return f"{said}: {_counted(reasons)}; --rows or --json has the reason of each" if reasons else said


def _counted(reasons: Counter[str]) -> str:
    """The most frequent reasons, each with its count, and how many rows have others."""
    ordered = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    named = [f"{count} {reason}" for reason, count in ordered[:REASONS_NAMED]]
    others = sum(count for _, count in ordered[REASONS_NAMED:])
    return ", ".join(named) + (f", {others} for other reasons" if others else "")


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _seconds(value: float | None) -> str:
    return MISSING if value is None else amount(value, "s")


def _band(row: ScoreRow) -> str:
    known = row.step_low is not None and row.step_high is not None
    return f"{_seconds(row.step_low)} to {_seconds(row.step_high)}" if known else MISSING


def _bytes(value: float | None) -> str:
    return MISSING if value is None else f"{value / GIB:.1f} GiB"


def _percent(error: float | None) -> str:
    return MISSING if error is None else f"{error:+.1%}"
