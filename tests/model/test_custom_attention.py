"""Attention and recurrences that a model's author writes in YAML."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.spec.problems import SpecError
from tests.model import plans
from tests.model.plans import LLAMA, Mapped

PARTS, WIDE, MEMORY = 6, 23, 7
D_FF, ROWS = 276, 213  # divisible by 3
PROJECTION = "batch seq d_model, parts wide d_model -> batch seq parts wide"
STEPS: list[Mapped] = [
    {"name": "query", "einsum": PROJECTION, "weight": "w_q"},
    {"name": "keys", "of": ["x"], "einsum": PROJECTION, "weight": "w_k"},
    {
        "name": "scores",
        "of": ["query", "keys"],
        "einsum": "batch seq parts wide, batch key parts wide -> batch parts seq key",
    },
    {"name": "shares", "softmax": "key", "mask": "causal"},
    {
        "name": "mixed",
        "of": ["shares", "keys"],
        "einsum": "batch parts seq key, batch key parts wide -> batch seq parts wide",
    },
    {"name": "out", "einsum": "batch seq parts wide, d_model parts wide -> batch seq d_model", "weight": "w_o"},
]
SEEING: Mapped = {
    "kind": "custom",
    "dims": {"parts": PARTS, "wide": WIDE},
    "weights": {"w_q": "parts wide d_model", "w_k": "parts wide d_model", "w_o": "d_model parts wide"},
    "steps": STEPS,
    "split": {"tensor": ["parts"]},
}
REMEMBERING: Mapped = {
    "kind": "custom",
    "dims": {"parts": PARTS, "wide": WIDE, "memory": MEMORY},
    "weights": {
        "w_v": "parts wide d_model",
        "w_b": "parts memory d_model",
        "w_a": "parts d_model",
        "w_o": "d_model parts wide",
    },
    "steps": [
        {"name": "values", "einsum": PROJECTION, "weight": "w_v"},
        {
            "name": "into",
            "of": ["x"],
            "einsum": "batch seq d_model, parts memory d_model -> batch seq parts memory",
            "weight": "w_b",
        },
        {"name": "rate", "of": ["x"], "einsum": "batch seq d_model, parts d_model -> batch seq parts", "weight": "w_a"},
        {"name": "decay", "activation": "sigmoid"},
        {"name": "update", "multiply": ["values", "into"]},
        {"name": "state", "scan": ["decay", "update"], "dtype": "fp32"},
        {
            "name": "seen",
            "of": ["state", "into"],
            "einsum": "batch seq parts wide memory, batch seq parts memory -> batch seq parts wide",
        },
        {"name": "out", "einsum": "batch seq parts wide, d_model parts wide -> batch seq d_model", "weight": "w_o"},
    ],
    "split": {"tensor": ["parts"]},
}
BATCH, SEQ, D_MODEL, LAYERS = 3, 37, LLAMA["d_model"], 2
SPLIT: Mapped = {
    "parallelism": {"data": 1, "tensor": 3, "sequence": "off"},
    "cluster": {"base": "h100-400g", "devices": 3, "devices_per_node": 3},
    "run": {"seq_len": SEQ, "micro_batch": BATCH, "global_batch": BATCH},
}


def with_attention(attention: Mapped) -> Mapped:
    """The small Llama with another attention, and a vocabulary that three devices share."""
    layer = {**LLAMA["layers"][0], "mlp": {**LLAMA["layers"][0]["mlp"], "d_ff": D_FF}, "attention": attention}
    return {**LLAMA, "vocab": ROWS, "layers": [layer]}


def totals(attention: Mapped, **parts: Any) -> dict[str, Any]:
    """Every total of the small model with that attention."""
    run = {"seq_len": SEQ, "micro_batch": BATCH, "global_batch": BATCH}
    return dict(plans.compiled(**{"model": with_attention(attention), "run": run, **parts}).totals)


def others() -> int:
    """FLOPs of one forward pass outside attention: three products of the gated part, and the head."""
    return 2 * BATCH * SEQ * D_MODEL * (LAYERS * 3 * D_FF + ROWS)


def test_attention_counts_its_einsums() -> None:
    """Three projections, and two products over pairs of tokens, of which a causal mask leaves (S + 1) / 2S."""
    found = totals(SEEING)
    projections = 3 * 2 * BATCH * SEQ * D_MODEL * PARTS * WIDE
    pairs = 2 * 2 * BATCH * PARTS * WIDE * SEQ * SEQ
    assert found["flops.counter.forward"] == others() + LAYERS * (projections + pairs)
    assert found["flops.forward"] == others() + LAYERS * (projections + pairs * (SEQ + 1) // (2 * SEQ))
    assert found["flops.unmasked"] == found["flops.counter.forward"]
    assert found["kv_cache"] == LAYERS * BATCH * SEQ * PARTS * WIDE * 2  # keys are values here, two bytes each


def test_a_recurrence_keeps_a_state_for_each_token() -> None:
    """A scan multiplies on no matrix unit; its states before each token are saved, in fp32 where that is said."""
    found = totals(REMEMBERING)
    widths = 2 * PARTS * WIDE + PARTS * MEMORY + PARTS
    products = 2 * BATCH * SEQ * (D_MODEL * widths + PARTS * WIDE * MEMORY)
    assert found["flops.counter.forward"] == others() + LAYERS * products
    narrow = totals({**REMEMBERING, "steps": [_without(step, "dtype") for step in REMEMBERING["steps"]]})
    states, decays = BATCH * SEQ * PARTS * WIDE * MEMORY, BATCH * SEQ * PARTS
    # two bytes more for each state; the decay and what the last product reads are copies in bf16 beside the fp32 ones
    more = found["saved.per_layer.decoder"] - narrow["saved.per_layer.decoder"]
    assert more == 2 * states + 4 * decays
    assert found["kv_cache"] == LAYERS * BATCH * PARTS * WIDE * MEMORY * 4  # a state in fp32


def _without(step: Mapped, key: str) -> Mapped:
    return {name: value for name, value in step.items() if name != key}


@pytest.mark.parametrize("attention", [SEEING, REMEMBERING], ids=["attention", "recurrence"])
def test_devices_share_what_the_author_splits(attention: Mapped) -> None:
    """Over three devices each runs a third of every product: shares add up to the whole."""
    whole, shared = totals(attention), totals(attention, **SPLIT)
    assert shared["flops.forward"] == whole["flops.forward"]
    norms = (2 * LAYERS + 1) * D_MODEL
    assert 3 * (shared["parameters.per_device"] - norms) == whole["parameters"] - norms


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_recomputation_finds_its_core(recompute: str) -> None:
    """What pairs tokens is the core that selective recomputation runs again; a layer keeps less."""
    kept, rebuilt = totals(SEEING), totals(SEEING, recompute=recompute)
    assert rebuilt["flops.recompute"] > 0
    assert rebuilt["memory.peak"] < kept["memory.peak"]


def changed(step: int, **changes: Any) -> Mapped:
    """The attention with one step changed."""
    return {**SEEING, "steps": [{**old, **changes} if index == step else old for index, old in enumerate(STEPS)]}


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        ({**SEEING, "heads": 4}, "`heads` is no size of custom attention"),
        ({**LLAMA["layers"][0]["attention"], "dims": {"parts": 2}}, "`dims` belongs to no attention of kind"),
        (changed(3, of=["query"]), "softmax over `key` of `batch seq parts wide`"),
        (changed(1, einsum="batch key d_model, parts wide d_model -> batch key parts wide"), "`x` itself is read"),
        (
            changed(2, einsum="batch seq parts wide, batch seq parts wide -> batch seq parts wide"),
            "it sums over no dim",
        ),
        (
            changed(2, einsum="batch seq parts wide, batch key parts wide -> batch parts key"),
            "`seq` is in one operand and not in the result",
        ),
        (
            changed(0, einsum="batch (seq+tap-3) d_model, parts wide d_model -> batch seq parts wide"),
            "is no convolution",
        ),
    ],
)
def test_what_does_not_fit_is_told(attention: Mapped, words: str) -> None:
    """Each problem says what is wrong in the words of the step."""
    with pytest.raises(SpecError) as caught:
        totals(attention)
    assert any(words in problem.message for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sequence": "save_gathered"}, "sequence = save_gathered cuts the sequence"),
        ({"tensor": 1, "context": 3}, "context = 3 cuts the sequence"),
    ],
)
def test_sequences_stay_whole(changes: Mapped, words: str) -> None:
    """No exchange is known for what an author writes over a sequence."""
    layout = {**SPLIT, "parallelism": {**SPLIT["parallelism"], **changes}, "run": {**SPLIT["run"], "seq_len": 36}}
    with pytest.raises(SpecError) as caught:
        totals(SEEING, **layout)
    assert any(words in problem.message for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize("attention", [SEEING, REMEMBERING], ids=["attention", "recurrence"])
def test_services_need_a_known_kind(attention: Mapped) -> None:
    """What is written out over a sequence says nothing of tokens that find the others in a cache."""
    serve = {"prompt": "39 tokens", "output": "3 tokens", "concurrency": 3}
    trained = ("run", "optimizer", "stack", "recompute")
    plan = {key: part for key, part in plans.ONE_DEVICE.items() if key not in trained}
    with pytest.raises(SpecError, match="is written out over a sequence"):
        plans.compiled_text(json.dumps({**plan, "model": with_attention(attention), "serve": serve}))
