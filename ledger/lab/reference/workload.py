"""What a reference runs: the model of a plan, its batch, and the kernels and precision that it is built with."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.optimizer import Implementation
from ledger.spec.plan import Kernels, Model, Optimizer, Plan, Precision, Recompute, Train

ADAMW = Optimizer(update=dict.fromkeys(("foreach", "fused", "loop"), Implementation()))


@dataclass(frozen=True)
class Workload:
    """What PyTorch is asked to run: one unsharded micro-batch of `batch` sequences of `seq_len` tokens.

    `source_len`: tokens that an encoder reads before each.

    `hosting`: what layers save waits in host memory, copies are `waited` for or go on `ahead`; empty: on the device.
    """

    model: Model
    kernels: Kernels
    precision: Precision
    batch: int
    seq_len: int
    recompute: Recompute = field(default_factory=Recompute)
    optimizer: Optimizer = ADAMW
    train: Train = field(default_factory=Train)
    hosting: str = ""
    source_len: int = 0


def workload(plan: Plan) -> Workload:
    """One micro-batch of `plan` on one device, its parallelism left aside; raises `NoReferenceError`."""
    formats = plan.precision.weights
    if not formats.every and not (
        formats.is_stored_only and len({formats.norms, formats.embedding, formats.head}) == 1
    ):
        raise NoReferenceError(f"weights in {formats}: PyTorch's judge builds a model in one dtype")
    run, optimizer = plan.run, plan.optimizer
    copied = "ahead" if plan.stack.overlap.host == "compute" else "waited"
    return Workload(
        plan.model,
        plan.kernels,
        plan.precision,
        run.micro_batch,
        run.seq_len,
        plan.recompute,
        optimizer,
        plan.train,
        hosting=copied if "activations" in plan.parallelism.offload else "",
        source_len=run.source_len,
    )
