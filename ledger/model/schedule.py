"""The schedule: which layers each pipeline stage runs, how many micro-batches are in flight, and the bubble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from ledger.spec.plan import Model, Plan


@dataclass(frozen=True)
class Role:
    """One kind of device: the stages that hold equal layers and equally many micro-batches.

    `layers` counts layers per group; `in_flight` the micro-batches whose activations of all its layers are held.
    """

    name: str
    stages: tuple[int, ...]
    devices: int
    layers: tuple[int, ...]
    first: bool
    last: bool
    in_flight: Fraction


def micro_batches(plan: Plan) -> int:
    """Micro-batches that one device runs in a step."""
    return plan.run.global_batch // (plan.parallelism.data * plan.run.micro_batch)


def roles(plan: Plan) -> tuple[Role, ...]:
    """The roles of a plan's devices, from the first stage to the last."""
    stages = plan.parallelism.pipeline
    per_stage = plan.cluster.devices // stages
    described = [
        (stage == 0, stage == stages - 1, _layers(plan.model, stage, plan), _in_flight(plan, stage))
        for stage in range(stages)
    ]
    found = []
    for key, members in groupby(range(stages), key=lambda stage: described[stage]):
        held = tuple(members)
        found.append(Role("", held, per_stage * len(held), key[2], key[0], key[1], key[3]))
    return tuple(_named(found))


def _named(found: list[Role]) -> Iterator[Role]:
    inner = [role for role in found if not (role.first or role.last)]
    for role in found:
        if role.first and role.last:
            name = "all"
        elif role.first:
            name = "first"
        elif role.last:
            name = "last"
        else:
            name = "inner" if len(inner) == 1 else f"inner.{role.stages[0]}"
        yield Role(name, role.stages, role.devices, role.layers, role.first, role.last, role.in_flight)


def _layers(model: Model, stage: int, plan: Plan) -> tuple[int, ...]:
    """Layers of each group on one stage: consecutive chunks, dealt out round robin when the schedule interleaves."""
    stages, chunks = plan.parallelism.pipeline, plan.parallelism.interleave
    sequence = order(model)
    size = len(sequence) // (stages * chunks)
    mine = [
        sequence[index]
        for chunk in range(chunks)
        for index in range((chunk * stages + stage) * size, (chunk * stages + stage + 1) * size)
    ]
    return tuple(mine.count(group) for group in range(len(model.groups)))


def order(model: Model) -> list[int]:
    """The group of each layer, from the embedding to the head."""
    if model.order:
        names = [group.name for group in model.groups]
        pattern = [names.index(name) for name in model.order]
        return [pattern[layer % len(pattern)] for layer in range(sum(group.repeat for group in model.groups))]
    return [g for g, group in enumerate(model.groups) for _ in range(group.repeat)]


def _in_flight(plan: Plan, stage: int) -> Fraction:
    """1F1B: the stages still ahead; interleaved: chunks in flight over chunks held (Narayanan et al. 2021, 2.2)."""
    stages, chunks, count = plan.parallelism.pipeline, plan.parallelism.interleave, micro_batches(plan)
    if chunks == 1:
        return Fraction(min(count, stages - stage))
    warm_up = 2 * (stages - stage - 1) + (chunks - 1) * stages + 1
    return Fraction(min(count * chunks, warm_up), chunks)
