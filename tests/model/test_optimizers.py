"""What optimizers keep of a weight, which rule updates it, and what an update multiplies."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.model.optimizers import per_parameter
from ledger.spec.library import default_library
from ledger.spec.load import load_optimizer, load_precision
from tests.model import plans

# The small Llama: two layers of q, k, v, out, gate, up and down; embedding and head; five norms.
D, Q, KV, F, V, LAYERS = 102, 144, 72, 272, 211, 2
MATRICES = LAYERS * (2 * Q * D + 2 * KV * D + 3 * D * F)
ENDS, VECTORS = 2 * V * D, (2 * LAYERS + 1) * D
NAMES = default_library().names("optimizer")


def static(optimizer: object, precision: str = "fp32", **parts: object) -> int:
    """Bytes of optimizer state on one device."""
    compiled = plans.compiled(optimizer=optimizer, precision=precision, kernels={"attention": "math"}, **parts)
    return int(compiled.totals["memory.static.optimizer"])


def test_eight_bits_with_scales() -> None:
    """Codes of a byte and a scale for 256 of them; norms have fewer than 4096 elements and stay in fp32."""
    blocks = 2 * -(-V * D // 256) + LAYERS * sum(-(-n // 256) for n in (2 * [Q * D] + 2 * [KV * D] + 3 * [D * F]))
    assert static("adamw-8bit") == 2 * (ENDS + MATRICES + 4 * blocks + 4 * VECTORS)
    assert static("lion-8bit") == ENDS + MATRICES + 4 * blocks + 4 * VECTORS


def test_factored_states_are_rows_and_columns() -> None:
    """One number for each row and column of a matrix; a vector is kept whole."""
    sides = 2 * (V + D) + LAYERS * (2 * (Q + D) + 2 * (KV + D) + 3 * (D + F))
    assert static("adafactor") == 4 * (sides + VECTORS)
    assert static("came") == 4 * (2 * sides + VECTORS + ENDS + MATRICES + VECTORS)


def test_biases_of_several_dims_are_vectors() -> None:
    """The bias of a projection into heads is a vector in torch, whatever dims it has here."""
    biased, plain = (static("adafactor", model=model) for model in (plans.QWEN2, plans.LLAMA))
    assert biased - plain == 4 * LAYERS * (Q + 2 * KV)


def test_each_weight_by_its_rule() -> None:
    """Muon keeps a momentum of the layers' matrices; embedding, head and norms have AdamW's two moments."""
    assert static("muon") == 4 * (MATRICES + 2 * (ENDS + VECTORS))


def test_states_in_a_dtype_of_their_own() -> None:
    """A rule's dtype holds whatever the precision's is; any state can be overridden alone."""
    both = 2 * (ENDS + MATRICES + VECTORS)
    assert static("adamw-bf16") == 2 * both
    assert static("adamw-kahan") == 3 * both  # what rounding took of a weight beside both moments
    assert static({"base": "adamw", "states": {"second_moment": {"dtype": "bf16"}}}) == (4 + 2) * both // 2


def test_products_of_an_update() -> None:
    """Five times X X', its square, and that times X: 4 m m n + 2 m m m FLOPs, m the shorter side."""
    sides = 2 * [(D, Q)] + 2 * [(KV, D)] + 3 * [(D, F)]
    expected = 5 * LAYERS * sum(4 * m * m * n + 2 * m**3 for m, n in sides)
    compiled = plans.compiled(optimizer="muon")
    assert compiled.totals["flops.update"] == expected
    assert compiled.totals["flops.step"] == plans.compiled().totals["flops.step"]


@pytest.mark.parametrize("zero", [1, 3])
def test_matrices_are_dealt_out(zero: int) -> None:
    """Held split, each matrix is updated by one of the devices that share it: parts go there, and updates come back."""
    compiled = plans.compiled(
        optimizer="muon",
        cluster={"base": "h100-400g", "devices": 2},
        parallelism={"data": 2, "zero": zero},
        run={"seq_len": 37, "micro_batch": 3, "global_batch": 6},
    )
    assert compiled.totals["flops.update"] == plans.compiled(optimizer="muon").totals["flops.update"]
    assert compiled.totals["comm.all_to_all.data.bytes"] == 2 * 2 * MATRICES // 2  # there and back, bf16, half of it


@pytest.mark.parametrize("name", NAMES)
def test_bytes_a_parameter_are_those_of_large_matrices(name: str) -> None:
    """What the napkin takes for a parameter is what a wide model is charged, to the share of rows and vectors."""
    rule, precision = load_optimizer(name), load_precision("fp32")
    wide = {"heads": 64, "kv_heads": 64, "head_dim": 64}
    model = {**plans.layer(plans.LLAMA, attention=wide, mlp={"d_ff": 16384}), "d_model": 4096, "vocab": 8}
    compiled = plans.compiled(model=model, optimizer=name, precision="fp32", kernels={"attention": "math"})
    states = int(compiled.totals["memory.static.optimizer"]) + int(compiled.totals.get("memory.paged", 0))
    held = Fraction(states, int(compiled.totals["parameters"]))
    assert float(held) == pytest.approx(float(sum(per_parameter(rule, precision).values())), abs=0.01)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("zero", [1, 3])
def test_no_optimizer_holds_more_where_states_are_split(name: str, zero: int) -> None:
    """Splitting states never adds to what a device holds, whatever their shape."""
    shared = {"optimizer": name, "precision": "bf16-mixed"}
    run = {"seq_len": 12, "micro_batch": 1, "global_batch": 3}
    split = [
        static(
            cluster={"base": "h100-400g", "devices": 3, "devices_per_node": 3},
            parallelism={"data": 3, "zero": stage},
            run=run,
            **shared,
        )
        for stage in (0, zero)
    ]
    assert split[1] <= split[0]


def test_main_gradients_in_fp32() -> None:
    """Held and reduced in fp32 they take twice the bytes, and the update needs no copy of them."""
    parts = {
        "cluster": {"base": "h100-400g", "devices": 2},
        "parallelism": {"data": 2, "zero": 0},
        "run": {"seq_len": 37, "micro_batch": 3, "global_batch": 12},
        "kernels": {"optimizer": "foreach"},
    }
    wide, narrow = (plans.compiled(precision=name, **parts) for name in ("bf16-main-gradients", "bf16-mixed"))
    for key in ("memory.static.gradients", "comm.all_reduce.data.bytes"):
        assert wide.totals[key] == 2 * narrow.totals[key] > 0
    copies = [
        [int(row.amount) for row in plan.accounts if row.account == "optimizer/gradients.copy"]
        for plan in (wide, narrow)
    ]
    assert copies == [[], [4 * (MATRICES + ENDS + VECTORS)]]
