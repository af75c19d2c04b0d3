"""What a reference runs: the model of a plan, its batch, and the kernels and precision that it is built with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.optimizer import Implementation
from ledger.spec.plan import Kernels, Model, Optimizer, Plan, Precision, Recompute, Train

WRITTEN_OUT = "written out"  # of a workload's norms: LayerNorm too is of single operators
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


def reference_kernels(plan: Plan) -> Kernels:
    """The kernels of a plan; where it runs LayerNorm operator by operator, that is told from transformers' eager norms.

    Those are RMSNorms alone: its LayerNorm is PyTorch's.
    """
    writes_out = plan.kernels.norm == "eager" and plan.model.norm.kind == "layer" and not plan.model.norm.wide
    return replace(plan.kernels, norm=WRITTEN_OUT) if writes_out else plan.kernels


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
        reference_kernels(plan),
        plan.precision,
        run.micro_batch,
        run.seq_len,
        plan.recompute,
        optimizer,
        plan.train,
        hosting=copied if "activations" in plan.parallelism.offload else "",
        source_len=run.source_len,
    )
