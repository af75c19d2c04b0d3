"""Gradients that wait in a buffer until it is full (DeepSpeed's ZeRO 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.books.module_order import END, Key


@dataclass(frozen=True)
class ModuleWeight:
    """A weight of one layer: elements, and with the padding that makes them equal shares."""

    unit: str
    elements: int
    padded: int


@dataclass
class FilledBuckets:
    """Gradients that are copied into a buffer, and reduced out of a copy of it before the first that does not fit.

    One that is larger than the buffer waits as it is, and is reduced by itself, without a copy where it needs no
    padding (deepspeed/runtime/zero/stage3.py, coalesced_collectives.py).
    """

    weights: Mapping[Key, ModuleWeight]
    most: int  # elements that the buffer has
    bytes_each: int  # of an element that is reduced
    reduced: list[tuple[Key, ...]] = field(default_factory=list)
    copies: dict[Key, list[int]] = field(default_factory=dict)  # by the gradient that finds no room
    larger: dict[Key, int] = field(default_factory=dict)
    waiting: dict[Key, int] = field(default_factory=dict)  # of a larger one, by the gradient that comes next
    bucket: list[Key] = field(default_factory=list)
    held: int = 0  # elements in it
    seen: dict[Key, None] = field(default_factory=dict)
    rest: Key = ("", END)  # the last gradient of all, after which what is left in the buffer is reduced

    def add(self, key: Key) -> None:
        """The gradient of a weight is there."""
        elements = self.weights[key].elements
        if self.bucket and self.held + elements > self.most:
            if self.bucket[-1] in self.larger:
                self.waiting[key] = self.larger[self.bucket[-1]]
            self._reduce(key)
        if elements > self.most:
            self.larger[key] = self.bytes_each * elements
        self.bucket.append(key)
        self.held += elements
        self.seen[key] = None

    def finish(self) -> None:
        """What the buffer still has when backward is over is reduced."""
        if self.bucket:
            self.rest = self.bucket[-1]
            self._reduce(self.rest)

    def _reduce(self, at: Key) -> None:
        weights = [self.weights[key] for key in self.bucket]
        copied = len(weights) > 1 or weights[0].padded > weights[0].elements
        elements = sum(weight.padded for weight in weights) if copied else 0
        self.copies.setdefault(at, []).append(self.bytes_each * elements)
        self.reduced.append(tuple(self.bucket))
        self.bucket.clear()
        self.held = 0
