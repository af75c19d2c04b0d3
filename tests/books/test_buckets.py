"""Buckets of gradients."""

from __future__ import annotations

from tests.model import plans


def test_a_plan_reduces_bucket_by_bucket() -> None:
    """A stated size of a bucket changes how often gradients are reduced, not how many bytes."""
    found = [
        plans.compiled(
            cluster={"base": "h100-400g", "devices": 4, "devices_per_node": 4},
            parallelism={"data": 4, "bucket": size},
            run={"seq_len": 37, "micro_batch": 3, "global_batch": 12},
        ).totals
        for size in ("100 kB", "10 MB")
    ]
    many, one = (int(totals["comm.all_reduce.data.count"]) for totals in found)
    assert many > one == 1
    assert found[0]["comm.all_reduce.data.bytes"] == found[1]["comm.all_reduce.data.bytes"]
