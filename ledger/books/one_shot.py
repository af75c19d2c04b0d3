"""All-reduces by one kernel: every rank of a domain reads the buffers of all others, so that a small one takes less."""

from __future__ import annotations

from ledger import price_forms
from ledger.arithmetic.values import Amount, maximum
from ledger.books.prices import FACTOR, KernelPrice, Mesh
from ledger.price_forms import DataSheet
from ledger.spec.kernel_classes import KernelClass
from ledger.spec.kernel_families import ONE_SHOT
from ledger.spec.plan import Accelerator

ALL_REDUCE = "all_reduce"
MEASURED = KernelClass(ALL_REDUCE, ONE_SHOT)


def is_one_shot(device: Accelerator, collective: str, at: Mesh, payload: Amount, limit: int) -> bool:
    """Whether a collective runs so: an all-reduce inside one domain of no more bytes than its engine allows."""
    inside = bool(at.size > 1 and at.domains == 1 and MEASURED in device.curves)
    return collective == ALL_REDUCE and inside and 0 < payload <= limit


def one_shot(device: Accelerator, at: Mesh, payload: Amount) -> KernelPrice:
    """The price of one, by the curve of the nearest number of ranks."""
    curve = min(device.curves[MEASURED], key=lambda row: abs(row.ranks - at.size))
    sent = payload * FACTOR[ALL_REDUCE](at.size)
    floor = sent / device.scaleup_bandwidth
    parameters = {**curve.parameters, "B": device.over_links(curve.parameters["B"])}
    seconds = price_forms.seconds("collective", parameters, {"bytes": sent, "bus_bytes": sent}, DataSheet())
    return KernelPrice(maximum(seconds, floor), floor, "network", curve.error, calibrated=True)
