"""Peaks of the ledger against those of real training steps."""

from __future__ import annotations

import pytest

from tests.books.measured_peaks import FORWARD, ONE_DEVICE, SHARDED, SHARDED_STEPS, STEPS, Step
from tests.model import plans


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_peaks_on_one_device(step: Step) -> None:
    """At the loss, in the layers and in the optimizer, the ledger holds what PyTorch holds."""
    for phase, error in step.errors().items():
        assert abs(error) <= (FORWARD if phase == "forward" else ONE_DEVICE), f"{phase}: {error:+.1e}"


@pytest.mark.parametrize("step", SHARDED_STEPS, ids=lambda step: step.name)
def test_peaks_of_a_rank(step: Step) -> None:
    """Shards, gathered units, the next one's gather, and the reduction's buffer add up to a rank's peak."""
    error = step.errors()["step"]
    assert abs(error) <= SHARDED, f"{error:+.2%}"


GIGABYTE = 1e9


@pytest.mark.parametrize(("zero", "published"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_paper(zero: int, published: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 devices, 2 + 2 + 12 bytes each."""
    compiled = plans.compiled(
        model={"parameters": 7.5e9},
        precision="bf16-mixed",
        cluster={"base": "h100-400g", "devices": 64},
        parallelism={"data": 64, "zero": zero},
        run={"seq_len": 1024, "micro_batch": 1, "global_batch": 64},
    )
    static = sum(compiled.totals[f"memory.static.{part}"] for part in ("weights", "master", "gradients", "optimizer"))
    assert round(static / GIGABYTE, 1) == published
