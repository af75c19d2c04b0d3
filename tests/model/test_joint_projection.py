"""One projection for queries, keys and values, also where several query heads share keys and values."""

from __future__ import annotations

import pytest

from tests.model import plans

SAME = ("parameters", "parameters.per_device", "flops.forward", "flops.step", "memory.static.weights", "kv_cache")


@pytest.mark.parametrize(("kv_heads", "tensor"), [(1, 1), (2, 1), (3, 1), (6, 1), (3, 3), (6, 3)])
def test_a_joint_projection_is_as_large_as_three(kv_heads: int, tensor: int) -> None:
    """Its rows are those of queries, of keys and of values, however many heads share these."""
    totals = []
    for joint in (False, True):
        given = {"heads": 6, "kv_heads": kv_heads, "head_dim": 24, "fused_qkv": joint}
        compiled = plans.compiled(
            model={**plans.layer(plans.LLAMA, attention=given, mlp={"d_ff": 273}), "vocab": 213},
            cluster={"base": "h100-400g", "devices": tensor, "devices_per_node": tensor},
            parallelism={"tensor": tensor, "sequence": "off"},
            run={"seq_len": 36, "micro_batch": 3, "global_batch": 3},
        )
        totals.append({key: compiled.totals[key] for key in SAME})
    assert totals[0] == totals[1]


def test_shared_heads_save_what_they_are() -> None:
    """Queries, keys and values are parts of one tensor, so a layer saves as much of them as of three."""
    saved = {}
    for joint in (False, True):
        given = {"heads": 6, "kv_heads": 3, "head_dim": 24, "rotary": 0, "fused_qkv": joint}
        compiled = plans.compiled(model=plans.layer(plans.LLAMA, attention=given), kernels={"attention": "flash"})
        saved[joint] = compiled.totals["saved.per_layer.decoder"]
    assert saved[False] == saved[True]


def test_values_that_are_copied_free_the_joint_projection() -> None:
    """Transformer Engine makes all three contiguous: rotated queries and keys, and a copy of values, are what stays."""
    kept = {}
    for copied in (False, True):
        model = plans.layer(plans.LLAMA, attention={"heads": 6, "kv_heads": 3, "head_dim": 24, "fused_qkv": True})
        stack = {"base": "megatron-lm-2022", "split_values": copied}
        compiled = plans.compiled(model=model, stack=stack, kernels={"attention": "flash", "rotary": "fused"})
        stocks = [row for row in compiled.accounts if row.resource.name == "memory.activations" and ".." in row.when]
        kept[copied] = {row.account.removeprefix("decoder/attention/"): int(row.amount) for row in stocks}
    of_head = 2 * 3 * 37 * 24  # bytes in bf16
    assert kept[False]["qkv"] == (6 + 3 + 3) * of_head
    assert "qkv" not in kept[True]
    assert kept[True]["v.copy"] == 3 * of_head
