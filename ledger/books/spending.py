"""What one device spends in a step, by the total that says so; parts of a ledger add up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import sympy

from ledger.books.entries import Ledger
from ledger.books.evaluate import Exact, Value
from ledger.books.resources import Resource, copied
from ledger.model.offloading import DOWN, PAGED, UP

FLOPS = {
    "forward": "flops.forward",
    "backward": "flops.backward",
    "recompute": "flops.recompute",
    "optimizer": "flops.update",
}
UNIFIED, ON_DRIVES = "memory.paged", "memory.nvme"
SWAPPED = ("traffic.nvme.read", "traffic.nvme.write")
TRAFFIC, HELD, HOST_TRAFFIC = "traffic.step", "memory.host", "traffic.host"
BYTES, COUNT = "bytes", "count"
COPIED = {direction: f"{copied(direction).name}.{BYTES}" for direction in (DOWN, UP)}
OTHERS = (
    *FLOPS.values(),
    HELD,
    UNIFIED,
    ON_DRIVES,
    *SWAPPED,
    HOST_TRAFFIC,
    *COPIED.values(),
)  # all but traffic and transfers between devices


def spending(ledger: Ledger, value: Value) -> dict[str, Exact]:
    """Matmul FLOPs by phase, traffic of either memory, transfers over each link; and what host memory holds for it."""
    found: dict[str, Exact] = defaultdict(int)
    for entry in ledger.entries:
        for name, amount in _totals(entry.resource, str(entry.when), entry.amount, entry.times):
            found[name] += value(amount)
    return dict(found)


def _totals(resource: Resource, when: str, amount: sympy.Expr, times: sympy.Expr) -> Iterator[tuple[str, sympy.Expr]]:
    """The totals that an entry of a resource is part of."""
    if resource.kind == "matmul":
        yield FLOPS[when], amount * times
    elif resource.kind == "hbm":
        yield TRAFFIC, amount * times
    elif resource.kind == "comm":
        yield f"{resource.name}.{BYTES}", amount * times
        yield f"{resource.name}.{COUNT}", times
    elif resource.kind == "host_link":
        yield f"{resource.name}.{BYTES}", amount * times
    elif resource.kind == "host_traffic":
        yield HOST_TRAFFIC, amount * times
    elif resource.kind == "nvme_traffic":
        yield f"traffic.nvme.{resource.direction}", amount * times
    elif resource.kind == "nvme":
        yield ON_DRIVES, amount * times
    elif resource.kind == "host":
        yield HELD, amount * times
        if resource.category == PAGED:
            yield UNIFIED, amount * times
