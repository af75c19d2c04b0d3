"""torchtitan as a judge: one rank of each stage, each in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from torch.utils import _triton

from ledger.lab.judges import fakes
from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.judges.torchtitan.causes import causes
from ledger.lab.judges.torchtitan.configuration import refusal
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.spec.plan import Plan

LOOKING = ("torch._dynamo", "torch._functorch.partitioners", "torch._inductor.codecache")  # for Triton, when imported
UNUSED = ("datasets", "datasets.distributed", "torch.utils.tensorboard")


def install() -> None:
    """Lets this process import torchtitan; for good, so call it in a process of its own."""
    for name in LOOKING:
        import_module(name)
    _triton.has_triton = _triton.has_triton_package = lambda *_, **__: False
    fakes.install((*fakes.TRITON, *UNUSED))


AMPERE = (8, 0)  # whose FlashAttention is torch's own


def ask(plan: Plan, stage: int) -> RankFigures:
    """The figures of the first rank of a stage."""
    return run_in_fresh_process(run, replace(plan, origins={}, expect=(), warnings=(), reading=None), stage)


def run(plan: Plan, stage: int) -> RankFigures:
    """The same in this process, which keeps the stand-ins."""
    from ledger.lab.judges.fakes import fake_group
    from ledger.lab.judges.imaginary_cuda import ImaginaryDevice, imaginary_cuda
    from ledger.lab.reference.modules import imaginary_gpu

    devices = plan.cluster.devices
    place = stage * devices // plan.parallelism.pipeline
    device = ImaginaryDevice(capability=AMPERE)
    with imaginary_gpu(), imaginary_cuda(device), fake_group(devices, place):
        install()
        from ledger.lab.judges.torchtitan.step import judge_rank

        return judge_rank(plan)


def notes(_: Plan) -> tuple[str, ...]:
    """What torchtitan is asked instead of what it does by itself."""
    sharded = "parallelism.spmd_backend = partial_dtensor: fully_shard of PyTorch 2.13 takes no tensors of spmd_types"
    graphs = "training.disable_cuda_graphs = true: without, gradients stay from step to step, as captured graphs need"
    return (sharded, graphs)


TORCHTITAN = FrameworkJudge(
    title="torchtitan",
    packages=("torchtitan",),
    refusal=refusal,
    judge=ask,
    notes=notes,
    causes=causes,
    calls=lambda *_: {},
)
