"""Layouts that change few keys of a plan, in the order in which a search of a second compiles them.

Facts that arrays of layouts are put together from take seconds to trace; one layout is compiled in a fraction of one. A
rough estimate of the memory and time of each decides which is tried first, and nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from math import log2
from typing import TYPE_CHECKING, Any

from ledger.search.choices import POLICIES, VALUES
from ledger.search.question import MEMORY
from ledger.search.space import DATA, MESH, MICRO_BATCH, RECOMPUTE, keys_of

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.spec.plan import Plan

MOST_KEYS = 3  # that are changed at once
DOUBLINGS = 5  # of a degree: 32 times as many devices
ZERO, REPLICATE = f"{MESH}zero", f"{MESH}replicate"
DEGREES = tuple(f"{MESH}{axis}" for axis in ("tensor", "pipeline", "context", "expert"))
CUTS_WEIGHTS = tuple(f"{MESH}{axis}" for axis in ("tensor", "pipeline", "expert"))
CUTS_TOKENS = tuple(f"{MESH}{axis}" for axis in ("tensor", "context"))  # sequence parallelism: tensor cuts them too
# Rough figures, of which only the order of the layouts depends. States -> the ZeRO level that shards them.
SHARDED_FROM = {"weights": 3, "gradients": 2, "master": 1, "optimizer": 1}
SAVED = ("memory.activations", "memory.logits", "memory.cache")
SAVED_SHARE = {"none": 1.0, "selective": 0.7, "full": 0.15}  # of activations that a policy keeps
OTHER_POLICY = 0.5
RECOMPUTE_TIME = {"none": 1.0, "selective": 1.05, "full": 1.3}
ZERO_TIME = {0: 1.0, 1: 1.0, 2: 1.01, 3: 1.08}
TIME_PER_DOUBLING = {
    f"{MESH}tensor": 1.1,
    f"{MESH}pipeline": 1.08,
    f"{MESH}context": 1.15,
    f"{MESH}expert": 1.05,
    REPLICATE: 0.98,
    MICRO_BATCH: 0.97,
}
BETWEEN_NODES = 1.6  # of a doubling of tensor parallelism beyond a node

Changes = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A layout near a plan, with the bytes of a device and the time of a step that it is thought to take."""

    changes: Changes
    bytes: float
    time: float


def near_layouts(plan: Plan, totals: Mapping[str, Number], room: float) -> Generator[Changes, float | None, None]:
    """Changes of a plan that free memory, each a layout that the rules may still refuse.

    Layouts that should fit in `room` bytes come first: in turn the one with fewest keys, and the fastest. The bytes
    that a layout needs are sent back (None: it was refused), and correct the estimates of the others.
    """
    estimates = [_estimate(plan, totals, values) for values in _choices(plan)]
    correction, fewest_first = 1.0, True
    while estimates:
        best = min(estimates, key=partial(_rank, room / correction, fewest_first))
        estimates.remove(best)
        needed = yield best.changes
        if needed is not None:
            fewest_first = not fewest_first
            correction = max(correction, needed / best.bytes) if needed > room else correction


def _rank(room: float, fewest_first: bool, layout: Estimate) -> tuple[float, ...]:
    """A sort key of layouts: estimates that fit first, then few keys, or little time."""
    missing = max(0.0, layout.bytes - room)
    return missing, len(layout.changes) if fewest_first else 0, layout.time, layout.bytes


def _choices(plan: Plan) -> Iterator[Mapping[str, Any]]:
    """Values of up to MOST_KEYS keys, each of which should free memory."""
    freeing = {key: list(_freeing_values(plan, key)) for key in keys_of(plan)}
    for count in range(1, MOST_KEYS + 1):
        for keys in combinations(freeing, count):
            for chosen in product(*(freeing[key] for key in keys)):
                yield dict(zip(keys, chosen, strict=True))


def _freeing_values(plan: Plan, key: str) -> Iterator[Any]:
    """The values of a key that leave less on a device than the plan's own."""
    mesh = plan.parallelism
    if key == RECOMPUTE:
        policy = plan.recompute.policy
        yield from POLICIES[POLICIES.index(policy) + 1 if policy in POLICIES else -1 :]
    elif key == ZERO:
        yield from range(mesh.zero + 1, 4)
    elif key == MICRO_BATCH:
        yield from _halved(VALUES[key](plan), plan.run.micro_batch)
    elif key == REPLICATE and mesh.zero:
        yield from _halved(VALUES[key](plan), mesh.replicate)
    elif key in DEGREES:
        yield from _doubled(VALUES[key](plan), getattr(mesh, key.removeprefix(MESH)))


def _halved(values: Sequence[int], current: int) -> Iterator[int]:
    """For each power of two, the largest value that is so many times smaller."""
    power, last = 2, current
    while power <= current:
        largest = max((value for value in values if value * power <= current), default=current)
        if largest < last:
            yield largest
        last, power = largest, 2 * power


def _doubled(values: Sequence[int], current: int) -> Iterator[int]:
    """For some powers of two, the smallest value that is so many times larger."""
    last = current
    for power in range(1, DOUBLINGS + 1):
        smallest = min((value for value in values if value >= current * 2**power), default=last)
        if smallest > last:
            yield smallest
        last = smallest


def _estimate(plan: Plan, totals: Mapping[str, Number], values: Mapping[str, Any]) -> Estimate:
    """The plan with these values of keys; `data`, where the plan states it, is what the degrees leave."""
    degrees = {key: getattr(plan.parallelism, key.removeprefix(MESH)) for key in (*DEGREES, ZERO, REPLICATE)}
    plan_values = {**degrees, MICRO_BATCH: plan.run.micro_batch, RECOMPUTE: plan.recompute.policy}
    changed_values = {**plan_values, **values}
    changes = dict(values)
    if DATA in plan.origins and any(key in values for key in DEGREES[:3]):
        replica = changed_values[DEGREES[0]] * changed_values[DEGREES[1]] * changed_values[DEGREES[2]]
        changes[DATA] = max(1, plan.cluster.devices // replica)
    needed = float(totals[MEMORY])
    for part, level in SHARDED_FROM.items():
        static_bytes = float(totals.get(f"memory.static.{part}", 0))
        needed += static_bytes * (_pieces(plan, plan_values, level) / _pieces(plan, changed_values, level) - 1)
    saved = sum(float(totals.get(key, 0)) for key in SAVED)
    needed += saved * (_saved_share(changed_values) / _saved_share(plan_values) - 1)
    return Estimate(changes, needed, _time(plan, changed_values) / _time(plan, plan_values))


def _pieces(plan: Plan, values: Mapping[str, Any], level: int) -> float:
    """In how many pieces the states of the model lie on devices, where ZeRO shards them from this level on."""
    cut: float = 1.0
    for key in CUTS_WEIGHTS:
        cut *= values[key]
    shards = plan.cluster.devices / cut / values[REPLICATE]
    return cut * (max(1.0, shards) if values[ZERO] >= level else 1.0)


def _saved_share(values: Mapping[str, Any]) -> float:
    """Activations that a device saves for the backward pass, up to a factor common to all layouts of a plan."""
    tokens = max(1, values[MICRO_BATCH]) * SAVED_SHARE.get(values[RECOMPUTE], OTHER_POLICY)
    for key in CUTS_TOKENS:
        tokens /= values[key]
    return float(tokens)


def _time(plan: Plan, values: Mapping[str, Any]) -> float:
    """The time of a step, up to a factor that all layouts of a plan have in common."""
    time = RECOMPUTE_TIME.get(values[RECOMPUTE], 1.15) * ZERO_TIME[values[ZERO]]
    for key, factor in TIME_PER_DOUBLING.items():
        time *= factor ** log2(max(1, values[key]))
    beyond = values[f"{MESH}tensor"] / plan.cluster.devices_per_node
    return float(time * BETWEEN_NODES ** max(0.0, log2(beyond)))
