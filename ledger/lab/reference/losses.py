"""Losses that transformers lacks: gradients in place of the logits, logits of one part of a sequence at a time.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ledger.spec.loss_chunks import USUAL_CHUNKS


class FusedLoss(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """Cross-entropy whose kernel writes the gradient over the logits (Liger-Kernel, ops/cross_entropy.py)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each row is summed up; the logits are no more."""
        losses = logits.new_zeros(labels.numel(), dtype=torch.float32)
        ctx.save_for_backward(logits.detach())
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient that forward left; the upstream gradient is one."""
        (gradient,) = ctx.saved_tensors
        return gradient, None


class FusedLinearLoss(torch.autograd.Function):  # type: ignore[misc]  # as above
    """Head and loss part by part, with both gradients (Liger-Kernel, ops/fused_linear_cross_entropy.py)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, count: int) -> Tensor:
        """Logits of one part at a time, in whose place their gradient is written; without a `count`, Liger's parts."""
        rows, targets = hidden.flatten(0, 1), labels.flatten()
        towards_hidden = torch.zeros_like(rows) if ctx.needs_input_grad[0] else None
        towards_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        losses = torch.zeros(targets.numel(), dtype=torch.float32, device=rows.device)
        size = -(-rows.shape[0] // count) if count else liger_part(rows.shape[0], *weight.shape)
        size = min(size, rows.shape[0])
        logits = torch.empty(size, weight.shape[0], dtype=rows.dtype, device=rows.device)
        for start in range(0, rows.shape[0], size):
            part = rows[start : start + size]
            scores = logits[: part.shape[0]]
            torch.mm(part, weight.t(), out=scores)
            if towards_hidden is not None:
                torch.mm(scores, weight, out=towards_hidden[start : start + size])
            if towards_weight is not None:
                torch.addmm(towards_weight, scores.t(), part, out=towards_weight)
        gradients = (towards_hidden.view_as(hidden) if towards_hidden is not None else None, towards_weight)
        ctx.save_for_backward(*(tensor.detach() if tensor is not None else None for tensor in gradients))
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states and weight, which forward has computed with the loss."""
        return (*ctx.saved_tensors, None, None)


def liger_part(rows: int, vocab: int, width: int) -> int:
    """Rows of a part as Liger-Kernel takes them (`inc_factor` and `chunk_size` of its forward pass)."""
    inc_factor = -(-vocab // width)
    chunk_size = 1
    while chunk_size < -(-rows // inc_factor):
        chunk_size *= 2
    return chunk_size


def reference_loss(built: Any, hidden: Tensor, labels: Tensor, kind: str, count: int) -> Tensor:
    """The loss of normed hidden states (batch, sequence, width) under the head of a transformers model.

    In `count` parts; as many as are usual where none is stated.
    """
    head = built.get_output_embeddings()
    loss: Tensor
    if kind == "fused_linear":
        loss = FusedLinearLoss.apply(hidden, head.weight, labels, count)
        return loss
    if kind == "fused":
        loss = FusedLoss.apply(head(hidden), labels)
        return loss
    count = count or USUAL_CHUNKS
    parts = zip(hidden.chunk(count, dim=1), labels.chunk(count, dim=1), strict=True)
    losses = [
        checkpoint(_part, head, part, targets, use_reentrant=False, preserve_rng_state=False) for part, targets in parts
    ]
    return torch.stack(losses).sum()


def _part(head: Any, hidden: Tensor, labels: Tensor) -> Tensor:
    logits = head(hidden).float()
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
