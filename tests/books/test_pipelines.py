"""Laws that every pipeline keeps, on random plans: schedules, unequal stages, rings."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.books.memory.holdings import CATEGORIES
from ledger.model.schedule import micro_batches, roles, schedule
from ledger.spec.stages import chunks, depth
from tests.books.test_conservation import flops
from tests.model import plans
from tests.model.pipelined import pipelines
from tests.model.strategies import alone
from tests.sampling import law

PUBLISHED = Path(__file__).resolve().parents[2] / "specs" / "deepseek-v3.yaml"
MESH = {"data": 1, "pipeline": 4}
FOUR = {
    "model": {**plans.layer(plans.LLAMA, repeat=8), "vocab": 212},
    "cluster": {"base": "h100-400g", "devices": 4, "devices_per_node": 4},
    "run": {"seq_len": 64, "micro_batch": 1, "global_batch": 16},
}


def four(**mesh: object) -> Compiled:
    """Eight layers on four devices, sixteen micro-batches."""
    return plans.compiled(**{**FOUR, "parallelism": {**MESH, **mesh}})


@law(pipelines(), few=2, many=12)
def test_no_schedule_loses_or_repeats_work(whole: plans.Mapped) -> None:
    """Devices x FLOPs, summed over roles, are those of one device x micro-batches; all layers are somewhere."""
    split, single = plans.compiled(**whole), plans.compiled(**alone(whole))
    count = whole["run"]["global_batch"] // whole["run"]["micro_batch"]
    for phase in ("forward", "backward"):
        assert flops(split, phase) == count * flops(single, phase)
    mesh, found = split.plan.parallelism, roles(split.plan)
    held = sum(sum(role.layers) * len(role.stages) for role in found)
    assert (
        held
        == schedule(mesh).pipeline_ends * depth(split.plan.model)
        == schedule(mesh).pipeline_ends * sum(chunks(split.plan.model, mesh))
    )
    assert sorted(stage for role in found for stage in role.stages) == list(range(mesh.pipeline))
    assert len({role.name for role in found}) == len(found)


@law(pipelines(), few=2, many=12)
def test_bounds_and_parts_hold_in_every_pipeline(whole: plans.Mapped) -> None:
    """floor <= roofline <= estimate <= serial; memory parts sum to the peak; nothing waits less than no time."""
    compiled = plans.compiled(**whole)
    totals = compiled.totals
    order = [float(totals[key]) for key in ("time.floor", "time.roofline", "time.step", "time.serial")]
    assert all(low <= high * (1 + 1e-12) for low, high in pairwise(order)), order
    assert totals["time.bubble"] >= 0
    assert 0 <= totals["time.exposed"] <= totals["time.comm"] * (1 + 1e-12)
    assert sum(totals[f"memory.{category}"] for category in CATEGORIES) == totals["memory.peak"]
    for role in compiled.roles:
        assert all(min(moment.parts.values()) >= 0 for moment in role.moments)


@law(pipelines(), few=2, many=12)
def test_no_more_is_in_flight_than_there_is(whole: plans.Mapped) -> None:
    """Micro-batches in flight and waiting are at most those of a step, and at least the one that runs."""
    plan = plans.compiled(**whole).plan
    for role in roles(plan):
        assert 1 <= role.in_flight <= micro_batches(plan) or not sum(role.layers)
        assert role.deferred_w_passes >= 0
        assert role.in_flight + role.deferred_w_passes <= micro_batches(plan) or not sum(role.layers)


@law(pipelines(), few=2, many=12)
def test_what_is_sent_arrives(whole: plans.Mapped) -> None:
    """Each boundary between chunks on different devices is crossed once forward and once back."""
    plan = plans.compiled(**whole).plan
    mesh, found = plan.parallelism, roles(plan)
    sent, returned = (sum(getattr(role, way) * len(role.stages) for role in found) for way in ("sends", "returns"))
    assert sent == returned == schedule(mesh).pipeline_ends * (mesh.pipeline * mesh.interleave - 1)


def test_zero_bubble_waits_less_and_dual_pipe_holds_everything_twice() -> None:
    """ZB-H1 waits less than 1F1B, which waits as GPipe does but holds less; DualPipe holds every weight twice."""
    found = {name: four(schedule=name).totals for name in ("gpipe", "1f1b", "zero_bubble", "dual_pipe")}
    assert found["zero_bubble"]["time.bubble"] < found["1f1b"]["time.bubble"] == found["gpipe"]["time.bubble"]
    assert found["1f1b"]["memory.peak"] < found["gpipe"]["memory.peak"]
    weights = {
        name: sum(r.peak.parts["weights"] for r in four(schedule=name).roles for _ in r.stages) for name in found
    }
    assert weights["dual_pipe"] == 2 * weights["1f1b"] == 2 * weights["zero_bubble"]


def test_weight_gradients_that_wait_hold_their_operands() -> None:
    """On each device those of as many micro-batches as there are devices before it: inputs and output gradients."""
    compiled = four(schedule="zero_bubble")
    batch_seq, width, query, key, hidden = 64, 102, 6 * 24, 3 * 24, 272
    found = {}
    for role in roles(compiled.plan):
        mine = [a for a in compiled.accounts if a.role == role.name and a.account.startswith("decoder/")]
        found[role.stages[0]] = sum(a.amount * a.times for a in mine if a.account.endswith(".waiting"))
    norms = 2 * batch_seq * width  # one of two bytes an element: q, k, v share the first, gate and up the second
    streams = 2 * batch_seq * width  # the gradient of what attention and the feed-forward layer add
    inside = 2 * batch_seq * (query + hidden)  # what the output projection and the down projection read
    gradients = 2 * batch_seq * (query + 2 * key + 2 * hidden)  # of q, k, v, gate and up
    layer = 2 * norms + 2 * streams + inside + gradients
    assert found == {stage: 2 * stage * layer for stage in range(4)}


@pytest.mark.parametrize(
    ("mesh", "layers"),
    [
        ({"stages": [3, 2, 2, 1]}, [3, 2, 2, 1]),
        ({"stages": {"first": 1, "last": 1}}, [1, 3, 3, 1]),
        ({"ends": "own"}, [0, 4, 4, 0]),
    ],
)
def test_stages_hold_what_the_spec_says(mesh: dict[str, object], layers: list[int]) -> None:
    """A list, two ends, or ends of their own; embedding and head are on the outer stages in any case."""
    found = roles(four(**mesh).plan)
    held = {stage: role for role in found for stage in role.stages}
    assert [sum(held[stage].layers) for stage in range(4)] == layers
    assert [held[stage].first for stage in range(4)] == [True, False, False, False]
    assert [held[stage].last for stage in range(4)] == [False, False, False, True]


def test_each_group_of_layers_waits_for_its_own_micro_batches() -> None:
    """DeepSeek-V3's first device of 16 holds stages 0 and 15: three dense layers 16 times, two of experts once.

    Stage s holds P - s micro-batches from its own end (DualPipe, arXiv 2412.19437, table 2: P + 1 for both stages).
    """
    published = ledger.compile(str(PUBLISHED))
    ends, inner = roles(published.plan)
    assert (ends.layers, ends.flying) == ((3, 2), (16, 1))
    assert inner.in_flight_of_group(1) == Fraction(16 + 1, 2)
    most: dict[str, int] = {}
    for row in published.accounts:
        if row.role == "ends":
            most[row.account] = max(row.times, most.get(row.account, 0))
    assert most["dense/stream.in_flight"] == 3 * 15
    assert not most.get("experts/stream.in_flight")
    assert not most.get("multi_token/head/logits.in_flight")  # its backward pass follows at once


def test_the_published_run_fits() -> None:
    """DeepSeek-V3 ran on H800s of 80 GB, and would not without what sections 3.2.3 and 3.3.2 rebuild and narrow."""
    assert ledger.compile(str(PUBLISHED)).verdict.fits
    wide = "precision={base: fp8-block, gradients: fp32, states: bf16}"
    assert not ledger.compile(str(PUBLISHED), [wide, "recompute=none"]).verdict.fits
