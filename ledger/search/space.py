"""The layouts that a run may have: the keys that vary, the values that each may take, and the plan of a choice of them.

A layout states every key of LAYOUT, so that it means the same whatever the plan states; None leaves a key out. A key
that can have no effect beside the others (a schedule without a pipeline) is left out or has its neutral value, so that
no two layouts are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ledger.books.counts import with_token_count
from ledger.model.pipelines import PIPELINES
from ledger.spec.faults import Written
from ledger.spec.inputs import violations
from ledger.spec.parts import spec_type
from ledger.spec.plan import Parallelism, Plan, Recompute
from ledger.spec.problems import Location
from ledger.spec.reader import as_node
from ledger.spec.stages import chunks, depth

Layout = Mapping[str, Any]  # what a spec would state, by key: numbers, words, lists and mappings; None: left out

MESH = "parallelism."
DATA = "parallelism.data"
RECOMPUTE, MICRO_BATCH = "recompute", "run.micro_batch"
# The keys in the order in which a layout states them; `data` follows from the others and the number of devices.
LAYOUT = (
    "parallelism.tensor",
    "parallelism.sequence",
    "parallelism.context",
    "parallelism.context_exchange",
    "parallelism.expert",
    "parallelism.pipeline",
    "parallelism.interleave",
    "parallelism.schedule",
    "parallelism.ends",
    "parallelism.stages",
    "parallelism.zero",
    "parallelism.reshard",
    "parallelism.replicate",
    "parallelism.offload",
    "recompute",
    "run.micro_batch",
)
# Keys of a plan that stay as they are where they have an effect, and are left out elsewhere.
KEPT: Mapping[str, Callable[[Layout], bool]] = {
    "parallelism.wrap": lambda layout: layout["parallelism.zero"] == 3,
    "parallelism.bucket": lambda layout: layout["parallelism.zero"] == 0,
    "parallelism.context_balance": lambda layout: layout["parallelism.context"] > 1,
    "parallelism.shard": lambda _: False,
}
POLICIES = ("none", "selective", "full")
SEQUENCES = ("off", "save_gathered", "regather")
EXCHANGES = ("all_gather", "ring", "all_to_all")
RESHARDED = (True, "layers", False)
ENDS = ("shared", "layer", "own")
NOWHERE = Location("layout")


@dataclass(frozen=True)
class Space:
    """The layouts of a plan's run: `values` that each key of LAYOUT may take, and the plan whose other keys stay."""

    plan: Plan
    values: Mapping[str, tuple[Any, ...]]

    @property
    def combinations(self) -> int:
        """Combinations of the values, legal or not."""
        count = 1
        for listed in self.values.values():
            count *= len(listed)
        return count

    def layouts(self) -> Iterator[Layout]:
        """Every legal layout, one by one: what arrays are held against."""
        for chosen in product(*(self.values[key] for key in LAYOUT)):
            layout = dict(zip(LAYOUT, chosen, strict=True))
            if effective(layout, self.plan) and not violations(laid_out(self.plan, layout)):
                yield completed(layout, self.plan)


def space_of(plan: Plan, over: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """The whole space of a plan's layouts; keys that `over` names have its values instead."""
    values = {key: tuple(found(plan)) for key, found in VALUES.items()}
    given = {key: tuple(listed) for key, listed in (over or {}).items()}
    if {"parallelism.pipeline", "parallelism.interleave"} & given.keys() and "parallelism.stages" not in given:
        listed = product(given.get(f"{MESH}pipeline", values[f"{MESH}pipeline"]), given.get(f"{MESH}interleave", (1,)))
        values[f"{MESH}stages"] = tuple(_stages(plan, listed))
    return Space(replace(with_token_count(plan), reading=None), {**values, **given})


def laid_out(plan: Plan, layout: Layout) -> Plan:
    """The plan in another layout, as `--set` would make it of all the layout's keys."""
    stated = {key.removeprefix(MESH): value for key, value in layout.items() if key.startswith(MESH)}
    stated = {key: value for key, value in stated.items() if value is not None}
    read: Parallelism = spec_type(Parallelism).read(Written(as_node(stated, NOWHERE)), [])
    data = plan.cluster.devices // read.replica if "data" not in stated else read.data
    fields = [key.removeprefix(MESH) for key in (*LAYOUT, DATA) if key.startswith(MESH) and key != f"{MESH}ends"]
    mesh = replace(plan.parallelism, **{field: getattr(read, field) for field in fields})
    default = Parallelism()
    idle = [key.removeprefix(MESH) for key, serves in KEPT.items() if not serves(layout)]
    mesh = replace(mesh, data=max(1, data), **{field: getattr(default, field) for field in idle})
    policy: Recompute = spec_type(Recompute).read(Written(as_node(layout[RECOMPUTE], NOWHERE)), [])
    return replace(plan, parallelism=mesh, recompute=policy, run=replace(plan.run, micro_batch=layout[MICRO_BATCH]))


def completed(layout: Layout, plan: Plan) -> Layout:
    """The layout with its data-parallel degree, and what it takes away of the plan's own keys: `null` in `--set`."""
    mesh = laid_out(plan, layout).parallelism
    gone = {key: None for key, serves in KEPT.items() if not serves(layout) and key in plan.origins}
    return {DATA: mesh.data, **layout, **gone}


def effective(layout: Layout, plan: Plan) -> bool:
    """Whether each key of a layout has an effect, or is left out or neutral. What is legal, the spec's rules say."""
    of = {key.removeprefix(MESH): value for key, value in layout.items()}
    staged, rest = of["pipeline"] > 1, of["tensor"] * of["pipeline"] * of["context"]
    if plan.cluster.devices % rest:
        return False
    shards = plan.cluster.devices // rest * of["context"]
    mesh = replace(Parallelism(), pipeline=of["pipeline"], interleave=of["interleave"])
    return (
        (of["tensor"] > 1 or of["sequence"] == "off")
        and (of["context_exchange"] is None) == (of["context"] == 1)
        and (of["schedule"] is None) == (not staged)
        and (staged or (of["interleave"] == 1 and of["ends"] is None and of["stages"] is None))
        and (of["reshard"] is None) == (of["zero"] != 3)
        and (of["zero"] > 0 or of["replicate"] == 1)
        and (shards > 1 or of["zero"] == 0)
        and (not staged or _cut(plan, mesh, of["ends"], of["stages"]))
    )


def _cut(plan: Plan, mesh: Parallelism, ends: str | None, stages: Any) -> bool:
    """Whether a pipeline's layers are cut in one of the ways that are told apart: one way of each result."""
    return (ends, stages) in cuts(plan, mesh)


def cuts(plan: Plan, mesh: Parallelism) -> list[tuple[str | None, Any]]:
    """The ways to cut the layers into chunks, as `ends` and `stages`: the first of each result.

    Where no way of the ends makes them equal, a list of stages as even as they can be, with longer ones in the middle.
    """
    found: dict[tuple[int, ...], tuple[str | None, Any]] = {}
    for ends in ENDS:
        sizes = chunks(plan.model, replace(mesh, stages=replace(mesh.stages, ends=ends)))
        if sizes and ends not in KEPT:
            found.setdefault(sizes, (ends, None))
    if not found:
        listed = as_even(depth(plan.model), mesh.pipeline * mesh.interleave)
        if listed:
            found[tuple(listed)] = (None, listed)
    own = plan.parallelism
    if own.stages.each and len(own.stages.each) == mesh.pipeline * mesh.interleave:
        found.setdefault(own.stages.each, (None, list(own.stages.each)))
    return list(found.values())


def as_even(layers: int, count: int) -> list[int]:
    """So many layers over so many chunks: those in the middle have one more where they do not divide."""
    each, rest = divmod(layers, count)
    if not each:
        return []
    first = (count - rest) // 2
    return [each + (first <= place < first + rest) for place in range(count)]


# --- values -------------------------------------------------------------------------------------


def divisors(number: int) -> list[int]:
    """What divides a number, from 1."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _degrees(plan: Plan, most: int) -> list[int]:
    return [degree for degree in divisors(plan.cluster.devices) if degree <= most]


def _tensor(plan: Plan) -> list[int]:
    parts = [count for group in plan.model.groups for count in group.attention.split_heads.values()]
    return [degree for degree in _degrees(plan, max(parts, default=1)) if all(count % degree == 0 for count in parts)]


def _pipeline(plan: Plan) -> list[int]:
    return _degrees(plan, max(1, depth(plan.model)))


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


def _stages(plan: Plan, shapes: Any = None) -> Iterator[Any]:
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
    "parallelism.stages": lambda plan: list(_stages(plan)),
    "parallelism.zero": lambda _: (0, 1, 2, 3),
    "parallelism.reshard": lambda _: (None, *RESHARDED),
    "parallelism.replicate": _replicate,
    "parallelism.offload": _offloads,
    "recompute": _recomputes,
    "run.micro_batch": _micro_batches,
}
