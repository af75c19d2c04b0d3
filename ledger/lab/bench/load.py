"""How busy a machine is with other things than us: a record of a shared machine says so."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns of /proc/stat that count waiting: idle and iowait (proc_stat(5))


@dataclass(frozen=True)
class Load:
    """Processor seconds at a moment: of everybody, and of this process and its children; `wall` is the clock."""

    everybody: float
    ours: float
    wall: float

    @classmethod
    def now(cls) -> Load:
        """The counters as they stand; zeros where the system does not publish them."""
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        try:
            first = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        except OSError:
            return cls(0.0, 0.0, time.perf_counter())
        ticks = sum(int(count) for index, count in enumerate(first) if index not in IDLE)
        return cls(ticks / os.sysconf("SC_CLK_TCK"), ours, time.perf_counter())

    def others(self) -> float:
        """The share of the machine's processors that others have used since then."""
        now = Load.now()
        seconds = (now.wall - self.wall) * (os.cpu_count() or 1)
        used = (now.everybody - self.everybody) - (now.ours - self.ours)
        return round(min(1.0, max(0.0, used / seconds)), 2) if seconds > 0 else 0.0
