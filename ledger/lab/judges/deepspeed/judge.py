"""DeepSpeed as a judge: one rank, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.deepspeed.causes import causes
from ledger.lab.judges.deepspeed.configuration import refusal
from ledger.lab.judges.deepspeed.flat_weights import OF_REPLICAS, FlatWeights, call_sizes, flat_weights
from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.model import dtypes
from ledger.model.formats import trained_dtype
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

REDUCED = "comm.all_reduce.data.backward.count"
GATHERED = "comm.all_gather.data.optimizer"


def calls(plan: Plan, _: CompiledRole, counts: Mapping[str, int]) -> Mapping[str, KnownDifference]:
    """By figure, how the number of DeepSpeed's calls differs from the ledger's."""
    flat = flat_weights(plan)
    if plan.parallelism.zero == 3:
        return {}
    differences = {
        REDUCED: KnownDifference("gradients move in buckets", _reductions(plan, flat) - counts.get(REDUCED, 0))
    }
    if plan.parallelism.zero:
        count, amount = counts.get(f"{GATHERED}.count", 0), counts.get(f"{GATHERED}.bytes", 0)
        gathered_bytes = flat.share * flat.ranks * int(dtypes.size(trained_dtype(plan)))
        differences |= {
            f"{GATHERED}.count": KnownDifference("weights are gathered in one call", 1 - count),
            f"{GATHERED}.bytes": KnownDifference("shares are stretches of all weights", gathered_bytes - amount),
        }
    return differences


def _reductions(plan: Plan, flat: FlatWeights) -> int:
    """All-reduces of a step."""
    most = plan.stack.reduction_buffer
    if plan.parallelism.zero == 0:
        return len(list(call_sizes(flat.sizes, OF_REPLICAS)))
    if plan.parallelism.zero == 1:
        return flat.reductions(range(len(flat.sizes)), most)
    return int(micro_batches(plan)) * flat.reductions(flat.backward, most)


# What DeepSpeed reads of its surroundings, beside the ranks that a launcher states.
ENVIRONMENT = {
    "DS_ACCELERATOR": "cuda",
    "DS_SKIP_CUDA_CHECK": "1",
    "DS_IGNORE_CUDA_DETECTION": "1",
    "LOCAL_RANK": "0",
    "RANK": "0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "1",
}


def ask(plan: Plan, _: int) -> RankFigures:
    """The figures of the first rank."""
    return run_in_fresh_process(run, replace(plan, origins={}, expect=(), warnings=(), reading=None))


def run(plan: Plan) -> RankFigures:
    """The figures of the first rank, found in this process, which DeepSpeed leaves changed."""
    from ledger.lab.judges.fakes import fake_group
    from ledger.lab.judges.imaginary_cuda import ImaginaryDevice, imaginary_cuda
    from ledger.lab.reference.modules import imaginary_gpu

    devices = plan.cluster.devices
    os.environ.update(ENVIRONMENT, WORLD_SIZE=str(devices))
    with imaginary_cuda(ImaginaryDevice()), fake_group(devices, 0), imaginary_gpu():
        from ledger.lab.judges.deepspeed.step import judge_rank

        return judge_rank(plan)


def notes(plan: Plan) -> tuple[str, ...]:
    """What DeepSpeed is asked instead of what the plan says."""
    if "optimizer" in plan.parallelism.offload:
        return ("torch.optim.AdamW on the host in place of DeepSpeedCPUAdam, whose kernel is compiled",)
    return ()


DEEPSPEED = FrameworkJudge(
    title="DeepSpeed", packages=("deepspeed",), refusal=refusal, judge=ask, notes=notes, causes=causes, calls=calls
)
