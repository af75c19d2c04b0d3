"""Matrix products of quantised operands: what is quantised, how often, what copies and scales take, and what stays."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.books.compiled import Compiled
from ledger.books.results import Account
from tests.model import plans

D, Q, KV, F = 384, 192, 96, 544
MODEL = plans.layer(
    {**plans.LLAMA, "d_model": D}, attention={"heads": 6, "kv_heads": 3, "head_dim": 32}, mlp={"d_ff": F}
)
TOKENS = 96
WEIGHTS = 2 * Q * D + 2 * KV * D + 3 * D * F  # of a layer
NARROW = ("fp8-delayed", "fp8-current", "fp8-tensorwise", "fp8-rowwise", "fp8-block", "mxfp8", "nvfp4")


def compiled(precision: object, **parts: object) -> Compiled:
    """Two layers on one B200."""
    run = {"seq_len": 48, "micro_batch": 2, "global_batch": 2}
    given = {"model": MODEL, "accelerator": "b200", "run": run, "kernels": {"attention": "flash"}, **parts}
    return plans.compiled(precision=precision, **given)


def rows(plan: Compiled, ending: str, resource: str = "", when: str = "") -> list[Account]:
    """Accounts of the layers by their last words."""
    return [
        row
        for row in plan.accounts
        if row.account.startswith("decoder/")
        and row.account.endswith(ending)
        and row.resource.name.startswith(resource)
        and row.when.startswith(when)
    ]


@pytest.mark.parametrize("name", NARROW)
def test_projections_are_narrow_and_the_rest_is_not(name: str) -> None:
    """Layers multiply at the narrow rate, the head and attention in bf16; no FLOP comes or goes."""
    narrow, plain = compiled(name), compiled("bf16-mixed")
    rate = "fp4" if name == "nvfp4" else "fp8"
    of = {row.account: row.resource.name for row in narrow.accounts if row.resource.name.startswith("matmul.")}
    assert of["output/head/logits"] == of["decoder/attention/core"] == "matmul.bf16"
    products = [f"decoder/{part}" for part in ("attention/q", "attention/out", "mlp/gate", "mlp/down")]
    assert {of[f"{product}{way}"] for product in products for way in ("", ".input_gradient", ".weight_gradient")} == {
        f"matmul.{rate}"
    }
    for key in ("flops.forward", "flops.backward", "flops.step", "parameters"):
        assert narrow.totals[key] == plain.totals[key]


@pytest.mark.parametrize(
    ("name", "bits", "scale_bits"),
    [("fp8-block", 8, Fraction(32, 128)), ("mxfp8", 8, Fraction(8, 32)), ("nvfp4", 4, Fraction(8, 16))],
)
def test_a_block_of_a_wide_matrix(name: str, bits: int, scale_bits: Fraction) -> None:
    """Where blocks and their padding divide the sides, an element takes its bits and its share of a scale."""
    wide = plans.layer(
        {**MODEL, "d_model": 1024}, attention={"heads": 8, "kv_heads": 8, "head_dim": 128}, mlp={"d_ff": 2048}
    )
    run = {"seq_len": 512, "micro_batch": 1, "global_batch": 1}
    plan = compiled(name, model=wide, run=run)
    found = rows(plan, "mlp_norm/norm.quantise", "hbm", "forward")
    copies = 2 * 512 * 1024 * (bits + scale_bits) / 8 + (4 if name == "nvfp4" else 0)  # one scale of all besides
    reads = 2 if name == "nvfp4" else 1
    assert [row.amount for row in found] == [reads * 2 * 512 * 1024 + copies]


def test_scales_found_first_cost_a_pass() -> None:
    """Delayed scaling knows its scale; scaling by what is there reads a tensor for its magnitude, then again."""
    delayed, current = (
        rows(compiled(name), "mlp_norm/norm.quantise", "hbm", "forward")[0].amount
        for name in ("fp8-delayed", "fp8-current")
    )
    assert current - delayed == 2 * TOKENS * D


def test_copies_of_weights_last() -> None:
    """Two copies of every quantised weight stay, and are made once however many micro-batches a step has."""
    several = compiled("fp8-current", run={"seq_len": 48, "micro_batch": 2, "global_batch": 8})
    held = [row for row in several.accounts if row.resource.name == "memory.weights" and ".weight." in row.account]
    copies = [row for row in held if row.account.endswith((".weight.row", ".weight.column"))]
    assert sum(row.amount * row.times for row in copies) == 2 * 2 * WEIGHTS
    assert {row.times for row in rows(several, ".weight.quantise", "hbm", "forward")} == {2}  # layers
    assert {row.times for row in rows(several, "norm.quantise", "hbm", "forward")} == {2 * 4}


def test_buffers_of_delayed_scaling() -> None:
    """Seven products of a layer keep 1024 magnitudes, a scale and its inverse of five tensors each, in fp32."""
    delayed, current = compiled("fp8-delayed"), compiled("fp8-current")
    buffers = 2 * 7 * 5 * (1024 + 2) * 4
    peaks = [plan.roles[0].moments[-1].total for plan in (delayed, current)]
    assert peaks[0] - peaks[1] == buffers


def test_recomputation_quantises_activations_alone() -> None:
    """What backward rebuilds quantises its inputs again, and finds the copies of weights as they were."""
    again = compiled("fp8-current", recompute="full")
    assert rows(again, "norm.quantise", "hbm", "recompute")
    assert not rows(again, ".weight.quantise", "hbm", "recompute")


def test_gathered_weights_are_quantised_in_each_pass() -> None:
    """FSDP frees what it gathered, so no copy stays: forward makes one layout, backward the other."""
    parts = {
        "cluster": {"base": "h100-400g", "devices": 2},
        "parallelism": {"data": 2, "zero": 3},
        "run": {"seq_len": 48, "micro_batch": 2, "global_batch": 4},
    }
    plan = compiled("fp8-current", **parts)
    made = [rows(plan, ending, "hbm") for ending in ("mlp/up.weight.quantise", "mlp/up.quantise_weight")]
    assert [[row.when for row in found] for found in made] == [["forward"], ["backward"]]
    assert not [row for row in plan.accounts if row.account.endswith(".weight.row") and row.resource.name != "hbm"]


def test_a_group_or_an_operation_can_be_left_alone() -> None:
    """`keep` names operations, components or layer groups, as recipes that spare the last layers do."""
    keep = ["head", "router", "mlp/down", "last"]
    group = MODEL["layers"][0]
    model = {**MODEL, "layers": [group, {**group, "group": "last"}]}
    plan = compiled({"base": "nvfp4", "matmul": {"keep": keep}}, model=model)
    of = {row.account: row.resource.name for row in plan.accounts if row.resource.name.startswith("matmul.")}
    assert of["decoder/mlp/up"] == "matmul.fp4"
    assert {of["decoder/mlp/down"], of["last/mlp/up"], of["last/attention/q"]} == {"matmul.bf16"}


def test_one_layout_serves_where_the_hardware_takes_both() -> None:
    """On Blackwell one scale a tensor needs no transposed copy: half the copies, the same products."""
    both, one = compiled("fp8-current"), compiled({"base": "fp8-current", "matmul": {"layouts": "one"}})
    assert one.totals["flops.step"] == both.totals["flops.step"]
    weights = 2 * WEIGHTS
    peaks = [plan.roles[0].moments[-1].total for plan in (both, one)]
    scales = 2 * 7 * 4
    assert peaks[0] - peaks[1] == weights + scales


@pytest.mark.parametrize(("stack", "casts"), [("pytorch-fsdp2-2025", 7), ("pytorch-fsdp2-compile-2025", 4)])
def test_what_is_compiled_casts_a_tensor_once(stack: str, casts: int) -> None:
    """Seven products read four tensors: before attention, after it, before the MLP and within it.

    Equal subexpressions of a compiled layer are one, in both passes (torch/_functorch/partitioners.py, fx_graph_cse).
    """
    sharded = {"data": 2, "zero": 3}
    cluster = {"base": "h100-400g", "devices": 2, "devices_per_node": 2}
    run = {"seq_len": 48, "micro_batch": 2, "global_batch": 4}
    found = compiled("fp8-tensorwise", stack=stack, cluster=cluster, parallelism=sharded, run=run)
    inputs = [row for row in rows(found, ".quantise", "hbm", "forward") if ".weight." not in row.account]
    again = rows(found, ".quantise_input", "hbm", "backward")
    assert (len(inputs), len(again)) == (casts, casts)


# --- with ZeRO 3 --------------------------------------------------------------------------------


def sharded(weights: str) -> Compiled:
    """Two layers over two devices, whose weights are quantised so."""
    precision = {"base": "fp8-current", "weights": "bf16", "matmul": {"weights": weights}}
    cluster = {"base": "h100-400g", "devices": 2, "devices_per_node": 2}
    run = {"seq_len": 48, "micro_batch": 2, "global_batch": 4}
    return compiled(precision, cluster=cluster, parallelism={"data": 2, "zero": 3}, run=run)


@pytest.mark.parametrize("weights", ["gathered", "only"])
def test_quantised_shares_are_gathered_narrow(weights: str) -> None:
    """Both gathers of a layer's matrices take half the bytes; gradients are reduced as wide as ever."""
    wide, narrow = sharded("anew"), sharded(weights)
    gathers, reductions = "comm.all_gather.data.bytes", "comm.reduce_scatter.data.bytes"
    again = 2  # in each pass
    assert wide.totals[gathers] - narrow.totals[gathers] == again * 2 * WEIGHTS
    assert wide.totals[reductions] == narrow.totals[reductions]
    assert narrow.totals["memory.unsharded"] < wide.totals["memory.unsharded"]
    assert not rows(narrow, "down.weight.quantise", when="forward")


def test_what_is_kept_of_shares_is_quantised_where_nothing_else_is() -> None:
    """`only` keeps a byte a weight, `gathered` what it quantises for each gather."""
    kept = {way: sharded(way).totals["memory.static.weights"] for way in ("anew", "gathered", "only")}
    assert kept["gathered"] == kept["anew"]
    assert kept["anew"] - kept["only"] == 2 * WEIGHTS // 2
