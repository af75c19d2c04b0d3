"""What one rank of a sharded training step holds and sends: FSDP2 and tensor parallelism on a fake process group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.lab.reference.model import Workload

if TYPE_CHECKING:
    from ledger.lab.observed.held import Held


@dataclass(frozen=True)
class Sharding:
    """The mesh of one rank: `replicate` x `data` x `tensor` ranks; FSDP2 shards over `data`.

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
    offload: bool = False
    expert: int = 1
    arriving: Fraction = Fraction(1)
    context: int = 1
    exchange: str = "all_gather"
    balanced: bool = True

    @property
    def shards(self) -> bool:
        """Whether FSDP2 holds weights at all, or tensor parallelism alone splits them."""
        return self.data * self.replicate > 1

    @property
    def ranks(self) -> int:
        """The size of the process group."""
        return self.data * self.tensor * self.replicate


@dataclass(frozen=True)
class Replicas:
    """Ranks that have all weights each, whose gradients DistributedDataParallel reduces in buckets of `bucket` bytes.

    `once`: once a step, not with every micro-batch. 0 bytes: as torch does.
    """

    ranks: int
    bucket: int = 0
    once: bool = True
    micro_batches: int = 1


@dataclass(frozen=True)
class Stage:
    """Device `place` of a pipeline of `stages` devices, each with one stretch of layers; the schedule as in a plan."""

    place: int
    stages: int
    schedule: str
    micro_batches: int

    @property
    def first(self) -> bool:
        """Whether it has the embedding."""
        return self.place == 0

    @property
    def last(self) -> bool:
        """Whether it has the head."""
        return self.place == self.stages - 1


@dataclass(frozen=True)
class Collective:
    """Collectives of one kind on one axis in one phase; bytes: output of a gather, input of a reduction."""

    kind: str  # all_gather | reduce_scatter | all_reduce | all_to_all
    axis: str  # data | tensor | replicate | expert | expert_data
    phase: str  # forward | backward
    count: int
    bytes: int


@dataclass(frozen=True)
class ShardedStep:
    """Rank 0 of one step, in bytes, every storage rounded up to 512.

    `static`: weights, AdamW states, ids and buffers; `activations`: what forward leaves for backward, gathered weights
    included; `peak` is of forward and backward, gradients freed before. `moments` as in `StepMemory`. The collectives
    are those of all micro-batches. `host`: what lies in host memory when most does, before the update.
    """

    static: int
    activations: int
    peak: int
    collectives: tuple[Collective, ...]
    moments: Mapping[str, Held] = field(default_factory=dict)
    host: int = 0


def sharded_step(work: Workload, sharding: Sharding) -> ShardedStep:
    """One step per rank, of micro-batches of `work`, forward, backward and update; raises `NoReferenceError`.

    Runs in a process of its own, since a process has one fake world size. Tensor parallelism is laid out for Llama,
    Mistral and Qwen2 only.
    """
    return run_in_fresh_process(_in_this_process, work, sharding)


def _in_this_process(work: Workload, sharding: Sharding) -> ShardedStep:
    from ledger.lab.observed.sharded_rank import run_rank

    return run_rank(work, sharding)


def replica_step(work: Workload, replicas: Replicas) -> ShardedStep:
    """The same where every rank has all weights."""
    return run_in_fresh_process(_replica_in_this_process, work, replicas)


def _replica_in_this_process(work: Workload, replicas: Replicas) -> ShardedStep:
    from ledger.lab.observed.replicas import run_replica

    return run_replica(work, replicas)


def stage_step(work: Workload, stage: Stage) -> ShardedStep:
    """The same of one device of a pipeline, `work.model` having its layers alone; nothing is said of after forward."""
    return run_in_fresh_process(_stage_in_this_process, work, stage)


def _stage_in_this_process(work: Workload, stage: Stage) -> ShardedStep:
    from ledger.lab.observed.pipeline_rank import run_stage

    return run_stage(work, stage)
