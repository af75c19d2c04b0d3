"""The values that each key of a layout may take in a space of a plan, and the ways to cut its layers into stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ledger.model.schedule import PIPELINES
from ledger.spec.parallelism import MOST_STAGES
from ledger.spec.plan import Parallelism, Plan, Recompute
from ledger.spec.stages import as_even, chunks, depth

POLICIES = ("none", "selective", "full")
SEQUENCES = ("off", "save_gathered", "regather")
EXCHANGES = ("all_gather", "ring", "all_to_all")
RESHARDED = (True, "layers", False)
ENDS = ("shared", "layer", "own")


def cuts(plan: Plan, mesh: Parallelism) -> list[tuple[str | None, Any]]:
    """The ways to cut the layers into chunks, as `ends` and `stages`: the first of each result.

    Where no way of the ends makes them equal, a list of stages as even as they can be, with longer ones in the middle.
    """
    found: dict[tuple[int, ...], tuple[str | None, Any]] = {}
    for ends in ENDS:
        sizes = chunks(plan.model, replace(mesh, stages=replace(mesh.stages, ends=ends)))
        if sizes:
            found.setdefault(sizes, (ends, None))
    if not found:
        listed = as_even(depth(plan.model), mesh.pipeline * mesh.interleave)
        if listed:
            found[tuple(listed)] = (None, listed)
    own = plan.parallelism
    if own.stages.each and len(own.stages.each) == mesh.pipeline * mesh.interleave:
        found.setdefault(own.stages.each, (None, list(own.stages.each)))
    return list(found.values())


def divisors(number: int) -> list[int]:
    """What divides a number, from 1."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _degrees(plan: Plan, most: int) -> list[int]:
    return [degree for degree in divisors(plan.cluster.devices) if degree <= most]


def _tensor(plan: Plan) -> list[int]:
    heads = [group.attention for group in plan.model.groups]
    most = max((count for one in heads for count in one.split_heads.values()), default=1)

    def splits(degree: int) -> bool:
        each = (one.heads_over(degree, copies=plan.serve is not None) for one in heads)
        return all(count % degree == 0 for counts in each for count in counts.values())

    return [degree for degree in _degrees(plan, most) if splits(degree)]


def _pipeline(plan: Plan) -> list[int]:
    return _degrees(plan, min(max(1, depth(plan.model)), MOST_STAGES))


def _context(plan: Plan) -> list[int]:
    return [degree for degree in _degrees(plan, plan.run.seq_len) if plan.run.seq_len % degree == 0]


def _experts(plan: Plan) -> list[int]:
    counts = {group.mlp.experts for group in plan.model.groups if group.mlp.experts}
    return [degree for degree in divisors(max(counts)) if plan.cluster.devices % degree == 0] if counts else [1]


def _interleave(plan: Plan) -> list[int]:
    """Chunks that make the layers come out even with some number of stages, and powers of two."""
    layers = depth(plan.model)
    found = {1, plan.parallelism.interleave}
    for stages in _pipeline(plan)[1:]:
        most = layers // stages
        even = {count for count in range(1, most + 1) if 0 in _rests(layers, stages * count)}
        found |= even | {2**power for power in range(most.bit_length()) if 2**power <= most}
    return sorted(found)


def _rests(layers: int, count: int) -> list[int]:
    return [layers % count, (layers + 2) % count, layers % (count - 2) if count > 2 else 1]


def unequal_stages(plan: Plan, shapes: Any = None) -> Iterator[Any]:
    """Lists of chunks that are not equal, for every shape of a pipeline that needs one; None for all others."""
    yield None
    seen: list[Any] = []
    for stages, interleave in shapes or product(_pipeline(plan), _interleave(plan)):
        if stages > 1 and stages * interleave <= depth(plan.model) + 2:
            mesh = replace(Parallelism(), pipeline=stages, interleave=interleave)
            seen += [listed for _, listed in cuts(plan, mesh) if listed is not None and listed not in seen]
    yield from seen


def _replicate(plan: Plan) -> list[int]:
    return _degrees(plan, max(1, plan.cluster.devices // 2))


def _offloads(plan: Plan) -> list[Any]:
    """Nothing, activations, and what the plan itself offloads.

    States and weights on the host only where the plan has them there: the host's update has no price, so it would
    seem to be free.
    """
    own = _offload(plan)
    return [None, ["activations"], *([own] if own not in (None, ["activations"]) else [])]


def _offload(plan: Plan) -> Any:
    own = plan.parallelism.offload
    if own.layers or own.nvme:
        stated = {"activations": own.layers or True, "optimizer": "nvme" if own.nvme else True}
        return {kind: stated.get(kind, True) for kind in own.kinds}
    return list(own.kinds) or None


def _recomputes(plan: Plan) -> list[Any]:
    own = policy_value(plan.recompute)
    return [*POLICIES, *([own] if own not in POLICIES else [])]


def policy_value(policy: Recompute) -> Any:
    """A recompute policy as a spec states it."""
    stated: Mapping[str, Any] = {
        "every": {"every": policy.every},
        "layers": {"layers": policy.layers},
        "segment": {"segment": policy.segment} if policy.segment else "square_root",
        "components": {"components": list(policy.components)},
        "keep": {
            "keep": list(policy.keep),
            **({"matmuls": policy.matmuls} if policy.matmuls != Recompute().matmuls else {}),
        },
    }
    return stated.get(policy.policy, policy.policy)


def _micro_batches(plan: Plan) -> list[int]:
    return divisors(plan.run.global_batch)


VALUES: Mapping[str, Callable[[Plan], Sequence[Any]]] = {
    "parallelism.tensor": _tensor,
    "parallelism.sequence": lambda _: SEQUENCES,
    "parallelism.context": _context,
    "parallelism.context_exchange": lambda _: (None, *EXCHANGES),
    "parallelism.expert": _experts,
    "parallelism.pipeline": _pipeline,
    "parallelism.interleave": _interleave,
    "parallelism.schedule": lambda _: (None, *PIPELINES),
    "parallelism.ends": lambda _: (None, *ENDS),
    "parallelism.stages": lambda plan: list(unequal_stages(plan)),
    "parallelism.zero": lambda _: (0, 1, 2, 3),
    "parallelism.reshard": lambda _: (None, *RESHARDED),
    "parallelism.replicate": _replicate,
    "parallelism.offload": _offloads,
    "recompute": _recomputes,
    "run.micro_batch": _micro_batches,
}
