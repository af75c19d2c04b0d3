"""Attention with a gate: what it has beside grouped-query attention, counted by hand."""

from __future__ import annotations

from tests.model import plans

TOKENS, WIDTH, HEADS, EACH, LAYERS = 3 * 37, 102, 6, 24, 2  # of the small plan
GATED = plans.layer(plans.LLAMA, attention={"kind": "gated"})


def test_a_gate_is_a_second_query_projection_and_two_saved_tensors() -> None:
    """Half of a matrix more, its FLOPs, and the result before the gate's product beside the sigmoid, both in bf16."""
    plain, gated = (plans.compiled(model=model).totals for model in (plans.LLAMA, GATED))
    weights = LAYERS * WIDTH * HEADS * EACH
    assert gated["parameters"] - plain["parameters"] == weights
    assert gated["flops.forward"] - plain["flops.forward"] == 2 * TOKENS * weights
    assert gated["flops.backward"] - plain["flops.backward"] == 4 * TOKENS * weights
    assert gated["saved.total"] - plain["saved.total"] == LAYERS * 2 * TOKENS * HEADS * EACH * 2


def test_gates_are_split_with_their_heads() -> None:
    """Tensor parallelism gives every device the gates of its own heads, and nothing more is sent."""
    parts = {
        "cluster": {"base": "h100-400g", "devices": 3, "devices_per_node": 3},
        "parallelism": {"data": 1, "tensor": 3},
    }
    models = ({**plans.layer(model, mlp={"d_ff": 273}), "vocab": 213} for model in (plans.LLAMA, GATED))
    plain, gated = (plans.compiled(model=model, **parts).totals for model in models)
    assert gated["parameters.per_device"] - plain["parameters.per_device"] == LAYERS * WIDTH * HEADS * EACH / 3
    assert gated["comm.all_reduce.tensor.bytes"] == plain["comm.all_reduce.tensor.bytes"]
