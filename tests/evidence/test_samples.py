"""Records become seconds and sizes: the arithmetic between a published figure and what a fit is given."""

from __future__ import annotations

import pytest

from ledger.evidence.microbenchmarks.samples import RecordError, pass_shares, samples
from ledger.evidence.microbenchmarks.sets import is_priced
from ledger.spec.kernel_classes import form_of, kernel_class


def test_a_rate_becomes_seconds() -> None:
    """A 1000 x 2000 x 3000 matmul is 12 GFLOP, so 100 TFLOP/s is 120 us; it moves 22 MB in bf16."""
    (sample,) = samples([{"what": "matmul.bf16", "m": 1000, "n": 2000, "k": 3000, "value": 100, "unit": "TFLOP/s"}])
    assert sample.seconds == pytest.approx(120e-6)
    assert sample.sizes["bytes"] == 2 * (3_000_000 + 6_000_000 + 2_000_000)


@pytest.mark.parametrize(
    ("what", "matmuls"), [("attention.flash.forward", 2), ("attention.flash.backward", 5), ("attention.flash", 7)]
)
def test_causal_attention_counts_half_of_each_matmul(what: str, matmuls: int) -> None:
    """Two matmuls forward, five backward (the scores are computed again), each 2 b h s s d; the mask leaves half."""
    shape = {"batch": 3, "heads": 5, "head_dim": 64, "seq": 128, "causal": True}
    (sample,) = samples([{"what": what, **shape, "value": 1.0, "unit": "ms"}])
    assert sample.sizes["flops"] == matmuls * 2 * 3 * 5 * 128 * 128 * 64 / 2
    assert sample.seconds == pytest.approx(1e-3)


def test_passes_that_were_timed_as_one_share_its_flops() -> None:
    """Two products of seven are forward's, five backward's; a pass or a matmul timed by itself has all of its own."""
    shares = {what: pass_shares(kernel_class(what)) for what in ("attention.cudnn", "attention.cudnn.backward", "copy")}
    assert {str(one): share for one, share in shares["attention.cudnn"].items()} == {
        "attention.cudnn.forward": 2 / 7,
        "attention.cudnn.backward": 5 / 7,
    }
    assert list(shares["attention.cudnn.backward"].values()) == list(shares["copy"].values()) == [1.0]


def test_a_ring_passes_an_all_reduce_twice() -> None:
    """8 ranks: 7/8 of the payload for a reduce-scatter, twice that for an all-reduce."""
    sizes = {"bytes": 1e6, "ranks": 8, "value": 10, "unit": "us"}
    reduce, scatter = samples([{"what": "all_reduce", **sizes}, {"what": "reduce_scatter", **sizes}])
    assert reduce.sizes["bus_bytes"] == pytest.approx(1.75e6)
    assert scatter.sizes["bus_bytes"] == pytest.approx(0.875e6)


def test_kernel_classes_without_a_form_of_their_own_move_bytes() -> None:
    """Norms, dropout and copies are priced by bandwidth; a scale-out collective is still a collective."""
    assert [form_of(kernel_class(what)) for what in ("norm.backward", "dropout", "all_reduce.scaleout")] == [
        "bandwidth",
        "bandwidth",
        "collective",
    ]


def test_a_size_that_is_no_number_is_refused() -> None:
    """A quoted size would silently compare as text."""
    with pytest.raises(RecordError, match="`bytes` of a record must be a number"):
        samples([{"what": "copy", "bytes": "1 GB", "value": 1, "unit": "us"}])


def test_accumulated_gradients_are_read_and_written_in_fp32() -> None:
    """2 x 3 x 5 with an fp32 result that is added to: 2 B for each operand, 4 + 4 B for each of 6 results."""
    shape = {"what": "matmul.bf16", "m": 2, "n": 3, "k": 5, "result": "fp32", "accumulate": True}
    (sample,) = samples([{**shape, "value": 1, "unit": "us"}])
    assert sample.sizes["bytes"] == 2 * (2 * 5 + 5 * 3) + 8 * 2 * 3


def test_narrow_operands_take_fewer_bytes() -> None:
    """fp8 operands of a byte, a result of two; casts move five bytes for each element of the first operand."""
    (sample,) = samples([{"what": "matmul.fp8", "m": 2, "n": 3, "k": 5, "casts": 5, "value": 1, "unit": "us"}])
    assert sample.sizes["bytes"] == 2 * 5 + 5 * 3 + 2 * 2 * 3
    assert sample.sizes["beside"] == 5 * 2 * 5


def test_a_batch_of_matmuls_is_many_of_them() -> None:
    """Seven of 2 x 3 x 5."""
    one, many = samples(
        [{"what": "matmul.bf16", "m": 2, "n": 3, "k": 5, "batch": batch, "value": 1, "unit": "us"} for batch in (1, 7)]
    )
    assert many.sizes["flops"] == 7 * one.sizes["flops"]
    assert many.sizes["bytes"] == 7 * one.sizes["bytes"]


def test_a_layer_of_experts_is_three_grouped_matmuls() -> None:
    """11 tokens, 2 of 5 experts each, width 3, inner width 7: three products of 22 rows, all weights read once."""
    layer = {"what": "grouped.bf16", "tokens": 11, "top_k": 2, "experts": 5, "width": 3, "d_ff": 7}
    (sample,) = samples([{**layer, "value": 1, "unit": "us"}])
    assert sample.sizes["flops"] == 3 * 2 * 22 * 3 * 7
    assert sample.sizes["group"] == pytest.approx(22 / 5)
    assert sample.sizes["bytes"] == 3 * 2 * 5 * 3 * 7 + 2 * 22 * (2 * 3 + 4 * 7)


def test_values_narrower_than_keys_need_fewer_flops() -> None:
    """Forward: one product of the keys' width, one of the values'."""
    shape = {"what": "attention.cudnn.forward", "batch": 1, "heads": 1, "seq": 10, "head_dim": 3, "causal": False}
    (sample,) = samples([{**shape, "v_head_dim": 2, "value": 1, "unit": "us"}])
    assert sample.sizes["flops"] == 2 * 10 * 10 * (3 + 2)


def test_launches_and_whole_runs_have_no_price() -> None:
    """They are evidence of other things."""
    assert [is_priced({"what": what}) for what in ("launch", "step", "fit", "copy")] == [False, False, False, True]
