"""FLOPs and parameters as PyTorch itself counts them, on meta tensors at full size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.evidence.reference_model import Workload, checkpoint_layers, reference_model, training_loss
from ledger.spec.plan import Kernels, Precision

if TYPE_CHECKING:
    from ledger.spec.plan import Model

# FLOPs are the same in every dtype, and meta tensors know no autocast.
PLAIN = Precision("bf16", "bf16", "bf16", None, "bf16", "bf16", "bf16", "bf16")


@dataclass(frozen=True)
class FlopCounts:
    """What FlopCounterMode reports for one micro-batch: matmuls and attention, causal masks without a discount.

    `backward` includes what checkpointed layers compute again.
    """

    forward: int
    backward: int

    @property
    def step(self) -> int:
        """Forward and backward together."""
        return self.forward + self.backward


def parameter_count(model: Model) -> int:
    """Parameters of the transformers model, tied weights once; raises `NoReferenceError`."""
    import torch

    built = reference_model(model, Kernels(attention="eager", norm="eager"), "meta", torch.bfloat16)
    return sum(parameter.numel() for parameter in built.parameters())


def flop_counts(work: Workload) -> FlopCounts:
    """FLOPs of one unsharded micro-batch, forward with the loss and backward; raises `NoReferenceError`."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ledger.evidence.reference_modules import imaginary_gpu

    with imaginary_gpu():
        built = reference_model(work.model, work.kernels, "meta", torch.bfloat16)
        checkpoint_layers(built, work.recompute)
        tokens = torch.zeros(work.batch, work.seq_len, dtype=torch.long, device="meta")
        with FlopCounterMode(display=False) as forward:
            loss = training_loss(built, replace(work, precision=PLAIN), tokens)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return FlopCounts(forward.get_total_flops(), backward.get_total_flops())
