"""Ranks of a distributed step that PyTorch can be asked about."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class ShardedRank:
    """Rank 0 of `replicate` x `data` x `tensor` ranks: FSDP2 shards over `data`, DTensor splits over `tensor`.

    `expert` subdivides `data`: ranks that share the experts of a layer, of which the busiest gets `arriving` times as
    many rows as the average. FSDP2 shards these experts over the rest. `context` subdivides `data` as well: ranks that
    have a part of each sequence, and see the rest of it by `exchange`, as in `Parallelism`.

    `reshard`, `wrap` and `reduce` as in `Parallelism`; with `tensor` above 1 the sequence is split too. `offload`: the
    shards live in host memory (CPUOffloadPolicy), and bytes are those of the device alone.
    """

    data: int = 1
    tensor: int = 1
    replicate: int = 1
    reshard: str = "all"
    wrap: int = 1
    reduce: str = "micro_batch"
    micro_batches: int = 1
    ends: str = "root"  # as in `Stack`
    gathered_logits: bool = False  # as in `Stack`
    offload: bool = False
    expert: int = 1
    arriving: Fraction = Fraction(1)
    context: int = 1
    exchange: str = "all_gather"
    balanced: bool = True
    place: int = 0

    @property
    def shards(self) -> bool:
        """Whether FSDP2 holds weights at all, or tensor parallelism alone splits them."""
        return self.data * self.replicate > 1

    @property
    def world_size(self) -> int:
        """The size of the process group."""
        return self.data * self.tensor * self.replicate


@dataclass(frozen=True)
class DdpRank:
    """Rank 0 of ranks with all weights each; DistributedDataParallel reduces gradients in buckets of `bucket` bytes.

    `once`: once a step, not with every micro-batch. 0 bytes: as torch does.
    """

    world_size: int
    bucket: int = 0
    once: bool = True
    micro_batches: int = 1
    place: int = 0


@dataclass(frozen=True)
class StageRank:
    """Device `place` of a pipeline of `world_size` devices, one stage each; the schedule as in a plan."""

    place: int
    world_size: int
    schedule: str
    micro_batches: int

    @property
    def first(self) -> bool:
        """Whether it has the embedding."""
        return self.place == 0

    @property
    def last(self) -> bool:
        """Whether it has the head."""
        return self.place == self.world_size - 1


Rank = ShardedRank | DdpRank | StageRank
