"""Stocks of a ledger against what must hold for any plan."""

from __future__ import annotations

import pytest

from ledger.books.compiled import Compiled
from tests.model import plans

CASES: dict[str, plans.Mapped] = {
    "one group": {"model": "llama-3-8b"},
    "two groups": {"model": "gemma-2-9b", "kernels": {"attention": "eager"}},
    "tied ends": {"model": "gpt2", "run": {"seq_len": 1024, "micro_batch": 1, "global_batch": 1}},
    "some layers rebuilt": {"model": "llama-3-8b", "recompute": {"every": 4}},
    "quantised": {"model": "llama-3-8b", "precision": "fp8-current"},
    "accumulated": {"model": "gemma-2-9b", "run": {"seq_len": 2048, "micro_batch": 1, "global_batch": 4}},
}


def compiled(case: str) -> Compiled:
    """The plan of a case, on one device."""
    run = {"seq_len": 2048, "micro_batch": 1, "global_batch": 1}
    return plans.compiled(**{"run": run, "precision": "bf16-mixed", **CASES[case]})


@pytest.mark.parametrize("case", CASES)
def test_every_gradient_waits_for_the_update(case: str) -> None:
    """When the optimizer runs, the gradients of all weights are there, each once."""
    found = compiled(case)
    (role,) = found.roles
    assert role.moments[-1].name == "optimizer"
    assert role.moments[-1].parts["gradients"] == found.totals["memory.static.gradients"]
    assert found.totals["memory.static.gradients"] == 2 * found.totals["parameters"]


@pytest.mark.parametrize("part", ["weights", "master", "optimizer"])
@pytest.mark.parametrize("case", CASES)
def test_state_is_alive_all_the_time(case: str, part: str) -> None:
    """What persists is there at every moment, in the same amount."""
    found = compiled(case)
    (role,) = found.roles
    assert {moment.parts[part] for moment in role.moments} == {found.totals[f"memory.static.{part}"]}


def test_copies_that_stay_are_weights() -> None:
    """Two fp8 copies of every matrix of a layer stand beside the bf16 weights, as many bytes again, with scales."""
    bf16, fp8 = (
        plans.compiled(model="llama-3-8b", precision=name, run={"seq_len": 2048, "micro_batch": 1, "global_batch": 1})
        for name in ("bf16-mixed", "fp8-current")
    )
    matrices = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    copies = fp8.totals["memory.static.weights"] - bf16.totals["memory.static.weights"]
    assert 2 * matrices <= copies <= 2 * matrices * 1.0001


def test_logits_are_scores_of_the_vocabulary_alone() -> None:
    """A loss in parts holds few of them, and the gradient of the head that it sums counts as a gradient."""
    run = {"seq_len": 2048, "micro_batch": 1, "global_batch": 1}
    found = plans.compiled(model="llama-3-8b", kernels={"loss": "fused_linear", "loss_chunks": 8}, run=run)
    stocks = [one for one in found.accounts if one.resource.kind == "memory"]
    assert {one.resource.name for one in stocks if "head/weight.collected" in one.account} == {"memory.gradients"}
    (role,) = found.roles
    part = 2048 // 8 * 128256
    assert max(moment.parts["logits"] for moment in role.moments) <= 3 * 4 * part
    largest = next(moment for moment in role.moments if moment.parts["gradients"])
    assert largest.parts["gradients"] >= 2 * 128256 * 4096


def test_rebuilding_more_holds_less() -> None:
    """Peaks fall from keeping everything, over every fourth layer rebuilt and every second, to all of them."""
    policies = ["none", {"every": 4}, {"every": 2}, "full"]
    run = {"seq_len": 2048, "micro_batch": 1, "global_batch": 4}
    peaks = [plans.compiled(model="llama-3-8b", run=run, recompute=one).totals["memory.peak"] for one in policies]
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(peaks)
