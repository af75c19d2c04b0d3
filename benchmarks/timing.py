"""Seconds on the wall and of the processor, and a loop that says how fast the machine is at that time."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Made = TypeVar("Made")
# A second or so of what a compiler in Python does: small integers, texts, dictionaries and calls.
LOOP = """
def count(text, known):
    known[text] = known.get(text, 0) + 1
    return len(text)
known, total = {}, 0
for number in range(2_000_000):
    total += count(str(number % 4096), known)
"""


@dataclass(frozen=True)
class Seconds:
    """What one turn took, on the wall and of the processor in its own code (not the system's)."""

    wall: float
    user: float


def timed(run: Callable[[], Made]) -> tuple[Seconds, Made]:
    """The seconds of the processes that a function starts and waits for, and what it returns."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    made = run()
    wall = time.perf_counter() - begun
    return Seconds(wall, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before), made


def loop_seconds() -> Seconds:
    """The seconds of the same loop in a fresh interpreter: what others do on the machine makes both of them longer."""
    return timed(lambda: subprocess.run([sys.executable, "-c", LOOP], check=True))[0]


def medians(turns: Iterable[Seconds]) -> Seconds:
    """The median on the wall and that of the processor, each by itself."""
    taken = tuple(turns)
    return Seconds(median(one.wall for one in taken), median(one.user for one in taken))
