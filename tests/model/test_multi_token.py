"""Multi-token prediction: further layers with a projection, norms and a loss of their own, on the last stage."""

from __future__ import annotations

import pytest

from ledger.spec.problems import SpecError
from tests.model import plans
from tests.model.plans import LLAMA, Mapped

TWICE: Mapped = {**LLAMA, "multi_token": {"depth": 2}}
D, V, F, Q, KV = 102, 211, 272, 6 * 24, 3 * 24
PROJECTIONS = D * (Q + 2 * KV) + Q * D + 3 * D * F


def test_it_adds_a_layer_a_projection_and_norms() -> None:
    """Each depth has a layer, a projection of 2D to D and three norms more; embedding and head are the model's."""
    plain, deep = (plans.compiled(model=model).totals for model in (LLAMA, TWICE))
    layer = PROJECTIONS + 2 * D
    assert deep["parameters"] - plain["parameters"] == 2 * (layer + 2 * D * D + 3 * D)


def test_it_runs_its_layer_its_projection_and_the_head_again() -> None:
    """FLOPs: a layer, the projection and the head for each depth, and backward twice that."""
    plain, deep = (plans.compiled(model=model).totals for model in (LLAMA, TWICE))
    tokens, seq = 37 * 3, 37
    attention = 2 * 2 * 3 * 6 * 24 * seq * (seq + 1) // 2
    each = 2 * tokens * (PROJECTIONS + 2 * D * D + D * V) + attention
    assert deep["flops.forward"] - plain["flops.forward"] == 2 * each
    assert deep["flops.backward"] == 2 * deep["flops.forward"]


def test_the_published_module_of_deepseek_v3() -> None:
    """README_WEIGHTS of DeepSeek-V3: 11.5B unique parameters beside the shared embedding and head."""
    base = {"base": "deepseek-v3", "expect": []}
    plain, deep = (
        plans.compiled(model=model, precision="bf16-mixed", optimizer="adamw").totals["parameters"]
        for model in (base, {**base, "multi_token": {"depth": 1}})
    )
    assert deep - plain == pytest.approx(11.5e9, rel=0.015)


PIPELINE: Mapped = {
    "cluster": {"base": "h100-400g", "devices": 2, "devices_per_node": 2},
    "parallelism": {"data": 1, "pipeline": 2},
    "run": {"seq_len": 36, "micro_batch": 1, "global_batch": 4},
}


def test_it_belongs_to_the_last_stage() -> None:
    """The last stage runs it, holds a copy of the embedding for it, and sums that copy's gradient with the first's."""
    plain, deep = (plans.compiled(model=model, **PIPELINE) for model in (LLAMA, TWICE))
    first, last = deep.roles
    assert not any("multi_token" in moment.name for moment in first.moments)
    assert any(moment.name == "backward/multi_token" for moment in last.moments)
    rows = {a.account for a in deep.accounts if a.role == "last" and a.resource.name == "memory.weights"}
    assert "root/embedding/tokens.weight" in rows
    assert "comm.all_reduce.pipeline.bytes" not in plain.totals
    assert deep.totals["comm.all_reduce.pipeline.bytes"] == 2 * V * D


@pytest.mark.parametrize("loss", ["eager", "fused", "chunked"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full", {"components": ["mlp"]}])
def test_it_is_checkpointed_as_the_layers_are(recompute: object, loss: str) -> None:
    """What is computed again is a part of forward, and with no recomputation nothing but a chunked loss's logits."""
    parts = {
        "kernels": {"attention": "eager", "loss": loss},
        "run": {"seq_len": 32, "micro_batch": 1, "global_batch": 1},
    }
    plain, deep = (plans.compiled(model=model, recompute=recompute, **parts).totals for model in (LLAMA, TWICE))
    more = deep["flops.recompute"] - plain["flops.recompute"]
    head = 2 * 2 * 32 * D * V if loss == "chunked" else 0
    assert more == head if recompute == "none" else head < more < deep["flops.forward"] - plain["flops.forward"]


def test_kept_kernels_are_refused() -> None:
    """Its layer is checkpointed as a whole, so results of single kernels cannot be kept; the message says so."""
    with pytest.raises(SpecError, match="multi_token"):
        plans.compiled(model=TWICE, recompute={"keep": ["matmul"]})
