"""The values that each key of a layout may take in a space of a plan, and the partitions of its layers into stages."""

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
    """The distinct partitions of the layers into chunks, as `ends` and `stages`: the first pair with each result.

    Where no `ends` makes chunks equal, a list of stages as even as they can be, with longer ones in the middle.
    """
    by_sizes: dict[tuple[int, ...], tuple[str | None, Any]] = {}
    for ends in ENDS:
        sizes = chunks(plan.model, replace(mesh, stages=replace(mesh.stages, ends=ends)))
        if sizes:
            by_sizes.setdefault(sizes, (ends, None))
    if not by_sizes:
        listed = as_even(depth(plan.model), mesh.pipeline * mesh.interleave)
        if listed:
            by_sizes[tuple(listed)] = (None, listed)
    stated = plan.parallelism.stages.each
    if stated and len(stated) == mesh.pipeline * mesh.interleave:
        by_sizes.setdefault(stated, (None, list(stated)))
    return list(by_sizes.values())


def divisors(number: int) -> list[int]:
    """All divisors of a number, from 1."""
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def _degrees(plan: Plan, most: int) -> list[int]:
    return [degree for degree in divisors(plan.cluster.devices) if degree <= most]


def _tensor(plan: Plan) -> list[int]:
    attentions = [group.attention for group in plan.model.groups]
    most = max((count for attention in attentions for count in attention.split_heads.values()), default=1)

    def splits(degree: int) -> bool:
        heads = (attention.heads_over(degree, copies=plan.serve is not None) for attention in attentions)
        return all(count % degree == 0 for counts in heads for count in counts.values())

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
    chunk_counts = {1, plan.parallelism.interleave}
    for stages in _pipeline(plan)[1:]:
        most = layers // stages
        even = {count for count in range(1, most + 1) if 0 in _remainders(layers, stages * count)}
        chunk_counts |= even | {2**power for power in range(most.bit_length()) if 2**power <= most}
    return sorted(chunk_counts)


def _remainders(layers: int, count: int) -> list[int]:
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
    """No offload, that of activations, and the plan's own.

    States and weights on the host only where the plan has them there: the host's update has no price, so it would
    seem to be free.
    """
    stated = _stated_offload(plan)
    return [None, ["activations"], *([stated] if stated not in (None, ["activations"]) else [])]


def _stated_offload(plan: Plan) -> Any:
    offload = plan.parallelism.offload
    if offload.layers or offload.nvme:
        value_of = {"activations": offload.layers or True, "optimizer": "nvme" if offload.nvme else True}
        return {kind: value_of.get(kind, True) for kind in offload.kinds}
    return list(offload.kinds) or None


def _recomputes(plan: Plan) -> list[Any]:
    stated = policy_value(plan.recompute)
    return [*POLICIES, *([stated] if stated not in POLICIES else [])]


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
