"""Laws that every plan keeps, on random small ones: nothing is lost, nothing counted twice, parts sum to wholes."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from ledger.books.bindings import bindings
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import compile_roles
from ledger.books.evaluate import exact
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.resources import ResourceKind
from ledger.model.program import program
from ledger.model.schedule import roles
from tests.model import plans, strategies
from tests.model.strategies import alone, parts
from tests.sampling import law


def flops(compiled: Compiled, phase: str) -> int:
    """Matmul FLOPs of all devices in a step, summed from the leaves: role by role, useful ones and masked ones."""
    devices = {role.name: role.devices for role in compiled.roles}
    return sum(
        devices[a.role] * a.amount * a.times
        for a in compiled.accounts
        if a.when == phase and a.resource.name.startswith(("matmul.", "masked."))
    )


@law(parts(), few=2, many=12)
def test_no_layout_loses_or_repeats_work(whole: plans.Mapped) -> None:
    """Devices x FLOPs, summed over roles, are those of one device x micro-batches."""
    split, single = plans.compiled(**whole), plans.compiled(**alone(whole))
    micro_batches = whole["run"]["global_batch"] // whole["run"]["micro_batch"]
    for phase in ("forward", "backward"):
        assert flops(split, phase) == micro_batches * flops(single, phase)
        assert split.totals[f"flops.{phase}"] == micro_batches * single.totals[f"flops.{phase}"]


@law(strategies.experts(tensor=1), st.sampled_from((2, 3, 6)), st.sampled_from((1.25, 1.5, 2)), few=2, many=12)
def test_an_uneven_choice_of_experts_is_no_work(mlp: plans.Mapped, degree: int, imbalance: float) -> None:
    """FLOPs of the job are those of all tokens, whatever device they crowd on; that device's kernels take longer."""
    model = plans.layer({**plans.MIXTRAL, "vocab": 216}, mlp=mlp)
    even, uneven = (
        plans.compiled(
            model=model,
            cluster={"base": "h100-400g", "devices": 6, "devices_per_node": 6},
            parallelism={"data": 6, "expert": degree},
            run={"seq_len": 36, "micro_batch": 2, "global_batch": 12},
            assumptions={"expert_imbalance": share},
        )
        for share in (1, imbalance)
    )
    for phase in ("forward", "backward"):
        assert uneven.totals[f"flops.{phase}"] == even.totals[f"flops.{phase}"]
        products = [
            [a for a in c.accounts if a.when == phase and a.resource.name == "masked.bf16" and "/mlp/" in a.account]
            for c in (even, uneven)
        ]
        grouped = sum(
            a.amount * a.times
            for a in even.accounts
            if a.when == phase
            and a.resource.name == "matmul.bf16"
            and ("/gate_up" in a.account or "/down" in a.account)
        )
        assert products[0] == []
        assert sum(a.amount * a.times for a in products[1]) == (Fraction(str(imbalance)) - 1) * grouped
    sent = "comm.all_to_all.expert.bytes"
    counts = 2 * 2 * 8 * mlp["experts"]  # numbers of tokens that each device sends every expert, forward and again
    assert uneven.totals["time.step"] >= float(even.totals["time.step"]) * (1 - 1e-12)  # a slow host hides the rest
    assert uneven.totals["memory.peak"] > even.totals["memory.peak"]
    assert uneven.totals[sent] > even.totals[sent] > counts


@law(parts(), few=2, many=12)
def test_backward_is_twice_forward(whole: plans.Mapped) -> None:
    """A contraction has two gradients of its own size, but of frozen weights; what is computed again is not backward.

    A kernel that fuses head and loss runs their gradients in forward.
    """
    compiled = plans.compiled(**whole)
    forward, backward = (compiled.totals[f"flops.{phase}"] for phase in ("forward", "backward"))
    if whole["train"] != "all":
        assert 0 < backward <= 2 * forward
    elif whole["kernels"].get("loss") == "fused_linear":
        kernels = {name: kind for name, kind in whole["kernels"].items() if not name.startswith("loss")}
        plain = plans.compiled(**{**whole, "kernels": kernels})
        assert forward + backward == 3 * plain.totals["flops.forward"]
    else:
        assert backward == 2 * forward
    parts_of_step = [compiled.totals[f"flops.{phase}"] for phase in ("forward", "backward", "recompute")]
    assert compiled.totals["flops.step"] == sum(parts_of_step)


@law(parts(), few=2, many=12)
def test_shards_hold_the_whole(whole: plans.Mapped) -> None:
    """Shards x ranks hold every value of a weight, and at most one row (a value, where shards are flat) a rank more."""
    plan = plans.compiled(**whole).plan
    for role in roles(plan):
        written, value = program(plan, role), exact(bindings(plan, role))
        sharding = written.sharding
        for unit in written.units:
            for weight in unit.weights:
                ranks = value(sharding.degree(weight))
                elements = value(weight.elements())
                rows = elements
                for dim in weight.dims[weight.lead :]:
                    rows /= value(weight.local(dim))
                width = elements // rows if sharding.splits("weights") else 1
                for what in ("weights", "gradients", "optimizer"):
                    held = value(sharding.held_elements(what, weight))
                    if what == "gradients" and weight.frozen:
                        assert held == 0
                    elif sharding.splits(what):
                        assert elements <= ranks * held < elements + ranks * width
                    else:
                        assert held == elements


@law(strategies.models(tensor=6), st.sampled_from((2, 3)), st.sampled_from(("bf16-mixed", "fp32")), few=2, many=12)
def test_every_zero_stage_holds_less(model: plans.Mapped, data: int, precision: str) -> None:
    """What persists on a device never grows with the ZeRO stage where rows divide (else FSDP pads a row a rank)."""
    attention = model["layers"][0]["attention"]
    assume(data == 2 or attention.get("qk_norm") != "head")  # a norm of heads has 8 or 16 rows
    joint = attention.get("fused_qkv")  # d_model is heads x head_dim there, a multiple of 6
    sizes = {"d_model": model["d_model"] if joint else 6 * model["d_model"]}
    static = []
    for zero in range(4):
        compiled = plans.compiled(
            model={**model, **sizes},
            precision=precision,
            kernels={"attention": "efficient", "experts": "batched_mm"},
            cluster={"base": "h100-400g", "devices": data, "devices_per_node": data},
            parallelism={"data": data, "zero": zero},
            run={"seq_len": 12, "micro_batch": 1, "global_batch": data},
        )
        kinds = ("weights", "master", "gradients", "optimizer")
        static.append(sum(compiled.totals[f"memory.static.{kind}"] for kind in kinds))
    assert static == sorted(static, reverse=True)
    assert static[3] * data == static[0]


@law(parts(), few=2, many=12)
def test_memory_parts_sum_to_the_peak(whole: plans.Mapped) -> None:
    """The categories are a partition: at the peak of the worst role, and at every moment of every role."""
    compiled = plans.compiled(**whole)
    totals = compiled.totals
    assert sum(totals[f"memory.{category}"] for category in CATEGORIES) == totals["memory.peak"]
    assert totals["memory.peak"] == max(moment.total for role in compiled.roles for moment in role.moments)
    for role in compiled.roles:
        for moment in role.moments:
            assert moment.parts.keys() == set(CATEGORIES)
            assert min(moment.parts.values()) >= 0


@law(parts(), few=2, many=12)
def test_bounds_enclose_the_estimate(whole: plans.Mapped) -> None:
    """floor <= roofline <= estimate <= serial, and the error band encloses the estimate."""
    totals = plans.compiled(**whole).totals
    order = [float(totals[key]) for key in ("time.floor", "time.roofline", "time.step", "time.serial")]
    assert all(low <= high * (1 + 1e-12) for low, high in pairwise(order)), order
    assert totals["time.step.low"] <= totals["time.step"] <= totals["time.step.high"]


def kept(whole: plans.Mapped, policy: str) -> list[int]:
    """Bytes that one layer of each group keeps from forward to backward."""
    plan = plans.compiled(**{**whole, "recompute": policy}).plan
    (role, *_) = roles(plan)
    value = exact(bindings(plan, role))
    names = {group.name for group in plan.model.groups}
    units = [unit for unit in program(plan, role).units if unit.name in names]
    return [int(sum(value(tensor.bytes()) for tensor in unit.saving.saved)) for unit in units]


@law(parts(), st.sampled_from((1, 2)), few=2, many=12)
def test_recomputing_more_keeps_less(whole: plans.Mapped, scale: int) -> None:
    """Saved bytes of full <= selective <= none, from sequences on that are twice as long as a head is wide.

    Below that, the scores that selective recomputation drops are smaller than the query and key that it keeps for them.
    So too where a fused kernel, which has no scores, saves bf16 casts of queries and keys that rotation left in fp32.
    """
    assume(whole["precision"] != "bf16-autocast" or whole["kernels"]["attention"] in {"math", "eager"})
    degrees = whole["parallelism"]
    seq_len = 32 * scale * degrees["tensor"] * degrees["context"]
    longer = {**whole, "run": {**whole["run"], "seq_len": seq_len}}
    for full, selective, none in zip(*(kept(longer, p) for p in ("full", "selective", "none")), strict=True):
        assert full <= selective <= none


@law(parts(), few=2, many=12)
def test_recomputation_adds_at_most_a_forward_pass(whole: plans.Mapped) -> None:
    """What is computed again is part of the forward pass, and nothing where all is kept but parts of a chunked loss."""
    for policy in ("none", "selective", "full"):
        kernels = {**whole["kernels"], "attention": "eager"}
        totals = plans.compiled(**{**whole, "recompute": policy, "kernels": kernels}).totals
        assert 0 <= totals["flops.recompute"] <= totals["flops.forward"]
        chunked = kernels.get("loss") == "chunked"
        assert policy != "none" or chunked == (totals["flops.recompute"] > 0)


@law(parts(), few=2, many=12)
def test_keys_are_unique(whole: plans.Mapped) -> None:
    """No two leaves share role, account, resource and time."""
    compiled = plans.compiled(**whole)
    keys = Counter((row.role, row.account, row.resource, row.when) for row in compiled.accounts)
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("kinds", [("memory",), ("hbm", "memory"), ()])
def test_stocks_have_no_total(kinds: tuple[ResourceKind, ...]) -> None:
    """Stocks peak: summing them over a step means nothing, so it is refused."""
    plan = plans.compiled().plan
    (book,) = compile_roles(plan, roles(plan))
    with pytest.raises(ValueError, match="peak, not a total"):
        book.ledger.total(*kinds)


def test_flows_have_one() -> None:
    """The total of a flow is the sum of its leaves, times what each happens."""
    compiled = plans.compiled()
    (book,) = compile_roles(compiled.plan, roles(compiled.plan))
    leaves: list[Any] = [row for row in compiled.accounts if row.resource.name == "hbm"]
    assert book.value(book.ledger.total("hbm")) == sum(row.amount * row.times for row in leaves)
