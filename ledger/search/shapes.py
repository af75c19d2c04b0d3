"""Shapes of pipelines: how layers are dealt out to stages, the roles of these, and their micro-batches in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ledger.model.schedule import PIPELINES, Pipeline, Role, dealt_layers, role_of_device
from ledger.search.choices import cuts
from ledger.search.space import Layout, Space
from ledger.spec.paths import Places
from ledger.spec.plan import Parallelism, Plan, Stages
from ledger.spec.rules import layout as pipeline
from ledger.spec.rules.table import check_rules

Array = Any  # of numpy
OF_SHAPES = (pipeline.layers_fill_the_stages, pipeline.schedule_fits_the_chunks, pipeline.interleave_needs_pipeline)


@dataclass(frozen=True)
class StageKind:
    """One kind of stage of a shape: `stages` of them, with equal layers. `flying` by how many micro-batches a step has.

    `variants` are what its devices may hold in flight and waiting; none of them holds less of everything than another.
    """

    role: Role
    stages: int
    variants: tuple[Role, ...]  # whose numbers are arrays over counts of micro-batches


@dataclass(frozen=True)
class PipelineShape:
    """A pipeline: numbers of stages and chunks, a schedule, and a partition of the layers. `layout`: its keys."""

    layout: Layout
    mesh: Parallelism
    slots: tuple[StageKind, ...]

    @property
    def schedule(self) -> Pipeline:
        """The order of its work."""
        return PIPELINES[self.mesh.scheduled]


def shapes(space: Space, counts: Sequence[int]) -> Iterator[PipelineShape]:
    """Every shape of a space; `counts`: the micro-batches that a step may have."""
    plan, values = space.plan, space.values
    for stages, chunks in product(values["parallelism.pipeline"], values["parallelism.interleave"]):
        bare = replace(Parallelism(), pipeline=stages, interleave=chunks)
        partitions = cuts(plan, bare) if stages > 1 else [(None, None)] if chunks == 1 else []
        for (ends, listed), name in product(partitions, values["parallelism.schedule"]):
            stated = ends in values["parallelism.ends"] and listed in values["parallelism.stages"]
            if not stated or (name is None) != (stages == 1):
                continue
            layout = {
                "parallelism.pipeline": stages,
                "parallelism.interleave": chunks,
                "parallelism.schedule": name,
                "parallelism.ends": ends,
                "parallelism.stages": listed,
            }
            cut = Stages(each=tuple(listed or ()), ends=ends or "shared")
            mesh = replace(bare, schedule=name or "", stages=cut)
            stages_of = tuple(slots(plan, mesh, counts))
            if stages_of:
                yield PipelineShape(layout, mesh, stages_of)


def slots(plan: Plan, mesh: Parallelism, counts: Sequence[int]) -> Iterator[StageKind]:
    """The kinds of stages, in their order; none where the rules of the spec refuse the schedule."""
    if any(check_rules(OF_SHAPES, {"model": plan.model, "parallelism": mesh}, Places(plan.origins))):
        return
    dealt, rule = dealt_layers(plan.model, mesh), PIPELINES[mesh.scheduled]
    if rule.pipeline_ends == 2 and mesh.pipeline % 2:
        return
    placed = with_micro_batches(plan, mesh, counts)
    roles_by_layers: dict[tuple[Any, ...], list[Role]] = {}
    for device in range(mesh.pipeline):
        role = role_of_device(placed, device, dealt)
        key = role.layers, role.first, role.last, role.sends, role.returns
        roles_by_layers.setdefault(key, []).append(role)
    for roles in roles_by_layers.values():
        yield StageKind(roles[0], len(roles), tuple(_largest(roles, len(counts))))


def _largest(roles: Sequence[Role], width: int) -> Iterator[Role]:
    """The roles that hold most: without each role of which another holds at least as much of everything."""

    def amounts_of(role: Role) -> Array:
        amounts = (role.in_flight, role.deferred_w_passes, *role.flying)
        return np.stack([np.broadcast_to(np.asarray(amount, float), width) for amount in amounts])

    amounts = [amounts_of(role) for role in roles]
    for place, first in enumerate(amounts):
        covering = [i for i, second in enumerate(amounts) if i != place and (second >= first).all()]
        if not any((amounts[i] > first).any() or i < place for i in covering):
            yield roles[place]


def with_micro_batches(plan: Plan, mesh: Parallelism, counts: Sequence[int]) -> Plan:
    """A plan without data parallelism that has so many micro-batches a step, as one array."""
    batches: Array = np.asarray(counts, dtype=np.int64) * PIPELINES[mesh.scheduled].pipeline_ends
    run = replace(plan.run, micro_batch=1, global_batch=batches)
    return replace(plan, parallelism=replace(mesh, data=1), run=run)
