"""The rows of a score, each a measured run beside its prediction, and their errors by source and over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from ledger.books.time import Interval
from ledger.lab.score.served import FIGURES, ServedScore, errors_of
from ledger.spec.publication import RESERVED, UNSTATED

GIB = 2**30


@dataclass(frozen=True)
class ScoreRow:
    """One run: prediction beside measurement in seconds and bytes, or the reason why there is none (`skipped`).

    `step_low` and `step_high`: the estimate's own band. `needed` and `capacity`: bytes that the fullest device asks
    for, and has. `seen_fits`: whether it ran; None where nobody says. `counts_time` and `counts_memory`: whether
    summaries are made of it; `uncounted`: why not, where there is an error of time all the same. `unpriced`: why no
    step is predicted. `assumed`: what the row does not say. `stack` and `device`: by their names in the library.
    `memory_ends`: the interval of measured over predicted bytes that is printed for its plan. `served`: the figures of
    a row that serves.
    """

    id: str
    source: str
    source_id: str
    skipped: str = ""
    step: float | None = None
    step_low: float | None = None
    step_high: float | None = None
    measured_step: float | None = None
    memory: float | None = None
    measured_memory: float | None = None
    needed: int | None = None
    capacity: int | None = None
    seen_fits: bool | None = None
    counts_time: bool = False
    counts_memory: bool = False
    convention: str = RESERVED
    uncounted: str = ""
    unpriced: str = ""
    assumed: tuple[str, ...] = ()
    stack: str = ""
    device: str = ""
    memory_ends: Interval | None = None
    served: ServedScore | None = None

    @property
    def time_error(self) -> float | None:
        """Predicted over measured seconds, minus one."""
        return _relative_error(self.step, self.measured_step)

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured bytes, minus one."""
        return _relative_error(self.memory, self.measured_memory)

    @property
    def fits(self) -> bool | None:
        """Whether the device has what is needed; None where nothing is predicted."""
        return None if self.needed is None or self.capacity is None else self.needed <= self.capacity

    @property
    def worst_error(self) -> float:
        """The larger absolute error of those that count; 0 where none does."""
        errors = ((self.time_error, self.counts_time), (self.memory_error, self.counts_memory))
        served = self.served.errors.values() if self.served and self.served.counts else ()
        counted = (*(error for error, counts in errors if counts and error is not None), *served)
        return max(map(abs, counted), default=0.0)


def _relative_error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1 if predicted and measured else None


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of several rows: how many, mean absolute, mean signed, median absolute, and the worst with its sign.

    None where there is no row.
    """

    rows: int
    absolute: float | None = None
    signed: float | None = None
    median: float | None = None
    worst: float | None = None


def summarise(errors: Iterable[float]) -> ErrorSummary:
    """The summary of these errors."""
    by_size = sorted(errors, key=abs)
    if not by_size:
        return ErrorSummary(0)
    sizes = [abs(error) for error in by_size]
    return ErrorSummary(
        len(by_size), sum(sizes) / len(by_size), sum(by_size) / len(by_size), median(sizes), by_size[-1]
    )


@dataclass(frozen=True)
class SourceErrors:
    """The rows of one source, those that were skipped, and the errors of those that count; of serving by figure."""

    rows: int
    skipped: int
    time: ErrorSummary
    mem: ErrorSummary
    mem_unstated: ErrorSummary
    served: Mapping[str, ErrorSummary]


@dataclass(frozen=True)
class OverallErrors:
    """Errors as means over sources, so that one with a thousand rows weighs no more than one with ten; counts of rows.

    `said_not_to_fit`: runs that ran and that are said not to fit; `said_to_fit`: runs that did not, said to fit.
    """

    time: ErrorSummary
    mem: ErrorSummary
    mem_unstated: ErrorSummary
    rows: int
    skipped: int
    said_not_to_fit: int
    said_to_fit: int
    served: Mapping[str, ErrorSummary]


@dataclass(frozen=True)
class Score:
    """Rows with what they come to, by source and overall.

    Summaries are made of rows that are graded A, or of a table without grades.
    """

    rows: tuple[ScoreRow, ...]

    @cached_property
    def sources(self) -> Mapping[str, SourceErrors]:
        """Errors of each source, in the order of the rows."""
        groups = _group_by(self.rows, lambda row: row.source_id)
        return {name: _source_errors(rows) for name, rows in groups.items()}

    @cached_property
    def overall(self) -> OverallErrors:
        """Errors over all sources."""
        return OverallErrors(
            time=_mean_summary([source.time for source in self.sources.values()]),
            mem=_mean_summary([source.mem for source in self.sources.values()]),
            mem_unstated=_mean_summary([source.mem_unstated for source in self.sources.values()]),
            rows=len(self.rows),
            skipped=sum(source.skipped for source in self.sources.values()),
            said_not_to_fit=sum(row.seen_fits is True and row.fits is False for row in self.rows),
            said_to_fit=sum(row.seen_fits is False and row.fits is True for row in self.rows),
            served={name: _mean_summary([source.served[name] for source in self.sources.values()]) for name in FIGURES},
        )

    @property
    def serves(self) -> bool:
        """Whether any row is of a model that is served."""
        return any(row.served for row in self.rows)

    @cached_property
    def uncounted(self) -> Mapping[str, ErrorSummary]:
        """By reason, the most frequent first: rows whose step is predicted and in no sum; sources weigh alike."""
        left_out = [row for row in self.rows if row.uncounted and row.time_error is not None]
        reasons = _group_by(left_out, lambda row: row.uncounted)
        ordered = sorted(reasons.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        return {reason: _mean_by_source(rows) for reason, rows in ordered}


def _group_by(rows: Iterable[ScoreRow], key: Callable[[ScoreRow], str]) -> dict[str, list[ScoreRow]]:
    groups: dict[str, list[ScoreRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _source_errors(rows: Sequence[ScoreRow]) -> SourceErrors:
    return SourceErrors(
        rows=len(rows),
        skipped=sum(bool(row.skipped) for row in rows),
        time=summarise(row.time_error for row in rows if row.counts_time and row.time_error is not None),
        mem=_memory_errors(rows, unstated=False),
        mem_unstated=_memory_errors(rows, unstated=True),
        served={name: summarise(errors_of((row.served for row in rows), name)) for name in FIGURES},
    )


def _memory_errors(rows: Sequence[ScoreRow], *, unstated: bool) -> ErrorSummary:
    """Errors of memory whose convention is stated, or is not."""
    return summarise(
        row.memory_error
        for row in rows
        if row.counts_memory and row.memory_error is not None and (row.convention == UNSTATED) == unstated
    )


def _mean_by_source(rows: Sequence[ScoreRow]) -> ErrorSummary:
    """Errors of time of these rows, means over their sources."""
    groups = _group_by(rows, lambda row: row.source_id)
    return _mean_summary([summarise(row.time_error or 0.0 for row in group) for group in groups.values()])


def _mean_summary(summaries: Iterable[ErrorSummary]) -> ErrorSummary:
    """Means over the summaries that are of any row; the worst is that of any."""
    counted = [summary for summary in summaries if summary.rows]
    if not counted:
        return ErrorSummary(0)
    means = {name: fmean(getattr(summary, name) for summary in counted) for name in ("absolute", "signed", "median")}
    worst = max((summary.worst or 0.0 for summary in counted), key=abs)
    return ErrorSummary(sum(summary.rows for summary in counted), **means, worst=worst)
