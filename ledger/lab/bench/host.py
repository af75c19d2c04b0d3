"""A machine's processor, from /proc and /sys: name, cores, clock, cache, memory, and how busy others keep it."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path

CPUINFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
VECTORS = ("avx512_bf16", "avx512f", "avx2", "avx", "sve", "asimd")  # the widest first
FALLBACK_CACHE = 32 * 2**20
STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns of /proc/stat that count waiting: idle and iowait (proc_stat(5))


@dataclass(frozen=True)
class Processor:
    """The processors that this process may run on; `frequency` in Hz as the system reports it, sizes in bytes."""

    name: str
    cores: int
    frequency: float
    vectors: str
    cache: int
    memory: int


def this_processor() -> Processor:
    """This machine; what it does not publish is empty, zero, or a guess on the small side."""
    info = _read(CPUINFO)
    flags = set(_field(info, "flags|Features").split())
    return Processor(
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


@dataclass(frozen=True)
class ProcessorLoad:
    """Processor seconds at a moment: of everybody, and of this process and its children; `wall` is the clock."""

    everybody: float
    ours: float
    wall: float

    @classmethod
    def now(cls) -> ProcessorLoad:
        """The counters as they stand; zeros where the system does not publish them."""
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        try:
            first = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        except OSError:
            return cls(0.0, 0.0, time.perf_counter())
        ticks = sum(int(count) for index, count in enumerate(first) if index not in IDLE)
        return cls(ticks / os.sysconf("SC_CLK_TCK"), ours, time.perf_counter())

    def share_of_others(self) -> float:
        """The share of the machine's processors that others have used since then."""
        now = ProcessorLoad.now()
        seconds = (now.wall - self.wall) * (os.cpu_count() or 1)
        used = (now.everybody - self.everybody) - (now.ours - self.ours)
        return round(min(1.0, max(0.0, used / seconds)), 2) if seconds > 0 else 0.0
