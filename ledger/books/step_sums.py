"""What the kernels and transfers of a step add up to: sums that bounds and the band of an estimate are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ledger.arithmetic.values import Amount
from ledger.books.entries import STEP
from ledger.books.overlap import cargo, moves, on_host
from ledger.books.results import KernelTime
from ledger.model.causes import HostTransfer, Transfer

# Of kernels: seconds at the larger of compute and traffic by data sheet, bytes of traffic, seconds of matmul FLOPs.
ROOFLINE, TRAFFIC, PRODUCTS = "roofline", "traffic", "products"
# Of transfers: seconds at the line rate by axis or direction, and of all of a cargo that recur or run once a step. What
# a host does in its own memory is a line of its own.
WIRE, RECURRING, LATE = "wire", "recurring", "late"
ERROR = "error"  # seconds times the relative error of their price, by kind, and of transfers by cargo
StepSums = Mapping[tuple[str, ...], Amount]  # by one of these, and what it is of


def step_sums(rows: Iterable[KernelTime]) -> dict[tuple[str, ...], Amount]:
    """The sums over all times that rows run in a step."""
    found: dict[tuple[str, ...], Amount] = defaultdict(float)
    for row in rows:
        kind = row.kind
        if on_host(row):
            found[WIRE, str(kind)] += row.roofline * row.times
        elif isinstance(kind, Transfer | HostTransfer):
            way = kind.axis if isinstance(kind, Transfer) else kind.direction
            found[WIRE, way] += row.roofline * row.times
            found[LATE if row.per == STEP else RECURRING, cargo(row)] += row.seconds * row.times
        else:
            found[ROOFLINE,] += row.roofline * row.times
            found[TRAFFIC,] += row.bytes * row.times
            found[PRODUCTS,] += row.compute * row.times
        found[ERROR, str(kind), cargo(row) if moves(row) else ""] += row.error * row.seconds * row.times
    return dict(found)


def among(sums: StepSums, name: str) -> dict[tuple[str, ...], Amount]:
    """The sums of one name, by what they are of."""
    return {tuple(of): amount for (found, *of), amount in sums.items() if found == name}
