"""Rows that reach experts by maps of all tokens and experts, as Megatron-Core moves them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.memory.steps import outlives_unit
from ledger.lab.verification.predicted import saved_layers
from ledger.model.collectives import Collective
from ledger.model.schedule import roles
from ledger.model.tensors import REMEMBERED
from ledger.spec.load import load_plan
from tests.model import plans

B, S, D, F, X, T = 2, 48, 96, 160, 8, 2
HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 24}
EXPERTS = {"d_ff": F, "experts": X, "top_k": T, "bias": False}
MODEL = {**plans.layer(plans.MIXTRAL, attention=HEADS, mlp=EXPERTS), "d_model": D, "vocab": 212}
RUN = {"seq_len": S, "micro_batch": B, "global_batch": 8 * B}
EIGHT = {"cluster": {"base": "h100-400g", "devices": 8, "devices_per_node": 8}}


def role(parallelism: dict[str, Any]) -> CompiledRole:
    """A device of the only role of a plan on Megatron-Core's stack."""
    parts = {**plans.ONE_DEVICE, **EIGHT, "model": MODEL, "run": RUN, "parallelism": parallelism}
    plan = load_plan(json.dumps({**parts, "stack": "megatron-core-2025", "precision": "bf16-true"}, indent=1))
    (found,) = compile_roles(plan, roles(plan))
    return found


def moved(book: CompiledRole, kind: str) -> Iterator[tuple[str, int]]:
    """Collectives of the layer's experts in forward, with their bytes."""
    (layer,) = (unit for unit in book.program.units if unit.group not in ("input", "output", "loss"))
    for step in layer.forward:
        if isinstance(step, Collective) and step.collective == kind and step.name.startswith("mlp/"):
            yield step.name, int(book.value(step.payload()))


@pytest.mark.parametrize("tensor", [1, 2])
def test_each_device_sends_rows_of_its_own_tokens_with_their_scores(tensor: int) -> None:
    """Rows go there and back, scores there; where two share an expert, each sends half, and gathers the other's."""
    layout = {"data": 8 // tensor, "expert": 4, **({"tensor": 2, "sequence": "regather"} if tensor > 1 else {})}
    book, rows = role(layout), B * S * T // tensor
    bytes_of_rows = 2 * rows * D
    assert sorted(size for _, size in moved(book, "all_to_all")) == [2 * rows, bytes_of_rows, bytes_of_rows]
    gathered = dict(moved(book, "all_gather"))
    assert gathered.pop("mlp/counts") == 8 * X * 4 * tensor  # int64, of every device that holds experts of the layer
    assert sorted(gathered.values()) == ([] if tensor == 1 else [4 * rows, 2 * bytes_of_rows])
    assert [size for _, size in moved(book, "reduce_scatter")] == ([] if tensor == 1 else [2 * bytes_of_rows])


def test_a_device_with_one_expert_sorts_nothing() -> None:
    """Two maps of rows, an int32 each, are saved where a device has several experts, and none where it has one."""
    several, one = (saved_layers(role({"data": 8, "expert": degree})) for degree in (4, 8))
    (group,) = several
    assert several[group] - one[group] == 2 * 4 * B * S * T


def test_what_the_dispatcher_keeps_is_there_all_the_time() -> None:
    """Scores and choices of all experts for every token, and the map of rows, once for each layer."""
    book = role({"data": 8, "expert": 8})
    (layer,) = (unit for unit in book.program.units if unit.group not in ("input", "output", "loss"))
    kept = {t.name: t for step in layer.forward for t in step.outputs if t.role == REMEMBERED}
    assert all(map(outlives_unit, kept.values()))
    lasting = [e for e in book.entries if e.cause.name in kept and e.when == book.timeline.all_moments]
    sizes = sorted(int(book.value(entry.amount)) for entry in lasting)
    assert sizes == sorted([2 * B * S * X, B * S * X, 4 * B * S * (2 * X + 1)])
