"""What frames of products hold, where a product with its gather or scatter is one function of autograd."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled_roles import compile_roles
from ledger.books.memory.moments import Moments
from ledger.model.schedule import roles
from tests.books.test_megatron_keeps import KERNELS
from tests.model import plans

B, S, D, V, TP, F = 2, 48, 96, 192, 3, 288  # a device's part of each is a multiple of 16, for products in fp8
MODEL: plans.Mapped = {
    **plans.layer(plans.LLAMA, attention={"heads": 6, "kv_heads": 3, "head_dim": 32}, mlp={"d_ff": F}),
    "vocab": V,
    "d_model": D,
}
WHOLE = 2 * B * S * D  # bytes of the residual stream in bf16, gathered
SHARE = WHOLE // TP
INNER = 2 * B * S * F // TP  # of what the MLP computes between its products

Steps = dict[str, dict[str, int]]  # bytes of what is alive, by step and tensor


def steps(phase: str, *, frames: bool, unit: str = "decoder", **parts: Any) -> Steps:
    """What is alive in a pass of a small Llama over three tensor-parallel devices, two micro-batches a step."""
    base: plans.Mapped = {
        "model": MODEL,
        "cluster": {"base": "h100-400g", "devices": TP, "devices_per_node": TP},
        "parallelism": {"tensor": TP, "sequence": "regather"},
        "precision": "bf16-fp32-gradients",
        "stack": {"base": "megatron-te-2024", "product_frames": frames},
        "kernels": KERNELS,
        "run": {"seq_len": S, "micro_batch": B, "global_batch": 2 * B},
    }
    plan = plans.compiled(**{**base, **parts}).plan
    (book,) = compile_roles(plan, roles(plan))
    alive = Moments(book.program, plan, book.timeline).passes[phase, unit]
    return {step.step: {t.name: int(book.value(t.bytes())) for t in step.tensors} for step in alive}


def fullest(found: Steps) -> int:
    """The bytes of the fullest step."""
    return max(sum(alive.values()) for alive in found.values())


def test_a_share_of_the_gradient_and_the_saved_share_stand_beside_the_whole() -> None:
    """Scattered before the weights' gradients, the gradient's share is there, and the saved share still is."""
    plain, framed = (steps("backward", frames=frames) for frames in (False, True))
    scatter = "mlp_norm/norm.all_gather.gradient"
    order = list(framed)
    assert order.index(scatter) < order.index("mlp/up.weight_gradient") < order.index("mlp_norm/norm.gradient")
    assert framed[scatter]["mlp_norm/norm"] == framed[scatter]["mlp_norm/norm.gradient"] == SHARE
    before = plain["mlp/up.input_gradient"]
    assert "mlp_norm/norm" not in before
    assert sum(framed[scatter].values()) == sum(before.values()) + 2 * SHARE


def test_the_head_holds_its_share_too() -> None:
    """At the fullest step of the head's backward there are two shares more."""
    plain, framed = (fullest(steps("backward", frames=frames, unit="output")) for frames in (False, True))
    assert framed == plain + 2 * SHARE


def test_gradients_of_one_matrix_are_there_together() -> None:
    """Not added in the product, the gradients of gate and up are one tensor, beside those of what they gave."""
    stack = {"base": "megatron-te-2024", "accumulation": "add", "dummy_gradients": False}
    last = steps("backward", frames=True, stack=stack)["mlp/gate.weight_gradient"]
    assert last["mlp/up.weight.gradient"] == last["mlp/gate.weight.gradient"] == 2 * D * F // TP
    assert last["mlp/up.gradient"] == last["mlp/gate.gradient"] == INNER


def test_a_quantised_product_holds_what_it_was_quantised_from() -> None:
    """In forward the input in bf16 and its rows in fp8 are there until the result is scattered."""
    alive = steps("forward", frames=True, precision="fp8-delayed")["mlp/down.reduce_scatter"]
    assert (alive["mlp/product"], alive["mlp/product.row"]) == (INNER, INNER // 2)
    plain = steps("forward", frames=False, precision="fp8-delayed")["mlp/down.reduce_scatter"]
    assert "mlp/product" not in plain


def test_copies_of_gradients_last_until_the_weights_have_theirs() -> None:
    """At the last product of a matrix all copies are there, and the gathered input in rows and in columns."""
    last = steps("backward", frames=True, precision="fp8-delayed")["mlp/gate.weight_gradient"]
    copies = [last[f"mlp/{part}.gradient.{side}"] for part in ("gate", "up") for side in ("row", "column")]
    assert copies == [INNER // 2] * 4
    gathered = "mlp_norm/norm.gathered_quantised"
    assert last[f"{gathered}.row"] == last[f"{gathered}.column"] == WHOLE // 2


def test_statistics_of_a_norm_are_there_while_its_products_run() -> None:
    """They are one function with the products, which holds the norm's result and the share it gathered from."""
    last = steps("forward", frames=True, recompute="full")["mlp/up"]
    assert last["mlp_norm/norm"] == SHARE
    assert last["mlp_norm/norm.rstd"] == 4 * B * S // TP
    assert not {"mlp_norm/norm", "mlp_norm/norm.rstd"} & set(steps("forward", frames=False, recompute="full")["mlp/up"])


def test_a_reentrant_layer_is_rebuilt_before_any_of_its_gradients() -> None:
    """Its frame holds the rebuilt result, and what it gathered is gathered again for the weights' gradients."""
    rebuilt = steps("backward", frames=True, recompute="full")
    order = list(rebuilt)
    assert order.index("mlp_residual/add") < order.index("mlp/down.reduce_scatter.gradient")
    assert rebuilt["mlp/gate.weight_gradient"]["mlp_residual/add"] == SHARE
    assert "attention_norm/norm.gathered" not in rebuilt["mlp/down"]
    assert "attention_norm/norm.gathered" in rebuilt["attention/q.weight_gradient"]


def test_sums_over_devices_are_in_place() -> None:
    """Where each device computes the whole sequence, a row-parallel result is summed in the tensor itself."""
    alive = steps("forward", frames=True, parallelism={"tensor": TP})["mlp/down.all_reduce"]
    assert sum(size for name, size in alive.items() if name.startswith("mlp/down")) == WHOLE


def test_a_dense_norm_is_rebuilt_with_its_mlp() -> None:
    """It is of one function with the MLP's first product, so what it gives is saved by neither."""
    rebuilt = steps("backward", frames=True, recompute={"components": ["mlp"]})
    assert list(rebuilt).index("mlp_norm/norm") < list(rebuilt).index("mlp/down.input_gradient")


@pytest.mark.parametrize(("way", "when"), [("fused", "backward/input"), ("add", "backward/decoder..backward/input")])
def test_a_tied_head_leaves_nothing_that_waits_where_its_product_adds(way: str, when: str) -> None:
    """What stands for the head's gradient is summed with the embedding's when that is there; else it waits, in bf16."""
    tied = plans.compiled(
        cluster={"base": "h100-400g", "devices": 1},
        model={**MODEL, "embedding": {"tied": True}},
        precision="bf16-fp32-gradients",
        stack={"base": "megatron-te-2024", "accumulation": way},
        kernels=KERNELS,
    )
    parts = [(row.when, row.amount) for row in tied.accounts if row.account.endswith("gradient.part")]
    assert parts == [(when, 2 * D * V)]
