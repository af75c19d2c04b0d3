"""Gradients that are reduced out of one buffer, and what a rank holds around it."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled import Compiled
from tests.model import plans

D, V, RANKS = 36, 213, 4
BUFFER = 10_000
LLAMA = {**plans.layer(plans.LLAMA, repeat=3), "d_model": D, "vocab": V}


def compiled(zero: int, batches: int = 1, **stack: Any) -> Compiled:
    """A small Llama on four ranks that reduce gradients out of a buffer."""
    options = {"base": "deepspeed-transformers-2026", "reduction_buffer": BUFFER, **stack}
    return plans.compiled(
        model=LLAMA,
        precision="bf16-mixed",
        cluster={"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        parallelism={"data": RANKS, "zero": zero},
        run={"seq_len": 37, "micro_batch": 1, "global_batch": batches * RANKS},
        stack=options,
    )


def total(one: Compiled, moment: str) -> int:
    """Bytes of a moment."""
    (role,) = one.roles
    return next(each.total for each in role.moments if each.name == moment)


@pytest.mark.parametrize("zero", [1, 2])
def test_the_buffer_is_there_while_layers_run_backward(zero: int) -> None:
    """A buffer of 5,000 elements less is 10,000 B less there, and nothing where forward runs or weights are updated.

    Under ZeRO 1 nothing but the buffer depends on its size before backward is over.
    """
    large, small = compiled(zero), compiled(zero, reduction_buffer=BUFFER // 2)
    assert total(large, "forward/decoder") == total(small, "forward/decoder")
    assert total(large, "optimizer") == total(small, "optimizer")
    if zero == 1:
        assert total(large, "backward/decoder") - total(small, "backward/decoder") == 2 * BUFFER // 2


def test_the_buffer_waits_for_the_last_micro_batch() -> None:
    """ZeRO 1 reduces once a step, so the buffer is there in forward too once there are several micro-batches."""
    large, small = compiled(1, batches=3), compiled(1, batches=3, reduction_buffer=BUFFER // 2)
    assert total(large, "forward/decoder") - total(small, "forward/decoder") == 2 * BUFFER // 2


def test_replicas_have_no_buffer() -> None:
    """Only the copy of a bucket, when backward is over."""
    large, none = compiled(0), compiled(0, reduction_buffer=0)
    assert total(large, "backward/decoder") == total(none, "backward/decoder")
    assert total(large, "backward/input") > total(none, "backward/input")


@pytest.mark.parametrize("zero", [1, 2])
def test_a_rank_updates_from_its_share_alone(zero: int) -> None:
    """The update holds weights and 12 B a share, the share's gradient, and it put together in bf16 and in fp32."""
    one, parameters = compiled(zero), int(compiled(zero).totals["parameters"])
    shares = total(one, "optimizer") - 2 * parameters - 8 * 37
    assert shares / (parameters / RANKS) == pytest.approx(12 + 2 + 2 + 4, rel=0.02)


def test_norms_are_of_copies() -> None:
    """In fp64 one weight's share may be more than all of them in fp32: here the embedding is most of the model."""
    wide = compiled(2, norm_dtype="fp64")
    plain = compiled(2, norm_dtype="")
    more = total(wide, "optimizer") - total(plain, "optimizer")
    parameters = int(wide.totals["parameters"])
    assert more == max(0, 8 * D * V // RANKS - 6 * parameters // RANKS)


@pytest.mark.parametrize("zero", [1, 2])
def test_every_rank_may_get_all_sums(zero: int) -> None:
    """`reduces: all`: an all-reduce in place of a reduce-scatter, of ZeRO 2 as well."""
    totals = compiled(zero).totals
    assert int(totals["comm.all_reduce.data.bytes"]) == 2 * int(totals["parameters"])
    assert "comm.reduce_scatter.data.bytes" not in totals
    shared = compiled(zero, reduces="share").totals
    assert "comm.all_reduce.data.bytes" not in shared


def test_shares_of_zero_3_stay() -> None:
    """Their buffer and that of what is reduced are there at every moment."""
    large, small = compiled(3), compiled(3, reduction_buffer=BUFFER // 2)
    for moment in ("forward/decoder", "backward/decoder", "optimizer"):
        assert total(large, moment) - total(small, moment) == 2 * BUFFER // 2
