"""Bytes alive at one instant, as an allocator counts them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Held:
    """Bytes alive at one instant as the allocator counts them; `rounding`: those that only round storages up."""

    bytes: int = 0
    rounding: int = 0

    @property
    def asked(self) -> int:
        """Bytes that tensors asked for."""
        return self.bytes - self.rounding

    def __add__(self, other: Held) -> Held:
        return Held(self.bytes + other.bytes, self.rounding + other.rounding)

    def times(self, count: int) -> Held:
        """So many of the same."""
        return Held(self.bytes * count, self.rounding * count)
