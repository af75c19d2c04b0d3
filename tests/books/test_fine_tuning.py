"""Adapters of several ranks, and which device fine-tunes at the least cost."""

from __future__ import annotations

from typing import Any

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.what_if.solve import solve
from ledger.spec.library import default_library
from ledger.spec.problems import SpecError
from tests.model import plans

# Llama 3 8B (Grattafiori et al. 2024, table 3): width 4096, 32 query and 8 key and value heads of 128, 32 layers
D, Q, KV, F, LAYERS = 4096, 32 * 128, 8 * 128, 14_336, 32
BASE = 8_030_261_248
V_LLAMA_2 = 32_000  # rows of Llama 2's vocabulary, also of width 4096 (Touvron et al. 2023, section 2.2)
RANKS = {"q": 16, "v": 8, "down": 4}
# An adapter of rank r beside a matrix of m x n has r (m + n) elements (Hu et al. 2021, section 4.1).
ADAPTERS = LAYERS * (16 * (D + Q) + 8 * (D + KV) + 4 * (F + D))


def tuned(lora: dict[str, Any], **parts: Any) -> Compiled:
    """Llama 3 8B with adapters on one device."""
    run = {"seq_len": 512, "micro_batch": 1, "global_batch": 1}
    return plans.compiled(model="llama-3-8b", train={"lora": lora}, run=run, **parts)


def test_ranks_by_target_are_those_of_each_adapter() -> None:
    """Parameters are base and adapters, of which each has its own rank; the keys are the targets."""
    found = tuned({"rank": RANKS})
    assert found.totals["parameters.adapters"] == ADAPTERS
    assert found.totals["parameters"] == BASE + ADAPTERS
    assert found.totals["parameters.trainable"] == ADAPTERS
    assert found.plan.train.lora is not None
    assert found.plan.train.lora.targets == tuple(RANKS)
    assert {one.name: one.value for one in found.symbols.values() if one.path.startswith("train.lora.rank")} == {
        f"r_{name}": rank for name, rank in RANKS.items()
    }


def test_one_rank_by_target_is_one_rank_for_all() -> None:
    """Both forms are the same plan where ranks are equal: every total is alike."""
    alike, apart = tuned({"rank": 8, "targets": ["q", "v"]}), tuned({"rank": {"q": 8, "v": 8}})
    assert alike.totals == apart.totals


def test_the_napkin_counts_six_four_and_two() -> None:
    """6 FLOPs a trained weight, 4 a frozen one that gradients pass, 2 what nothing trained comes before.

    Nothing trained comes before the embedding and the first layer's norm and projections of queries, keys and values,
    whose inputs no gradient reaches. The napkin counts every parameter, as 6ND does.
    """
    found = tuned({"rank": RANKS})
    first = Q * D + 2 * KV * D + D  # projections and the norm before them
    vocab = 128_256 * D
    before = vocab + first
    assert found.totals["napkin.flops.token"] == 6 * ADAPTERS + 4 * (BASE - before) + 2 * before


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ({"rank": 4}, "rank = 4, but no matrix is named that has an adapter of it"),
        ({"rank": {"q": 4}, "targets": ["v"]}, "ranks of q, but targets v"),
        ({"rank": {"qkv": 4}}, "`qkv` is no matrix that a layer of the model could adapt"),
    ],
)
def test_ranks_have_their_targets(lora: dict[str, Any], said: str) -> None:
    """One rank needs targets, ranks by target name them, and each is a matrix of the model."""
    with pytest.raises(SpecError) as caught:
        tuned(lora)
    assert said in str(caught.value)


def test_solve_varies_a_rank_in_either_form() -> None:
    """The largest rank that fits, of all adapters or of one: one more does not fit."""
    for lora, key in (({"rank": 8, "targets": ["q", "v"]}, "rank"), ({"rank": {"q": 8, "v": 8}}, "rank.v")):
        plan = tuned(lora, accelerator="rtx-4090", precision="bf16-true").plan
        found = solve(plan, f"train.lora.{key}")
        assert found.values is not None
        (rank,) = found.values.values()
        assert int(rank) > 8
        assert any(bound.binds for bound in found.bounds)


FINE_TUNED = """spec: ledger/1
plan: fine-tuning Llama 3 8B
accelerator: rtx-4090
cluster: single
model: llama-3-8b
precision: {precision}
train: {{lora: {{rank: 16, targets: [q, v]}}}}
recompute: full
run: {{tokens: 10M tokens, seq_len: 1024, micro_batch: 1, global_batch: 8}}
"""


@pytest.mark.parametrize("precision", ["lora-peft", "qlora-peft"])
def test_the_cheapest_device_of_those_with_a_price_is_found(precision: str) -> None:
    """Eight devices of the library have a price; each plan compiled by itself, the cheapest that fits is the answer."""
    text = FINE_TUNED.format(precision=precision)
    priced = default_library().names("price")
    assert len(priced) == 8
    costs = {}
    for name in priced:
        compiled = ledger.compile(text, [f"accelerator={name}"])
        if compiled.verdict.fits and "cost.run" in compiled.totals:
            costs[name] = float(compiled.totals["cost.run"])
    found = ledger.solve(text, "accelerator", minimize="cost.run")
    assert found.values == {"accelerator": min(costs, key=lambda name: costs[name])}
    assert set(costs) <= {row.values["accelerator"] for row in found.tried if row.totals}


# --- states in unified memory -------------------------------------------------------------------

PAGED_FROM = 100_000  # bitsandbytes 0.50, optim/optimizer.py, get_state_buffer: `p.numel() < 1e5` is not paged


def paging(rank: int, **parts: Any) -> Compiled:
    """Adapters on `q` and `v` whose AdamW has its states in unified memory."""
    return tuned({"rank": rank, "targets": ["q", "v"]}, **{"optimizer": "paged-adamw", **parts})


def factors(rank: int) -> list[int]:
    """Elements of each factor of the adapters of a layer."""
    return [rank * D, rank * Q, rank * D, rank * KV]


@pytest.mark.parametrize("rank", [16, 32])
def test_states_page_from_a_size_of_their_tensor_on(rank: int) -> None:
    """Two fp32 moments of each factor: those of 100,000 elements and more in unified memory, the others on the device.

    At rank 16 no factor is as large as that (4096 x 16 = 65,536), so that a paged optimizer pages nothing.
    """
    found = paging(rank, precision="lora-peft")
    paged = sum(8 * each for each in factors(rank) if each >= PAGED_FROM) * LAYERS
    assert found.totals["memory.paged"] == paged
    assert found.totals["memory.host"] == paged
    assert found.totals["memory.static.optimizer"] == 8 * sum(factors(rank)) * LAYERS - paged
    assert (paged > 0) == (rank == 32)


def test_what_pages_is_no_part_of_what_pytorch_counts() -> None:
    """The peak is less by the states that page, and nothing else of the step changes."""
    paged, plain = paging(64, precision="lora-peft"), paging(64, precision="lora-peft", optimizer="adamw")
    moved = int(paged.totals["memory.paged"])
    assert plain.roles[0].moments[-1].total - paged.roles[0].moments[-1].total == moved
    for key in ("flops.step", "memory.static.gradients", "parameters"):
        assert paged.totals[key] == plain.totals[key]


def test_scales_of_8_bit_states_stay_on_the_device() -> None:
    """int8 states page as others; their scales, one fp32 a block of 256, are ordinary tensors."""
    found = paging(64, precision="lora-peft", optimizer="paged-adamw-8bit")
    large = [each for each in factors(64) if each >= PAGED_FROM]
    assert found.totals["memory.paged"] == 2 * sum(large) * LAYERS
    small = [each for each in factors(64) if each < PAGED_FROM]
    scales = 2 * 4 * sum(-(-each // 256) for each in factors(64)) * LAYERS
    assert found.totals["memory.static.optimizer"] == scales + 2 * sum(small) * LAYERS


def test_states_that_find_no_room_come_over_the_link() -> None:
    """What the device lacks of them is said, with the seconds of the link both ways; the plan fits all the same."""
    whole = {"train": "all", "precision": "bf16-true", "optimizer": "paged-adamw", "accelerator": "rtx-4090"}
    model = plans.layer(plans.LLAMA, repeat=2)
    run = {"seq_len": 32, "micro_batch": 1, "global_batch": 1}
    small = plans.compiled(model={**model, "d_model": 1536, "vocab": 32_000}, run=run, **whole)
    (line,) = [check for check in small.verdict.checks if check.name == "paged"]
    assert line.status == "pass"
    full = plans.compiled(model="qwen3-8b", run=run, **{**whole, "precision": "bf16-true", "recompute": "full"})
    (line,) = [check for check in full.verdict.checks if check.name == "paged"]
    assert line.status == "warn"
    assert "come and go over the link in each update" in line.detail


@pytest.mark.parametrize(
    ("offload", "account", "amount"),
    [
        ({}, "optimizer/gradients.norm", V_LLAMA_2 * D // 2 * 8),  # in fp64, of a half of the rows
        ({"offload": ["optimizer"]}, "gradients/buffer.of the host", V_LLAMA_2 * D * 2),  # in bf16, of all of them
    ],
)
def test_a_stage_of_which_nothing_is_trained_has_no_update(
    offload: dict[str, list[str]], account: str, amount: int
) -> None:
    """Where the head alone is trained, the last of two stages has the copies that DeepSpeed makes of its gradient."""
    found = plans.compiled(
        model="llama-2-7b",
        precision="bf16-true",
        train={"only": ["head"]},
        stack="deepspeed-transformers-2026",
        cluster={"devices": 4, "devices_per_node": 4},
        parallelism={"data": 2, "pipeline": 2, "zero": 1, **offload},
        run={"seq_len": 512, "micro_batch": 1, "global_batch": 4},
    )
    first, last = ({one.account: one.amount for one in found.accounts if one.role == role.name} for role in found.roles)
    assert account not in first
    assert not {name for name in first if name.startswith("optimizer/")}
    assert last[account] == amount
