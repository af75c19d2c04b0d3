"""What the library says of published serving results: errors by source, floors, and the one time that was fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median

from ledger.evidence.tables import TableRow, read_table
from ledger.lab.score.rows import ErrorSummary, Score, ScoreRow
from ledger.lab.score.served import FIGURES, SERVING_COLUMNS, TIME_PER_TOKEN, TITLES, TOKENS_PER_SECOND
from ledger.lab.score.serving_rows import predict_served
from ledger.report.escape import MadeSection, sentence
from ledger.spec.library import default_library

SERVING_TABLE = "published-serving.csv"
SERVED = MadeSection(
    "<!-- serving: made by `make serving` from specs/evidence/published-serving.csv -->", "<!-- end of serving -->"
)
TARGETS: Mapping[str, float] = {FIGURES[0]: 0.20, TIME_PER_TOKEN: 0.15, TOKENS_PER_SECOND: 0.20}
STEPS = (0.0, 0.5e-3, 1.0e-3, 1.3e-3, 1.6e-3, 2.0e-3, 3.0e-3)  # seconds of a step that are tried
FITTED = "vllm-2024"  # the stack one of whose constants was fitted to serving rows


def serving_rows() -> tuple[TableRow, ...]:
    """The serving rows that the library carries."""
    return read_table(default_library().folder("evidence") / SERVING_TABLE, SERVING_COLUMNS)


def serving_lines() -> Iterator[str]:
    """The section on serving: a table of sources, sums against their targets, floors, and the fit of a host's time."""
    rows = serving_rows()
    score = Score(tuple(predict_served(rows, default_library())))
    yield from source_lines(score)
    yield ""
    yield from sum_lines(score)
    yield ""
    yield from floor_lines(rows, score.rows)
    yield ""
    yield from step_lines(rows)


def source_lines(score: Score) -> Iterator[str]:
    """A line for each source and figure: mean absolute, signed, median and worst error, predicted over measured."""
    yield "| source | figure | rows | absolute | signed | median | worst |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name, source in score.sources.items():
        for figure, errors in source.served.items():
            if errors.rows:
                yield f"| {sentence(name)} | {TITLES[figure]} | {errors.rows} | {_cells(errors)} |"


def _cells(errors: ErrorSummary) -> str:
    sized = (errors.absolute or 0.0, errors.signed or 0.0, errors.median or 0.0, errors.worst or 0.0)
    return f"{sized[0]:.1%} | {sized[1]:+.1%} | {sized[2]:.1%} | {sized[3]:+.0%}"


def sum_lines(score: Score) -> Iterator[str]:
    """Each figure over all sources, which weigh the same, beside what was aimed at."""
    yield "| figure, each source weighing the same | absolute | signed | target |"
    yield "|---|---:|---:|---:|"
    for figure, errors in score.overall.served.items():
        yield f"| {TITLES[figure]} | {errors.absolute or 0:.1%} | {errors.signed or 0:+.1%} | {TARGETS[figure]:.0%} |"
    skipped = sum(bool(row.skipped) for row in score.rows)
    yield ""
    yield f"{skipped} of {len(score.rows)} rows are skipped; `ledger score published-serving --rows` says why."


def floor_lines(rows: Sequence[TableRow], scored: Sequence[ScoreRow]) -> Iterator[str]:
    """The data sheet's share of measured times at one sequence, by tensor parallelism, and over all rows."""
    table = {row.text("id"): row for row in rows}
    yield "| data sheet over measured, one sequence | tensor 1 | 2 | 4 | 8 |"
    yield "|---|---:|---:|---:|---:|"
    for title, figure, chosen in FLOORS:
        chosen_rows = [row for row in scored if row.served and chosen(table[row.id])]
        cells = (_median_floor(chosen_rows, table, figure, degree) for degree in ("1", "2", "4", "8"))
        yield f"| {title} | {' | '.join(cells)} |"
    yield ""
    shares = [row.served.floor_shares for row in scored if row.served]
    medians = {figure: median(share[figure] for share in shares if figure in share) for figure in FIGURES}
    yield f"Over all rows: {', '.join(f'{TITLES[name]} {value:.2f}' for name, value in medians.items())}."


# What floors are printed of: a title, the figure, and which rows.
FLOORS: Sequence[tuple[str, str, Callable[[TableRow], bool]]] = (
    ("gpt-fast, A100, time per token", TIME_PER_TOKEN, lambda row: row.text("engine") == "gpt-fast"),
    (
        "vLLM, H100, models of 7 and 8 billion, whole answers",
        TOKENS_PER_SECOND,
        lambda row: (
            (row.text("engine"), row.text("hardware"), row.text("concurrency")) == ("vLLM", "H100-SXM5-80GB", "1")
            and row.text("hidden") in ("3584", "4096")
        ),
    ),
)


def _median_floor(rows: Iterable[ScoreRow], table: Mapping[str, TableRow], figure: str, degree: str) -> str:
    shares = [row.served.floor_shares[figure] for row in rows if row.served and table[row.id].text("tp") == degree]
    return f"{median(shares):.2f}" if shares else "–"


def step_lines(rows: Sequence[TableRow]) -> Iterator[str]:
    """The host's time of a step of vLLM's first engine, fitted without the device that it is then tested on."""
    chosen = [row for row in rows if row.text("engine") == "vLLM" and row.text("concurrency") == "1"]
    errors = {step: _errors_by_device(chosen, step) for step in STEPS}
    devices = list(dict.fromkeys(row.text("hardware") for row in chosen))
    yield f"| host's time of a step of `{FITTED}`, one sequence | fitted on the others | error on it |"
    yield "|---|---:|---:|"
    for device in devices:
        other_devices = [name for name in devices if name != device]
        best = min(STEPS, key=lambda step: fmean(fmean(errors[step][name]) for name in other_devices))
        yield f"| {device} | {best * 1e3:g} ms | {fmean(errors[best][device]):.1%} |"


def _errors_by_device(rows: Sequence[TableRow], step: float) -> dict[str, list[float]]:
    """Absolute errors of tokens a second by device, where a step has this time of its host."""
    errors: dict[str, list[float]] = {}
    predicted = predict_served(rows, default_library(), (f"stack.engine.step={step * 1e3:g} ms",))
    for row, scored in zip(rows, predicted, strict=True):
        if scored.served:
            errors.setdefault(row.text("hardware"), []).append(abs(scored.served.errors[TOKENS_PER_SECOND]))
    return errors
