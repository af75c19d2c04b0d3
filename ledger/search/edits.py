"""The edits of a spec that make another layout: counted for many layouts at once, and exactly for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ledger.books.compiler import compile_plan
from ledger.model.schedule import PIPELINES
from ledger.search.aims import LATENCY
from ledger.search.batches import Batch
from ledger.search.question import TIME
from ledger.search.space import DATA, LAYOUT, MESH, NOWHERE, RECOMPUTE, Layout, Space
from ledger.spec.faults import StatedValue
from ledger.spec.inputs import changes as differences
from ledger.spec.load import read_with_overrides
from ledger.spec.overrides import assignments
from ledger.spec.parts import spec_type
from ledger.spec.plan import Parallelism, Plan, Recompute
from ledger.spec.reader import as_node

SCHEDULE = "parallelism.schedule"
IDLE = (None, "off")  # values of a key that has no effect
LEFT_TO_DEFAULT = (None, *(name for name in PIPELINES if name in {"1f1b", "interleaved"}))  # schedules left unstated


@dataclass(frozen=True)
class EditCosts:
    """For each key of a layout, which of the values of a space are edits; `data`: the stated degree, 0 where none is.

    It is an estimate: whether a key may be left out can depend on the others, which `fewest_changes` looks at.
    """

    by_key: Mapping[str, np.ndarray]
    data: int

    def counts(self, batch: Batch) -> np.ndarray:
        """The number of keys that each layout changes."""
        changed_keys = np.zeros(len(batch), np.int64)
        for key, edits in self.by_key.items():
            if edits.any():
                changed_keys += edits[batch.choices[key]]
        return changed_keys + (batch.data != self.data) if self.data else changed_keys

    def rank(self, batch: Batch) -> np.ndarray:
        """The count, and as its fraction the seconds of a step: more of them, a larger fraction below one."""
        seconds = batch.totals[TIME if TIME in batch.totals else LATENCY]
        return np.asarray(self.counts(batch) + seconds / (1.0 + seconds))


def edit_costs(space: Space) -> EditCosts:
    """Which values of a space are edits of its plan."""
    plan = space.plan
    by_key = {key: np.array([_is_edit(plan, key, value) for value in space.values[key]]) for key in space.keys}
    return EditCosts(by_key, plan.parallelism.data if DATA in plan.origins else 0)


def _is_edit(plan: Plan, key: str, value: Any) -> bool:
    """Whether a value must be written into the spec, or the written one removed."""
    stated = any(path == key or path.startswith(f"{key}.") for path in plan.origins)
    if value is None:
        return stated or _read_value(key, None) != _plan_value(plan, key)
    if key == SCHEDULE and not stated:
        return value not in LEFT_TO_DEFAULT
    return bool(_read_value(key, value) != _plan_value(plan, key))


def _plan_value(plan: Plan, key: str) -> Any:
    if not key.startswith(MESH):
        return plan.recompute if key == RECOMPUTE else plan.run.micro_batch
    return _field(plan.parallelism, key)


def _read_value(key: str, value: Any) -> Any:
    """The plan's field that a stated value is read as."""
    node = as_node(value, NOWHERE)
    if not key.startswith(MESH):
        return spec_type(Recompute).read(StatedValue(node), []) if key == RECOMPUTE else value
    stated = {} if value is None else {key.removeprefix(MESH): value}
    return _field(spec_type(Parallelism).read(StatedValue(as_node(stated, NOWHERE)), []), key)


def _field(mesh: Parallelism, key: str) -> Any:
    name = key.removeprefix(MESH)
    if name == "ends":
        return mesh.stages.ends
    if name == "stages":
        return mesh.stages.each, mesh.stages.first, mesh.stages.last
    return getattr(mesh, name)


def fewest_changes(plan: Plan, layout: Layout) -> dict[str, Any]:
    """The keys of a layout that a user must write, so that the spec with them alone is that layout.

    A key is left out where the plan has its value, or where it follows; one that has no effect beside the others stays
    as it is written, as long as the rules allow it.
    """
    target = _changed_plan(plan, layout)
    assert target is not None, f"{dict(layout)} is no legal layout of {plan.name}"  # noqa: S101 - our own mistake
    needed = {key: value for key, value in layout.items() if key not in LAYOUT or _is_edit(plan, key, value)}
    if not _is_same(target, _changed_plan(plan, needed)):
        needed = dict(layout)
    for key in (DATA, *reversed(list(layout))):
        if key in needed:
            without_key = {name: value for name, value in needed.items() if name != key}
            changed = _changed_plan(plan, without_key)
            if _is_same(target, changed) or (
                needed[key] in IDLE and changed and compile_plan(target).totals == compile_plan(changed).totals
            ):
                needed = without_key
    return needed


def _is_same(target: Plan, changed: Plan | None) -> bool:
    return changed is not None and not differences(_with_schedule(target), _with_schedule(changed))


def _with_schedule(plan: Plan) -> Plan:
    """The plan with the schedule by its name, which it may leave out."""
    return replace(plan, parallelism=replace(plan.parallelism, schedule=plan.parallelism.scheduled))


def _changed_plan(plan: Plan, changes: Mapping[str, Any]) -> Plan | None:
    draft = read_with_overrides(plan, assignments(changes))
    return None if draft.problems else draft.plan
