"""Gradients that are filled with zeros in place of being freed: what lasts, what fills it, and what backward adds."""

from __future__ import annotations

import pytest

import ledger
from ledger.books.compiled import Compiled

FILL = "optimizer.zero_grad=fill"
ONE = ("cluster=single", "parallelism={data: 1}", "run.global_batch=2", "run.micro_batch=2")  # GPT-2 on one device
SHARED = ("cluster.devices=4", "run.global_batch=8", "run.micro_batch=2")


def gradients(plan: Compiled, phase: str) -> set[int]:
    """Bytes of gradients at the moments of a phase."""
    (role,) = plan.roles
    return {int(moment.parts["gradients"]) for moment in role.moments if moment.name.startswith(phase)}


def traffic(plan: Compiled, name: str) -> int:
    """Bytes that accounts of a name read and write in a step."""
    rows = (row for row in plan.accounts if row.account.endswith(name) and row.resource.kind == "hbm")
    return sum(int(row.amount) * row.times for row in rows)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_they_last_through_forward_whatever_is_shared(zero: int) -> None:
    """Under ZeRO 0 and 1 all of them, from 2 on a share; where they are freed, no more than buckets are there."""
    layout = (*SHARED, f"parallelism={{data: 4, zero: {zero}}}")
    filled, freed = ledger.compile("gpt2", (*layout, FILL)), ledger.compile("gpt2", layout)
    held = int(filled.totals["memory.static.gradients"])
    assert held == int(freed.totals["memory.static.gradients"])
    (buckets,) = gradients(freed, "forward")
    assert buckets == (held if zero == 0 else 0)
    assert gradients(filled, "forward") == {held + buckets}
    assert traffic(filled, "/zero") == held
    assert traffic(freed, "/zero") == 0


def test_one_micro_batch_adds_to_zeros() -> None:
    """Each new gradient is read, and the sum read and written, which freed gradients do not need."""
    filled, freed = ledger.compile("gpt2", (*ONE, FILL)), ledger.compile("gpt2", ONE)
    held = int(filled.totals["memory.static.gradients"])
    assert traffic(filled, "weights/accumulate") == 3 * held
    assert traffic(freed, "weights/accumulate") == 0
    more = float(filled.totals["traffic.step"]) - float(freed.totals["traffic.step"])
    assert more == 4 * held - traffic(freed, "weights/tied") + traffic(filled, "weights/tied")
    assert filled.totals["time.optimizer"] > freed.totals["time.optimizer"]
    assert filled.totals["memory.peak"] > freed.totals["memory.peak"]


def test_several_micro_batches_differ_by_the_fill_alone() -> None:
    """Their gradients are there and added to in any case."""
    several = (*ONE, "run.global_batch=8")
    filled, freed = ledger.compile("gpt2", (*several, FILL)), ledger.compile("gpt2", several)
    held = int(filled.totals["memory.static.gradients"])
    assert int(filled.totals["traffic.step"]) - int(freed.totals["traffic.step"]) == held
    assert filled.totals["memory.peak"] == freed.totals["memory.peak"]


def test_a_buffer_that_a_framework_fills_is_filled_once() -> None:
    """Megatron-LM's, which says it is no effect."""
    plain, stated = ledger.compile("405b"), ledger.compile("405b", (FILL,))
    assert plain.totals == stated.totals
    assert any("`optimizer.zero_grad` has no effect" in warning.message for warning in stated.plan.warnings)
