"""How long the compiler takes: its start, a cold process, and a recompile of the same structure.

Usage: python benchmarks/compile.py SPEC. Medians of fresh processes, or of calls in one process.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import ledger

PROCESSES = 5
CALLS = 20


def seconds(work: Callable[[], object], times: int) -> float:
    """The median wall time of one call."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken)


def process(*args: str) -> Callable[[], object]:
    """Runs the command line in a fresh interpreter."""
    return lambda: subprocess.run([sys.executable, "-m", "ledger", *args], check=True, stdout=subprocess.DEVNULL)


def main(spec: str) -> None:
    """Prints a line per figure."""
    print(f"{platform.machine()}, Python {platform.python_version()}, {spec}")
    print(f"{seconds(process('--help'), PROCESSES):8.3f} s  ledger --help")
    print(f"{seconds(process('show', spec, '--json'), PROCESSES):8.3f} s  ledger show --json, a process")
    print(f"{seconds(lambda: ledger.compile(spec), 1):8.3f} s  ledger.compile, the first in a process")
    print(f"{seconds(lambda: ledger.compile(spec), CALLS):8.3f} s  ledger.compile again")
    print(f"{seconds(lambda: ledger.compile(spec, ['run.seq_len=4096']), CALLS):8.3f} s  ledger.compile, another size")


if __name__ == "__main__":
    main(sys.argv[1])
