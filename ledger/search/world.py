"""What all pieces of a search space share: legal layouts, the shapes of pipelines, and a memo of traced facts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

import numpy as np

from ledger.search.facts import Array
from ledger.search.shapes import shapes
from ledger.search.space import KEPT, LAYOUT, MESH, Layout, Space, with_layout
from ledger.spec.paths import Places
from ledger.spec.plan import Origin, Parallelism, Plan, Run
from ledger.spec.problems import Location
from ledger.spec.rules.table import RULES, Rule


@dataclass(frozen=True)
class LayerCut:
    """Which of the axes that cut a micro-batch are used, how, and what of the layers is rebuilt.

    `one_expert_each`: experts that lie on as many devices, one each, of which stacks write other operations; 0: of no
    layer.
    """

    tensor: bool
    context: bool
    expert: bool
    sequence: str
    exchange: str | None
    recompute: Any
    one_expert_each: int = 0

    @property
    def layout(self) -> Layout:
        """The keys of a layout that this choice decides."""
        return {
            "parallelism.sequence": self.sequence,
            "parallelism.context_exchange": self.exchange,
            "recompute": self.recompute,
        }

    def __hash__(self) -> int:
        return hash(repr(self))


MICRO_BATCH_SIZES = ("tensor", "context", "expert", "micro_batch")  # the sizes that cut one micro-batch
WEIGHT_DEGREES = ("tensor", "context", "expert", "data", "replicate")  # the degrees that cut weights and their states


@dataclass(frozen=True)
class Sharding:
    """A choice of how weights are shared: `zero`, `reshard` and `offload` as a layout states them."""

    zero: int
    reshard: Any
    offload: Any

    @property
    def layout(self) -> Layout:
        """The keys of a layout that this choice decides."""
        stated = {"zero": self.zero, "reshard": self.reshard, "offload": self.offload}
        return {f"parallelism.{name}": value for name, value in stated.items()}

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class WeightDegrees:
    """Degrees that cut weights and their states: `columns` of their values; `codes` are their places in a grid."""

    codes: Array
    columns: Mapping[str, Array]
    lengths: Mapping[str, int]

    def places(self, cells: Mapping[str, Array]) -> Array:
        """The place of each cell's degrees among these."""
        flat: Array = np.zeros(cells["data"].size, np.int64)
        for axis in WEIGHT_DEGREES:
            flat = flat * self.lengths[axis] + cells[axis]
        return np.searchsorted(self.codes, flat)


Made = TypeVar("Made")
_WORLDS: dict[str, SearchContext] = {}


def search_context(space: Space) -> SearchContext:
    """The world of a space, made once in each process."""
    key = f"{space.plan.digest} {space.plan.cluster.devices} {space.values!r}"
    if key not in _WORLDS:
        _WORLDS.clear()
        _WORLDS[key] = SearchContext(space)
    return _WORLDS[key]


class Memo:
    """Values that are made once, under keys."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """The value of a key, made by the first call."""
        if key not in self._values:
            self._values[key] = make()
        value: Made = self._values[key]
        return value


class SearchContext(Memo):
    """A space with the places of its values: `lists` has those that are sizes, by axis."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.space, self.plan = space, space.plan
        values, devices, batch = space.values, self.plan.cluster.devices, self.plan.run.global_batch
        degrees = [values[f"parallelism.{axis}"] for axis in ("tensor", "pipeline", "context")]
        devices_of_replica = {t * p * c for t, p, c in product(*degrees)}
        data = sorted({devices // count for count in devices_of_replica if devices % count == 0})
        if "parallelism.data" in values:
            data = [degree for degree in data if degree in values["parallelism.data"]]
        self.lists: dict[str, list[int]] = {"data": data, "micro_batch": list(values["run.micro_batch"])}
        for axis in ("tensor", "context", "expert", "pipeline", "replicate"):
            self.lists[axis] = list(values[f"parallelism.{axis}"])
        at_once = {degree * size * ends for degree in data for size in values["run.micro_batch"] for ends in (1, 2)}
        self.counts = sorted({batch // sequences for sequences in at_once if batch % sequences == 0})
        self.lengths = {**{axis: len(listed) for axis, listed in self.lists.items()}, "count": len(self.counts)}
        self.shapes = list(shapes(space, self.counts)) if self.counts else []

    @cached_property
    def stages(self) -> list[Any]:
        """The partitions of the layers into pipeline stages."""
        return list(dict.fromkeys(shape.mesh.stages for shape in self.shapes)) or [Parallelism().stages]

    @cached_property
    def legality(self) -> Legality:
        """The rules over the values that plans' fields have."""
        values = self.space.values
        fields = [key for key in LAYOUT if key not in ("parallelism.ends", "parallelism.stages")]
        read = {key: [_field(self.plan, key, value) for value in values[key]] for key in fields}
        return Legality(self.plan, {**read, "parallelism.stages": self.stages, "parallelism.data": self.lists["data"]})

    def grid(self, axes: Sequence[str]) -> dict[str, Array]:
        """The values of some axes, to broadcast against each other."""
        lists = [np.array(self.lists[axis], dtype=float) for axis in axes]
        return dict(zip(axes, np.meshgrid(*lists, indexing="ij", sparse=True), strict=True))

    def number(self, columns: Mapping[str, Array], axis: str) -> Array:
        """The values of an axis at these places."""
        return np.array(self.lists[axis])[columns[axis]]

    def legal_sizes(
        self, cut: Mapping[str, bool], sharded: Sharding, cut_layers: LayerCut | None, pipeline_ends: int
    ) -> dict[str, Array]:
        """The legal choices of degrees, copies and micro-batch under a sharding of weights, as places in the lists.

        `cut` says which axes are used at all; of those that it does not name, any. `several`: whether a step then has
        more than one micro-batch, `count`: the place of their number.
        """
        key = "cells", tuple(cut.items()), sharded, cut_layers, pipeline_ends
        return self.once(key, lambda: self._cells(cut, sharded, cut_layers, pipeline_ends))

    def _cells(
        self, cut: Mapping[str, bool], sharded: Sharding, cut_layers: LayerCut | None, pipeline_ends: int
    ) -> dict[str, Array]:
        names = (*MICRO_BATCH_SIZES[:3], "pipeline", "replicate", "micro_batch")
        places = {axis: np.arange(len(self.lists[axis])) for axis in names}
        for axis, used in cut.items():
            places[axis] = np.flatnonzero((np.array(self.lists[axis]) > 1) == used)
        if not sharded.zero:
            places["replicate"] = np.flatnonzero(np.array(self.lists["replicate"]) == 1)
        indices = np.meshgrid(*places.values(), indexing="ij")
        columns = {axis: column.reshape(-1) for axis, column in zip(names, indices, strict=True)}
        at_once = self.number(columns, "tensor") * self.number(columns, "context") * self.number(columns, "pipeline")
        degree, devices_left = np.divmod(self.plan.cluster.devices, at_once)
        data_degrees = np.array(self.lists["data"] or [0])
        place = np.minimum(np.searchsorted(data_degrees, degree), data_degrees.size - 1)
        sequences_at_once = np.maximum(1, degree * self.number(columns, "micro_batch") * pipeline_ends)
        count, sequences_left = np.divmod(self.plan.run.global_batch, sequences_at_once)
        fits = (devices_left == 0) & (data_degrees[place] == degree) & (sequences_left == 0) & (count > 0)
        more_columns: dict[str, Array] = {
            "data": place,
            "count": np.searchsorted(self.counts, count),
            "several": count > 1,
        }
        columns = {axis: column[fits] for axis, column in {**columns, **more_columns}.items()}
        legal = self.legality.allowed(self.keys(columns, sharded, cut_layers))
        legal = np.broadcast_to(legal, columns["tensor"].shape)
        return {axis: column[legal] for axis, column in columns.items()}

    def weight_degrees(self, cut: Mapping[str, bool], sharded: Sharding, pipeline_ends: int) -> WeightDegrees:
        """The legal degrees that cut weights and their states, each once."""
        zero = replace(sharded, reshard=self.space.values["parallelism.reshard"][-1] if sharded.zero == 3 else None)
        return self.once(
            ("states", tuple(cut.items()), zero, pipeline_ends), lambda: self._states(cut, zero, pipeline_ends)
        )

    def _states(self, cut: Mapping[str, bool], sharded: Sharding, pipeline_ends: int) -> WeightDegrees:
        layouts = self.legal_sizes(cut, sharded, None, pipeline_ends)
        lengths = [self.lengths[axis] for axis in WEIGHT_DEGREES]
        flat: Array = np.zeros(layouts["data"].size, np.int64)
        for axis in WEIGHT_DEGREES:
            flat = flat * self.lengths[axis] + layouts[axis]
        codes = np.unique(flat)
        columns = dict(zip(WEIGHT_DEGREES, np.unravel_index(codes, lengths), strict=True))
        return WeightDegrees(
            codes, {axis: self.number(columns, axis).astype(float) for axis in WEIGHT_DEGREES}, self.lengths
        )

    def keys(self, columns: Mapping[str, Array], sharded: Sharding, cut_layers: LayerCut | None) -> dict[str, Array]:
        """The keys of layouts, as places among the values of the space."""
        values = self.space.values
        fixed = {**sharded.layout, **(cut_layers.layout if cut_layers else {})}
        places: dict[str, Array] = {key: values[key].index(value) for key, value in fixed.items()}
        for axis, column in columns.items():
            if axis in self.lists:
                places["run.micro_batch" if axis == "micro_batch" else f"parallelism.{axis}"] = column
        return places

    def layer_list(self, kind: tuple[bool, ...]) -> list[tuple[int, ...]]:
        """The layers of each group that stages may hold, of all stages with these ends and groups."""
        roles = (slot.role for shape in self.shapes for slot in shape.slots)
        layers = (role.layers for role in roles if (role.first, role.last, *map(bool, role.layers)) == kind)
        return self.once(("layers", kind), lambda: sorted(set(layers)))


def _field(plan: Plan, key: str, value: Any) -> Any:
    """The value of a plan's field where a spec states `value` for a key."""
    if key == "run.micro_batch":
        return value
    layout: Layout = dict.fromkeys(LAYOUT) | {"recompute": "none", "run.micro_batch": 1, "parallelism.zero": 0}
    layout = {**layout, "parallelism.context": 1, key: value}
    example = with_layout(replace(plan, cluster=replace(plan.cluster, devices=1)), layout)
    return example.recompute if key == "recompute" else getattr(example.parallelism, key.removeprefix("parallelism."))


# --- legality: each rule of the spec is asked once for every set of values that it reads ---

Read = Callable[[str], Any]
STAGES = "parallelism.stages"


class Legality:
    """The rules as tables over the values of the keys that each reads.

    `values` of a key are what a plan's field has; rules see a layout whose fields are looked up as they are read.
    """

    def __init__(self, plan: Plan, values: Mapping[str, Sequence[Any]]) -> None:
        self.plan, self.values = plan, values
        self.tables = [table for rule in RULES if (table := _Table(rule, plan, values)).axes or not table.always]
        self.never = any(not table.axes and not table.always for table in self.tables)

    def allowed(self, chosen: Mapping[str, Array], among: Sequence[str] = ()) -> Array:
        """Whether layouts are legal by the rules that read no other keys than those chosen, and any of `among`."""
        legal: Array = np.bool_(not self.never)
        for table in self.tables:
            if set(table.axes) <= chosen.keys() and (not among or set(among) & set(table.axes)):
                legal = legal & table.looked_up(chosen)
        return legal


class _Table:
    """One rule: the keys that it reads, and whether it has nothing to say, over all their values."""

    def __init__(self, rule: Rule, plan: Plan, values: Mapping[str, Sequence[Any]]) -> None:
        self.axes: list[str] = []
        self.known = np.full((), -1, np.int8)
        self.values = values
        parts = tuple(inspect.signature(rule).parameters)
        built = {name: getattr(plan, name) for name in parts if name != "at"}
        origins = plan.origins or {"plan": Origin(Location(plan.name))}
        while (self.known < 0).any():
            place = np.unravel_index(int(np.argmin(self.known)), self.known.shape)
            setting = dict(zip(self.axes, (int(index) for index in place), strict=True))
            self._ask(rule, built, Places(origins), setting)

    def _ask(self, rule: Rule, built: Mapping[str, Any], at: Places, setting: dict[str, int]) -> None:
        """The rule at one setting; its answer holds wherever what it read is the same."""
        read: dict[str, int] = {}

        def look(key: str) -> Any:
            read[key] = setting.get(key, 0)
            return self.values[key][read[key]]

        parts = dict(built)
        if "parallelism" in parts:
            parts["parallelism"] = _Mesh.over(parts["parallelism"], look, self.values)
        if "run" in parts:
            parts["run"] = _Batch.over(parts["run"], look)
        if "recompute" in parts:
            parts["recompute"] = look("recompute")
        if "at" in inspect.signature(rule).parameters:
            parts["at"] = at
        silent = next(iter(rule(**parts)), None) is None
        for key in read:
            if key not in self.axes:
                self.axes.append(key)
                self.known = np.repeat(self.known[..., None], len(self.values[key]), axis=-1)
        index = tuple(read.get(key, slice(None)) for key in self.axes)
        self.known[index] = silent

    @property
    def always(self) -> bool:
        """Whether it never has anything to say."""
        return bool(self.known.all())

    def looked_up(self, chosen: Mapping[str, Array]) -> Array:
        """Whether the rule has nothing to say about layouts that are given as places among the values of each key."""
        answers: Array = self.known[tuple(chosen[key] for key in self.axes)]
        return answers.astype(bool)


class _Mesh(Parallelism):
    """A layout whose degrees and choices are looked up when they are read."""

    @classmethod
    def over(cls, mesh: Parallelism, look: Read, values: Mapping[str, Any]) -> _Mesh:
        """A layout that falls back on the plan's own."""
        looked_up = cls.__new__(cls)
        object.__setattr__(looked_up, "__dict__", dict(vars(mesh)))
        object.__setattr__(looked_up, "_look", look)
        object.__setattr__(looked_up, "_keys", frozenset(values))
        return looked_up

    def __getattribute__(self, name: str) -> Any:
        fields = object.__getattribute__(self, "__dict__")
        if "_keys" not in fields or name.startswith("_"):
            return object.__getattribute__(self, name)
        key = MESH + name
        if key in fields["_keys"]:
            return fields["_look"](key)
        if key in KEPT and not KEPT[key](_Looked(fields["_look"])):
            return getattr(Parallelism, name)
        return object.__getattribute__(self, name)


class _Looked(dict[str, Any]):
    """A layout as a mapping, looked up when it is read."""

    def __init__(self, look: Read) -> None:
        super().__init__()
        self.look = look

    def __missing__(self, key: str) -> Any:
        return self.look(key)


class _Batch(Run):
    """A run whose micro-batch is looked up when it is read."""

    @classmethod
    def over(cls, run: Run, look: Read) -> _Batch:
        """A run that falls back on the plan's own."""
        looked_up = cls.__new__(cls)
        object.__setattr__(looked_up, "__dict__", dict(vars(run)) | {"_look": look})
        return looked_up

    def __getattribute__(self, name: str) -> Any:
        if name == "micro_batch":
            return object.__getattribute__(self, "__dict__")["_look"]("run.micro_batch")
        return object.__getattribute__(self, name)


def places(values: Sequence[Any], chosen: Sequence[Any]) -> Iterator[int]:
    """The place of each wanted value among `values`."""
    return map(values.index, chosen)
