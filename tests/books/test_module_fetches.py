"""Weights that modules gather, ahead and each their own, and what is there of them: ZeRO 3 as DeepSpeed runs it."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled import Compiled
from ledger.lab.verification.predicted import collectives
from tests.model import plans

D, V, RANKS, LAYERS = 36, 213, 4, 3
ALL = 10**9
LLAMA = {**plans.layer(plans.LLAMA, repeat=LAYERS), "d_model": D, "vocab": V}
NORMS = 2 * LAYERS + 1
WINDOWS = {"prefetch": 0, "live_parameters": 0, "reuse_distance": 0, "persistent": D}


PARTS = ("model", "cluster", "parallelism", "recompute")


def compiled(batches: int = 1, **changes: Any) -> Compiled:
    """A small Llama on four ranks, whose norms alone are small."""
    parts = {
        "model": LLAMA,
        "precision": "bf16-mixed",
        "cluster": {"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        "parallelism": {"data": RANKS, "zero": 3},
        "run": {"seq_len": 37, "micro_batch": 1, "global_batch": batches * RANKS},
        **{name: changes.pop(name) for name in PARTS if name in changes},
    }
    stack = {"base": "deepspeed-zero3-transformers-2026", "reduction_buffer": 10_000, **WINDOWS, **changes}
    return plans.compiled(**parts, stack=stack)


def sizes(one: Compiled) -> list[int]:
    """Elements of each weight but the norms, with the padding that makes four equal shares."""
    (book,) = one.books
    found = [(int(book.value(count)), int(book.value(weight.elements()))) for count, weight in book.weights()]
    return [-(-size // RANKS) * RANKS for count, size in found for _ in range(count) if size > D]


def held(one: Compiled, moment: str, category: str = "unsharded") -> int:
    """Bytes of a category at a moment."""
    (role,) = one.roles
    return next(each.parts[category] for each in role.moments if each.name == moment)


def test_without_windows_each_weight_is_gathered_alone_in_both_passes() -> None:
    """Nothing ahead, nothing kept: as many calls as weights, forward and backward, and small ones once a step."""
    one = compiled()
    sent = collectives(one)
    for phase in ("forward", "backward"):
        assert sent[f"comm.all_gather.data.{phase}.count"] == len(sizes(one))
        assert sent[f"comm.all_gather.data.{phase}.bytes"] == 2 * sum(sizes(one))
    assert sent["comm.all_gather.data.optimizer.count"] == NORMS
    assert sent["comm.all_gather.data.optimizer.bytes"] == NORMS * 2 * D


def test_weights_that_are_used_again_soon_stay_for_backward() -> None:
    """With no end to the distance nothing is let go in forward, and backward gathers nothing."""
    one = compiled(reuse_distance=ALL)
    sent = collectives(one)
    assert sent["comm.all_gather.data.forward.count"] == len(sizes(one))
    assert "comm.all_gather.data.backward.count" not in sent
    assert held(one, "forward/loss") == 2 * (sum(sizes(one)) + NORMS * D)


def test_what_follows_is_gathered_in_one_call_ahead() -> None:
    """The first module, which has no weights, gathers the rest of the model; the embedding is among it."""
    one = compiled(prefetch=ALL, live_parameters=ALL, reuse_distance=ALL)
    sent = collectives(one)
    assert sent["comm.all_gather.data.forward.count"] == 1
    assert sent["comm.all_gather.data.forward.bytes"] == 2 * sum(sizes(one))


def test_no_more_is_gathered_ahead_than_may_be_there() -> None:
    """Once so many elements are there, nothing is ahead: the bound is passed by one weight at most."""
    most = 40_000
    one = compiled(prefetch=ALL, live_parameters=most)
    (role,) = one.roles
    found = [m.parts["unsharded"] for m in role.moments if m.name.startswith(("forward/decoder", "backward/decoder"))]
    assert max(found) <= 2 * (2 * (most + max(sizes(one))) + NORMS * D)
    assert held(compiled(prefetch=ALL, live_parameters=2 * most), "forward/decoder/1") > held(one, "forward/decoder/1")


def test_small_weights_are_whole_but_for_the_update() -> None:
    """Norms in bf16, beside their shares, in both passes."""
    for moment, more in (("forward/decoder", NORMS * 2 * D), ("optimizer", 0)):
        assert held(compiled(), moment) - held(compiled(persistent=0), moment) in (more, more - 2 * D)


def test_gradients_are_reduced_when_the_next_finds_no_room() -> None:
    """In the order of backward, up to 10,000 elements at once; the embedding and the head are by themselves."""
    one = compiled(batches=2)
    (book,) = one.books
    elements = {weight.name: int(book.value(weight.elements())) for _, weight in book.weights()}
    layer = ["mlp/down", "mlp/up", "mlp/gate", "mlp_norm/norm", "attention/out", "attention/v", "attention/k"]
    order = ["head/logits", "final_norm/norm", *[*layer, "attention/q", "attention_norm/norm"] * LAYERS]
    filled, calls = 0, 0
    for name in [*order, "embedding/tokens"]:
        if filled and filled + elements[f"{name}.weight"] > 10_000:
            filled, calls = 0, calls + 1
        filled += elements[f"{name}.weight"]
    assert collectives(one)["comm.reduce_scatter.data.backward.count"] == 2 * (calls + 1)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_stage_runs_through_its_own_modules(recompute: str) -> None:
    """Of two stages of two layers each, the first gathers the embedding, the second the head, both in each pass."""
    one = compiled(
        batches=2,
        model=plans.layer(LLAMA, repeat=4),
        cluster={"base": "h100-400g", "devices": 2 * RANKS, "devices_per_node": 2 * RANKS},
        parallelism={"data": RANKS, "pipeline": 2, "zero": 3},
        recompute=recompute,
    )
    for role, unit in (("first", "input"), ("last", "output")):
        gathered = [a.account for a in one.accounts if a.role == role and a.resource.collective == "all_gather"]
        assert any(name.startswith(f"{unit}/") for name in gathered)
        assert not any(name.startswith(("input/", "output/")) and not name.startswith(unit) for name in gathered)


def test_shares_are_of_elements_whatever_the_rows() -> None:
    """213 rows of 36 on four ranks: a quarter of 7668 elements, where FSDP2's shares are 54 rows."""
    (book,) = compiled().books
    tokens = next(weight for _, weight in book.weights() if weight.name == "embedding/tokens.weight")
    assert int(book.value(book.program.sharding.held_elements("weights", tokens))) == V * D // RANKS
