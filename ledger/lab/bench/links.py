"""Copies between a device and its host, both ways, from pinned and from pageable memory.

Imports torch inside functions only.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.lab.bench.cases import Case, Kind, Limits
from ledger.lab.bench.rig import Rig, each
from ledger.lab.bench.timing import Work

SIZES = (64 * 1024, 1024**2, 16 * 1024**2, 256 * 1024**2)


def cases(limits: Limits) -> Iterator[Case]:
    """Directions x kinds of host memory x sizes; a CPU has no such link."""
    if limits.sort != "cuda":
        return
    for direction in ("down", "up"):
        for memory in ("pinned", "pageable"):
            for size in SIZES[1::2] if limits.quick else SIZES:
                yield Case("host_link", f"host_link.{direction}", {"memory": memory, "bytes": size})


def build(case: Case, rig: Rig) -> Work:
    """One copy; `down` is from the device to the host, as in the books."""
    import torch

    pinned, size = case.keys["memory"] == "pinned", int(case.keys["bytes"])
    there = torch.randint(256, (size,), dtype=torch.uint8, device=rig.place)
    here = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).copy_(there)
    source, target = (there, here) if case.what.endswith("down") else (here, there)
    return Work(lambda _: target.copy_(source, non_blocking=pinned), capturable=False)


HOST_LINK = Kind("host_link", cases, each(build))
