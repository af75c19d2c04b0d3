"""Weights that a queue gathers ahead of the modules that need them, and lets go behind them (DeepSpeed's ZeRO 3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.books.gradient_buckets import ModuleWeight
from ledger.books.module_order import Key, Visit
from ledger.spec.stack import Stack


@dataclass
class FetchQueue:
    """The state of the queue: weights that are there, and those in the buffer of a call that somebody still waits for.

    `live`: elements that are there; `buffers`: of calls of several weights, how many of each nobody has asked for yet.
    """

    order: Sequence[Visit]
    weights: Mapping[Key, ModuleWeight]
    small: frozenset[Key]  # weights that are never let go
    stack: Stack
    bytes_each: int  # of an element that is gathered
    step: int = 0
    live: int = 0
    there: set[Key] = field(default_factory=set)
    joined: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    buffers: dict[tuple[Key, ...], int] = field(default_factory=dict)
    arriving: set[tuple[Key, ...]] = field(default_factory=set)  # calls that no module has waited for
    last: dict[Key, int] = field(default_factory=dict)  # the latest step that the queue has fetched a weight for
    queue: deque[tuple[Key, int]] = field(default_factory=deque)
    gathers: list[tuple[str, tuple[Key, ...]]] = field(default_factory=list)
    held: dict[Visit, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue.extend((key, step) for step, visit in enumerate(self.order) for key in visit.weights)
        self.uses: dict[Key, deque[int]] = {}
        self.before = [0]  # elements of all modules before one
        for step, visit in enumerate(self.order):
            for key in visit.weights:
                self.uses.setdefault(key, deque()).append(step)
            self.before.append(self.before[-1] + sum(self.weights[key].elements for key in visit.weights))
        self.place = {key: place for place, key in enumerate(self.weights)}

    def begin(self, visit: Visit) -> None:
        """Gathers what the module needs and is not there, waits for it, then gathers what comes next."""
        self._gather(visit.phase, [key for key in visit.weights if key not in self.there and key not in self.small])
        for key in visit.weights:
            self._wait(key)
        wanted = sum(self.last.get(key, -1) < self.step for key in visit.weights)
        passed: set[Key] = set()
        while self.queue and len(passed) < wanted:
            key, step = self.queue.popleft()
            self.last[key] = step
            passed.add(key)
        self._ahead(visit.phase)
        self.step += 1
        self.held[visit] = (self.bytes(), self.bytes())

    def _wait(self, key: Key) -> None:
        """All weights of its call are copied out; the buffer goes when each has been waited for."""
        called = self.joined.pop(key, None)
        if called:
            self.arriving.discard(called)
            self.buffers[called] -= 1
            if not self.buffers[called]:
                del self.buffers[called]

    def _ahead(self, phase: str) -> None:
        most, fetched = min(self.stack.live_parameters - self.live, self.stack.prefetch), 0
        found: dict[Key, None] = {}
        while self.queue and fetched < most:
            key, step = self.queue.popleft()
            self.last[key] = max(self.last.get(key, -1), step)
            if key not in self.there and key not in self.small and key not in found:
                found[key] = None
                fetched += self.weights[key].elements
        self._gather(phase, found)

    def _gather(self, phase: str, keys: Iterable[Key]) -> None:
        called = tuple(sorted(keys, key=self.place.__getitem__))
        if called:
            self.gathers.append((phase, called))
            self.there.update(called)
            self.live += self._elements(called)
            if len(called) > 1:
                self.joined.update(dict.fromkeys(called, called))
                self.buffers[called] = len(called)
                self.arriving.add(called)

    def end(self, visit: Visit) -> None:
        """Lets go what the queue has not passed over for a later module, and no module needs soon."""
        inside = self.bytes()
        going = [key for key in visit.weights if key in self.there and not self._stays(key)]
        self.there.difference_update(going)
        self.live -= self._elements(going)
        self.held[visit] = (inside, self.bytes())

    def _stays(self, key: Key) -> bool:
        uses = self.uses[key]
        while uses and uses[0] < self.step:
            uses.popleft()
        distance = self.stack.reuse_distance
        soon = bool(uses) and self.before[uses[0]] - self.before[self.step] < distance
        return soon or self.last.get(key, -1) > self.step

    def _elements(self, keys: Iterable[Key]) -> int:
        return sum(self.weights[key].elements for key in keys)

    def bytes(self) -> int:
        """Bytes of whole weights, and of calls' buffers that any of theirs still waits in."""
        buffers = sum(self.weights[key].padded for called in self.buffers for key in called)
        arriving = sum(self._elements(called) for called in self.arriving)
        return self.bytes_each * (self.live - arriving + buffers)
