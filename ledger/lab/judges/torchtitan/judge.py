"""torchtitan as a judge: one rank of each stage, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module

from torch.utils import _triton

from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges import fakes
from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.judges.protocol import BETWEEN_PASSES, FrameworkJudge, RoleInstant, token_ids
from ledger.lab.judges.torchtitan.configuration import refusal
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.lab.verification.causes import FP32_BYTES, INT64_BYTES, LOSS, SCALAR
from ledger.model import dtypes
from ledger.model.quantised import JOINED
from ledger.model.schedule import Role
from ledger.model.units import compute_precision
from ledger.spec.plan import Plan


def causes(plan: Plan, role: Role, moment: str) -> Iterator[KnownDifference]:
    """Each named cause with its bytes of found minus predicted at one moment."""
    at = RoleInstant(plan, moment, role)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _positions(at: RoleInstant) -> int:
    """Every micro-batch brings the place of each token in its document (torchtitan/trainer.py)."""
    return 0 if at.moment in BETWEEN_PASSES else INT64_BYTES * at.tokens


def _labels(at: RoleInstant) -> int:
    """Labels are there through both passes; the ledger has them from the loss on until backward has read them."""
    outside_passes = at.moment in (*BETWEEN_PASSES, "after forward")
    return 0 if outside_passes or not at.role.last else INT64_BYTES * at.tokens


def _weight_of_the_mean(at: RoleInstant) -> int:
    """The weight of the loss's mean is a single number, which the judge leaves out."""
    return -SCALAR if at.moment == "after forward" and at.plan.kernels.loss == "eager" else 0


def _norms(at: RoleInstant) -> int:
    """A norm of each gradient in fp32, in four copies while the ranks put them together, one more for a second axis.

    torchtitan/distributed/utils.py, `clip_grad_norm_`.
    """
    if at.moment != "optimizer" or at.plan.kernels.optimizer != "fused":  # others are fuller in the update
        return 0
    layers = len(at.plan.model.layers)
    norms_per_layer = 7 if JOINED[at.plan.stack.projections] else 9
    copies = 5 if at.plan.parallelism.tensor > 1 else 4
    return copies * FP32_BYTES * (norms_per_layer * layers + 3)


def _documents(at: RoleInstant) -> int:
    """Where each document begins and the last one ends, in 32 bits; of one document these are too few to count."""
    sequences = at.plan.run.micro_batch
    return 4 * (sequences + 1) if sequences > 1 and at.moment not in BETWEEN_PASSES else 0


def _size(at: RoleInstant) -> int:
    """Bytes of a number between operations."""
    return int(dtypes.size(compute_precision(at.plan).activations))


def _own_rows(at: RoleInstant) -> int:
    """Which of its own rows a part of the vocabulary looked up, and for which tokens, saved for its gradient.

    torchtitan/models/common/embedding.py.
    """
    split = at.plan.parallelism.tensor > 1 and at.role.first
    return (INT64_BYTES + _size(at)) * at.tokens if split and at.moment not in BETWEEN_PASSES else 0


def _split_loss(at: RoleInstant) -> int:
    """Labels, masks and numbers of each token that `_LossParallelCrossEntropy` holds (torchtitan/components/loss.py).

    Forward: two lists of labels, two masks, and five numbers in fp32, of which the ledger has one. Backward: two lists
    of labels and one of rows, a mask, and two numbers.
    """
    if at.plan.parallelism.tensor == 1 or not at.role.last or at.plan.kernels.loss != "eager":
        return 0
    bytes_per_token = {
        LOSS: 2 * INT64_BYTES + 2 + 4 * FP32_BYTES,
        "backward/loss": 3 * INT64_BYTES + 1 + 2 * FP32_BYTES,
    }
    return bytes_per_token.get(at.moment, 0) * at.tokens


CAUSES: Mapping[str, Callable[[RoleInstant], int]] = {
    "token ids, which come with a micro-batch": token_ids,
    "positions of tokens": _positions,
    "labels, which come with a micro-batch": _labels,
    "where documents begin": _documents,
    "rows that a part of the vocabulary looked up": _own_rows,
    "labels and statistics of a split vocabulary": _split_loss,
    "the weight of the loss's mean": _weight_of_the_mean,
    "norms of gradients": _norms,
}


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
    """The figures of the first rank of a stage, found in this process, which keeps the stand-ins."""
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
