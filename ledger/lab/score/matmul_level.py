"""The one constant that whole runs were fitted for: what PyTorch's matmuls reach of the calibrated library's.

It is fitted on every other publication of stacks that are based on `pytorch-aten`, and judged on the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ledger.lab.score.library_runs import LibraryRun, errors_by_source, scored_runs

LEVELS = tuple(percent / 100 for percent in range(74, 101, 2))


@dataclass(frozen=True)
class LevelTrial:
    """One value of the constant: mean absolute error of the step, by publication."""

    level: float
    errors: Mapping[str, float]

    def mean_error(self, sources: Sequence[str]) -> float:
        """The error over several publications, each weighing the same."""
        return fmean(self.errors[source] for source in sources)


def trials(levels: Sequence[float] = LEVELS) -> tuple[LevelTrial, ...]:
    """Every value tried on every run of the library whose stack has the constant."""
    runs = [run for run in scored_runs() if run.plan.stack.matmul_level != 1.0]
    return tuple(LevelTrial(level, mean_errors(runs, level)) for level in levels)


def mean_errors(runs: Sequence[LibraryRun], level: float) -> dict[str, float]:
    """Mean absolute error by publication under one value."""

    def error(run: LibraryRun) -> float:
        plan = replace(run.plan, stack=replace(run.plan.stack, matmul_level=level))
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


def level_lines(tried: Sequence[LevelTrial]) -> Iterator[str]:
    """The trials in words, then the best of them and what it reaches on the other half."""
    fitted, rest = halves(tried)
    yield f"fitted on {', '.join(fitted)}; judged on {', '.join(rest)}"
    for trial in tried:
        errors = f"{trial.mean_error(fitted):6.1%} fitted, {trial.mean_error(rest):6.1%} judged"
        yield f"level {trial.level:.2f}: {errors}"
    best = best_trial(tried)
    each = ", ".join(f"{name} {best.errors[name]:.1%}" for name in sorted(best.errors))
    yield f"chosen {best.level:.2f}: {best.mean_error(rest):.1%} where nothing was fitted ({each})"
