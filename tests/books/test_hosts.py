"""What hosts do beside launching: collectives compared, calls beside operations, sums left to the end of a step."""

from __future__ import annotations

import pytest

from ledger.books.overlap import moves
from ledger.books.results import Compiled, KernelTime
from tests.model import plans

MESSAGE = 1.0  # second: so slow that a device waits for nothing else
PIPED = {"data": 2, "tensor": 4, "pipeline": 2, "zero": 1, "sequence": "regather"}


def compiled(base: str = "nanotron-2024", parallelism: plans.Mapped | None = None, **launch: object) -> Compiled:
    """A small model on 16 devices under nanotron, with other costs of its hosts."""
    return plans.compiled(
        model="llama-3-8b",
        cluster={"base": "h100-400g", "devices": 16},
        precision="bf16-fp32-gradients",
        parallelism=parallelism or PIPED,
        run={"seq_len": 1024, "micro_batch": 1, "global_batch": 16},
        stack={"base": base, "launch": {"per_operation": "0 us", **launch}},
    )


def span(found: Compiled, name: str) -> float:
    """Seconds of one part of a step."""
    return sum(part.seconds for part in found.waterfall if part.name == name)


def transfers(found: Compiled, kind: str) -> list[KernelTime]:
    """The rows of one kind of transfer, all roles."""
    return [row for role in found.roles for row in role.kernels if moves(row) and str(row.kind) == kind]


def test_hosts_compare_collectives_by_four_messages_for_each_rank_but_the_first() -> None:
    """ProcessGroupWrapper: a barrier there and back, two all-gathers around; sends between stages are not compared."""
    slow = compiled(check=f"{MESSAGE} s")
    last = slow.roles[-1]
    often = sum(row.times for row in last.kernels if moves(row) and row.per != "step" and ".tensor" in str(row.kind))
    once = {(str(row.kind), row.when) for row in last.kernels if moves(row) and row.per == "step"}
    ranks = {"tensor": 4, "data": 2, "pipeline": 2}
    expected = often * 4 * (4 - 1) + sum(4 * (ranks[kind.split(".")[1]] - 1) for kind, _ in once)
    assert any(str(row.kind) == "send.pipeline" for row in last.kernels)
    # what the device itself takes meanwhile hides: less than a second of a step
    assert span(slow, "launch") == pytest.approx(expected * MESSAGE, abs=1.0)
    assert span(compiled(), "launch") == 0.0


def test_a_step_whose_hosts_compare_stays_within_its_bounds() -> None:
    """Nothing hidden is the upper bound, whatever hosts do; parts sum to the step."""
    slow = compiled(check="1 ms")
    assert slow.totals["time.step"] <= slow.totals["time.serial"] * (1 + 1e-12)
    assert sum(part.seconds for part in slow.waterfall) == pytest.approx(float(slow.totals["time.step"]))


def test_calls_beside_a_layers_operations_are_launched_too() -> None:
    """As many as the stack says, for each layer and micro-batch of the slowest device, forward and backward."""
    called = compiled(beside={"forward": 3, "backward": 5, "each": "1 s"})
    layers, micro_batches = 32 // 2, 16 // 2
    assert span(called, "launch") == pytest.approx((3 + 5) * layers * micro_batches, abs=1.0)


def test_nanotron_sums_all_gradients_after_backward_where_it_shards_its_optimizer() -> None:
    """trainer.py: sync_gradients_across_dp(reduce_scatter=False), where DistributedDataParallel does not reduce."""
    sharded, replicas = compiled(parallelism={"data": 16, "zero": 1}), compiled(parallelism={"data": 16, "zero": 0})
    assert not transfers(sharded, "reduce_scatter.data")
    whole = [
        sum(row.payload * row.times for row in transfers(found, "all_reduce.data")) for found in (sharded, replicas)
    ]
    assert whole[0] == pytest.approx(whole[1], rel=1e-6) == 4 * 8030261248
    summed = sum(row.seconds * row.times for row in transfers(sharded, "all_reduce.data"))
    gathered = sum(row.seconds * row.times for row in transfers(sharded, "all_gather.data"))
    assert span(sharded, "comm.data") == pytest.approx(summed + gathered)  # nothing of it hides
    assert span(replicas, "comm.data") < summed


def test_modules_of_their_own_sum_gradients_of_norms_once_a_step() -> None:
    """Megatron-LM and nanotron leave them to the end of a step; DTensor sums them in every backward."""
    ways = {"nanotron-2024": "regather", "pytorch-fsdp2-2025": "save_gathered"}
    sums = {
        base: transfers(compiled(base, {"data": 2, "tensor": 8, "sequence": way}), "all_reduce.tensor")
        for base, way in ways.items()
    }
    norms = {base: {row.per for row in rows if row.account.endswith("gradient_sum")} for base, rows in sums.items()}
    assert norms == {"nanotron-2024": {"step"}, "pytorch-fsdp2-2025": {"micro-batch"}}


def test_a_host_that_waits_for_each_kernel_hides_no_launch() -> None:
    """CUDA_LAUNCH_BLOCKING: what launches take is added to what the device computes, where it hid behind it before."""
    ahead, blocking = (compiled(per_operation="10 us", blocking=waits) for waits in (False, True))
    assert span(blocking, "launch") > 2 * span(ahead, "launch")


def test_reentrant_checkpointing_rebuilds_a_layer_to_its_end() -> None:
    """Without an early stop the down projection runs again, in each layer of each replica."""
    parallelism = {"data": 16, "zero": 1}
    common = {"model": "llama-3-8b", "cluster": {"base": "h100-400g", "devices": 16}, "recompute": "full"}
    run = {"seq_len": 1024, "micro_batch": 1, "global_batch": 16}
    early, whole = (
        plans.compiled(
            **common, parallelism=parallelism, run=run, stack={"base": "pytorch-fsdp2-2025", "checkpoint": way}
        )
        for way in ("early_stop", "reentrant")
    )
    assert whole.totals["flops.recompute"] - early.totals["flops.recompute"] == 16 * 32 * 2 * 1024 * 14336 * 4096
