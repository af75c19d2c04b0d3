"""Copies between a device and its host, both ways, from pinned and from pageable memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.rig import BenchKind, Rig, timed_builds
from ledger.lab.bench.timing import TimedWork

SIZES = (64 * 1024, 1024**2, 16 * 1024**2, 256 * 1024**2)


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Directions x kinds of host memory x sizes; a CPU has no such link."""
    if limits.type != "cuda":
        return
    for direction in ("down", "up"):
        for memory in ("pinned", "pageable"):
            for size in SIZES[1::2] if limits.quick else SIZES:
                yield BenchCase("host_link", f"host_link.{direction}", {"memory": memory, "bytes": size})


def build(case: BenchCase, rig: Rig) -> TimedWork:
    """One copy; `down` is from the device to the host, as in the books."""
    pinned, (size,) = case.keys["memory"] == "pinned", case.sizes("bytes")
    on_device = torch.randint(256, (size,), dtype=torch.uint8, device=rig.place)
    on_host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).copy_(on_device)
    source, target = (on_device, on_host) if case.what.endswith("down") else (on_host, on_device)
    return TimedWork(lambda _: target.copy_(source, non_blocking=pinned), capturable=False)


HOST_LINK = BenchKind("host_link", cases, timed_builds(build))
