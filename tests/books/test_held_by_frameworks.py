"""What PyTorch holds beside what a plan needs: casts that autocast remembers, rows that DTensor writes for nobody.

Each was found by `ledger verify`, byte for byte, and is held here by arithmetic on shapes.
"""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled import Compiled
from tests.model import plans

B, S, D, V, TP = 3, 39, 102, 213, 3
LAYERS = 2
MATRICES = D * 24 * (6 + 3 + 3 + 6) + 3 * D * 273  # of a layer: q, k, v, out; gate, up, down
SPLIT: plans.Mapped = {**plans.layer(plans.LLAMA, mlp={"d_ff": 273}), "vocab": V}


def held(compiled: Compiled, moment: str) -> dict[str, int]:
    """Bytes of what exists at one moment alone."""
    alive = (account for account in compiled.accounts if account.when == moment and account.unit == "B")
    return {account.account: account.times * int(account.amount) for account in alive}


def one_device(**parts: Any) -> Compiled:
    """The small Llama, recomputed in full."""
    run = {"seq_len": S, "micro_batch": B, "global_batch": B}
    return plans.compiled(model=SPLIT, run=run, recompute="full", **parts)


def split(sequence: str) -> Compiled:
    """The small Llama over three tensor-parallel devices."""
    return plans.compiled(
        model=SPLIT,
        cluster={"base": "h100-400g", "devices": TP, "devices_per_node": TP},
        parallelism={"tensor": TP, "sequence": sequence},
        run={"seq_len": S, "micro_batch": B, "global_batch": B},
    )


def remembered(compiled: Compiled) -> dict[str, int]:
    """Bytes of casts that nothing saves, by the moments `first..last` that they last."""
    found: dict[str, int] = {}
    for account in compiled.accounts:
        if account.account.endswith(".remembered"):
            found[account.when] = found.get(account.when, 0) + account.times * int(account.amount)
    return found


def test_autocast_remembers_the_casts_of_layers_that_are_recomputed() -> None:
    """Two bytes for each value of a matrix that forward has cast, until forward is over."""
    casts = remembered(one_device(precision="bf16-autocast"))
    assert sum(size for when, size in casts.items() if when.endswith("forward/loss")) == 2 * LAYERS * MATRICES
    assert not any("backward" in when for when in casts)


@pytest.mark.parametrize("parts", [{"precision": "bf16-true"}, {"precision": "bf16-autocast", "recompute": "none"}])
def test_nothing_is_remembered_twice(parts: dict[str, Any]) -> None:
    """Without autocast there are no casts, and what backward reads is held as such; the small Llama has no biases."""
    run = {"seq_len": S, "micro_batch": B, "global_batch": B}
    assert not remembered(plans.compiled(model=SPLIT, run=run, **parts))


def test_dtensor_writes_the_gradient_of_every_row_of_the_vocabulary() -> None:
    """Where Megatron-LM splits the sequence, a device writes the rows that it has, a third of them."""
    rows = {sequence: held(split(sequence), "backward/input") for sequence in ("save_gathered", "regather")}
    assert rows["save_gathered"]["input/embedding/tokens.gradient.whole.now"] == 2 * V * D
    assert "input/embedding/tokens.gradient.whole.now" not in rows["regather"]
    assert rows["regather"]["input/embedding/tokens.weight.gradient.now"] == 2 * V * D // TP


def test_a_split_loss_holds_three_wide_logits() -> None:
    """Logits in fp32, less the row's maximum, and the powers of that, beside the head's own logits in bf16."""
    found = held(split("save_gathered"), "forward/loss")
    share = B * S * V // TP
    names = ("head/logits.fp32", "cross_entropy/shifted", "cross_entropy/exponentials")
    assert {name for name, size in found.items() if size == 4 * share} == {f"loss/{name}.now" for name in names}
    assert found["loss/head/logits.now"] == 2 * share


@pytest.mark.parametrize("kernel", ["fused", "foreach"])
def test_a_gather_through_flat_copies_holds_a_share_and_two_copies_of_all_weights(kernel: str) -> None:
    """ZeRO 1 as nanotron gathers: its own share, a buffer for each rank, NCCL's one; not beside the update before it.

    All weights divide by three ranks. The fused update holds nothing, PyTorch's foreach one less than those buffers.
    """
    weights = 4 * (LAYERS * (MATRICES + 2 * D) + 2 * V * D + D)
    found = {}
    for gathers in ("in_place", "copied"):
        compiled = plans.compiled(
            model=SPLIT,
            cluster={"base": "h100-400g", "devices": TP, "devices_per_node": TP},
            parallelism={"data": TP, "zero": 1},
            precision="bf16-autocast",
            kernels={"optimizer": kernel},
            stack={"base": "pytorch-fsdp2-2025", "gathers": gathers},
            run={"seq_len": S, "micro_batch": B, "global_batch": B * TP},
        )
        moment = next(moment for moment in compiled.roles[0].moments if moment.name == "optimizer")
        found[gathers] = moment.parts["workspace"]
    assert found["copied"] == weights // TP + 2 * weights > found["in_place"]


def test_a_shifted_loss_copies_its_logits_and_keeps_them() -> None:
    """transformers 4.38: a copy of the fp32 logits for the loss, and the output that still holds the first ones."""
    plain, shifted = (
        plans.compiled(model=SPLIT, stack={"base": "pytorch-fsdp2-2025", "shifted_logits": copied})
        for copied in (False, True)
    )
    wide = 4 * 3 * 37 * V  # of the small plan: fp32 logits
    assert held(shifted, "forward/loss")["loss/cross_entropy/shifted_logits.now"] == wide
    assert held(shifted, "backward/loss")["loss/head/logits.fp32.now"] == wide
    assert "loss/head/logits.fp32.now" not in held(plain, "backward/loss")
    assert (
        shifted.totals["traffic.step"] - plain.totals["traffic.step"] == 4 * wide
    )  # read, written; so is the gradient


def test_a_shifted_loss_that_is_split_copies_its_share_beside_what_each_device_holds() -> None:
    """The copy is of one device's share of the vocabulary, and another tensor than the logits less their maximum."""
    compiled = plans.compiled(
        model=SPLIT,
        cluster={"base": "h100-400g", "devices": TP, "devices_per_node": TP},
        parallelism={"tensor": TP},
        run={"seq_len": S, "micro_batch": B, "global_batch": B},
        stack={"base": "pytorch-fsdp2-2025", "shifted_logits": True},
    )
    found = held(compiled, "forward/loss")
    wide = 4 * B * S * V // TP
    assert {found[f"loss/cross_entropy/{name}.now"] for name in ("shifted_logits", "shifted", "exponentials")} == {wide}
