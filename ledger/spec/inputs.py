"""The inputs of a plan one by one: dotted paths as specs write them, their values as text, and plans that mix two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from ledger.spec.expand import name_of_base
from ledger.spec.kernel_classes import KernelClass
from ledger.spec.paths import Places, plan_path, spec_path, unit
from ledger.spec.plan import Group, Offload, Origin, Plan, Price, Recompute
from ledger.spec.precision import WeightFormats
from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import write
from ledger.spec.rules.table import RULES, check_rules
from ledger.spec.serve import Lengths
from ledger.spec.token_budget import TokensPerParameter

NAMED = ("accelerator", "model", "precision", "optimizer", "stack")  # parts that a plan names as wholes
DEFAULTS = "defaults"  # of a stack: what published runs are filled from, and no plan
JUDGE = "judge"  # of a stack: what a plan is compared with
# No inputs of a part's books.
LABELS = ("name", "title", "aliases", "architecture", "date", "source", DEFAULTS, JUDGE)
# One choice, whatever it is made of.
ATOMIC = (Recompute, Offload, KernelClass, Price, WeightFormats, TokensPerParameter, Lengths)
# What a cluster is called and described with, and what a model is called that is another's with values changed.
UNREAD_LABELS = ("cluster.name", "cluster.accelerator", "model.title", "model.name")
# Of a plan: no inputs of its books.
UNREAD = ("name", "title", "decision", "expect", "origins", "digest", "judged_digest", "text", "warnings", "reading")
ABSENT = "-"


@dataclass(frozen=True)
class Change:
    """One input that two plans give differently: `old` and `new` as a spec would say them, `ABSENT` for nothing.

    `fields` are the paths in a plan that it stands for, `parts` the values it is made of.
    """

    path: str
    old: str
    new: str
    fields: frozenset[str]
    old_origin: Origin | None = None
    new_origin: Origin | None = None
    parts: tuple[Change, ...] = ()

    def __neg__(self) -> Change:
        """The change from the new plan to the old one."""
        return replace(
            self,
            old=self.new,
            new=self.old,
            old_origin=self.new_origin,
            new_origin=self.old_origin,
            parts=tuple(-part for part in self.parts),
        )


def changes(old: Plan, new: Plan) -> tuple[Change, ...]:
    """The inputs in which two plans differ, in the order of a spec; a part under another name is one change."""
    differing: list[Change] = []
    for field in fields(Plan):
        old_value, new_value = getattr(old, field.name), getattr(new, field.name)
        if field.name in UNREAD or old_value == new_value or (field.name == "run" and old.serve and new.serve):
            continue  # a service's run follows from its lengths
        leaves = [_change(old, new, path, a, b) for path, a, b in _differing_leaves(field.name, old_value, new_value)]
        if field.name in NAMED and name_of_base(old_value.name) != name_of_base(new_value.name):
            differing.append(_part_change(old, new, field.name, tuple(leaves)))
        elif field.name != "kernels" or not _kernels_follow_stack(old, new):
            read = (leaf for leaf in leaves if leaf.path not in UNREAD_LABELS)
            differing.extend(leaf for leaf in read if "stack.kernels" not in leaf.path)
    return tuple(differing)


def mix_plans(old: Plan, new: Plan, chosen: AbstractSet[str]) -> Plan:
    """The old plan with the fields that `chosen` names, by their paths in a plan, as the new one has them."""
    mix: Plan = _mix_values(old, new, chosen, "")
    return replace(mix, origins={**new.origins, **old.origins}, expect=())


def violations(plan: Plan) -> tuple[Problem, ...]:
    """The rules that a plan breaks which was made from others, not read."""
    built = {field.name: getattr(plan, field.name) for field in fields(Plan) if field.name not in UNREAD}
    origins = plan.origins or {"plan": Origin(Location(plan.name))}
    return tuple(check_rules(RULES, built, Places(origins)))


def value_at(plan: Plan, path: str) -> Any:
    """The value at a path as specs write it; None where the plan has nothing there."""

    def step_into(part: Any, step: str) -> Any:
        if isinstance(part, tuple):
            return next((entry for entry in part if getattr(entry, "name", None) == step), None)
        return part.get(step) if isinstance(part, Mapping) else getattr(part, step, None)

    return reduce(step_into, plan_path(path).split("."), plan)


def origin(plan: Plan, path: str) -> Origin | None:
    """The place of the input at a path, or of the nearest part around it; None where it was written nowhere."""
    while path:
        if path in plan.origins:
            return plan.origins[path]
        path = path.rpartition(".")[0]
    return None


def spec_text(value: Any, path: str) -> str:
    """A value as a spec would state it."""
    if isinstance(value, Recompute):
        several = {"every": f"every {value.every}", "keep": f"keep {', '.join(value.keep)}"}
        return several.get(value.policy, value.policy)
    if isinstance(value, Price):
        return f"{write(value.per_device_hour, 'USD')}, {value.date}"
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Fraction):
        value = value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, int | float):
        base = unit(path)
        return write(value, base) if base != "1" else str(value)
    if isinstance(value, tuple):
        return f"{len(value)} entries" if any(map(is_dataclass, value)) else ", ".join(map(str, value)) or ABSENT
    return str(getattr(value, "name", value)) or ABSENT


def _kernels_follow_stack(old: Plan, new: Plan) -> bool:
    """Whether kernels differ because the stacks do."""
    return old.stack.name != new.stack.name and old.kernels == old.stack.kernels and new.kernels == new.stack.kernels


def _part_change(old: Plan, new: Plan, part: str, leaves: tuple[Change, ...]) -> Change:
    """The change of a part for which another was named, with the values that differ, fitted curves left out."""
    moved = {part, "kernels"} if part == "stack" and _kernels_follow_stack(old, new) else {part}
    inner = tuple(
        leaf
        for leaf in leaves
        if not leaf.path.startswith((f"{part}.calibration", "stack.kernels"))
        and leaf.path not in {f"{part}.{label}" for label in LABELS}
    )
    names = [getattr(plan, part).name or "inline" for plan in (old, new)]
    return Change(part, names[0], names[1], frozenset(moved), origin(old, part), origin(new, part), inner)


def _change(old: Plan, new: Plan, path: str, old_value: Any, new_value: Any) -> Change:
    written = spec_path(path)
    # A stack's kernels hold until overridden.
    stack_path = f"stack.{written}" if written.startswith("kernels.") else written
    places = [plan.origins.get(written) or origin(plan, stack_path) for plan in (old, new)]
    old_text, new_text = (spec_text(value, written) for value in (old_value, new_value))
    return Change(written, old_text, new_text, frozenset({path}), places[0], places[1])


def _differing_leaves(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The values that differ, by the path of their field."""
    if old == new:
        return
    pairs = _inner_pairs(old, new)
    if pairs is None:
        yield path, old, new
        return
    for name, (old_value, new_value) in pairs.items():
        yield from _differing_leaves(f"{path}.{name}", old_value, new_value)


def _inner_pairs(old: Any, new: Any) -> dict[str, tuple[Any, Any]] | None:
    """The inner values of two values of one kind, paired by name; None where they are compared as wholes."""
    if is_dataclass(old) and type(old) is type(new) and not isinstance(old, ATOMIC):
        names = (field.name for field in fields(old) if field.name != DEFAULTS)
        return {name: (getattr(old, name), getattr(new, name)) for name in names}
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    if isinstance(old, tuple) and isinstance(new, tuple) and _keys(old) and _keys(old) == _keys(new):
        return dict(zip(_keys(old), zip(old, new, strict=True), strict=True))
    return None


def _keys(items: tuple[Any, ...]) -> tuple[str, ...]:
    """The keys of a tuple's entries: names of layer groups, else their places; none for plain values."""
    if not all(map(is_dataclass, items)):
        return ()
    return tuple(item.name if isinstance(item, Group) else str(index) for index, item in enumerate(items))


def _mix_values(old: Any, new: Any, chosen: AbstractSet[str], path: str) -> Any:
    if path in chosen:
        return new
    if not any(chosen_path.startswith(f"{path}.") or not path for chosen_path in chosen):
        return old
    pairs = _inner_pairs(old, new)
    if pairs is None:
        return old
    mixed = {}
    for name, (old_value, new_value) in pairs.items():
        mixed[name] = _mix_values(old_value, new_value, chosen, f"{path}.{name}" if path else name)
    if isinstance(old, Mapping):
        return {name: value for name, value in mixed.items() if value is not None}
    return tuple(mixed.values()) if isinstance(old, tuple) else replace(old, **mixed)
