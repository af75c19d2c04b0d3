"""Few layers stand for many: what every further layer adds is the difference of two runs.

A figure of a model is affine in the number of layers of each group, since layers of a group are equal. So a run with
few layers of each group, and for each group one with one layer more, give it exactly at any depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.lab.observed.device_step import AllocatedBytes
from ledger.model.schedule import group_order
from ledger.spec.inputs import violations
from ledger.spec.plan import Model, Plan
from ledger.spec.problems import Problem, SpecError

LAYERS_SAMPLED = 3  # the first, the last and one between: with fewer, the layer that is added would be of a new kind


@dataclass(frozen=True)
class Sample:
    """One run: so many layers of each group, and how often its figures count in the sum for the whole depth."""

    layers: tuple[int, ...]
    weight: int


def samples(model: Model, few: int = LAYERS_SAMPLED) -> tuple[Sample, ...]:
    """The runs whose weighted sum is the figure of `model`; weights add up to 1.

    Groups that take turns grow together, by one round of turns.
    """
    base, rounds = _shallow(model, few)
    steps = tuple(Sample(tuple(b + r for b, r in zip(base, added, strict=True)), count) for added, count in rounds)
    return Sample(base, 1 - sum(step.weight for step in steps)), *steps


def _shallow(model: Model, few: int) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], int]]]:
    """Layers of each group in the shallowest run, and what can be added to it, with how often it is missing."""
    sequence, groups = group_order(model), range(len(model.groups))
    period = _period(sequence)
    if period == len(sequence):
        return tuple(group.repeat for group in model.groups), []
    if period:
        round_layers = tuple(sequence[:period].count(group) for group in groups)
        missing = max(0, len(sequence) // period - few)
        base = tuple(sequence.count(group) - missing * round_layers[group] for group in groups)
        return base, [(round_layers, missing)] if missing else []
    base = tuple(min(few, group.repeat) for group in model.groups)
    added = [(tuple(int(g == group) for g in groups), model.groups[group].repeat - base[group]) for group in groups]
    return base, [(added_layers, missing) for added_layers, missing in added if missing]


def _period(sequence: Sequence[int]) -> int:
    """The length of a round in which groups take turns: all layers if none repeats; 0 where they stand in blocks."""
    blocks = sorted(sequence, key=sequence.index)
    if list(sequence) == blocks:
        return 0
    return next(
        length
        for length in range(1, len(sequence) + 1)
        if all(sequence[index] == sequence[index % length] for index in range(len(sequence)))
    )


def with_counts(model: Model, layers: Sequence[int]) -> Model:
    """`model` with so many layers of each group, those that take turns in the order of the first of them."""
    groups = tuple(replace(group, repeat=count) for group, count in zip(model.groups, layers, strict=True))
    shallow = replace(model, groups=groups)
    turns = group_order(shallow)
    if all(turns.count(index) == group.repeat for index, group in enumerate(groups)):
        return shallow
    sequence: list[int] = []
    for index in (*group_order(model), *turns * max(layers)):
        if sequence.count(index) < layers[index]:
            sequence.append(index)
    return replace(shallow, order=tuple(groups[index].name for index in sequence))


def at_most(model: Model, layers: int) -> Model:
    """`model` with at most so many layers of each group."""
    return with_counts(model, [min(layers, group.repeat) for group in model.groups])


def limit_layers(plan: Plan, layers: int) -> Plan:
    """The plan with at most so many layers of each group; raises `SpecError` where that cannot be, with what can."""
    shallow = replace(plan, model=at_most(plan.model, layers))
    known_problems = set(violations(plan))
    broken = [problem for problem in violations(shallow) if problem not in known_problems]
    if not broken:
        return shallow
    deepest = max(group.repeat for group in plan.model.groups)
    legal = [
        count
        for count in range(1, deepest + 1)
        if set(violations(replace(plan, model=at_most(plan.model, count)))) <= known_problems
    ]
    near = sorted(sorted(legal, key=lambda count: abs(count - layers))[:2])
    raise SpecError(
        Problem(problem.where, f"--layers {layers}: {problem.message}", f"`--layers` of {' or '.join(map(str, near))}")
        for problem in broken
    )


def sum_weighted_figures(figures: Sequence[tuple[int, Mapping[str, AllocatedBytes]]]) -> dict[str, AllocatedBytes]:
    """The sum of what each run found, times its weight. A figure that a run lacks is 0 there."""
    names = dict.fromkeys(name for _, run_figures in figures for name in run_figures)
    return {
        name: sum((run[name] * weight for weight, run in figures if name in run), AllocatedBytes()) for name in names
    }
