"""Kernels of training libraries: scores in the activation, routers that keep their operands, what is stored narrow."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from ledger.lab.observed.one_device import one_device_step, saved_storages
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from tests.lab.saved_cases import packed, predicted
from tests.model import plans
from tests.sampling import sampled

MIXTURES = {"mixtral": plans.MIXTRAL, "deepseek_v3": plans.DEEPSEEK3, "deepseek_v2": plans.DEEPSEEK2}
MEGATRON = {"activation": "fused_gated", "weighing": "activation", "router": "fused"}
KERNELS: tuple[dict[str, str], ...] = (
    {"activation": "fused_gated"},
    {"weighing": "activation"},
    {"weighing": "activation", "activation": "eager"},
    {"router": "fused"},
    MEGATRON,
)
NARROW = {"activation": {"format": "fp8_e4m3"}}
BLOCKS = {"activation": {"format": "fp8_e4m3", "block": [1, 32]}}


def built(model: plans.Mapped, kernels: dict[str, str], precision: Any = "bf16-true") -> Any:
    """A plan with fused kernels but for those that are named."""
    chosen = {"attention": "flash", "norm": "fused", "activation": "fused", "optimizer": "foreach", **kernels}
    return plans.compiled(model=model, precision=precision, kernels=chosen)


@pytest.mark.parametrize(("family", "kernels"), sampled(product(MIXTURES, KERNELS)))
def test_saved_bytes_of_experts(family: str, kernels: dict[str, str]) -> None:
    """Every choice saves what its kernels read, to the byte, in dense layers, experts and shared experts."""
    compiled = built(MIXTURES[family], kernels)
    assert predicted(compiled) == packed(compiled)


@pytest.mark.parametrize(
    ("model", "stored"),
    [
        pytest.param(plans.LLAMA, NARROW, id="llama-cast"),
        pytest.param(plans.LLAMA, BLOCKS, id="llama-blocks", marks=pytest.mark.long),
        pytest.param(plans.DEEPSEEK3, NARROW, id="deepseek_v3-cast", marks=pytest.mark.long),
        pytest.param(plans.DEEPSEEK3, BLOCKS, id="deepseek_v3-blocks"),
    ],
)
def test_saved_bytes_of_narrow_activations(model: plans.Mapped, stored: dict[str, Any]) -> None:
    """Gate and up wait in 8 bits with their scales, a short block having one too; everything else stays as it is."""
    compiled = built(model, MEGATRON, {"base": "bf16-true", "stored": stored})
    assert predicted(compiled) == packed(compiled)


def test_what_narrow_activations_are_worth() -> None:
    """One byte instead of two for gate and up of every token, and an fp32 scale for each begun block of 32."""
    wide = built(plans.LLAMA, MEGATRON).totals["saved.per_layer.decoder"]
    narrow = built(plans.LLAMA, MEGATRON, {"base": "bf16-true", "stored": BLOCKS}).totals["saved.per_layer.decoder"]
    plan = built(plans.LLAMA, MEGATRON).plan
    tokens, width = plan.run.micro_batch * plan.run.seq_len, 272
    assert wide - narrow == 2 * tokens * (width - 4 * -(-width // 32))


@pytest.mark.parametrize(
    ("family", "kernels"), sampled(product(("mixtral", "deepseek_v3"), ({"activation": "fused_gated"}, MEGATRON)))
)
def test_memory_of_a_step(family: str, kernels: dict[str, str]) -> None:
    """What is alive between the passes and at the fullest instant of backward follows what is saved."""
    compiled = built(MIXTURES[family], kernels)
    (role,) = compiled.roles
    found, moments = one_device_step(workload(compiled.plan)), {moment.name: moment.total for moment in role.moments}
    for name in set(moments) & set(found.moments):
        if name.startswith("backward/") and name.endswith("/end"):
            assert moments[name] == pytest.approx(found.moments[name].requested, rel=5e-3), name


def test_a_format_that_torch_lacks_is_not_judged() -> None:
    """Nor is what other kernels than the gated activation save."""
    for stored in ({"activation": {"format": "e5m6"}}, {"core": {"format": "fp8_e4m3"}}):
        plan = built(plans.LLAMA, MEGATRON, {"base": "bf16-true", "stored": stored}).plan
        with pytest.raises(NoReferenceError):
            saved_storages(workload(plan))
