"""Weights in formats by part: what QLoRA stores, brings back, sends and leaves without gradient."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sympy

import ledger
from ledger.books.compiled import Compiled
from ledger.books.evaluate import exact
from ledger.books.memory.liveness import LiveTensors, backward, forward
from ledger.model import dtypes
from ledger.model.causes import Module, Parameter
from ledger.model.dims import Dim
from ledger.model.formats import scale_bytes, stored_dtype
from ledger.model.program import program
from ledger.model.schedule import roles
from ledger.model.tape import Dequantise
from ledger.model.tensors import Tensor, sized
from ledger.spec.load import load_plan
from ledger.spec.precision import STORED_ONLY
from tests.model import plans

ADAPTERS = {"lora": {"rank": 16, "targets": ["q", "v"]}}
FOUR_BITS = {"base": "bf16-true", "weights": {"base": "nf4", "adapters": "bf16", "norms": "fp32"}}
# Llama 2 7B, config.json of meta-llama/Llama-2-7b-hf
LAYERS, D, F, V = 32, 4096, 11008, 32000
MATRICES = {"q": D * D, "k": D * D, "v": D * D, "out": D * D, "gate": D * F, "up": D * F, "down": D * F}
NORMS, ENDS = (2 * LAYERS + 1) * D, 2 * V * D
LORA = LAYERS * 2 * 2 * 16 * D  # of q and v, two factors each


def llama(**parts: Any) -> Compiled:
    """Llama 2 7B with adapters on one device."""
    run = {"seq_len": 512, "micro_batch": 1, "global_batch": 1}
    return plans.compiled(**{"model": "llama-2-7b", "train": ADAPTERS, "run": run, **parts})


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "expected"),
    [
        # Bytes of every tensor that bitsandbytes 0.50.2 keeps for one matrix (Linear4bit's weight and QuantState on a
        # CPU; Linear8bitLt's CB and SCB): packed, absmax, code, offset, state2.absmax, state2.code.
        ("nf4", 344, 128, 22016 + 2752 + 64),
        ("nf4", 100, 130, 6500 + 816 + 64),
        ("nf4_double", 344, 128, 22016 + 688 + 64 + 4 + 12 + 1024),
        ("nf4_double", 100, 130, 6500 + 204 + 64 + 4 + 4 + 1024),
        ("int8", 344, 128, 44032 + 4 * 344),
    ],
)
def test_a_matrix_takes_what_bitsandbytes_keeps(dtype: str, rows: int, columns: int, expected: int) -> None:
    """Packed values and every scale beside them, a short last block included."""
    dims = (Dim("out", sympy.Integer(rows)), Dim("in", sympy.Integer(columns)))
    weight = Tensor("w", dims, dtype, "weight", parameter=Parameter(Module("attention", "q")))
    held = exact({})(sized(dtype, weight.elements())) + sum(exact({})(part) for part in scale_bytes(dtype, weight))
    assert held == expected


def test_formats_of_the_language_are_rows_of_the_table() -> None:
    """What a spec may store matrices in is what the table says is only stored."""
    assert set(STORED_ONLY) == {name for name in dtypes.DTYPES if dtypes.is_stored_only(name)}


@pytest.mark.parametrize(
    ("precision", "matrix", "codes", "ends", "norms", "adapters"),
    [
        # 4 bits and an fp32 scale for 64, sixteen codes in fp32 a matrix; what is not named is in bf16
        (FOUR_BITS, 36, 64, 2, 4, 2),
        # prepare_model_for_kbit_training: every bf16 parameter that is no Params4bit becomes fp32
        ("qlora-peft", 36, 64, 4, 4, 4),
        ("bf16-true", 128, 0, 2, 2, 2),
    ],
    ids=["bf16", "peft", "whole"],
)
def test_weights_of_llama_are_their_parts(
    precision: object, matrix: int, codes: int, ends: int, norms: int, adapters: int
) -> None:
    """Matrices of layers in one format, and ends, norms and adapters each in their own: exact to the byte."""
    blocks = sum(elements * matrix // 64 for elements in MATRICES.values())
    expected = LAYERS * (blocks + codes * len(MATRICES)) + ENDS * ends + NORMS * norms + LORA * adapters
    assert llama(precision=precision).totals["memory.static.weights"] == expected


def test_scales_that_are_quantised_take_an_eighth_of_a_byte_less() -> None:
    """Dettmers et al. 2023, section 3: 0.5 bits a parameter for fp32 scales of 64, 0.127 where those are quantised."""
    both = [llama(precision={"base": "qlora-bf16", "weights": {"base": name}}) for name in ("nf4", "nf4_double")]
    saved = both[0].totals["memory.static.weights"] - both[1].totals["memory.static.weights"]
    elements = LAYERS * sum(MATRICES.values())
    assert 8 * saved / elements == pytest.approx(0.5 - 0.127, abs=1e-3)


def test_a_frozen_part_has_no_gradient_and_no_state() -> None:
    """Adam in fp32 keeps 4 + 8 bytes beside each weight of an adapter, and nothing beside any other."""
    found = llama(precision="qlora-peft").totals
    assert found["memory.static.gradients"] == 4 * LORA
    assert found["memory.static.optimizer"] == 8 * LORA
    assert found["memory.static.master"] == 0


def copies(alive: LiveTensors) -> set[str]:
    """The matrices of which a copy is there that was brought back."""
    return {tensor.name for tensor in alive.tensors if ".weight.bf16" in tensor.name and "scales" not in tensor.name}


def units(**parts: Any) -> tuple[Any, ...]:
    """The units of a small plan on one device."""
    plan = load_plan(json.dumps({**plans.ONE_DEVICE, "train": ADAPTERS, "precision": FOUR_BITS, **parts}, indent=1))
    return program(plan, roles(plan)[0]).units


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_copy_lives_for_its_product_alone(recompute: str) -> None:
    """One matrix at a time is there in the dtype of the products, forward, rebuilding and backward; none is saved."""
    for unit in units(recompute=recompute):
        most = [max(len(copies(alive)) for alive in steps) for steps in (forward(unit), backward(unit))]
        assert most == ([1, 1] if unit.group == "decoder" else [0, 0])
        assert not any(tensor.role == "quantised" for tensor in unit.saving.saved)


def test_quantised_layers_save_what_others_do() -> None:
    """The stored weight waits for backward anyway, so a layer saves the same bytes as with weights in bf16."""
    narrow, wide = (
        plans.compiled(train=ADAPTERS, precision=precision)
        for precision in ({"base": "bf16-true", "weights": {"base": "nf4"}}, "bf16-true")
    )
    assert narrow.totals["saved.total"] == wide.totals["saved.total"]
    assert narrow.totals["flops.step"] == wide.totals["flops.step"]


def test_bringing_back_reads_what_is_stored_and_writes_the_copy() -> None:
    """Each matrix in forward, and again in backward but where no gradient goes on: 36/64 + 2 bytes an element.

    Results of the two adapted matrices are cloned in bf16 before their adapters add to them (peft, tuners/lora/bnb.py).
    """
    narrow, wide = (
        llama(precision=precision) for precision in ({"base": "bf16-true", "weights": {"base": "nf4"}}, "bf16-true")
    )
    each = {name: elements * 36 // 64 + 64 + 2 * elements for name, elements in MATRICES.items()}
    first = {name: moved for name, moved in each.items() if name not in ("q", "k", "v")}
    cloned = LAYERS * 2 * (2 + 2) * 512 * D
    expected = (2 * LAYERS - 1) * sum(each.values()) + sum(first.values()) + cloned
    assert narrow.totals["traffic.step"] - wide.totals["traffic.step"] == expected


def test_quantised_scales_are_brought_back_too() -> None:
    """Three kernels: scales to fp32, their offset added, the matrix; one where scales are fp32 already."""
    for base, kernels in (("nf4", 1), ("nf4_double", 3), ("int8", 1)):
        found = units(precision={"base": "bf16-true", "weights": {"base": base}})
        steps = [step for unit in found for step in (*unit.forward, *unit.backward) if isinstance(step, Dequantise)]
        assert {int(step.pieces) for step in steps} == {kernels}


def test_shares_are_packed_and_scales_are_whole() -> None:
    """FSDP cuts the 4 bits over devices and sends them as they are; every device has all scales (QuantState)."""
    cluster = {"base": "h100-400g", "devices": 4, "devices_per_node": 4}
    run = {"seq_len": 512, "micro_batch": 1, "global_batch": 4}
    found = llama(precision="qlora-bf16", cluster=cluster, parallelism={"data": 4, "zero": 3}, run=run).totals
    elements = sum(MATRICES.values())
    scales = elements // 64 + len(MATRICES) * (4 + 64 + 1024) + 4 * sum(-(-n // 64 // 256) for n in MATRICES.values())
    rest = 2 * (ENDS + NORMS + LORA)
    assert found["memory.static.weights"] == (LAYERS * elements // 2 + rest) // 4 + LAYERS * scales
    gathered = found["comm.all_gather.data.bytes"]
    assert gathered == 2 * (LAYERS * elements // 2 + rest)  # in each of the two passes


def test_hosts_have_the_packed_values_and_devices_the_scales() -> None:
    """Weights in host memory are what FSDP moves; what it does not see stays."""
    cluster = {"base": "h100-400g", "devices": 4, "devices_per_node": 4}
    mesh = {"data": 4, "zero": 3, "offload": ["weights"]}
    run = {"seq_len": 512, "micro_batch": 1, "global_batch": 4}
    found = llama(
        precision={"base": "qlora-bf16", "weights": {"base": "nf4"}}, cluster=cluster, parallelism=mesh, run=run
    )
    assert found.totals["memory.static.weights"] == LAYERS * (sum(MATRICES.values()) // 16 + 64 * len(MATRICES))


# --- parameters and the napkin ------------------------------------------------------------------


def test_parameters_are_those_of_the_model_and_its_adapters() -> None:
    """The whole is base and adapters; a model's file knows of the base, and is held against it."""
    found = llama(precision=FOUR_BITS)
    base = LAYERS * sum(MATRICES.values()) + NORMS + ENDS
    assert found.totals["parameters.base"] == base == 6_738_415_616
    assert found.totals["parameters.adapters"] == found.totals["parameters.trainable"] == LORA
    assert found.totals["parameters"] == base + LORA == 6_746_804_224
    (check,) = [check for check in found.verdict.checks if check.name.startswith("expect.")]
    assert (check.name, check.status) == ("expect.parameters.base", "pass")


def test_a_plan_expects_all_of_its_parameters(tmp_path: Any) -> None:
    """What a plan itself says of `parameters` is of the whole, adapters included."""
    text = {**plans.ONE_DEVICE, "model": "llama-2-7b", "train": ADAPTERS}
    for count, status in ((6_746_804_224, "pass"), (6_738_415_616, "fail")):
        path = tmp_path / f"{count}.yaml"
        path.write_text(json.dumps({**text, "expect": [{"parameters": count}]}), encoding="utf-8")
        checks = {check.name: check.status for check in ledger.compile(path).verdict.checks}
        assert (checks["expect.parameters"], checks["expect.parameters.base"]) == (status, "pass")


def test_the_napkin_counts_products_that_run() -> None:
    """6 a trained weight; 4 a frozen one that gradients pass; 2 the embedding and q, k, v of the first layer."""
    base, left = LAYERS * sum(MATRICES.values()) + NORMS + ENDS, V * D + 3 * D * D + D
    assert llama().totals["napkin.flops.token"] == 6 * LORA + 4 * (base - left) + 2 * left
    assert llama(train="all").totals["napkin.flops.token"] == 6 * base
    only = llama(train={"only": ["head"]}).totals["napkin.flops.token"]
    assert only == 6 * V * D + 4 * 0 + 2 * (base - V * D)


def test_the_napkins_largest_model_has_frozen_weights_and_adapters() -> None:
    """80 GB over the state of the plan's own model by parameter: 4.5 bits of most, 12 bytes beside an adapter's 4."""
    found = llama(precision="qlora-peft").totals
    state = LAYERS * sum(MATRICES.values()) * 36 // 64 + 4 * (ENDS + NORMS) + 16 * LORA
    assert found["napkin.max_parameters"] == 80 * 10**9 * found["parameters"] // state
    assert llama(train="all", precision="bf16-mixed").totals["napkin.max_parameters"] == 80 * 10**9 // 16


# --- names --------------------------------------------------------------------------------------


def test_every_weight_has_a_format() -> None:
    """What is no matrix of a layer is never stored quantised: norms, biases, ends, adapters."""
    parts = {"base": "nf4", "adapters": "fp16", "norms": "fp32", "embedding": "bf16", "head": "bf16"}
    adapters = {"lora": {"rank": 3, "targets": ["qkv"]}}
    text = {**plans.ONE_DEVICE, "model": plans.GPT2, "train": adapters}
    plan = load_plan(json.dumps({**text, "precision": {"base": "bf16-true", "weights": parts}}, indent=1))
    found: dict[str, set[str]] = {}
    for unit in program(plan, roles(plan)[0]).units:
        for weight in unit.weights:
            found.setdefault(stored_dtype(plan.precision, weight), set()).add(weight.name)
    assert all(name.endswith(".weight") and "norm" not in name for name in found["nf4"])
    assert {name.rpartition(".")[2] for name in found["fp32"]} == {"weight", "bias"}
    assert all("lora" in name for name in found["fp16"])
    assert {name.partition("/")[0] for name in found["bf16"]} == {"embedding"}
