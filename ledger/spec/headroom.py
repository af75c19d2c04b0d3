"""The memory of a device that stays free: a policy of so many bytes, a share of the memory, bytes, or nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.numbers import percent, size
from ledger.spec.structures import AnyOf
from ledger.spec.values import Choice, Quantity

Headroom = str | float | int  # a policy's name, a share of the memory, or bytes
GB = 10**9
NONE = "none"
# Bytes a device should keep free, by planning level: the course's buffers of 20 and 40 GB, and half the first.
POLICIES: Mapping[str, int] = {NONE: 0, "minimum": 0, "typical": 10 * GB, "production": 20 * GB, "cloud": 40 * GB}
DEFAULT = 0.10  # of the memory that the driver reports
HEADROOM = AnyOf((Choice(*POLICIES), Quantity("1", zero=True, greatest=1), Quantity("B", zero=True)))


def headroom_bytes(headroom: Headroom, memory: int) -> float:
    """Bytes that stay free of a memory of so many bytes."""
    if isinstance(headroom, str):
        return float(POLICIES[headroom])
    return headroom * memory if isinstance(headroom, float) else float(headroom)


def headroom_words(headroom: Headroom) -> str:
    """The headroom in words: `production`, `10 %`, `8 GB`."""
    if isinstance(headroom, str):
        return headroom
    return percent(headroom) if isinstance(headroom, float) else size(headroom)
