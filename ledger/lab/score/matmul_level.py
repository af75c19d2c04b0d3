"""The constants that whole runs were fitted for: what matmuls of a family of stacks reach of the calibrated library's.

Each is fitted on every other publication of the stacks that have it, and judged on the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ledger.lab.score.library_runs import LibraryRun, errors_by_source

LEVELS = tuple(percent / 100 for percent in range(74, 101, 2))


@dataclass(frozen=True)
class LevelTrial:
    """One value of the constant: mean absolute error of the step, by publication."""

    level: float
    errors: Mapping[str, float]

    def mean_error(self, sources: Sequence[str]) -> float:
        """The error over several publications, each weighing the same."""
        return fmean(self.errors[source] for source in sources)


def trials(runs: Iterable[LibraryRun], levels: Sequence[float] = LEVELS) -> dict[float, tuple[LevelTrial, ...]]:
    """By each constant as it stands in stacks, every value tried on the runs whose stacks have it."""
    having: dict[float, list[LibraryRun]] = {}
    for run in runs:
        having.setdefault(run.plan.stack.matmul_level, []).append(run)
    return {
        stands: tuple(LevelTrial(level, mean_errors(mine, level)) for level in levels)
        for stands, mine in having.items()
        if stands != 1.0
    }


def mean_errors(runs: Sequence[LibraryRun], level: float) -> dict[str, float]:
    """Mean absolute error by publication under one value."""

    def error(run: LibraryRun) -> float:
        stack = run.plan.stack
        narrow = level if stack.quantised_level == stack.matmul_level else stack.quantised_level
        plan = replace(run.plan, stack=replace(stack, matmul_level=level, quantised_level=narrow))
        return abs(run.time_error(plan, run.books))

    return {source: fmean(errors) for source, errors in errors_by_source(runs, error).items()}


def halves(tried: Sequence[LevelTrial]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Publications in alphabetical order: every other one is fitted on, the rest judge."""
    names = sorted(tried[0].errors)
    return tuple(names[::2]), tuple(names[1::2])


def best_trial(tried: Sequence[LevelTrial]) -> LevelTrial:
    """The value with the least error on the half that is fitted on."""
    fitted, _ = halves(tried)
    return min(tried, key=lambda trial: trial.mean_error(fitted))


def level_lines(found: Mapping[float, Sequence[LevelTrial]]) -> Iterator[str]:
    """The trials of each constant in words, then the best of them and what it reaches on the other half."""
    for stands, tried in found.items():
        yield f"stacks whose `matmul_level` is {stands:g}"
        yield from _lines(tried)


def _lines(tried: Sequence[LevelTrial]) -> Iterator[str]:
    fitted, rest = halves(tried)
    yield f"fitted on {', '.join(fitted)}; judged on {', '.join(rest)}"
    for trial in tried:
        errors = f"{trial.mean_error(fitted):6.1%} fitted, {trial.mean_error(rest):6.1%} judged"
        yield f"level {trial.level:.2f}: {errors}"
    best = best_trial(tried)
    each = ", ".join(f"{name} {best.errors[name]:.1%}" for name in sorted(best.errors))
    yield f"chosen {best.level:.2f}: {best.mean_error(rest):.1%} where nothing was fitted ({each})"
