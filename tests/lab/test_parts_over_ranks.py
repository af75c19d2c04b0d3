"""Experts and sequences that are cut over ranks: the ledger's moments and collectives against one rank of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled import Compiled
from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.lab.verification.layouts import judged_mesh, unjudged
from ledger.lab.verification.stages import rank_step
from tests.books.test_collectives import sent
from tests.model import plans
from tests.sampling import sampled

RANKS, LAYERS, SEQ, BATCH = 8, 4, 64, 2
SCALARS = 1024  # bytes: positions, and scalars of the loss, which the ledger leaves out
LLAMA = plans.layer(plans.LLAMA, repeat=LAYERS, attention={"heads": 6, "kv_heads": 2})
CUT: plans.Mapped = {"data": 4, "context": 2}
MIXTRAL = plans.layer(plans.MIXTRAL, repeat=LAYERS, mlp={"experts": 8})
EXPERTS: dict[str, tuple[plans.Mapped, plans.Mapped]] = {
    "four of eight": ({"expert": 4}, {}),
    "busier, kept whole": ({"expert": 2, "reshard": False}, {"assumptions": {"expert_imbalance": 1.5}}),
    "each of them once": ({"expert": 8}, {}),
    "sequences cut as well": ({"expert": 4, "data": 4, "context": 2}, {"batch": 1}),
}


def both(model: plans.Mapped, layout: plans.Mapped, parts: plans.Mapped) -> tuple[Compiled, DeviceStep]:
    """The same plan compiled, and run on one rank."""
    batch = parts.get("batch", BATCH)
    mesh = {"data": RANKS, "zero": 3, **layout}
    whole: dict[str, Any] = {
        "model": model,
        "precision": "bf16-autocast",
        "cluster": {"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        "parallelism": mesh,
        "run": {"seq_len": SEQ, "micro_batch": batch, "global_batch": batch * mesh["data"]},
        **{key: value for key, value in parts.items() if key != "batch"},
    }
    compiled = plans.compiled(**whole)
    assert not unjudged(compiled.plan)
    return compiled, rank_step(workload(compiled.plan), judged_mesh(compiled.plan))


def equal(compiled: Compiled, found: DeviceStep) -> None:
    """Every collective, with its bytes."""
    called = {(f"{c.kind}.{c.axis}", c.phase): (c.count, c.bytes) for c in found.collectives}
    assert sent(compiled) == called


def beside(compiled: Compiled, found: DeviceStep) -> int:
    """Bytes of PyTorch's fullest moment that the ledger's lacks."""
    return int(max(held.requested for held in found.moments.values()) - compiled.totals["memory.peak"])


def choices(name: str) -> set[str]:
    """What is there once: every key of a layout, and every other part of a plan."""
    return {key for part in EXPERTS[name] for key in part}


@pytest.mark.parametrize("name", sampled(EXPERTS, choices, str))
def test_experts_over_ranks(name: str) -> None:
    """Rows go to the ranks of their experts and come back; experts are a set of weights within their layer.

    What is left are lists of rows that frames hold while they sort, which show in a model as small as this one.
    """
    compiled, found = both(MIXTRAL, *EXPERTS[name])
    equal(compiled, found)
    assert 0 <= beside(compiled, found) <= 0.01 * compiled.totals["memory.peak"]


@pytest.mark.long
def test_heads_instead_of_a_part_of_the_sequence() -> None:
    """Four transfers around attention each way; every other operation sees its part."""
    compiled, found = both(LLAMA, {**CUT, "context_exchange": "all_to_all"}, {"batch": 1})
    equal(compiled, found)
    assert 0 <= beside(compiled, found) <= SCALARS


def test_a_ring() -> None:
    """Blocks of keys and values, and of their gradients, go from rank to rank."""
    equal(*both(LLAMA, {**CUT, "context_exchange": "ring"}, {"batch": 1}))


def test_rows_are_dealt_equally() -> None:
    """Fake tensors hold no choice of a router, so a number of rows that does not divide is refused."""
    with pytest.raises(NoReferenceError, match="do not divide by 4 ranks"):
        both(MIXTRAL, {"expert": 4}, {"run": {"seq_len": 63, "micro_batch": 1, "global_batch": RANKS}})
