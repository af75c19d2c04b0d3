"""What the kernels and transfers of a step add up to: sums that bounds and the band of an estimate are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import sympy

from ledger.arithmetic.values import Amount
from ledger.books.entries import STEP, Ledger
from ledger.books.evaluate import Exact, Value
from ledger.books.overlap import is_transfer, on_host, transfer_kind
from ledger.books.resources import BATCH_COPIED, BATCH_READ, Resource, copied, swapped
from ledger.books.resources import HOST_TRAFFIC as TRAFFIC_OF_HOST
from ledger.books.resources import TRAFFIC as TRAFFIC_OF_MEMORY
from ledger.books.results import KernelTime
from ledger.model.causes import HostTransfer, Transfer
from ledger.model.offloading import DOWN, PAGED, UP

FLOPS = {
    "forward": "flops.forward",
    "backward": "flops.backward",
    "recompute": "flops.recompute",
    "optimizer": "flops.update",
}
UNIFIED, ON_DRIVES = "memory.paged", "memory.nvme"
SWAPPED = {"read": "traffic.nvme.read", "write": "traffic.nvme.write"}
STEP_TRAFFIC, HELD, HOST_TRAFFIC = "traffic.step", "memory.host", "traffic.host"
BYTES, COUNT = "bytes", "count"
COPIED = {direction: f"{copied(direction).name}.{BYTES}" for direction in (DOWN, UP)}
# Totals that are bytes of one resource, by the name of it.
BYTES_OF = {
    TRAFFIC_OF_MEMORY.name: STEP_TRAFFIC,
    TRAFFIC_OF_HOST.name: HOST_TRAFFIC,
    BATCH_COPIED.name: "traffic.batch",
    BATCH_READ.name: "traffic.storage",
    **{swapped(direction).name: total for direction, total in SWAPPED.items()},
    **{copied(direction).name: total for direction, total in COPIED.items()},
}
OTHERS = (
    *FLOPS.values(),
    HELD,
    UNIFIED,
    ON_DRIVES,
    *SWAPPED.values(),
    HOST_TRAFFIC,
    *COPIED.values(),
)  # all but traffic and transfers between devices


def spending(ledger: Ledger, value: Value) -> dict[str, Exact]:
    """Matmul FLOPs by phase, traffic of either memory, transfers over each link; and what host memory holds for it."""
    sums: dict[str, Exact] = defaultdict(int)
    for entry in ledger.entries:
        for name, amount in _totals(entry.resource, str(entry.when), entry.amount, entry.times):
            sums[name] += value(amount)
    return dict(sums)


def _totals(resource: Resource, when: str, amount: sympy.Expr, times: sympy.Expr) -> Iterator[tuple[str, sympy.Expr]]:
    """The totals that an entry of a resource is part of."""
    if resource.kind == "matmul":
        yield FLOPS[when], amount * times
    elif resource.name in BYTES_OF:
        yield BYTES_OF[resource.name], amount * times
    elif resource.kind == "comm":
        yield f"{resource.name}.{BYTES}", amount * times
        yield f"{resource.name}.{COUNT}", times
    elif resource.kind == "nvme":
        yield ON_DRIVES, amount * times
    elif resource.kind == "host":
        yield HELD, amount * times
        if resource.category == PAGED:
            yield UNIFIED, amount * times


# Of kernels: seconds at the larger of compute and traffic by data sheet, bytes of traffic, seconds of matmul FLOPs.
ROOFLINE, TRAFFIC, PRODUCTS = "roofline", "traffic", "products"
# Of transfers: seconds at the line rate by axis or direction, and of all of a cargo that recur or run once a step. What
# a host does in its own memory is a line of its own.
WIRE, RECURRING, LATE = "wire", "recurring", "late"
ERROR = "error"  # seconds times the relative error of their price, by kind, and of transfers by cargo
StepSums = Mapping[tuple[str, ...], Amount]  # by one of these, and what it is of


def step_sums(rows: Iterable[KernelTime]) -> dict[tuple[str, ...], Amount]:
    """The sums over all times that rows run in a step."""
    sums: dict[tuple[str, ...], Amount] = defaultdict(float)
    for row in rows:
        kind = row.kind
        if on_host(row):
            sums[WIRE, str(kind)] += row.roofline * row.times
        elif isinstance(kind, Transfer | HostTransfer):
            link = kind.axis if isinstance(kind, Transfer) else kind.direction
            sums[WIRE, link] += row.roofline * row.times
            sums[LATE if row.per == STEP else RECURRING, transfer_kind(row)] += row.seconds * row.times
        else:
            sums[ROOFLINE,] += row.roofline * row.times
            sums[TRAFFIC,] += row.bytes * row.times
            sums[PRODUCTS,] += row.compute * row.times
        sums[ERROR, str(kind), transfer_kind(row) if is_transfer(row) else ""] += row.error * row.seconds * row.times
    return dict(sums)


def among(sums: StepSums, name: str) -> dict[tuple[str, ...], Amount]:
    """The sums of one name, by what they are of."""
    return {tuple(parts): amount for (kind, *parts), amount in sums.items() if kind == name}
