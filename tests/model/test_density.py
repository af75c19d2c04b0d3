"""The share of scores that masks leave, against masks written out."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.bindings import bindings
from ledger.books.evaluate import exact
from ledger.model.contraction import Contraction
from ledger.model.program import program
from ledger.model.schedule import group_order, roles
from tests.model import plans


def visible(seq: int, *, window: int = 0, chunk: int = 0) -> int:
    """Pairs of a query and a key that the mask leaves, counted one by one."""
    return sum(
        key <= query and (not window or query - key < window) and (not chunk or query // chunk == key // chunk)
        for query in range(seq)
        for key in range(seq)
    )


@pytest.mark.parametrize(
    "limit",
    [{}, *({kind: size} for kind in ("window", "chunk") for size in (1, 2, 11, 19, 36, 37, 38, 64))],
    ids=str,
)
def test_density_is_exact(limit: dict[str, Any]) -> None:
    """Causal, with windows and chunks shorter than, as long as and longer than the sequence, whether they divide it."""
    plan = plans.compiled(model=plans.layer(plans.LLAMA, attention=limit), kernels={"attention": "eager"}).plan
    (role,) = roles(plan)
    value = exact(bindings(plan, role))
    found = {
        operation.name: value(operation.density)
        for unit in program(plan, role).units
        for operation in unit.written
        if isinstance(operation, Contraction) and operation.name in ("attention/scores", "attention/context")
    }
    share = visible(plan.run.seq_len, **limit)
    assert [density * plan.run.seq_len**2 for density in found.values()] == [share, share]


def test_groups_take_turns_as_they_are_told() -> None:
    """Five local layers, then a global one, and the rest of a round at the end: 62 layers of Gemma 3 27B."""
    plan = plans.compiled(model="gemma-3-27b", run={"seq_len": 64, "micro_batch": 1, "global_batch": 1}).plan
    placed = [plan.model.groups[index].name for index in group_order(plan.model)]
    assert placed == ["global" if layer % 6 == 5 else "local" for layer in range(62)]
