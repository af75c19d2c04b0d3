"""Weights that fp8 copies replace, second layouts that backward makes, scales that follow the product."""

from __future__ import annotations

import pytest

from ledger.books.compiled import Compiled
from ledger.books.results import KernelTime
from tests.model import plans

B, S, D, V, F = 3, 32, 96, 208, 176  # multiples of 16, as fp8 products need
HEADS, KV, WIDTH = 6, 3, 16
LAYERS = 2
MODEL: plans.Mapped = {
    **plans.layer(plans.LLAMA, attention={"heads": HEADS, "kv_heads": KV, "head_dim": WIDTH}, mlp={"d_ff": F}),
    "d_model": D,
    "vocab": V,
}
MATRICES = D * (HEADS + 2 * KV) * WIDTH + HEADS * WIDTH * D + 3 * D * F  # values of a layer that are quantised
DELAYED = {"base": "fp8-delayed", "gradients": "bf16", "reduction": "bf16"}


def narrow(**recipe: str) -> Compiled:
    """Two devices that share the batch and the update, under delayed scaling as the recipe changes it."""
    cluster = {"base": "h100-400g", "devices": 2, "devices_per_node": 2}
    return plans.compiled(
        model=MODEL,
        cluster=cluster,
        parallelism={"data": 2, "zero": 1},
        precision={**DELAYED, "matmul": recipe},
        stack="megatron-lm-2022",
        run={"seq_len": S, "micro_batch": B, "global_batch": 2 * B},
    )


def kernels(one: Compiled, ending: str) -> dict[str, KernelTime]:
    """Kernels of the step whose account ends so."""
    (role,) = one.roles
    return {row.account: row for row in role.kernels if row.account.endswith(ending)}


def test_weights_in_fp8_alone_are_held_and_gathered_so() -> None:
    """Megatron's fp8_param_gather: two layouts of a byte a value, none of 16 bits, and gathers of a byte a value."""
    beside, alone = narrow(weights="kept"), narrow(weights="only")
    matrices = LAYERS * MATRICES
    assert beside.totals["memory.static.weights"] - alone.totals["memory.static.weights"] == 2 * matrices
    gathered, reduced = "comm.all_gather.data.bytes", "comm.reduce_scatter.data.bytes"
    assert beside.totals[gathered] - alone.totals[gathered] == pytest.approx(matrices, rel=1e-3)  # rows are padded
    assert beside.totals[reduced] == alone.totals[reduced]
    assert beside.totals["parameters"] == alone.totals["parameters"]


def test_a_second_layout_that_is_made_anew_is_not_held() -> None:
    """A byte a value less, and a pass of backward more, which reads one layout and writes the other."""
    kept, anew = narrow(weights="only"), narrow(weights="only", turned="anew")
    freed = kept.totals["memory.static.weights"] - anew.totals["memory.static.weights"]
    assert LAYERS * MATRICES <= freed < 1.001 * LAYERS * MATRICES  # and the scales of the second
    turned = kernels(anew, ".turn_weight")
    assert not kernels(kept, ".turn_weight")
    assert len(turned) == 7
    assert sum(row.bytes for row in turned.values()) == 2 * MATRICES + 4 * len(turned)  # each has a scale


def test_scales_that_follow_the_product_are_a_pass_over_each_gradient() -> None:
    """torchao's rowwise recipe in backward: each product writes 16 bits, and a pass reads and writes them."""
    rows = {"model": MODEL, "precision": {"base": "fp8-rowwise", "matmul": {"scaled": "after"}}}
    run = {"seq_len": S, "micro_batch": B, "global_batch": B}
    after = plans.compiled(**rows, run=run)
    within = plans.compiled(**{**rows, "precision": {"base": "fp8-rowwise", "matmul": {"scaled": "matmul"}}}, run=run)
    passes = kernels(after, "_gradient.scale")
    assert not kernels(within, "_gradient.scale")
    inputs = 2 * 2 * B * S * (6 * D + HEADS * WIDTH + F - D)  # of q, k, v, gate, up; of out; of down
    assert sum(row.bytes for name, row in passes.items() if "input_gradient" in name) == inputs
