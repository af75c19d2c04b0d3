"""The links that a plan's transfers go over, by the names of their rates."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.books.prices import mesh
from ledger.books.results import Compiled

SCALEUP, SCALEOUT, HOST = "accelerator.scaleup.bandwidth", "cluster.scaleout.bandwidth", "accelerator.host_link"
LINKS = frozenset((SCALEUP, SCALEOUT, HOST))


def links(compiled: Compiled) -> frozenset[str]:
    """Those with bytes on them in a step."""
    moving = (key for key, amount in compiled.totals.items() if key.endswith(".bytes") and amount)
    return frozenset(link for key in moving for link in _over(compiled, key))


def _over(compiled: Compiled, key: str) -> Iterator[str]:
    """Inside a node its own links, or the host's where the devices have none that reaches; between nodes the cards."""
    kind, *_, axis, _ = key.split(".")
    if kind == "host_link":
        yield HOST
    elif kind == "comm":
        plan, device = compiled.plan, compiled.plan.accelerator
        where = mesh(axis, plan.parallelism, device, plan.cluster)
        if where.local > 1:
            linked = device.scaleup_bandwidth and where.span <= device.scaleup_domain
            yield SCALEUP if linked else HOST
        if where.domains > 1:
            yield SCALEOUT
