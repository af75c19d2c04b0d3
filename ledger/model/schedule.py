"""Roles: which layers each device of a pipeline runs, how many micro-batches are in flight there, what it sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ledger.arithmetic.values import Amount, divide, maximum
from ledger.model.pipelines import PIPELINES, Pipeline, Place, placed
from ledger.spec.plan import Model, Parallelism, Plan
from ledger.spec.stages import chunks, slots


@dataclass(frozen=True)
class Role:
    """One kind of device: the stages that hold equal layers and equally many micro-batches.

    `layers` counts layers per group; `in_flight` the micro-batches whose activations of all its layers are held, and
    `flying` those of each group's layers; `waiting` those whose weight gradients are still to come. `sends` and
    `returns` count the results and the gradients of a micro-batch that go to another stage.
    """

    name: str
    stages: tuple[int, ...]
    devices: int
    layers: tuple[int, ...]
    first: bool
    last: bool
    in_flight: Amount
    waiting: Amount = 0
    sends: int = 0
    returns: int = 0
    flying: tuple[Amount, ...] = ()

    def held(self, group: int) -> Amount:
        """Micro-batches whose activations the layers of a group hold, on average over these layers."""
        return self.flying[group] if self.flying else self.in_flight


def schedule(mesh: Parallelism) -> Pipeline:
    """The schedule of a pipeline."""
    return PIPELINES[mesh.scheduled]


def micro_batches(plan: Plan) -> Amount:
    """Micro-batches that each layer of a device runs in a step: half of them where the others enter at the far end."""
    mesh = plan.parallelism
    return plan.run.global_batch // (mesh.data * plan.run.micro_batch * schedule(mesh).ways)


def roles(plan: Plan) -> tuple[Role, ...]:
    """The roles of a plan's devices, from the first stage to the last."""
    stages = plan.parallelism.pipeline
    per_stage = plan.cluster.devices // stages
    dealt = dealt_layers(plan.model, plan.parallelism)
    alike: dict[Role, list[int]] = {}
    for device in range(stages):
        alike.setdefault(described(plan, device, dealt), []).append(device)
    found = [replace(role, stages=tuple(held), devices=per_stage * len(held)) for role, held in alike.items()]
    return tuple(_named(found))


def described(plan: Plan, device: int, dealt: Sequence[tuple[int, ...]]) -> Role:
    """What one device holds and sends, without its name and place; `dealt`: the layers of every chunk."""
    mesh, rule = plan.parallelism, schedule(plan.parallelism)
    final = slots(mesh) - 1
    mine = placed(rule, device, mesh.pipeline, mesh.interleave)
    place = Place(device, mesh.pipeline, mesh.interleave, micro_batches(plan))
    layers = [dealt[chunk] for chunk in mine]
    depths = [sum(counts) for counts in layers]
    held = rule.held(place)
    even = _mean(held, depths, maximum(*held))
    return Role(
        name="",
        stages=(),
        devices=0,
        layers=tuple(sum(counts) for counts in zip(*layers, strict=True)),
        first=0 in mine,
        last=final in mine,
        in_flight=even,
        flying=tuple(_mean(held, own, even) for own in zip(*layers, strict=True)),
        waiting=divide(rule.waiting(place), len(mine)),
        sends=len([chunk for chunk in mine if chunk != final]),
        returns=len([chunk for chunk in mine if chunk != 0]),
    )


def _mean(held: Sequence[Amount], layers: Sequence[int], otherwise: Amount) -> Amount:
    """What chunks hold, weighed with their layers."""
    count = sum(layers)
    return divide(sum(many * own for many, own in zip(held, layers, strict=True)), count) if count else otherwise


def whole_role(model: Model) -> Role:
    """One device that runs every layer."""
    counts = tuple(group.repeat for group in model.groups)
    return Role("all", (0,), 1, counts, first=True, last=True, in_flight=1)


def _named(found: list[Role]) -> Iterator[Role]:
    inner = [role for role in found if not (role.first or role.last)]
    for role in found:
        if role.first and role.last:
            name = "ends" if len(role.stages) > 1 else "all"
        elif role.first:
            name = "first"
        elif role.last:
            name = "last"
        else:
            name = "inner" if len(inner) == 1 else f"inner.{role.stages[0]}"
        yield replace(role, name=name)


def dealt_layers(model: Model, mesh: Parallelism) -> list[tuple[int, ...]]:
    """Layers of each group in every chunk, from the embedding to the head."""
    sequence, begin, found = order(model), 0, []
    for size in chunks(model, mesh):
        mine = sequence[begin : begin + size]
        begin += size
        found.append(tuple(mine.count(group) for group in range(len(model.groups))))
    return found


def order(model: Model) -> list[int]:
    """The group of each layer, from the embedding to the head."""
    places = {group.name: place for place, group in enumerate(model.groups)}
    return [places[group.name] for group in model.layers]
