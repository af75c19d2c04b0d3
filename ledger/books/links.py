"""The links that a plan's transfers go over, by the names of their rates."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.books.prices import mesh
from ledger.books.resources import Resource
from ledger.books.results import Compiled

SCALEUP, SCALEOUT, HOST = "accelerator.scaleup.bandwidth", "cluster.scaleout.bandwidth", "accelerator.host_link"
SENT = ("comm", "host_link")  # kinds of resources that links carry
LINKS = frozenset((SCALEUP, SCALEOUT, HOST))


def sent(compiled: Compiled) -> tuple[Resource, ...]:
    """What is sent between devices, and between a device and its host, in the order of the ledger."""
    return tuple(dict.fromkeys(leaf.resource for leaf in compiled.accounts if leaf.resource.kind in SENT))


def links(compiled: Compiled) -> frozenset[str]:
    """Those with bytes on them in a step."""
    return frozenset(link for resource in sent(compiled) for link in _over(compiled, resource))


def _over(compiled: Compiled, resource: Resource) -> Iterator[str]:
    """Inside a node its own links, or the host's where the devices have none that reaches; between nodes the cards."""
    if resource.kind == "host_link":
        yield HOST
        return
    plan, device = compiled.plan, compiled.plan.accelerator
    where = mesh(resource.axis, plan.parallelism, device, plan.cluster)
    if where.local > 1:
        linked = device.scaleup_bandwidth and where.span <= device.scaleup_domain
        yield SCALEUP if linked else HOST
    if where.domains > 1:
        yield SCALEOUT
