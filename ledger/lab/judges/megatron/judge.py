"""Megatron-Core as a judge: one rank of each stage, each in a process of its own."""

from __future__ import annotations

from dataclasses import replace

from ledger.lab.judges.megatron.attention import saved
from ledger.lab.judges.megatron.calls import calls
from ledger.lab.judges.megatron.causes import causes
from ledger.lab.judges.megatron.configuration import recipe_name, refusal
from ledger.lab.judges.megatron.scales import lasting
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.judges.rank_figures import RankFigures
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.spec.plan import Plan

BLACKWELL = (10, 0)  # what multiplies MXFP8


def ask(plan: Plan, stage: int) -> RankFigures:
    """The figures of the first rank of a stage."""
    return run_in_fresh_process(run, replace(plan, origins={}, expect=(), warnings=(), reading=None), stage)


def run(plan: Plan, stage: int) -> RankFigures:
    """The same in this process, which keeps the stand-ins."""
    from ledger.lab.judges.fake_group import fake_group
    from ledger.lab.judges.imaginary_cuda import ImaginaryDevice, imaginary_cuda
    from ledger.lab.judges.megatron.stand_ins import install

    recipe, devices = plan.precision.matmul, plan.cluster.devices
    narrow = recipe is not None and recipe_name(recipe) == "mxfp8"
    device = ImaginaryDevice(capability=BLACKWELL) if narrow else ImaginaryDevice()
    place = stage * devices // plan.parallelism.pipeline
    with imaginary_cuda(device), fake_group(devices, place):
        install()
        from ledger.lab.judges.megatron.step import judge_rank

        return judge_rank(plan)


def notes(plan: Plan) -> tuple[str, ...]:
    """What Megatron-Core is asked instead of what the plan says."""
    if plan.stack.overlap.tensor == "userbuffers" and plan.parallelism.tensor > 1:
        return ("tp_comm_overlap = false: userbuffers are compiled, so what they hold is not there",)
    return ()


MEGATRON = FrameworkJudge(
    title="Megatron-Core",
    packages=("megatron-core", "transformer-engine"),
    refusal=refusal,
    judge=ask,
    notes=notes,
    causes=causes,
    calls=calls,
    held=lambda plan, book: {**lasting(plan, book), **saved(plan)},
)
