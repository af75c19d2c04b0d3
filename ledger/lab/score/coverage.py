"""How often measured figures lie within the interval of an estimate, and the one that sources left out would give.

What is known of a run's software decides how far an estimate may miss: runs of the same stack on the same device were
scored, on other devices, or none. Its errors on a source count as if that source were the first one ever seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ledger.books.intervals import ELSEWHERE, MEASURED, UNKNOWN, Interval
from ledger.lab.score.rows import ScoreRow

KNOWN = (MEASURED, ELSEWHERE, UNKNOWN)
WITHIN = 0.80  # of runs, between the two ends
FEW = 5  # sources, below which all stand in


@dataclass(frozen=True)
class Missed:
    """A scored run: its source, stack and device, what was measured over what was predicted, the interval printed."""

    source: str
    stack: str
    device: str
    ratio: float
    printed: Interval | None = None


def steps_missed(rows: Iterable[ScoreRow]) -> tuple[Missed, ...]:
    """The runs whose step time counts."""
    return tuple(
        Missed(
            row.source_id,
            row.stack,
            row.device,
            row.measured_step / row.step,
            Interval(row.step_low / row.step, row.step_high / row.step),
        )
        for row in rows
        if row.counts_time and row.step and row.measured_step and row.step_low and row.step_high
    )


def memory_missed(rows: Iterable[ScoreRow]) -> tuple[Missed, ...]:
    """The runs whose memory counts, by whichever bytes they print."""
    return tuple(
        Missed(row.source_id, row.stack, row.device, row.measured_memory / row.memory, row.memory_ends)
        for row in rows
        if row.counts_memory and row.memory and row.measured_memory
    )


def known_as(run: Missed, others: Collection[Missed]) -> str:
    """What the runs of other sources say of a run's software."""
    of_stack = [other for other in others if other.stack == run.stack]
    if any(other.device == run.device for other in of_stack):
        return MEASURED
    return ELSEWHERE if of_stack else UNKNOWN


def by_knowledge(runs: Sequence[Missed]) -> dict[str, dict[str, list[float]]]:
    """Ratios by what was known of the software before their source was, and by source."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in KNOWN}
    for source in dict.fromkeys(run.source for run in runs):
        others = {(run.stack, run.device): run for run in runs if run.source != source}.values()
        kind: dict[tuple[str, str], str] = {}
        for run in (run for run in runs if run.source == source):
            key = (run.stack, run.device)
            if key not in kind:
                kind[key] = known_as(run, tuple(others))
            found[kind[key]][source].append(run.ratio)
    return found


def quantile(by_source: Mapping[str, Sequence[float]], share: float) -> float:
    """The ratio that so many of the runs stay below, each source weighing as much as another."""
    weighed = sorted((ratio, 1 / len(ratios)) for ratios in by_source.values() for ratio in ratios)
    wanted, passed = share * sum(weight for _, weight in weighed), 0.0
    for ratio, weight in weighed:
        passed += weight
        if passed >= wanted:
            return ratio
    return weighed[-1][0]


def intervals(runs: Sequence[Missed]) -> dict[str, Interval]:
    """Measured over predicted figures, of the ends that hold 80 of 100 runs, by what is known of their software.

    Where few sources stand behind one, all runs give its ends; less is never known to be narrower.
    """
    found: dict[str, Interval] = {}
    ratios = by_knowledge(runs)
    everything = {f"{kind}/{source}": values for kind in KNOWN for source, values in ratios[kind].items()}
    for index, name in enumerate(KNOWN):
        own = ratios[name] if len(ratios[name]) >= FEW else everything
        if own:
            edge = (1 - WITHIN) / 2
            low, high = quantile(own, edge), quantile(own, 1 - edge)
            best = found.get(KNOWN[index - 1]) if index else None
            found[name] = Interval(min(low, best.low), max(high, best.high)) if best else Interval(low, high)
    return found


@dataclass(frozen=True)
class Covered:
    """A source: how many of its runs lie within the interval that all others give, and within the one printed."""

    source: str
    runs: int
    left_out: int
    printed: int


def covered(runs: Sequence[Missed]) -> Iterator[Covered]:
    """Every source, left out in turn."""
    for source in dict.fromkeys(run.source for run in runs):
        own = [run for run in runs if run.source == source]
        others = [run for run in runs if run.source != source]
        given = intervals(others)
        left_out = sum(_holds(given.get(known_as(run, others)), run) for run in own)
        yield Covered(source, len(own), left_out, sum(_holds(run.printed, run) for run in own))


def _holds(ends: Interval | None, run: Missed) -> bool:
    return ends is not None and ends.low <= run.ratio <= ends.high


def coverage_lines(runs: Sequence[Missed], figure: str) -> Iterator[str]:
    """The table by source and overall, each source weighing as much as another, then the ends by what is known."""
    rows = list(covered(runs))
    if not rows:
        yield f"{figure}: no row has one that counts"
        return
    yield f"{figure:<26} {'runs':>5} {'left out':>9} {'printed':>8}"
    for row in rows:
        yield f"{row.source:<26} {row.runs:>5} {row.left_out / row.runs:>9.0%} {row.printed / row.runs:>8.0%}"
    all_runs = sum(row.runs for row in rows)
    for title, counts in (("left out", [row.left_out for row in rows]), ("printed", [row.printed for row in rows])):
        mean = fmean(count / row.runs for count, row in zip(counts, rows, strict=True))
        whole = sum(counts) / all_runs
        yield f"{title}: {mean:.0%} of runs lie within, a source as much as another; {whole:.0%} of all"
    kinds = by_knowledge(runs)
    for name, found in intervals(runs).items():
        count = sum(map(len, kinds[name].values()))
        yield (
            f"{name}: measured over predicted {found.low:.2f} to {found.high:.2f}, "
            f"from {count} runs of {len(kinds[name])} sources"
        )
