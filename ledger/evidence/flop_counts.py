"""FLOPs and parameters as PyTorch itself counts them, on meta tensors at full size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.evidence.reference_model import causal_mask, reference_model

if TYPE_CHECKING:
    from ledger.spec.plan import Kernels, Model


@dataclass(frozen=True)
class FlopCounts:
    """What FlopCounterMode reports for one micro-batch: matmuls and attention, causal masks without a discount."""

    forward: int
    backward: int

    @property
    def step(self) -> int:
        """Forward and backward together."""
        return self.forward + self.backward


def parameter_count(model: Model) -> int:
    """Parameters of the transformers model, tied weights once; raises `NoReferenceError`."""
    import torch

    from ledger.spec.plan import Kernels

    built = reference_model(model, Kernels(attention="eager", norm="eager"), "meta", torch.bfloat16)
    return sum(parameter.numel() for parameter in built.parameters())


def flop_counts(model: Model, kernels: Kernels, batch: int, seq_len: int) -> FlopCounts:
    """FLOPs of one unsharded micro-batch, forward with the loss and backward; raises `NoReferenceError`."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ledger.evidence.reference_modules import whole_kernels

    with whole_kernels():
        built = reference_model(model, kernels, "meta", torch.bfloat16)
        tokens = torch.zeros(batch, seq_len, dtype=torch.long, device="meta")
        mask = causal_mask(kernels, batch, seq_len, "meta", torch.bfloat16)
        with FlopCounterMode(display=False) as forward:
            loss = built(tokens, attention_mask=mask, labels=tokens, use_cache=False).loss
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return FlopCounts(forward.get_total_flops(), backward.get_total_flops())
