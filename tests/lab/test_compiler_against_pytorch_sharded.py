"""Collectives of a whole sharded step: the compiler's against those one rank of FSDP2 and DTensor really calls."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.lab.observed.ranks import ShardedRank
from ledger.lab.reference.workload import workload
from ledger.lab.verification.layouts import judged_mesh
from ledger.lab.verification.stages import rank_step
from tests.books.test_collectives import SPLIT, sent
from tests.model import plans

SCALARS = 1024  # bytes: positions, and scalars of the loss, which the ledger leaves out
CASES = {
    "Llama, FSDP 4": (plans.LLAMA, {"data": 4}, "none"),
    "Qwen2, FSDP 5, full": (plans.QWEN2, {"data": 5}, "full"),
    "GPT-2, FSDP 4, full": (plans.GPT2, {"data": 4}, "full"),
    "Mixtral, FSDP 4, rows of experts": (plans.MIXTRAL, {"data": 4}, "none"),
    "Qwen3, whole experts, FSDP 5, full": (plans.QWEN3_EXPERTS, {"data": 5}, "full"),
    "Gemma-2, FSDP 4": (plans.GEMMA2, {"data": 4}, "none"),
    "Llama, tensor 3 x FSDP 4": (SPLIT, {"data": 4, "tensor": 3, "sequence": "save_gathered"}, "none"),
    "Llama, tensor 3 x FSDP 4, full": (SPLIT, {"data": 4, "tensor": 3, "sequence": "save_gathered"}, "full"),
}


FURTHER = {  # whose parts others have, and `make test-long` runs
    "Llama, FSDP 4",
    "Llama, tensor 3 x FSDP 4",
    "Gemma-2, FSDP 4",
    "GPT-2, FSDP 4, full",
    "Qwen2, FSDP 5, full",
}


@pytest.mark.parametrize(
    ("model", "degrees", "recompute"),
    [pytest.param(*case, id=n, marks=pytest.mark.long if n in FURTHER else ()) for n, case in CASES.items()],
)
def test_every_collective(model: plans.Mapped, degrees: dict[str, Any], recompute: str) -> None:
    """Kind, axis, pass, count and bytes, with shards that do not divide: padding is sent too."""
    data, tensor = degrees["data"], degrees.get("tensor", 1)
    compiled = plans.compiled(
        model=model,
        precision="bf16-autocast",
        recompute=recompute,
        cluster={"base": "h100-400g", "devices": data * tensor, "devices_per_node": data * tensor},
        parallelism={**degrees, "zero": 3},
        run={"seq_len": 13 * 3, "micro_batch": 3, "global_batch": 3 * data},
    )
    called = rank_step(workload(compiled.plan), ShardedRank(data=data, tensor=tensor)).collectives
    assert sent(compiled) == {(f"{c.kind}.{c.axis}", c.phase): (c.count, c.bytes) for c in called}


def test_logits_gathered_before_the_loss() -> None:
    """Without `loss_parallel`: every collective, and the peak, which is where their gradient is made."""
    compiled = plans.compiled(
        model=SPLIT,
        precision="bf16-autocast",
        cluster={"base": "h100-400g", "devices": 12, "devices_per_node": 12},
        parallelism={"data": 4, "tensor": 3, "sequence": "save_gathered", "zero": 3},
        stack={"base": "pytorch-fsdp2-2025", "gathered_logits": True},
        run={"seq_len": 13 * 3, "micro_batch": 3, "global_batch": 12},
    )
    found = rank_step(workload(compiled.plan), judged_mesh(compiled.plan))
    assert sent(compiled) == {(f"{c.kind}.{c.axis}", c.phase): (c.count, c.bytes) for c in found.collectives}
    beside = max(held.requested for held in found.moments.values()) - compiled.totals["memory.peak"]
    assert 0 <= beside <= SCALARS
