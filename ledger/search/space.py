"""The layouts that a plan may have: keys that vary, values that each may take, and the plan of a choice of them.

A layout states every key of LAYOUT, or of SERVED where the plan serves, so that it means the same whatever the plan
states; None leaves a key out. A key that can have no effect beside the others (a schedule without a pipeline) is left
out or has its neutral value, so that no two layouts are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ledger.books.counts import with_token_count
from ledger.search.choices import VALUES, cuts, unequal_stages
from ledger.spec.faults import StatedValue
from ledger.spec.inputs import violations
from ledger.spec.parts import spec_type
from ledger.spec.plan import Parallelism, Plan, Recompute
from ledger.spec.problems import Location
from ledger.spec.reader import as_node

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
SERVED = tuple(f"{MESH}{key}" for key in ("tensor", "expert", "pipeline", "ends", "stages"))  # of a plan that serves
# Keys of a plan that stay as they are where they have an effect, and are left out elsewhere.
KEPT: Mapping[str, Callable[[Layout], bool]] = {
    "parallelism.wrap": lambda layout: layout.get("parallelism.zero") == 3,
    "parallelism.bucket": lambda layout: layout.get("parallelism.zero") == 0,
    "parallelism.context_balance": lambda layout: layout.get("parallelism.context", 1) > 1,
    "parallelism.shard": lambda _: False,
}
# A layout in which no key has an effect: what a value by itself is held against.
NEUTRAL: Layout = {
    **dict.fromkeys(LAYOUT),
    **{f"{MESH}{key}": 1 for key in ("tensor", "context", "expert", "pipeline", "interleave", "replicate")},
    f"{MESH}sequence": "off",
    f"{MESH}zero": 0,
    RECOMPUTE: "none",
    MICRO_BATCH: 1,
}
NOWHERE = Location("layout")
WHOLE = ("tensor", "context", "pipeline", "interleave")  # axes that leave an encoder and its decoder whole


@dataclass(frozen=True)
class Space:
    """The layouts of a plan: `values` that each key of a layout may take, and the plan whose other keys stay."""

    plan: Plan
    values: Mapping[str, tuple[Any, ...]]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that a layout states, in their order."""
        return tuple(self.values)

    @property
    def combinations(self) -> int:
        """Combinations of the values, legal or not."""
        count = 1
        for listed in self.values.values():
            count *= len(listed)
        return count

    def layouts(self) -> Iterator[Layout]:
        """Every legal layout, one by one: the reference for arrays of layouts."""
        for chosen in product(*self.values.values()):
            layout = dict(zip(self.keys, chosen, strict=True))
            if effective(layout, self.plan) and not violations(with_layout(self.plan, layout)):
                yield completed(layout, self.plan)


def space_of(plan: Plan, over: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """The whole space of a plan's layouts; keys that `over` names have its values instead."""
    fixed = {key: tuple(listed) for key, listed in (over or {}).items()}
    for key in ("interleave",) if plan.serve is not None else WHOLE if plan.model.encoder_groups else ():
        fixed.setdefault(f"{MESH}{key}", (1,))
    values = {key: tuple(VALUES[key](plan)) for key in keys_of(plan)}
    if {"parallelism.pipeline", "parallelism.interleave"} & fixed.keys() and "parallelism.stages" not in fixed:
        listed = product(fixed.get(f"{MESH}pipeline", values[f"{MESH}pipeline"]), fixed.get(f"{MESH}interleave", (1,)))
        values[f"{MESH}stages"] = tuple(unequal_stages(plan, listed))
    values |= {key: listed for key, listed in fixed.items() if key in values}
    return Space(replace(with_token_count(plan), reading=None), values)


def keys_of(plan: Plan) -> tuple[str, ...]:
    """The keys that a layout of a plan states, by whether it trains or serves."""
    return LAYOUT if plan.serve is None else SERVED


def with_layout(plan: Plan, layout: Layout) -> Plan:
    """The plan in another layout, as `--set` would make it of all the layout's keys."""
    stated = {key.removeprefix(MESH): value for key, value in layout.items() if key.startswith(MESH)}
    stated = {key: value for key, value in stated.items() if value is not None}
    read: Parallelism = spec_type(Parallelism).read(StatedValue(as_node(stated, NOWHERE)), [])
    data = plan.cluster.devices // read.replica if "data" not in stated else read.data
    fields = [key.removeprefix(MESH) for key in (*LAYOUT, DATA) if key.startswith(MESH) and key != f"{MESH}ends"]
    mesh = replace(plan.parallelism, **{field: getattr(read, field) for field in fields})
    default = Parallelism()
    idle = [key.removeprefix(MESH) for key, serves in KEPT.items() if not serves(layout)]
    mesh = replace(mesh, data=max(1, data), **{field: getattr(default, field) for field in idle})
    if plan.serve is not None:
        return replace(plan, parallelism=mesh, run=replace(plan.run, global_batch=mesh.data * mesh.pipeline))
    policy: Recompute = spec_type(Recompute).read(StatedValue(as_node(layout[RECOMPUTE], NOWHERE)), [])
    return replace(plan, parallelism=mesh, recompute=policy, run=replace(plan.run, micro_batch=layout[MICRO_BATCH]))


def completed(layout: Layout, plan: Plan) -> Layout:
    """The layout with its data-parallel degree, and what it takes away of the plan's own keys: `null` in `--set`."""
    mesh = with_layout(plan, layout).parallelism
    taken_away = {key: None for key, serves in KEPT.items() if not serves(layout) and key in plan.origins}
    return {DATA: mesh.data, **layout, **taken_away}


def effective(layout: Layout, plan: Plan) -> bool:
    """Whether each key of a layout has an effect, or is left out or neutral; the spec's rules say what is legal."""
    value_of = {key.removeprefix(MESH): value for key, value in {**NEUTRAL, **layout}.items()}
    has_stages = value_of["pipeline"] > 1
    devices_of_replica = value_of["tensor"] * value_of["pipeline"] * value_of["context"]
    if plan.cluster.devices % devices_of_replica:
        return False
    shards = plan.cluster.devices // devices_of_replica * value_of["context"]
    mesh = replace(Parallelism(), pipeline=value_of["pipeline"], interleave=value_of["interleave"])
    return (
        (value_of["tensor"] > 1 or value_of["sequence"] == "off")
        and (value_of["context_exchange"] is None) == (value_of["context"] == 1)
        and (f"{MESH}schedule" not in layout or (value_of["schedule"] is None) == (not has_stages))
        and (has_stages or (value_of["interleave"] == 1 and value_of["ends"] is None and value_of["stages"] is None))
        and (value_of["reshard"] is None) == (value_of["zero"] != 3)
        and (value_of["zero"] > 0 or value_of["replicate"] == 1)
        and (shards > 1 or value_of["zero"] == 0)
        and (not has_stages or (value_of["ends"], value_of["stages"]) in cuts(plan, mesh))
    )
