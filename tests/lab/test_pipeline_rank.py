"""Devices of a pipeline: what the ledger says of each role, against its layers run in PyTorch's order."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled import Compiled
from ledger.lab.observed.ranks import StageRank
from ledger.lab.reference.workload import workload
from ledger.lab.verification.stages import rank_step, unjudged, verdicts
from tests.model import plans

STAGES = 3


def plan(batches: int = 6, **layout: Any) -> Compiled:
    """A small Llama of six layers over three devices, in bf16 throughout."""
    return plans.compiled(
        model=plans.layer(plans.LLAMA, repeat=6),
        precision="bf16-true",
        cluster={"base": "h100-400g", "devices": STAGES, "devices_per_node": STAGES},
        parallelism={"pipeline": STAGES, **layout},
        run={"seq_len": 39, "micro_batch": 3, "global_batch": 3 * batches},
        stack="pytorch-fsdp2-2025",
    )


@pytest.mark.parametrize("layout", [pytest.param({}, marks=pytest.mark.long), {"stages": [1, 3, 2]}], ids=str)
def test_every_role_holds_and_sends_what_pytorch_does(layout: dict[str, Any]) -> None:
    """Three micro-batches in flight on the first device, two, then one; each figure equal once its causes are named."""
    found = list(verdicts(plan(**layout), lambda _: None))
    assert {verdict.account.rpartition("/")[2] for verdict in found} == {"first", "inner", "last"}
    assert {verdict.status for verdict in found} <= {"equal", "explained"}
    assert sum(verdict.account.startswith("comm.send") for verdict in found) == 8  # 4 kinds of sends, count and bytes


@pytest.mark.long
def test_one_more_in_flight_shows() -> None:
    """The last device as the first of a longer pipeline would hold it: what a layer saves more stands out."""
    compiled = plan()
    work = workload(compiled.plan)
    near, far = (rank_step(work, StageRank(place, STAGES, "1f1b", 6)).moments["backward/decoder"] for place in (1, 0))
    saved = 6 * int(compiled.totals["saved.per_layer.decoder"])
    assert far.bytes - near.bytes > saved


def test_what_no_device_runs_is_told() -> None:
    """Where gradients are not there yet when most micro-batches are, the ledger's bound is no figure of PyTorch's."""
    assert "no more micro-batches than stages" in unjudged(plan(batches=3).plan)
    assert "one stretch of layers" in unjudged(plan(interleave=2).plan)
