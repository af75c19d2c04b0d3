"""What a machine says of its processor: name, cores, clock, cache, memory, from /proc and /sys."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

CPUINFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
VECTORS = ("avx512_bf16", "avx512f", "avx2", "avx", "sve", "asimd")  # the widest first
FALLBACK_CACHE = 32 * 2**20


@dataclass(frozen=True)
class Host:
    """The processors that this process may run on; `frequency` in Hz as the system reports it, sizes in bytes."""

    name: str
    cores: int
    frequency: float
    vectors: str
    cache: int
    memory: int


def host() -> Host:
    """This machine; what it does not publish is empty, zero, or a guess on the small side."""
    info = _read(CPUINFO)
    flags = set(_field(info, "flags|Features").split())
    return Host(
        name=_field(info, "model name|Hardware") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        frequency=float(_field(info, "cpu MHz") or 0) * 1e6,
        vectors=next((name for name in VECTORS if name in flags), ""),
        cache=_cache(),
        memory=_memory(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(text: str, names: str) -> str:
    found = re.search(rf"^(?:{names})\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _cache() -> int:
    """Bytes of the last cache."""
    sizes = [_read(path).strip() for path in CACHES.glob("index*/size")]
    return max((int(size[:-1]) * UNITS.get(size[-1], 1) for size in sizes if size[:-1].isdigit()), default=0) or (
        FALLBACK_CACHE
    )


def _memory() -> int:
    """Bytes of memory, as many as the control group of this process may have."""
    total = _field(_read(MEMINFO), "MemTotal").split()
    found = [int(total[0]) * 1024] if total else []
    found += [int(text) for path in LIMITS if (text := _read(path).strip()).isdigit()]
    return min(found, default=8 * 2**30)
