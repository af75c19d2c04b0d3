"""Errors on the library's runs: without each mechanism, under other constants, and how many lie within intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ledger.books.compiled_roles import compile_roles
from ledger.books.time import ELSEWHERE, MEASURED, UNKNOWN, Interval
from ledger.lab.score.library_runs import LibraryRun, errors_by_source, scored_runs
from ledger.lab.score.plan_cache import PlanCache
from ledger.lab.score.rows import ScoreRow
from ledger.model.schedule import roles
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Kernels, Plan, Stack

LIMITED = "h100-sxm-500w"
ONE_OPERATION = 18e-6  # seconds on the host, where a kernel were launched by a single one
Ablation = Callable[[LibraryRun], Plan]  # the plan of a run without one mechanism


@dataclass(frozen=True)
class AblationErrors:
    """The error without one mechanism: mean over publications of the mean absolute and the mean signed one."""

    without: str
    errors: Mapping[str, Sequence[float]]

    @property
    def absolute(self) -> float:
        """The mean absolute error, each publication weighing the same."""
        return fmean(map(self.absolute_of, self.errors))

    @property
    def signed(self) -> float:
        """The mean signed error: below nought where runs are predicted too fast."""
        return fmean(map(fmean, self.errors.values()))

    def absolute_of(self, source: str) -> float:
        """The mean absolute error on one publication."""
        return fmean(map(abs, self.errors[source]))


def _change_stack(change: Callable[[Stack], Stack]) -> Ablation:
    return lambda run: replace(run.plan, stack=change(run.plan.stack))


def _change_kernels(change: Callable[[Kernels], Kernels]) -> Ablation:
    return lambda run: replace(run.plan, kernels=change(run.plan.kernels))


def _unlimited_power_plan(run: LibraryRun) -> Plan:
    limited = run.plan.accelerator.name == LIMITED
    return replace(run.plan, accelerator=load_accelerator("h100-sxm")) if limited else run.plan


def _usual_network_plan(run: LibraryRun) -> Plan:
    cluster = run.row_plan.plan["cluster"]
    if "scaleout" not in cluster:
        return run.plan
    usual = {key: value for key, value in cluster.items() if key != "scaleout"}
    plan, _ = PlanCache(default_library()).plan(replace(run.row_plan, plan={**run.row_plan.plan, "cluster": usual}))
    return plan


# Each mechanism, and the plan of a run without it.
MECHANISMS: Mapping[str, Ablation] = {
    "nothing": lambda run: run.plan,
    "the level of matmuls that PyTorch calls": _change_stack(lambda stack: replace(stack, matmul_level=1.0)),
    "multiprocessors that transfers hold": _change_stack(
        lambda stack: replace(stack, transfer_channels=0, overlap_tax=0.0)
    ),
    "operations on the host beside each kernel": _change_stack(
        lambda stack: replace(stack, launch=min(stack.launch, ONE_OPERATION))
    ),
    "gradients of a sharded optimizer summed after backward": _change_stack(
        lambda stack: replace(
            stack, overlap=replace(stack.overlap, data=stack.overlap.data.replace("replicas", "backward"))
        )
    ),
    "copies of gathered weights": _change_stack(lambda stack: replace(stack, unshard="views")),
    "attention in Triton": _change_kernels(
        lambda kernels: replace(kernels, attention="flash") if kernels.attention == "triton" else kernels
    ),
    "norms in several kernels": _change_kernels(lambda kernels: replace(kernels, norm="fused")),
    "prices of a device held to 500 W": _unlimited_power_plan,
    "networks that publications state": _usual_network_plan,
}


def ablation_errors(name: str, runs: Sequence[LibraryRun]) -> AblationErrors:
    """The errors of these runs without one mechanism."""

    def error(run: LibraryRun) -> float:
        plan = MECHANISMS[name](run)
        same_program = plan.kernels == run.plan.kernels and plan.stack.unshard == run.plan.stack.unshard
        return run.time_error(plan, run.books if same_program else compile_roles(plan, roles(plan)))

    return AblationErrors(name, errors_by_source(runs, error))


def ablation_lines() -> Iterator[str]:
    """A line for each mechanism: both errors over all publications, and the publications that it moves."""
    runs = scored_runs()
    complete = ablation_errors("nothing", runs)
    yield f"{len(runs)} runs of {len(complete.errors)} publications, each weighing the same"
    for name in MECHANISMS:
        ablated = complete if name == "nothing" else ablation_errors(name, runs)
        moved = ", ".join(
            f"{source} {complete.absolute_of(source):.1%} -> {ablated.absolute_of(source):.1%}"
            for source in ablated.errors
            if abs(ablated.absolute_of(source) - complete.absolute_of(source)) > 0.005
        )
        yield f"without {name}: {ablated.absolute:.1%}, signed {ablated.signed:+.1%}" + (f" ({moved})" if moved else "")


# --- constants that were fitted to whole runs ---

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
        stands: tuple(LevelTrial(level, mean_errors(runs_of_level, level)) for level in levels)
        for stands, runs_of_level in having.items()
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


def level_lines(trials_by_level: Mapping[float, Sequence[LevelTrial]]) -> Iterator[str]:
    """The trials of each constant in words, then the best of them and what it reaches on the other half."""
    for stands, tried in trials_by_level.items():
        yield f"stacks whose `matmul_level` is {stands:g}"
        yield from _trial_lines(tried)


def _trial_lines(tried: Sequence[LevelTrial]) -> Iterator[str]:
    fitted, judged = halves(tried)
    yield f"fitted on {', '.join(fitted)}; judged on {', '.join(judged)}"
    for trial in tried:
        errors = f"{trial.mean_error(fitted):6.1%} fitted, {trial.mean_error(judged):6.1%} judged"
        yield f"level {trial.level:.2f}: {errors}"
    best = best_trial(tried)
    by_source = ", ".join(f"{name} {best.errors[name]:.1%}" for name in sorted(best.errors))
    yield f"chosen {best.level:.2f}: {best.mean_error(judged):.1%} where nothing was fitted ({by_source})"


# --- the share of runs within the printed intervals ---

KNOWLEDGE_LEVELS = (MEASURED, ELSEWHERE, UNKNOWN)
WITHIN = 0.80  # of runs, between the two ends
FEW = 5  # sources, below which all stand in


@dataclass(frozen=True)
class RunRatio:
    """A scored run: its source, stack and device, what was measured over what was predicted, the interval printed."""

    source: str
    stack: str
    device: str
    ratio: float
    printed: Interval | None = None


def steps_missed(rows: Iterable[ScoreRow]) -> tuple[RunRatio, ...]:
    """Measured over predicted seconds of the runs whose step time counts."""
    return tuple(
        RunRatio(
            row.source_id,
            row.stack,
            row.device,
            row.measured_step / row.step,
            Interval(row.step_low / row.step, row.step_high / row.step),
        )
        for row in rows
        if row.counts_time and row.step and row.measured_step and row.step_low and row.step_high
    )


def memory_missed(rows: Iterable[ScoreRow]) -> tuple[RunRatio, ...]:
    """Measured over predicted bytes of the runs whose memory counts, by whichever bytes they print."""
    return tuple(
        RunRatio(row.source_id, row.stack, row.device, row.measured_memory / row.memory, row.memory_ends)
        for row in rows
        if row.counts_memory and row.memory and row.measured_memory
    )


def known_as(run: RunRatio, other_runs: Collection[RunRatio]) -> str:
    """How well a run's software is known: from other sources on its device, on another one, or not at all."""
    of_stack = [candidate for candidate in other_runs if candidate.stack == run.stack]
    if any(run_of_stack.device == run.device for run_of_stack in of_stack):
        return MEASURED
    return ELSEWHERE if of_stack else UNKNOWN


def by_knowledge(runs: Sequence[RunRatio]) -> dict[str, dict[str, list[float]]]:
    """Ratios by what was known of the software before their source was, and by source."""
    ratios: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in KNOWLEDGE_LEVELS}
    for source in dict.fromkeys(run.source for run in runs):
        other_runs = {(run.stack, run.device): run for run in runs if run.source != source}.values()
        kind: dict[tuple[str, str], str] = {}
        for run in (run for run in runs if run.source == source):
            key = (run.stack, run.device)
            if key not in kind:
                kind[key] = known_as(run, tuple(other_runs))
            ratios[kind[key]][source].append(run.ratio)
    return ratios


def quantile(by_source: Mapping[str, Sequence[float]], share: float) -> float:
    """The ratio that so many of the runs stay below, each source weighing as much as another."""
    weighed = sorted((ratio, 1 / len(ratios)) for ratios in by_source.values() for ratio in ratios)
    threshold, passed = share * sum(weight for _, weight in weighed), 0.0
    for ratio, weight in weighed:
        passed += weight
        if passed >= threshold:
            return ratio
    return weighed[-1][0]


def intervals(runs: Sequence[RunRatio]) -> dict[str, Interval]:
    """Measured over predicted figures, of the ends that hold 80 of 100 runs, by what is known of their software.

    Where few sources stand behind one, all runs give its ends; less is never known to be narrower.
    """
    ends: dict[str, Interval] = {}
    ratios = by_knowledge(runs)
    everything = {f"{kind}/{source}": values for kind in KNOWLEDGE_LEVELS for source, values in ratios[kind].items()}
    for index, name in enumerate(KNOWLEDGE_LEVELS):
        by_source = ratios[name] if len(ratios[name]) >= FEW else everything
        if by_source:
            edge = (1 - WITHIN) / 2
            low, high = quantile(by_source, edge), quantile(by_source, 1 - edge)
            best = ends.get(KNOWLEDGE_LEVELS[index - 1]) if index else None
            ends[name] = Interval(min(low, best.low), max(high, best.high)) if best else Interval(low, high)
    return ends


@dataclass(frozen=True)
class SourceCoverage:
    """A source: how many of its runs lie within the interval that all others give, and within the one printed."""

    source: str
    runs: int
    left_out: int
    printed: int


def covered(runs: Sequence[RunRatio]) -> Iterator[SourceCoverage]:
    """How many runs of each source lie within the interval that all other sources give."""
    for source in dict.fromkeys(run.source for run in runs):
        runs_of_source = [run for run in runs if run.source == source]
        other_runs = [run for run in runs if run.source != source]
        ends = intervals(other_runs)
        left_out = sum(_lies_within(ends.get(known_as(run, other_runs)), run) for run in runs_of_source)
        yield SourceCoverage(
            source, len(runs_of_source), left_out, sum(_lies_within(run.printed, run) for run in runs_of_source)
        )


def _lies_within(ends: Interval | None, run: RunRatio) -> bool:
    return ends is not None and ends.low <= run.ratio <= ends.high


def coverage_lines(runs: Sequence[RunRatio], figure: str) -> Iterator[str]:
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
        share = sum(counts) / all_runs
        yield f"{title}: {mean:.0%} of runs lie within, a source as much as another; {share:.0%} of all"
    kinds = by_knowledge(runs)
    for name, interval in intervals(runs).items():
        count = sum(map(len, kinds[name].values()))
        yield (
            f"{name}: measured over predicted {interval.low:.2f} to {interval.high:.2f}, "
            f"from {count} runs of {len(kinds[name])} sources"
        )
