"""DeepSpeed as a judge: one rank, in a process of its own."""

from __future__ import annotations

import os
from dataclasses import replace

from ledger.lab.judges.deepspeed.calls import calls
from ledger.lab.judges.deepspeed.causes import causes
from ledger.lab.judges.deepspeed.configuration import refusal
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.judges.rank_figures import RankFigures
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.spec.plan import Plan

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
    """The same in this process, which DeepSpeed keeps changed."""
    from ledger.lab.judges.fake_group import fake_group
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
    title="DeepSpeed",
    packages=("deepspeed",),
    refusal=refusal,
    judge=ask,
    notes=notes,
    causes=causes,
    calls=calls,
)
