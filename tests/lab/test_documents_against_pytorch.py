"""Packed documents beside PyTorch's own counter: attention of each by itself, and eager attention under a mask."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tests.model import plans

SEQ, BATCH, LENGTH = 37, 3, 11
HEADS, HEAD_DIM, LAYERS = 6, 24, 2  # of plans.LLAMA


def counted(lengths: Sequence[int]) -> int:
    """FLOPs that FlopCounterMode counts of attention of a micro-batch, each document by itself, over all layers."""
    with FlopCounterMode(display=False) as counter:
        for length in lengths:
            rows = [torch.empty(BATCH, HEADS, length, HEAD_DIM, device="meta") for _ in range(3)]
            functional.scaled_dot_product_attention(*rows, is_causal=True)
    return LAYERS * int(counter.get_total_flops())


def forward(documents: str, attention: str) -> int:
    """What the compiler says that the counter counts of a micro-batch's forward pass."""
    run = {"seq_len": SEQ, "micro_batch": BATCH, "global_batch": BATCH}
    run |= {"documents": {"length": documents}} if documents else {}
    return int(plans.compiled(kernels={"attention": attention}, run=run).totals["flops.counter.forward"])


@pytest.mark.parametrize(("attention", "lengths"), [("flash", [11, 11, 11, 4]), ("eager", [SEQ])])
def test_the_counter_counts_each_document_by_itself(attention: str, lengths: list[int]) -> None:
    """A kernel that is told bounds counts a square for each document; a mask changes nothing of what is counted."""
    rest = forward("", attention) - counted([SEQ])
    assert forward(f"{LENGTH} tokens", attention) - rest == counted(lengths)
