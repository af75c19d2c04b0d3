"""What host memory holds instead of the devices."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.report.views.parts import Cell, Column, Table, amount, columns, total_cell

if TYPE_CHECKING:
    from ledger.books.results import Compiled, Number

WHAT = {
    "weights": ("weights", "shares that come to the device before each gather"),
    "master": ("master weights", "the copy that the update writes"),
    "gradients": ("gradients", "where the update reads them, in the dtype of what it updates"),
    "optimizer": ("optimizer states", "moments of the gradients"),
    "paged": ("optimizer states in unified memory", "on the device as far as it has room"),
    "activations": ("activations", "what layers save for backward, of every micro-batch in flight"),
}


def host_table(compiled: Compiled) -> Table | None:
    """Host memory by category for one device of the role with most, and for a node; None where nothing is there."""
    roles: dict[str, dict[str, Number]] = defaultdict(lambda: defaultdict(int))
    for row in compiled.accounts:
        if row.resource.kind == "host":
            roles[row.role][row.resource.category] += row.amount * row.times
    if not roles:
        return None
    cluster = compiled.plan.cluster
    devices = min(cluster.devices, cluster.devices_per_node)
    most = max(roles.values(), key=lambda parts: sum(parts.values()))
    rows = [
        (Cell(name, note=note), amount(most[key], "B"), amount(devices * most[key], "B"))
        for key, (name, note) in WHAT.items()
        if most[key]
    ]
    rows.append((Cell("all"), amount(sum(most.values()), "B"), total_cell(compiled, "memory.host")))
    quantities = columns("number", "for a device", f"for {numbers.integer(devices)} of a node")
    return Table("What host memory holds", (Column("in host memory"), *quantities), tuple(rows), sortable=False)
