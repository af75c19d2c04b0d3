"""What persists beside weights as they are stored, on the fullest device: states of the optimizer, quantised copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
COPIES = (".weight.row", ".weight.column")  # how accounts of quantised copies end
KINDS = {"ends": "embedding and head", "matrices": "matrices of layers", "vectors": "norms and biases"}


def state_table(report: Report) -> Table | None:
    """States by name: of which weights, in which shape and format, and their bytes; None where nothing persists."""
    compiled = report.compiled
    role = fullest_role(compiled).name
    accounts = [row for row in compiled.accounts if row.role == role]
    rows = (*_optimizer_rows(compiled.plan, accounts), *_quantised_rows(compiled.plan.precision.matmul, accounts))
    headings = (*columns("text", "state", "of", "shape", "format"), Column("bytes", "number"))
    return Table("States and copies that persist, on the fullest device", headings, rows, 16) if rows else None


def _optimizer_rows(plan: Plan, accounts: list[Account]) -> Iterator[tuple[Cell, ...]]:
    """What each rule of the optimizer keeps of the weights that no rule before it updates."""
    place, resource = ("", "memory.optimizer")
    if plan.parallelism.updates_on_host:
        place, resource = ", in host memory", "host.optimizer"
    rule: Optimizer | None = plan.optimizer
    left = set(KINDS)
    while rule is not None:
        for name, state in rule.states.items():
            title = f"{name.replace('_', ' ')} ({rule.title}{place})"
            kinds = _weight_kinds(left & {*rule.weights}, state)
            bytes_held = _bytes(accounts, (f".{name}", f".{name}.scales"), resource)
            yield *text_cells(title, kinds, _shapes(state), _format(state, plan)), bytes_held
        left -= {*rule.weights}
        rule = rule.otherwise


def _quantised_rows(recipe: Recipe | None, accounts: list[Account]) -> Iterator[tuple[Cell, ...]]:
    """Copies of weights that matmuls multiply, and the magnitudes that delayed scaling remembers."""
    if recipe and any(row.account.endswith(COPIES) and row.resource.kind == "memory" for row in accounts):
        bytes_held = _bytes(
            accounts, (*COPIES, *(f"{copy}.scales" for copy in COPIES), ".weight.scale"), "memory.weights"
        )
        scales = f"{recipe.format}, scales in {recipe.scale}"
        yield *text_cells("quantised copies", "matrices of layers", SHAPES["whole"], scales), bytes_held
    if recipe and recipe.history:
        kept = f"{recipe.history} of a tensor"
        bytes_held = _bytes(accounts, (".amax",), "memory.weights")
        yield *text_cells("largest magnitudes", "quantised tensors", kept, "fp32"), bytes_held


def _bytes(accounts: list[Account], endings: tuple[str, ...], resource: str) -> Cell:
    """Bytes of the accounts that end so."""
    rows = (row for row in accounts if row.resource.name == resource and row.account.endswith(endings))
    return amount(sum(int(row.amount) * row.times for row in rows), "B")


def _weight_kinds(updated: set[str], state: State) -> str:
    listed = [kind for kind in KINDS if kind in updated and kind in state.shapes]
    return "every weight" if len(listed) == len(KINDS) else ", ".join(KINDS[kind] for kind in listed)


def _shapes(state: State) -> str:
    return "; ".join(dict.fromkeys(SHAPES[shape] for shape in state.shapes.values()))


def _format(state: State, plan: Plan) -> str:
    dtype = plan.precision.states if state.dtype == DEFAULT else state.dtype
    return f"{dtype}, a {state.scales.dtype} scale for {state.scales.block}" if state.scales else dtype
