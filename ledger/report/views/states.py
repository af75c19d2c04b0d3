"""What persists beside weights as they are stored, on the fullest device: states of the optimizer, quantised copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger.report.views.parts import Cell, Column, Report, Table, amount, fullest_role
from ledger.spec.optimizer import DEFAULT

if TYPE_CHECKING:
    from ledger.books.results import Account, Compiled
    from ledger.spec.optimizer import Optimizer, State
    from ledger.spec.plan import Plan

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
    rows = tuple(_rows(compiled))
    columns = (Column("state"), Column("of"), Column("shape"), Column("format"), Column("bytes", "number"))
    return Table("States and copies that persist, on the fullest device", columns, rows, 16) if rows else None


def _rows(compiled: Compiled) -> Iterator[tuple[Cell, ...]]:
    plan, role = compiled.plan, fullest_role(compiled).name
    held = [row for row in compiled.accounts if row.role == role and row.resource.startswith("memory.")]
    hosted = plan.parallelism.updates_on_host
    if hosted:
        held += [row for row in compiled.accounts if row.role == role and row.resource.startswith("host.")]
    rule: Optimizer | None = plan.optimizer
    left = set(KINDS)
    while rule is not None:
        for name, state in rule.states.items():
            bytes_held = _sum(held, (f".{name}", f".{name}.scales"), "host.optimizer" if hosted else "memory.optimizer")
            of = f"{name.replace('_', ' ')} ({rule.title}{', in host memory' if hosted else ''})"
            yield (
                Cell(of),
                Cell(_weight_kinds(left & {*rule.weights}, state)),
                Cell(_shapes(state)),
                Cell(_format(state, plan)),
                bytes_held,
            )
        left -= {*rule.weights}
        rule = rule.otherwise
    recipe = plan.precision.matmul
    copies = [row for row in held if row.account.endswith((".weight.row", ".weight.column"))]
    if recipe and copies:
        endings = (".weight.row", ".weight.column", ".weight.row.scales", ".weight.column.scales", ".weight.scale")
        scales = f"{recipe.format}, scales in {recipe.scale}"
        bytes_held = _sum(held, endings, "memory.weights")
        yield Cell("quantised copies"), Cell("matrices of layers"), Cell(SHAPES["whole"]), Cell(scales), bytes_held
    if recipe and recipe.history:
        bytes_held = _sum(held, (".amax",), "memory.weights")
        yield (
            Cell("largest magnitudes"),
            Cell("quantised tensors"),
            Cell(f"{recipe.history} of a tensor"),
            Cell("fp32"),
            bytes_held,
        )


def _sum(held: list[Account], endings: tuple[str, ...], resource: str) -> Cell:
    """Bytes of the accounts that end so."""
    found = (int(row.amount) * row.times for row in held if row.resource == resource and row.account.endswith(endings))
    return amount(sum(found), "B")


def _weight_kinds(updated: set[str], state: State) -> str:
    listed = [kind for kind in KINDS if kind in updated and kind in state.shapes]
    return "every weight" if len(listed) == len(KINDS) else ", ".join(KINDS[kind] for kind in listed)


def _shapes(state: State) -> str:
    return "; ".join(dict.fromkeys(SHAPES[shape] for shape in state.shapes.values()))


def _format(state: State, plan: Plan) -> str:
    dtype = plan.precision.states if state.dtype == DEFAULT else state.dtype
    return f"{dtype}, a {state.scales.dtype} scale for {state.scales.block}" if state.scales else dtype
