"""What persists beside weights as they are stored, on the fullest device: states of the optimizer, quantised copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ledger.model.causes import Purpose
from ledger.model.offloading import PAGED
from ledger.report.views.parts import Cell, Column, Report, Table, amount, columns, fullest_role, text_cells
from ledger.spec.optimizer import DEFAULT

if TYPE_CHECKING:
    from ledger.books.results import Account
    from ledger.spec.optimizer import Optimizer, State
    from ledger.spec.plan import Plan
    from ledger.spec.recipe import Recipe

SHAPES = {
    "whole": "as large as the weight",
    "rows": "one a row",
    "columns": "one a column",
    "factored": "one a row and one a column",
    "heads": "one a head",
    "one": "one",
}
KINDS = {"ends": "embedding and head", "matrices": "matrices of layers", "vectors": "norms and biases"}


def state_table(report: Report) -> Table | None:
    """States by name: of which weights, in which shape and format, and their bytes; None where nothing persists."""
    compiled = report.compiled
    role = fullest_role(compiled).name
    accounts = [row for row in compiled.accounts if row.role == role]
    rows = (*_optimizer_rows(compiled.plan, accounts), *_quantised_rows(compiled.plan.precision.matmul, accounts))
    headings = (*columns("text", "state", "of", "shape", "format"), Column("takes", "number"))
    return Table("States and copies that persist, on the fullest device", headings, rows, 16) if rows else None


def _optimizer_rows(plan: Plan, accounts: list[Account]) -> Iterator[tuple[Cell, ...]]:
    """What each rule of the optimizer keeps of the weights that no rule before it updates."""
    place, where = ("host", ", in host memory") if plan.parallelism.updates_on_host else ("memory", "")
    held = {(place, "optimizer"), ("host", PAGED)}
    kept = [row for row in accounts if (row.resource.kind, row.resource.category) in held]
    rule: Optimizer | None = plan.optimizer
    left = set(KINDS)
    while rule is not None:
        for name, state in rule.states.items():
            title = f"{name.replace('_', ' ')} ({rule.title}{where})"
            kinds = _weight_kinds(left & {*rule.weights}, state)
            found = _bytes(row for row in kept if row.cause.state in (name, f"{name}.scales"))
            yield *text_cells(title, kinds, _shapes(state), _format(state, plan)), found
        left -= {*rule.weights}
        rule = rule.otherwise


def _quantised_rows(recipe: Recipe | None, accounts: list[Account]) -> Iterator[tuple[Cell, ...]]:
    """Copies of weights that matmuls multiply, and the magnitudes that delayed scaling remembers."""
    kept = [row for row in accounts if row.resource.kind == "memory" and row.resource.category == "weights"]
    copies = [row for row in kept if row.cause.purpose is Purpose.QUANTISED_WEIGHT]
    if recipe and copies:
        scales = f"{recipe.format}, scales in {recipe.scale}"
        yield *text_cells("quantised copies", "matrices of layers", SHAPES["whole"], scales), _bytes(copies)
    if recipe and recipe.history:
        found = _bytes(row for row in kept if row.cause.state == "amax")
        yield *text_cells("largest magnitudes", "quantised tensors", f"{recipe.history} of a tensor", "fp32"), found


def _bytes(accounts: Iterable[Account]) -> Cell:
    """What these accounts hold in all."""
    return amount(sum(int(row.amount) * row.times for row in accounts), "B")


def _weight_kinds(updated: set[str], state: State) -> str:
    listed = [kind for kind in KINDS if kind in updated and kind in state.shapes]
    return "every weight" if len(listed) == len(KINDS) else ", ".join(KINDS[kind] for kind in listed)


def _shapes(state: State) -> str:
    return "; ".join(dict.fromkeys(SHAPES[shape] for shape in state.shapes.values()))


def _format(state: State, plan: Plan) -> str:
    dtype = plan.precision.states if state.dtype == DEFAULT else state.dtype
    return f"{dtype}, a {state.scales.dtype} scale for {state.scales.block}" if state.scales else dtype
