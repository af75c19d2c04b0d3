"""Scans operator by operator: what autograd keeps of them, and what the counter of FLOPs makes of their convolution."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ledger.books.compiled import Compiled
from ledger.lab.observed.one_device import counter_formulas
from tests.lab.saved_cases import packed, predicted
from tests.model import plans

BATCH, CHANNELS, TOKENS, TAPS = 2, 7, 11, 4
ROWS = TOKENS + TAPS - 1  # zeros stand before and after a sequence


def _counted(**formulas: object) -> tuple[int, int]:
    """FLOPs of a depthwise convolution, forward and backward."""
    x = torch.zeros(BATCH, CHANNELS, TOKENS, device="meta", requires_grad=True)
    filters = torch.zeros(CHANNELS, 1, TAPS, device="meta", requires_grad=True)
    with FlopCounterMode(display=False, **formulas) as forward:
        result = torch.nn.functional.conv1d(x, filters, padding=TAPS - 1, groups=CHANNELS)
    assert result.shape[-1] == ROWS
    with FlopCounterMode(display=False, **formulas) as backward:
        result.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


def test_a_filter_of_one_channel_has_no_gradient_of_others() -> None:
    """Each result is a sum of `TAPS` products, and each product has two factors, so two gradients cost as much each.

    PyTorch's own formula has that of the weight as often as there are channels: it counts the products of every
    channel's input with every other channel's gradient, and the filter of a channel reads its own alone.
    """
    products = 2 * BATCH * CHANNELS * ROWS * TAPS
    assert _counted() == (products, products + CHANNELS * products)
    assert _counted(custom_mapping=counter_formulas()) == (products, 2 * products)


def _compiled(precision: str, norm: str) -> Compiled:
    """Layers of both kinds over 150 tokens, of which two chunks of 64 are whole."""
    attention = "math" if precision == "fp32" else "flash"
    return plans.compiled(
        model={**plans.GATED_DELTA, "max_seq_len": 150},
        precision=precision,
        kernels={"attention": attention, "norm": norm, "activation": norm, "scan": "eager"},
        run={"seq_len": 150, "micro_batch": 3, "global_batch": 3},
    )


@pytest.mark.parametrize("norm", ["fused", "eager"])
@pytest.mark.parametrize("precision", ["bf16-true", "fp32"])
def test_a_scan_by_the_delta_rule_saves_what_pytorch_packs(precision: str, norm: str) -> None:
    """The layer of the scan, and the whole model; states and chunks are in fp32 in either precision."""
    compiled = _compiled(precision, norm)
    found, seen = predicted(compiled), packed(compiled)
    assert (found["per_layer.linear"], found["total"]) == (seen["per_layer.linear"], seen["total"])
