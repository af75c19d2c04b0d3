"""The one constant that whole runs were fitted for: what PyTorch's matmuls reach of the calibrated library's.

It is fitted on every other publication of stacks that are based on `pytorch-aten`, and judged on the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ledger.books.repricing import step_time
from ledger.lab.published.carried import Carried, carried, table
from ledger.lab.published.scores import COUNTED, measured_step
from ledger.spec.library import default_library

LEVELS = tuple(percent / 100 for percent in range(74, 101, 2))


@dataclass(frozen=True)
class Trial:
    """One value of the constant: mean absolute error of the step, by publication."""

    level: float
    errors: Mapping[str, float]

    def over(self, sources: Sequence[str]) -> float:
        """The error over several publications, each weighing the same."""
        return fmean(self.errors[source] for source in sources)


def trials(levels: Sequence[float] = LEVELS) -> tuple[Trial, ...]:
    """Every value tried on every run of the library whose stack has the constant."""
    runs = [one for one in carried(table(), default_library()) if _counts(one)]
    return tuple(Trial(level, errors(runs, level)) for level in levels)


def _counts(one: Carried) -> bool:
    shared = one.plan.stack.matmul_level != 1.0
    return shared and not one.made.unpriced and one.row.score_time == COUNTED and measured_step(one.row) is not None


def errors(runs: Sequence[Carried], level: float) -> dict[str, float]:
    """Mean absolute error by publication under one value."""
    found: dict[str, list[float]] = {}
    for one in runs:
        plan = replace(one.plan, stack=replace(one.plan.stack, matmul_level=level))
        error = step_time(plan, one.books) / (measured_step(one.row) or 1.0) - 1
        found.setdefault(one.row.source_id, []).append(abs(error))
    return {source: fmean(values) for source, values in found.items()}


def halves(found: Sequence[Trial]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Publications in alphabetical order: every other one is fitted on, the rest judge."""
    names = sorted(found[0].errors)
    return tuple(names[::2]), tuple(names[1::2])


def chosen(found: Sequence[Trial]) -> Trial:
    """The value with the least error on the half that is fitted on."""
    fitted, _ = halves(found)
    return min(found, key=lambda trial: trial.over(fitted))


def lines(found: Sequence[Trial]) -> Iterator[str]:
    """The trials in words, then what was chosen and what it reaches on the other half."""
    fitted, rest = halves(found)
    yield f"fitted on {', '.join(fitted)}; judged on {', '.join(rest)}"
    for trial in found:
        yield f"level {trial.level:.2f}: {trial.over(fitted):6.1%} fitted, {trial.over(rest):6.1%} judged"
    best = chosen(found)
    each = ", ".join(f"{name} {best.errors[name]:.1%}" for name in sorted(best.errors))
    yield f"chosen {best.level:.2f}: {best.over(rest):.1%} where nothing was fitted ({each})"
