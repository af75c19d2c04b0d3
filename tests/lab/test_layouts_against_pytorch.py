"""Layouts of data parallelism: the ledger's moments and collectives against one rank of FSDP2, on small models.

Small models on few ranks hold little but weights in transit, so every buffer shows.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ledger.books.compiled import Compiled
from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.ranks import ShardedRank
from ledger.lab.reference.workload import workload
from ledger.lab.verification.stages import rank_step
from ledger.model.offloading import sums_on_host
from tests.books.test_collectives import sent
from tests.model import plans
from tests.sampling import sampled

RANKS, LAYERS = 4, 6
SCALARS = 1024  # bytes: positions, and scalars of the loss, which the ledger leaves out
APART: plans.Mapped = {"stack": {"base": "pytorch-fsdp2-2025", "ends": "apart"}}
WAITED: plans.Mapped = {"stack": {"base": "pytorch-fsdp2-2025", "overlap": {"host": "none"}}}
AHEAD: plans.Mapped = {"stack": {"base": "pytorch-fsdp2-2025", "overlap": {"host": "compute"}}}
CASES: dict[str, tuple[plans.Mapped, plans.Mapped]] = {
    "bf16 throughout": ({}, {"precision": "bf16-true"}),
    "hybrid": ({"replicate": 2}, {}),
    "hybrid, accumulated": ({"replicate": 2, "reshard": False}, {"batches": 2}),
    "weights kept": ({"reshard": False}, {"recompute": "full"}),
    "root kept": ({"reshard": "layers"}, {}),
    "sets of three": ({"wrap": {"every": 3}}, {}),
    "one set": ({"wrap": "model"}, {}),
    "ends apart": ({}, APART),
    "ends apart, weights kept": ({"reshard": False}, {**APART, "recompute": "full"}),
    "ends apart, reduced once": ({"replicate": 2, "reduce": "step"}, {**APART, "batches": 2}),
    "ends apart, sets of three": ({"wrap": {"every": 3}}, {**APART, "batches": 2, "precision": "bf16-true"}),
    "reduced once": ({"reduce": "step"}, {"batches": 2}),
    "weights on the host": ({"offload": ["weights"]}, {}),
    "weights on the host, hybrid": ({"offload": ["weights"], "replicate": 2}, {"precision": "bf16-true", "batches": 2}),
    "weights on the host, reduced once": ({"offload": ["weights"], "reduce": "step"}, {"batches": 2}),
    "weights on the host, kept once gathered": ({"offload": ["weights"], "reshard": False}, {**APART}),
    "activations on the host": ({"offload": ["activations"]}, WAITED),
    "both on the host, copied ahead": ({"offload": ["weights", "activations"]}, AHEAD),
    "reduced once in bf16": ({"reduce": "step", "wrap": {"every": 2}}, {"batches": 3, "precision": "bf16-true"}),
}


def both(layout: plans.Mapped, parts: plans.Mapped) -> tuple[Compiled, DeviceStep]:
    """The same plan compiled, and run on one rank."""
    batches, rest = parts.get("batches", 1), {key: value for key, value in parts.items() if key != "batches"}
    whole: dict[str, Any] = {
        "model": plans.layer(plans.LLAMA, repeat=LAYERS),
        "precision": "bf16-autocast",
        "cluster": {"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        "parallelism": {"data": RANKS, "zero": 3, **layout},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 3 * RANKS * batches},
        **rest,
    }
    compiled = plans.compiled(**whole)
    mesh = compiled.plan.parallelism
    sharding = ShardedRank(
        data=RANKS // mesh.replicate,
        replicate=mesh.replicate,
        reshard=mesh.reshard,
        wrap=mesh.wrap,
        reduce="step" if mesh.reduces_once else "micro_batch",
        micro_batches=batches,
        ends=compiled.plan.stack.ends,
        offload="weights" in mesh.offload,
    )
    return compiled, rank_step(workload(compiled.plan), sharding)


def at_once(compiled: Compiled) -> int:
    """What the host holds at one time: of one micro-batch, activations are gone when as many gradients have come.

    The ledger's total has both, since pinned memory stays with its allocator.
    """
    held: Counter[str] = Counter()
    for row in compiled.accounts:
        if row.resource.name.startswith("host."):
            held[row.resource.name] += int(row.amount * row.times)
    assert held.total() * RANKS == compiled.totals.get("memory.host", 0)
    return held.total() - min(held["host.activations"], held["host.gradients"])


def added(compiled: Compiled) -> int:
    """Where micro-batches add gradients up on the host, one of them lies beside its sum while it is added."""
    gradients = [row.amount for row in compiled.accounts if row.resource.name == "host.gradients"]
    return int(max(gradients, default=0)) if sums_on_host(compiled.plan) else 0


def choices(name: str) -> set[str]:
    """What is there once: every key of a layout, each thing that lies on the host, and every other part of a plan."""
    layout, parts = CASES[name]
    return {*layout, *parts, *(f"{what} on the host" for what in layout.get("offload", ()))}


@pytest.mark.parametrize("name", sampled(CASES, choices, str))
def test_peak_and_collectives(name: str) -> None:
    """The fullest moment of a step, and every collective with its bytes."""
    compiled, found = both(*CASES[name])
    called = {(f"{c.kind}.{c.axis}", c.phase): (c.count, c.bytes) for c in found.collectives}
    assert sent(compiled) == called
    fullest = max(held.requested for held in found.moments.values())
    assert 0 <= fullest - compiled.totals["memory.peak"] <= SCALARS
    assert 0 <= found.host - at_once(compiled) <= added(compiled) + SCALARS


def test_every_moment_of_backward() -> None:
    """The first layer that backward visits, those between, the last one and the embedding: each to its bytes."""
    compiled, found = both({}, {})
    ledger = {moment.name: moment.total for moment in compiled.roles[0].moments}
    between = max(total for name, total in ledger.items() if name in ("backward/decoder/2", "backward/decoder/-2"))
    moments = {
        "backward/decoder": ledger["backward/decoder"],
        "backward/decoder/inner": between,
        "backward/decoder/end": ledger["backward/decoder/end"],
        "backward/input": ledger["backward/input"],
        "optimizer": ledger["optimizer"],
    }
    for name, total in moments.items():
        assert 0 <= found.moments[name].requested - total <= SCALARS, name
