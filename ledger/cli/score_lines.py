"""What a score says below its table: errors over all sources, and every row that is in no sum, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger.lab.published.contract import overall, uncounted
from ledger.lab.published.scores import Scored

MOST = 3  # reasons that are told one by one
UNSAID = "not published"  # begins a reason that names what is missing


def lines(scores: Sequence[Scored], groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Sentences, the last of which says how many rows were skipped."""
    whole = overall(groups)
    yield from _sums(whole)
    yield from _beside(uncounted(scores))
    yield from _without(scores, groups)
    yield from _unpriced(scores)
    yield _skipped(scores, whole)


def _sums(found: Mapping[str, Any]) -> Iterator[str]:
    for kind, title in (("time", "step time"), ("mem", "peak memory")):
        if rows := found[f"{kind}_rows"]:
            yield (
                f"{title}: {rows} {_rows(rows)}, each source weighing the same, "
                f"mean absolute error {found[f'{kind}_mape']:.1%}, mean of medians {found[f'{kind}_median']:.1%}, "
                f"mean signed error {found[f'{kind}_bias']:+.1%}"
            )


def _beside(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Rows that are predicted and compared, whose description is not complete or is of another kind of run."""
    for reason, one in found.items():
        yield (
            f"in no sum: {one['rows']} {_rows(one['rows'])} {reason}, predicted all the same, mean absolute error "
            f"{one['mape']:.1%}, mean signed error {one['bias']:+.1%}; --rows prints each"
        )


def _without(scores: Sequence[Scored], groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Sources of which nothing is in a sum, and why."""
    for name, group in groups.items():
        if not group["time"]["rows"] and not group["mem"]["rows"]:
            reasons = Counter(_reason(score) for score in scores if score.group == name)
            yield f"{name}: nothing of its {group['rows']} {_rows(group['rows'])} is in a sum: {_told(reasons)}"


def _reason(score: Scored) -> str:
    return _short(score.skipped or score.uncounted or score.unpriced or "without a measurement that counts")


def _short(reason: str) -> str:
    """A reason without its details, by which rows are counted."""
    return UNSAID if reason.startswith(UNSAID) else reason.partition(";")[0]


def _unpriced(scores: Sequence[Scored]) -> Iterator[str]:
    for reason, count in Counter(score.unpriced for score in scores if score.unpriced).most_common():
        yield f"{count} {_rows(count)} with a peak and no step: {reason}"


def _skipped(scores: Sequence[Scored], whole: Mapping[str, Any]) -> str:
    said = f"{whole['skipped']} of {whole['rows']} {_rows(whole['rows'])} skipped"
    reasons = Counter(_short(score.skipped) for score in scores if score.skipped)
    return f"{said}: {_told(reasons)}; --rows or --json has the reason of each" if reasons else said


def _told(reasons: Counter[str]) -> str:
    """The most frequent reasons, each with its count, and how many rows have others."""
    found = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    told = [f"{count} {reason}" for reason, count in found[:MOST]]
    others = sum(count for _, count in found[MOST:])
    return ", ".join(told) + (f", {others} for other reasons" if others else "")


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"
