"""PyTorch's caching allocator, as far as sizes go: what it asks of the device for a sequence of requests.

The rules are those of c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.x): sizes are rounded to 512 bytes; a request takes
the smallest free block that holds it, which is split where enough is left; a block that is freed joins its free
neighbours; where none fits, a segment is asked for. Streams share nothing, nor do small and large requests.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from math import inf

ROUND = 512
SMALL_REQUEST = 1 << 20  # requests up to this size share segments of their own
SMALL_SEGMENT = 2 << 20
MEDIUM = 10 << 20  # larger requests get a segment of their own size
MEDIUM_SEGMENT = 20 << 20
GRAIN = 2 << 20

Name = str | int


@dataclass(slots=True, eq=False)
class Block:
    """A block of memory in a segment; `before` and `after` are its neighbours there."""

    size: int
    serial: int
    free: bool = False
    before: Block | None = None
    after: Block | None = None


@dataclass(slots=True)
class Pool:
    """The free blocks of one stream and size class, smallest first; `reserved` bytes of segments.

    `expandable`: one segment that grows at its end (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).
    """

    small: bool
    expandable: bool
    blocks: list[tuple[int, int, Block]] = field(default_factory=list)
    reserved: int = 0
    serial: int = 0
    last: Block | None = None  # the end of an expandable segment
    least: int = field(init=False)  # bytes that are worth a block of their own

    def __post_init__(self) -> None:
        self.least = ROUND if self.small or self.expandable else SMALL_REQUEST + 1

    def take(self, size: int) -> Block | None:
        """The smallest free block of at least so many rounded bytes, cut to them; None where there is none."""
        index = bisect_left(self.blocks, (size,))
        return self._cut(self.blocks.pop(index)[2], size) if index < len(self.blocks) else None

    def ask(self, size: int) -> Block:
        """A block of so many rounded bytes in a segment that the device is asked for."""
        return self._cut(self._grow_segment(size) if self.expandable else self._new_segment(size), size)

    def give(self, block: Block) -> None:
        """Frees a block and joins it with free neighbours."""
        before, after = block.before, block.after
        if after is not None and after.free:
            self._remove(after)
            self._join(block, after)
        if before is not None and before.free:
            self._remove(before)
            self._join(before, block)
            block = before
        block.free = True
        insort(self.blocks, (block.size, block.serial, block))

    def release(self) -> None:
        """Gives back segments that are free from end to end; of an expandable one, its free end."""
        for size, _, block in list(self.blocks):
            if block.after is None and (block.before is None or self.expandable):
                self._remove(block)
                self.reserved -= size
                if block.before is not None:
                    block.before.after = None
                if self.last is block:
                    self.last = block.before

    def _new_segment(self, size: int) -> Block:
        if self.small:
            segment = SMALL_SEGMENT
        elif size < MEDIUM:
            segment = MEDIUM_SEGMENT
        else:
            segment = -(-size // GRAIN) * GRAIN
        self.reserved += segment
        return self._new_block(segment)

    def _grow_segment(self, size: int) -> Block:
        """The segment's free end, if there is one, made as long as it must be."""
        grain = SMALL_SEGMENT if self.small else MEDIUM_SEGMENT
        end = self.last
        if end is not None and end.free:
            self._remove(end)
            more = -(-(size - end.size) // grain) * grain
            end.size += more
        else:
            more = -(-size // grain) * grain
            end = self._new_block(more)
            end.before = self.last
            if self.last is not None:
                self.last.after = end
            self.last = end
        self.reserved += more
        return end

    def _new_block(self, size: int) -> Block:
        self.serial += 1
        return Block(size, self.serial)

    def _cut(self, block: Block, size: int) -> Block:
        """A block that is free no more; what is left of it beyond `size` bytes is, where that is worth a block."""
        block.free = False
        spare = block.size - size
        if spare >= self.least:
            self.serial += 1
            remainder = Block(spare, self.serial, True, block, block.after)
            if block.after is not None:
                block.after.before = remainder
            block.after, block.size = remainder, size
            if self.last is block:
                self.last = remainder
            insort(self.blocks, (spare, remainder.serial, remainder))
        return block

    def _remove(self, block: Block) -> None:
        del self.blocks[bisect_left(self.blocks, (block.size, block.serial))]

    def _join(self, block: Block, after: Block) -> None:
        """A block takes in the one after it."""
        block.size += after.size
        block.after = after.after
        if after.after is not None:
            after.after.before = block
        if self.last is after:
            self.last = block


class Allocator:
    """Allocates and frees by name; `peak` is the most bytes allocated, `asked` the most asked of the device.

    `reserved` is the most that it gave since that was last counted anew.

    A block that another stream has used as well (Tensor.record_stream) is free once the device has run what was
    launched before the host let go of it. Where the device has no more than `capacity` bytes, the host waits for it,
    gives back what is free, and asks again.
    """

    def __init__(self, clock: Clock | None = None, *, expandable: bool = False, capacity: float = inf) -> None:
        self.clock = clock or Clock()
        self.expandable = expandable
        self.capacity = capacity
        self.pools: dict[tuple[str, bool], Pool] = {}
        self.held: dict[Name, tuple[Pool, Block]] = {}
        self.used: deque[tuple[float, Pool, Block]] = deque()  # blocks of other streams, and when each is free
        self.allocated = 0
        self.peak = 0
        self.reserved = 0
        self.asked = 0

    def allocate(self, name: Name, size: int, stream: str = "") -> None:
        """A storage of `size` bytes; one of no bytes is none."""
        if size <= 0:
            return
        if self.used and self.used[0][0] <= self.clock.host:
            self._settle()
        rounded = -(-size // ROUND) * ROUND
        small = rounded <= SMALL_REQUEST
        pool = self.pools.get((stream, small))
        if pool is None:
            pool = self.pools[stream, small] = Pool(small, self.expandable)
        block = pool.take(rounded) or self._take_more(pool, rounded)
        self.held[name] = pool, block
        self.allocated += block.size
        self.peak = max(self.peak, self.allocated)

    def free(self, name: Name, *, used: bool = False) -> None:
        """Frees what has this name, if there is such a storage; `used`: another stream may still be at work on it."""
        allocation = self.held.pop(name, None)
        if allocation is not None:
            pool, block = allocation
            self.allocated -= block.size
            if used:
                self.used.append((self.clock.device, pool, block))
            else:
                pool.give(block)

    def wait(self) -> None:
        """The host waits until the device has run all that was launched."""
        self.clock.wait()
        self._settle()

    def recount(self) -> None:
        """The most bytes asked of the device are counted anew (torch.cuda.reset_peak_memory_stats)."""
        self.reserved = self.segments

    @property
    def segments(self) -> int:
        """Bytes of all segments there are."""
        return sum(pool.reserved for pool in self.pools.values())

    def _take_more(self, pool: Pool, size: int) -> Block:
        """A block of a new segment, or of what is free once all else was given back."""
        total = self.segments + size
        if total > self.capacity:
            self.asked = max(self.asked, total)
            self._empty()
        block = pool.take(size) or pool.ask(size)
        self.reserved = max(self.reserved, self.segments)
        self.asked = max(self.asked, self.reserved)
        return block

    def _settle(self) -> None:
        while self.used and self.used[0][0] <= self.clock.host:
            _, pool, block = self.used.popleft()
            pool.give(block)

    def _empty(self) -> None:
        """Segments without a block in use go back to the device (release_cached_blocks)."""
        self.wait()
        for pool in self.pools.values():
            pool.release()


# --- the clocks of a host and its device ---

# Kernels that a host has launched and a device has not run, at most; a further launch waits. Observed by
# https://forums.developer.nvidia.com/t/68937 ("the buffer size is about 1000 kernels"); a queue has 2**10 places.
QUEUE = 1024


@dataclass(slots=True)
class Clock:
    """Seconds of the host, and when the device will have run all that was launched so far."""

    host: float = 0.0
    device: float = 0.0
    pending: deque[float] = field(default_factory=deque)  # when the device will have run each of the last kernels

    def launch(self, host: float, device: float, kernels: int = 1) -> None:
        """So many more kernels, each of which takes the host and the device so many seconds."""
        now, done, pending = self.host, self.device, self.pending
        for _ in range(kernels):
            now += host
            if len(pending) == QUEUE and (ran := pending.popleft()) > now:
                now = ran
            done = now + device if now > done else done + device
            pending.append(done)
        self.host, self.device = now, done

    def wait(self) -> None:
        """The host waits until the device has run all that was launched."""
        self.host = max(self.host, self.device)
