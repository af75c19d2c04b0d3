"""A step of one rank on a fake process group, in a fresh process."""

from __future__ import annotations

from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.lab.observed.ranks import DdpRank, Rank, ShardedRank
from ledger.lab.reference.model import Workload


def rank_step(work: Workload, rank: Rank) -> DeviceStep:
    """One step of micro-batches of `work` on one rank, forward, backward and update; raises `NoReferenceError`.

    Of a `StageRank`, `work.model` has the layers of its stage alone. Tensor parallelism is laid out for Llama, Mistral
    and Qwen2 only.
    """
    return run_in_fresh_process(run_rank, work, rank)


def run_rank(work: Workload, rank: Rank) -> DeviceStep:
    """The same in this process, whose fake process group stays."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=rank.place, world_size=rank.world_size)
    if isinstance(rank, ShardedRank):
        from ledger.lab.observed.sharded_rank import run_sharded

        return run_sharded(work, rank)
    if isinstance(rank, DdpRank):
        from ledger.lab.observed.ddp_rank import run_ddp

        return run_ddp(work, rank)
    from ledger.lab.observed.stage_rank import run_stage

    return run_stage(work, rank)
