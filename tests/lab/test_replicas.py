"""Replicas: the ledger's moments and reductions against a rank of DistributedDataParallel, on small models."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled import Compiled
from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.ranks import DdpRank
from ledger.lab.reference.workload import workload
from ledger.lab.verification.layouts import replicas
from ledger.lab.verification.predicted import collectives, memory
from ledger.lab.verification.stages import rank_step
from tests.model import plans

RANKS, KILOBYTE = 4, 1000
BESIDE = 2048  # bytes: positions, scalars of the loss and step counts of the optimizer, which the ledger leaves out


def plan(batches: int = 1, **layout: Any) -> Compiled:
    """A small Llama on four ranks that have all weights each, in bf16 throughout."""
    return plans.compiled(
        model=plans.layer(plans.LLAMA, repeat=3),
        precision="bf16-true",
        cluster={"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        parallelism={"data": RANKS, "zero": 0, **layout},
        run={"seq_len": 39, "micro_batch": 3, "global_batch": 3 * RANKS * batches},
        stack="pytorch-fsdp2-2025",
    )


def sent(step: DeviceStep) -> dict[str, int]:
    """Count and bytes of the collectives of a step, under the ledger's names."""
    names = {f"comm.{one.kind}.{one.axis}.{one.phase}": one for one in step.collectives}
    return {f"{name}.{what}": getattr(one, what) for name, one in names.items() for what in ("count", "bytes")}


@pytest.mark.parametrize(
    ("batches", "layout"),
    [
        pytest.param(1, {}, marks=pytest.mark.long),
        pytest.param(1, {"bucket": "0.1 MB"}, marks=pytest.mark.long),
        (2, {"bucket": "0.07 MB"}),
        (2, {"bucket": "0.07 MB", "reduce": "micro_batch"}),
    ],
    ids=str,
)
def test_buckets_are_reduced_and_stay(batches: int, layout: dict[str, Any]) -> None:
    """As many reductions, of as many bytes, as PyTorch's reducer runs, and at every end of a pass what it holds."""
    compiled = plan(batches, **layout)
    step = rank_step(workload(compiled.plan), replicas(compiled.plan))
    assert collectives(compiled) == sent(step)
    held = memory(compiled)
    for moment in ("after forward", "backward/loss", "optimizer"):
        assert 0 <= step.moments[moment].requested - held[moment] <= BESIDE + 8 * 39 * 3, moment


def test_another_size_of_buckets_shows() -> None:
    """The judge's reducer is asked for its own size, so a plan that says another one is found wrong."""
    compiled = plan(bucket="0.1 MB")
    step = rank_step(workload(compiled.plan), DdpRank(RANKS, 50 * KILOBYTE))
    assert (
        collectives(compiled)["comm.all_reduce.data.backward.count"] < sent(step)["comm.all_reduce.data.backward.count"]
    )
