"""What torchtitan keeps, frees and gathers since 2026: each mechanism by what it alone changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import compile_roles
from ledger.books.memory.liveness import backward, forward
from ledger.model.schedule import roles
from ledger.spec.plan import Plan
from tests.model import plans

B, S, D, V, F, SHARDS, TP, LAYERS = 3, 39, 102, 213, 273, 4, 3, 2
HEADS, KV, WIDTH = 6, 3, 24
MODEL: plans.Mapped = {
    **plans.layer(plans.LLAMA, attention={"heads": HEADS, "kv_heads": KV, "head_dim": WIDTH}, mlp={"d_ff": F}),
    "vocab": V,
}
SECOND = {"keep": ["matmul", "attention"], "matmuls": "every_second"}
SPLIT = {"parallelism": {"data": 1, "tensor": TP, "sequence": "save_gathered"}}


def compiled(stack: Mapping[str, Any] | None = None, **parts: Any) -> Compiled:
    """A small Llama over four devices of FSDP2."""
    layout = parts.pop("parallelism", {"data": SHARDS, "zero": 3, "reduce": "micro_batch"})
    devices = layout["data"] * layout.get("tensor", 1)
    base: plans.Mapped = {
        "model": MODEL,
        "cluster": {"base": "h100-400g", "devices": devices, "devices_per_node": devices},
        "parallelism": layout,
        "precision": "bf16-autocast" if layout["data"] > 1 else "bf16-true",
        "stack": {"base": "torchtitan-2026", **(stack or {})},
        "run": {"seq_len": S, "micro_batch": B, "global_batch": B * layout["data"]},
    }
    return plans.compiled(**{**base, **parts})


def saved(plan: Plan) -> dict[str, int]:
    """Bytes of each tensor that a layer saves under the plan's recomputation."""
    (book,) = compile_roles(plan, roles(plan))
    (layer,) = (unit for unit in book.program.units if unit.name == "decoder")
    return {tensor.name: int(book.value(tensor.bytes())) for tensor in layer.saving.saved}


def held(one: Compiled, moment: str) -> dict[str, int]:
    """Bytes of what exists at one moment alone."""
    alive = (account for account in one.accounts if account.when == moment and account.unit == "B")
    return {account.account: account.times * int(account.amount) for account in alive}


def test_attention_over_documents_saves_two_words_of_random_state() -> None:
    """Of scaled_dot_product_attention there are three, 8 bytes each; all else is alike."""
    names = {"varlen": 2, "flash": 3}
    for name, words in names.items():
        assert saved(compiled(kernels={"attention": name}).plan)["attention/core.random_state"] == 8 * words


def test_each_layer_keeps_a_table_of_rotations_and_saves_the_rows_it_took() -> None:
    """Complex numbers, half as many as a head is wide: those of a sequence lie there, those of tokens are saved."""
    own, shared = (compiled({"rotary_tables": kind}) for kind in ("each_layer", "shared"))
    rows = 4 * S * WIDTH
    assert saved(own.plan)["attention/rotary/unit.table.rows"] == B * rows
    lasting = [account for account in own.accounts if account.account.endswith("rotary/unit.table")]
    assert [(account.times, int(account.amount)) for account in lasting] == [(LAYERS, rows)]
    assert "attention/rotary/unit.table.rows" not in saved(shared.plan)


@pytest.mark.parametrize(
    ("projections", "kept"),
    [
        ("apart", {"attention/q", "attention/v", "mlp/gate", "mlp/down"}),
        ("attention", {"attention/q", "attention/k", "attention/v", "mlp/gate", "mlp/down"}),
        ("joined", {"attention/q", "attention/k", "attention/v", "mlp/gate", "mlp/up"}),
    ],
)
def test_products_with_one_matrix_count_as_one(projections: str, kept: set[str]) -> None:
    """Of q, k, v, out, gate, up, down the odd ones are kept; those of a joined matrix are one, and kept as one."""
    products = {"attention/q", "attention/k", "attention/v", "attention/out", "mlp/gate", "mlp/up", "mlp/down"}
    assert saved(compiled({"projections": projections}, recompute=SECOND).plan).keys() & products == kept


@pytest.mark.parametrize(
    ("projections", "summed"),
    [("apart", {"attention/k", "attention/q", "mlp/gate"}), ("attention", {"mlp/gate"}), ("joined", set())],
)
def test_what_one_matrix_reads_has_its_gradient_whole(projections: str, summed: set[str]) -> None:
    """A product each for q, k and v, or for gate and up, leaves gradients of what they read to be added up."""
    (role,) = compiled({"projections": projections}).roles
    sums = {row.account for row in role.kernels if row.account.endswith(".input_gradient.sum")}
    assert sums == {f"decoder/{name}.input_gradient.sum" for name in summed}


def test_a_device_writes_the_gradient_of_its_own_rows() -> None:
    """A third of the vocabulary, where DTensor's own lookup has all of it."""
    rows = {kind: held(compiled({"embedding": kind}, **SPLIT), "backward/input") for kind in ("all_rows", "own_rows")}
    whole = "input/embedding/tokens.gradient.whole.now"
    assert rows["all_rows"][whole] == 2 * V * D
    assert whole not in rows["own_rows"]


def test_the_last_gradient_of_an_end_is_there_while_reduced_ones_are_allocated() -> None:
    """On two devices the result, half in fp32, is as large as the bf16 gradient: both lie beside what is reduced."""
    rows = 10 * V
    layout = {"data": 2, "zero": 3, "reduce": "micro_batch"}
    reduced = held(compiled(parallelism=layout, model={**MODEL, "vocab": rows}), "backward/input")
    assert reduced == {
        "input/gradient.last": 2 * rows * D,
        "input/gradient.to_reduce": 4 * rows * D,
        "input/gradient.reduced": 4 * rows * D // 2,
    }


def test_a_layer_is_rebuilt_before_the_first_gradient_of_what_reads_it() -> None:
    """While the feed-forward part runs again, the last product has no gradient yet: neither of operand nor weight."""
    plan = compiled(recompute="full").plan
    (book,) = compile_roles(plan, roles(plan))
    (layer,) = (unit for unit in book.program.units if unit.name == "decoder")
    (again,) = (live for live in backward(layer) if live.step == "mlp/product")
    names = {tensor.name for tensor in again.tensors}
    assert "mlp/product" in names
    assert not {name for name in names if name.startswith(("mlp/product.gradient", "mlp/down.weight.gradient"))}


def test_a_checkpoint_runs_to_its_end_where_the_stack_says_so() -> None:
    """The last product saves nothing that backward reads of its result; early stop leaves it out."""
    names = {}
    for way in ("early_stop", "whole"):
        plan = compiled({"checkpoint": way}, recompute="full").plan
        (book,) = compile_roles(plan, roles(plan))
        (layer,) = (unit for unit in book.program.units if unit.name == "decoder")
        names[way] = {operation.name for operation in layer.saving.again}
    assert {"mlp/down", "mlp_residual/add"} <= names["whole"] - names["early_stop"]


def test_callers_hold_what_the_feed_forward_part_reads() -> None:
    """Rebuilt layers save nothing of it, and it is there beside the product where frames hold arguments."""
    names = {}
    for held in (False, True):
        plan = compiled({"held_inputs": held}, recompute="full").plan
        (book,) = compile_roles(plan, roles(plan))
        (layer,) = (unit for unit in book.program.units if unit.name == "decoder")
        (product,) = (live for live in forward(layer) if live.step == "mlp/product")
        names[held] = {tensor.name for tensor in product.tensors}
    assert names[True] - names[False] == {"mlp_norm/norm"}


def test_what_is_kept_of_a_transfer_is_its_result() -> None:
    """Not the copy of its operand that DTensor makes, which is as large as the whole sequence."""
    kept = saved(compiled(recompute={"keep": ["reduce_scatter"]}, **SPLIT).plan)
    assert {"attention/out.sum", "mlp/down.sum"} <= kept.keys()
    assert not [name for name in kept if name.endswith(".copy")]


def test_a_kept_scatter_is_cut_anew_before_its_result_is_found() -> None:
    """The copy is an operator of its own, which no result is on file for; a compiler drops what nobody reads."""
    copies, copied = {}, 2 * B * S * D
    for way in (False, True):
        plan = compiled({"compiled": way}, recompute={"keep": ["reduce_scatter"]}, **SPLIT).plan
        (book,) = compile_roles(plan, roles(plan))
        (layer,) = (unit for unit in book.program.units if unit.name == "decoder")
        cut = [operation for operation in layer.saving.again if operation.name.endswith("reduce_scatter.copy")]
        copies[way] = {operation.name: int(book.value(operation.output.bytes())) for operation in cut}
    assert copies[False] == {"attention/out.reduce_scatter.copy": copied, "mlp/down.reduce_scatter.copy": copied}
    assert not copies[True]
