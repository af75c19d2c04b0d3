"""Which layouts are legal: each rule of the spec asked once for every set of values that it reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ledger.search.space import KEPT, MESH
from ledger.spec.places import Places
from ledger.spec.plan import Origin, Parallelism, Plan, Run
from ledger.spec.problems import Location
from ledger.spec.rules.table import RULES, Rule

Array = Any  # of numpy
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

    def allowed(self, chosen: Mapping[str, Array], given: Sequence[str] = ()) -> Array:
        """Whether layouts are legal by the rules that read no other keys than those chosen, and any of `given`."""
        found: Array = np.bool_(not self.never)
        for table in self.tables:
            if set(table.axes) <= chosen.keys() and (not given or set(given) & set(table.axes)):
                found = found & table.looked_up(chosen)
        return found


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
        """Its answer for layouts, as places among the values of each key."""
        answers: Array = self.known[tuple(chosen[key] for key in self.axes)]
        return answers.astype(bool)


class _Mesh(Parallelism):
    """A layout whose degrees and choices are looked up when they are read."""

    @classmethod
    def over(cls, own: Parallelism, look: Read, values: Mapping[str, Any]) -> _Mesh:
        """The layout over a plan's own."""
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", dict(vars(own)))
        object.__setattr__(made, "_look", look)
        object.__setattr__(made, "_keys", frozenset(values))
        return made

    def __getattribute__(self, name: str) -> Any:
        held = object.__getattribute__(self, "__dict__")
        if "_keys" not in held or name.startswith("_"):
            return object.__getattribute__(self, name)
        key = MESH + name
        if key in held["_keys"]:
            return held["_look"](key)
        if key in KEPT and not KEPT[key](_Looked(held["_look"])):
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
    def over(cls, own: Run, look: Read) -> _Batch:
        """The run over a plan's own."""
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", dict(vars(own)) | {"_look": look})
        return made

    def __getattribute__(self, name: str) -> Any:
        if name == "micro_batch":
            return object.__getattribute__(self, "__dict__")["_look"]("run.micro_batch")
        return object.__getattribute__(self, name)


def places(values: Sequence[Any], wanted: Sequence[Any]) -> Iterator[int]:
    """Where values stand among others."""
    for one in wanted:
        yield values.index(one)
