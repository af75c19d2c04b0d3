"""Resources: the currencies of a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

ResourceKind = Literal[
    "matmul",  # FLOPs on the matrix units that a result needs, by the dtype whose rate prices them
    "masked",  # those of scores that a mask throws away
    "repeated",  # those that every device of an axis spends alike
    "vector",  # FLOPs outside the matrix units
    "hbm",  # bytes that kernels read from and write to device memory
    "comm",  # bytes sent between devices, by collective and mesh axis
    "host_link",  # bytes copied between device and host, by direction
    "host_traffic",  # bytes that the host reads from and writes to its own memory
    "memory",  # bytes held in device memory, by what they are
    "host",  # bytes held in host memory for a device, by what they are
    "nvme",  # bytes held on the drives of a node for a device, by what they are
    "nvme_traffic",  # bytes read from these drives and written to them, by direction
    "batch",  # bytes of batches, read from storage or copied to a device
]
FLOPS: tuple[ResourceKind, ...] = ("matmul", "masked", "repeated", "vector")
STOCKS: tuple[ResourceKind, ...] = ("memory", "host", "nvme")


@dataclass(frozen=True)
class Resource:
    """A currency. A stock is held and has a peak; all else is spent and adds up over a step."""

    kind: ResourceKind
    dtype: str = ""
    collective: str = ""
    axis: str = ""
    direction: str = ""
    category: str = ""

    @cached_property
    def name(self) -> str:
        """The printed name: `matmul.bf16`, `comm.all_gather.tensor`, `memory.activations`."""
        return ".".join((self.kind, *self.which))

    def __str__(self) -> str:
        """The name under which totals and accounts are printed."""
        return self.name

    @property
    def which(self) -> tuple[str, ...]:
        """What tells a resource from others of its kind: dtype, collective, axis, direction, category."""
        parts = (self.dtype, self.collective, self.axis, self.direction, self.category)
        return tuple(part for part in parts if part)

    @property
    def unit(self) -> str:
        """The unit of its amounts: FLOP of what computes, else bytes (B)."""
        return "FLOP" if self.kind in FLOPS else "B"

    @property
    def stock(self) -> bool:
        """Whether amounts are held, not spent."""
        return self.kind in STOCKS


@cache
def flops(kind: ResourceKind, dtype: str = "") -> Resource:
    """FLOPs of a kind, on the matrix units by dtype."""
    return Resource(kind, dtype=dtype)


@cache
def bytes_sent(collective: str, axis: str) -> Resource:
    """Bytes sent between devices, by collective and mesh axis."""
    return Resource("comm", collective=collective, axis=axis)


@cache
def copied(direction: str) -> Resource:
    """Bytes copied between a device and its host."""
    return Resource("host_link", direction=direction)


@cache
def stock(category: str) -> Resource:
    """Bytes held in device memory, by what they are."""
    return Resource("memory", category=category)


@cache
def on_host(category: str) -> Resource:
    """Bytes held in host memory for a device all the time, by what they are."""
    return Resource("host", category=category)


@cache
def on_nvme(category: str) -> Resource:
    """Bytes held on the drives of a node for a device all the time, by what they are."""
    return Resource("nvme", category=category)


@cache
def swapped(direction: str) -> Resource:
    """Bytes that a device's host reads from drives or writes to them."""
    return Resource("nvme_traffic", direction=direction)


TRAFFIC = Resource("hbm")
BATCH_COPIED, BATCH_READ = Resource("batch", direction="copied"), Resource("batch", direction="read")
HOST_TRAFFIC = Resource("host_traffic")
