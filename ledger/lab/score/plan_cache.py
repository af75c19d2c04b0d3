"""Plans and books that many rows of a table share: read and compiled once for all rows of a kind and structure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from ledger.books.bindings import bindings
from ledger.books.compiled_roles import CompiledRole, compile_roles, whole
from ledger.books.counts import base_parameters
from ledger.books.evaluate import exact
from ledger.lab.score.row_plans import RowPlan
from ledger.model.exchanges import copied_to_buckets
from ledger.model.schedule import Role, micro_batches, roles
from ledger.spec.inputs import violations
from ledger.spec.library import Library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError

SIZED = ("plan", "cluster", "parallelism", "run")  # parts of a plan that hold nothing but names and sizes
STRUCTURAL = ("offload", "stages", "ends")  # of a layout, what is no size


@dataclass(frozen=True)
class PlanCache:
    """The plan of the first row of each kind, and the books of the first role of each structure."""

    library: Library
    overrides: tuple[str, ...] = ()
    plans: dict[str, Plan] = field(default_factory=dict)
    books: dict[tuple[object, ...], CompiledRole] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def parameters(self, plan: Plan, kind: str) -> int:
        """How many parameters the model of a kind of rows has, without adapters."""
        if kind not in self.counts:
            self.counts[kind] = int(base_parameters(whole(plan)))
        return self.counts[kind]

    def plan(self, made: RowPlan) -> tuple[Plan, str]:
        """The plan of a row with the overrides, and its kind; raises SpecError.

        Rows of one kind differ in sizes of the layout and the batch alone, and are read once; the rules hold for each.
        """
        stated = made.plan.get("parallelism", {})
        overrides = (*made.settings, *self.overrides)
        layout = {name: value for name, value in stated.items() if name not in STRUCTURAL}
        parts = {name: part for name, part in made.plan.items() if name not in SIZED}
        settings = [made.settings, *([made.plan] if any(map(_is_sized, overrides)) else [])]
        kind = json.dumps([parts, [stated[name] for name in stated if name in STRUCTURAL], settings], sort_keys=True)
        if self.overrides or kind not in self.plans:
            self.plans[kind] = load_plan(made.text, overrides, library=self.library)
            return self.plans[kind], kind
        if any(map(_is_sized, overrides)):
            return self.plans[kind], kind
        first = self.plans[kind]
        plan = replace(
            first,
            title=made.plan["plan"],
            cluster=replace(first.cluster, devices=made.plan["cluster"]["devices"]),
            parallelism=replace(first.parallelism, **layout),
            run=replace(first.run, **made.plan["run"]),
        )
        problems = violations(plan)
        if problems:
            raise SpecError(problems)
        return plan, kind

    def books_of(self, plan: Plan, kind: str) -> tuple[tuple[CompiledRole, ...], bool]:
        """The books of every role: formulas of the first plan of this kind and structure, under this plan's sizes.

        Also whether this plan is that first one for every role. Which step of a layer is the fullest was chosen for the
        first, so peaks that are asked of the books of others are too low.
        """
        books, is_first = [], True
        mesh = plan.parallelism
        split = tuple(getattr(mesh, axis) > 1 for axis in ("pipeline", "interleave", "expert"))
        filled = mesh.tensor if copied_to_buckets(plan) else 0  # what is cut fills fewer buckets, which are counted
        for role in roles(plan):
            key = (kind, *split, filled, role.layers, role.sends > 0, role.returns > 0, *structure(plan, role))
            if key not in self.books:
                (self.books[key],) = compile_roles(plan, [role])
            else:
                is_first = False
            books.append(replace(self.books[key], role=role, value=exact(bindings(plan, role))))
        return tuple(books), is_first


def _is_sized(setting: str) -> bool:
    """Whether a setting is of a part whose sizes rows of a kind differ in."""
    return setting.partition("=")[0].partition(".")[0] in SIZED


def structure(plan: Plan, role: Role) -> tuple[object, ...]:
    """The choices that decide which operations a role runs and which formulas are posted; all else is a size."""
    mesh = plan.parallelism
    presence = (role.first, role.last, tuple(bool(count) for count in role.layers))
    split = (mesh.tensor > 1, mesh.sequence, mesh.context > 1, mesh.data > 1, mesh.zero)
    return (*presence, *split, plan.recompute, micro_batches(plan) > 1)
