"""A loop over experts depends on what its router chooses, so it is judged on real numbers, the block alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import whole
from ledger.lab.reference.cuda_guard import torch_dtype
from ledger.lab.reference.model import reference_model
from tests.model import plans

BLOCKS = {"mixtral": plans.MIXTRAL, "qwen3_moe": plans.QWEN3_EXPERTS, "gpt_oss": plans.GPT_OSS}
INPUT = "mlp_norm/norm"  # what the block is given


def predicted(compiled: Compiled) -> int:
    """Bytes that the experts of one layer save, their input with them."""
    model = whole(compiled.plan)
    unit = next(unit for unit in model.units if unit.written and any(op.name == "mlp/router" for op in unit.written))
    kept = {tensor.storage: tensor for tensor in unit.saving.saved if tensor.name.startswith(("mlp/", f"{INPUT}"))}
    return int(sum(model.value(tensor.bytes()) for name, tensor in kept.items() if tensor.role != "statistic"))


def packed(compiled: Compiled) -> tuple[int, int]:
    """Bytes that the block packs for as many tokens, and how many of its experts were chosen."""
    plan = compiled.plan
    dtype = torch_dtype(plan.precision.weights.base)
    torch.manual_seed(0)
    block = reference_model(plan.model, plan.kernels, "cpu", dtype).model.layers[-1].mlp
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, 0, 0.05)
    tensors: list[Any] = []
    chosen = set()
    hook = block.experts.register_forward_pre_hook(lambda _, given: chosen.update(given[1].flatten().tolist()))
    tokens = torch.randn(plan.run.micro_batch, plan.run.seq_len, plan.model.d_model, dtype=dtype, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensors.append(tensor) or tensor, lambda tensor: tensor
    ):
        block(tokens)
    hook.remove()
    own = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(size for storage, size in sizes.items() if storage not in own), len(chosen)


@pytest.mark.parametrize("precision", ["bf16-true", "fp32"])
@pytest.mark.parametrize("family", BLOCKS)
def test_a_loop_over_experts_saves_the_same_whatever_is_chosen(family: str, precision: str) -> None:
    """Where every expert is hit, what a loop saves depends on how many choices there are, not on which."""
    compiled = plans.compiled(
        model=BLOCKS[family], precision=precision, kernels={"attention": "eager", "experts": "eager"}
    )
    found, chosen = packed(compiled)
    assert chosen == BLOCKS[family]["layers"][0]["mlp"]["experts"]
    assert predicted(compiled) == found
