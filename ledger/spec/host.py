"""The host of a node: what its devices share of memory, and of storage that is attached to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.spec.parts import PartHeader
from ledger.spec.structures import OPTIONAL, quantity
from ledger.spec.values import degree


@dataclass(frozen=True)
class Nvme:
    """The drives of a node together: bytes that they hold, and bytes a second that they give and take."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="The NVMe drives of a node, all of them together.", sourced=True)

    capacity: Annotated[int, quantity("B"), "What they hold: `30.7 TB`."]
    read: Annotated[float, quantity("B/s"), "Sequential reads of all of them at once: `50 GB/s`."]
    write: Annotated[float, quantity("B/s"), "Sequential writes of all of them at once: `25 GB/s`."]


@dataclass(frozen=True)
class Host:
    """The memory that the devices of one node share: bytes, and bytes a second of all its channels together.

    `devices` says of how many devices the node is, where a device's own file describes the node that it is sold in.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="The host of a node, which its devices share: memory, its bandwidth, NVMe drives.", sourced=True
    )

    memory: Annotated[int, quantity("B"), "Of a node: `2 TB`."]
    bandwidth: Annotated[float, quantity("B/s"), "Of all memory channels of a node together: `614.4 GB/s`."]
    efficiency: Annotated[
        float,
        quantity("1", least=1e-3, greatest=1),
        "Share of that bandwidth which updates on the host reach, measured: `45 %`; all of it where not given, which "
        "is the least that they take.",
    ] = 1.0
    devices: Annotated[
        int, degree(), "Devices of the node, of a host in an accelerator's file; a cluster has `devices_per_node`."
    ] = 0
    nvme: Annotated[Nvme | None, OPTIONAL] = None
