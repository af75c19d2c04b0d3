"""What a step reads and what an update leaves, on real and fake tensors: batches, and gradients that are zeroed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

import ledger
from ledger.books.compiled import Compiled
from ledger.lab.reference.model import reference_model
from tests.lab.small_llama import MODEL, S
from tests.model import plans

B = 3  # sequences of a batch
FILL = {"base": "adamw", "zero_grad": "fill"}


def compiled(optimizer: object = "adamw", **parts: object) -> Compiled:
    """The small Llama in fp32 on one device, an update after each micro-batch."""
    run = {"seq_len": S, "micro_batch": B, "global_batch": B}
    kernels = {"attention": "math", "norm": "eager", "activation": "eager"}
    small = {"model": MODEL, "precision": "fp32", "optimizer": optimizer, "kernels": kernels, "run": run}
    return plans.compiled(**(small | parts))


def forward_gradients(plan: Compiled) -> set[int]:
    """Bytes of gradients at the moments of forward."""
    (role,) = plan.roles
    return {int(moment.parts["gradients"]) for moment in role.moments if moment.name.startswith("forward")}


def spent(plan: Compiled, name: str) -> int:
    """Bytes of memory traffic of the accounts of a name in a step."""
    rows = (row for row in plan.accounts if row.account.endswith(name) and row.resource.kind == "hbm")
    return sum(int(row.amount) * row.times for row in rows)


class Written(TorchDispatchMode):
    """Bytes that operators of these names write in place."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names, self.bytes = names, 0

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in self.names:
            self.bytes += sum(leaf.nbytes for leaf in tree_leaves(args[0]) if isinstance(leaf, torch.Tensor))
        return func(*args, **(named or {}))


@pytest.mark.parametrize("zero_grad", ["free", "fill"])
def test_gradients_that_are_filled_stay_through_forward(zero_grad: str) -> None:
    """Real steps on the CPU: bytes of gradients in the second forward, what fills them, and what backward adds."""
    plan = compiled({"base": "adamw", "zero_grad": zero_grad})
    model = reference_model(plan.plan.model, plan.plan.kernels, "cpu", torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 200, (B, S))
    for _ in range(2):
        held = sum(weight.grad.nbytes for weight in model.parameters() if weight.grad is not None)
        loss = model(tokens, labels=tokens).loss
        with torch.autograd.set_multithreading_enabled(False), Written("add_") as added:
            loss.backward()
        optimizer.step()
        with Written("_foreach_zero_", "zero_") as filled:
            optimizer.zero_grad(set_to_none=zero_grad == "free")
    assert forward_gradients(plan) == {held}
    assert held == (int(plan.totals["memory.static.gradients"]) if zero_grad == "fill" else 0)
    assert spent(plan, "/zero") == filled.bytes
    assert spent(plan, "weights/accumulate") == 3 * added.bytes


SHARED = {
    "cluster": {"base": "h100-400g", "devices": 2},
    "run": {"seq_len": S, "micro_batch": B, "global_batch": 2 * B},
}


@pytest.mark.parametrize(
    "parts",
    [{"precision": "bf16-true"}, {**SHARED, "parallelism": {"data": 2, "zero": 3}}],
    ids=["one device", "shares of two"],
)
def test_memory_of_a_step_with_gradients_that_stay(parts: dict[str, Any], tmp_path: Path) -> None:
    """Every peak of a step on fake tensors, to the byte but for rounding, also of shares; each judge says the same."""
    plan = compiled(FILL, **parts)
    path = tmp_path / "plan.yaml"
    path.write_text(plan.plan.text, encoding="utf-8")
    found = ledger.verify(str(path), layers=1)
    assert found["summary"]["differs"] == found["summary"]["not_checked"] == 0
    peaks = {check["account"]: check["status"] for check in found["checks"] if check["account"].startswith("memory.")}
    assert len(peaks) > 5
    assert set(peaks.values()) <= {"equal", "explained"}
    freed = compiled("adamw", **parts)
    assert forward_gradients(freed) == {0}
    assert forward_gradients(plan) == {int(plan.totals["memory.static.gradients"])}


@pytest.mark.parametrize("model", [MODEL, plans.VIT], ids=["tokens", "images"])
def test_the_copy_of_a_batch_is_what_a_loader_gives(model: dict[str, Any]) -> None:
    """Bytes of the tensors that DataLoader collates: ids and labels, or pixels and classes."""
    run = {"micro_batch": B, "global_batch": B, **({"seq_len": S} if model is MODEL else {"images": "300 images"})}
    plan = compiled(model=model, run=run, kernels={}, precision="bf16-autocast")
    image = plan.plan.model.image
    if image:
        inputs, labels = torch.rand(2 * B, image.channels, image.height, image.width), torch.randint(0, 9, (2 * B,))
    else:
        inputs, labels = torch.randint(0, 200, (2 * B, S)), torch.randint(0, 200, (2 * B, S))
    batch = next(iter(DataLoader(TensorDataset(inputs, labels), batch_size=B)))
    assert plan.totals["traffic.batch"] == sum(tensor.nbytes for tensor in batch)
