"""Records become seconds and sizes: the arithmetic between a published figure and what a fit is given."""

from __future__ import annotations

import pytest

from ledger.evidence.samples import form_of, samples


def test_a_rate_becomes_seconds() -> None:
    """A 1000 x 2000 x 3000 matmul is 12 GFLOP, so 100 TFLOP/s is 120 us; it moves 22 MB in bf16."""
    (sample,) = samples([{"what": "matmul.bf16", "m": 1000, "n": 2000, "k": 3000, "value": 100, "unit": "TFLOP/s"}])
    assert sample.seconds == pytest.approx(120e-6)
    assert sample.variables["bytes"] == 2 * (3_000_000 + 6_000_000 + 2_000_000)


@pytest.mark.parametrize(
    ("what", "matmuls"), [("attention.flash.forward", 2), ("attention.flash.backward", 5), ("attention.flash", 7)]
)
def test_causal_attention_counts_half_of_each_matmul(what: str, matmuls: int) -> None:
    """Two matmuls forward, five backward (the scores are computed again), each 2 b h s s d; the mask leaves half."""
    shape = {"batch": 3, "heads": 5, "head_dim": 64, "seq": 128, "causal": True}
    (sample,) = samples([{"what": what, **shape, "value": 1.0, "unit": "ms"}])
    assert sample.variables["flops"] == matmuls * 2 * 3 * 5 * 128 * 128 * 64 / 2
    assert sample.seconds == pytest.approx(1e-3)


def test_a_ring_passes_an_all_reduce_twice() -> None:
    """8 ranks: 7/8 of the payload for a reduce-scatter, twice that for an all-reduce."""
    sizes = {"bytes": 1e6, "ranks": 8, "value": 10, "unit": "us"}
    reduce, scatter = samples([{"what": "all_reduce", **sizes}, {"what": "reduce_scatter", **sizes}])
    assert reduce.variables["bus_bytes"] == pytest.approx(1.75e6)
    assert scatter.variables["bus_bytes"] == pytest.approx(0.875e6)


def test_kernel_classes_without_a_form_of_their_own_move_bytes() -> None:
    """Norms, dropout and copies are priced by bandwidth; a scale-out collective is still a collective."""
    assert [form_of(what) for what in ("norm.backward", "dropout", "all_reduce.scaleout")] == [
        "bandwidth",
        "bandwidth",
        "collective",
    ]


def test_a_size_that_is_no_number_is_refused() -> None:
    """A quoted size would silently compare as text."""
    with pytest.raises(TypeError, match="`bytes` of a record must be a number"):
        samples([{"what": "copy", "bytes": "1 GB", "value": 1, "unit": "us"}])
