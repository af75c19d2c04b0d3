"""What a window or chunks leave of attention's work and of what a decoder keeps."""

from __future__ import annotations

import pytest

import ledger
from ledger.books.breakdown import links
from ledger.books.compiled import Compiled

LAYERS, TOKENS, WINDOW, HEADS, KV_HEADS, HEAD_DIM = 32, 8192, 4096, 32, 8, 128  # Jiang et al. 2023, Mistral 7B, table 1
PLAN = f"""spec: ledger/1
plan: windows
accelerator: h100-sxm
cluster: {{devices: 8, devices_per_node: 8}}
model: mistral-7b
precision: bf16-mixed
optimizer: adamw
parallelism: {{data: 8, zero: 3}}
run: {{tokens: 1e9 tokens, seq_len: {TOKENS}, micro_batch: 1, global_batch: 8}}
"""
FULL = ("model.layers.decoder.attention.window=1000000",)


@pytest.fixture(scope="module")
def windowed() -> Compiled:
    """A plan whose layers all have a window of half a sequence."""
    return ledger.compile(PLAN)


def test_model_flops_leave_out_the_causal_mask_only(windowed: Compiled) -> None:
    """A query of a layer with a window counts min(S, W) keys; what PyTorch counts, the full square, stays."""
    unseen = 2 * 2 * LAYERS * HEADS * HEAD_DIM * TOKENS * (TOKENS - WINDOW)  # two products of 2 FLOPs a point
    found = windowed.totals
    assert found["flops.counter.forward"] - found["flops.unmasked"] == unseen
    full = ledger.compile(PLAN, FULL).totals
    assert full["flops.unmasked"] == full["flops.counter.forward"] == found["flops.counter.forward"]


def test_a_window_bounds_what_a_decoder_keeps(windowed: Compiled) -> None:
    """Keys and values of W positions in bf16; a chunk is bounded alike, and a token is made in less time."""
    assert windowed.totals["kv_cache"] == 2 * LAYERS * KV_HEADS * HEAD_DIM * WINDOW * 2
    full = ledger.compile(PLAN, FULL).totals
    assert full["kv_cache"] == 2 * LAYERS * KV_HEADS * HEAD_DIM * TOKENS * 2
    assert windowed.totals["decode.time_per_token"] < full["decode.time_per_token"]


def test_only_links_with_bytes_on_them_are_named() -> None:
    """Eight devices of a node talk over its own links; activations that wait on the host go over another."""
    assert links(ledger.compile(PLAN)) == {"accelerator.scaleup.bandwidth"}
    sixteen = ledger.compile(PLAN, ["cluster.devices=16", "parallelism.data=16", "run.global_batch=16"])
    assert links(sixteen) == {"accelerator.scaleup.bandwidth", "cluster.scaleout.bandwidth"}
    alone = ["cluster.devices=1", "parallelism={offload: [activations]}"]
    assert links(ledger.compile(PLAN, alone)) == {"accelerator.host_link"}
