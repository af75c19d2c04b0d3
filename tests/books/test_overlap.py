"""What hides behind what: no transfer is hidden by more than what may cover it, and no kernel covers two."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ledger.books.compiled import Compiled
from ledger.books.overlap import RULES, in_force, is_transfer, overlapped_seconds, rules_in_words, transfer_kind
from ledger.books.results import KernelTime
from ledger.model.causes import Cause, Purpose, Transfer
from ledger.spec.kernel_classes import KernelClass, kernel_class
from ledger.spec.plan import Overlap
from tests.model import plans

RING = {
    "model": "llama-3-8b",
    "cluster": {"base": "h100-400g", "devices": 16},
    "parallelism": {"context": 16, "context_exchange": "ring", "zero": 3},
    "run": {"seq_len": 32768, "micro_batch": 1, "global_batch": 1},
}
EXPERTS = {
    "model": "deepseek-v3",
    "cluster": {"base": "h100-400g", "devices": 64},
    "precision": "bf16-mixed",
    "kernels": {"attention": "flash3"},
    "parallelism": {"data": 64, "expert": 64, "zero": 1},
    "run": {"seq_len": 4096, "micro_batch": 1, "global_batch": 64},
}


def compiled(parts: plans.Mapped, **overlap: str) -> Compiled:
    """A plan on PyTorch's stack, with other rules of overlap."""
    return plans.compiled(**parts, stack={"base": "pytorch-fsdp2-2025", "overlap": overlap})


def transfers(found: Compiled, kind: str) -> list[KernelTime]:
    """The transfers of one kind on the only role."""
    return [row for row in found.roles[0].kernels if is_transfer(row) and transfer_kind(row) == kind]


def spent(rows: list[KernelTime]) -> float:
    """Seconds of a step, hidden or not."""
    return sum(row.seconds * row.times for row in rows)


def waited(found: Compiled, kind: str) -> float:
    """Seconds of a step that nothing hides."""
    return sum(span.seconds for span in found.waterfall if span.name == f"comm.{kind}")


def test_a_ring_hides_behind_the_attention_that_is_left() -> None:
    """Of each pass, all of its sends or 15/16 of its attention, whichever is less; without a rule nothing."""
    bare, ruled = (compiled(RING, context=choice) for choice in ("none", "attention"))
    sends = transfers(bare, "context")
    assert {str(row.kind) for row in sends} == {"send.context"}
    assert waited(bare, "context") == pytest.approx(spent(sends))
    left = 0.0
    for phase in ("forward", "backward"):
        cores = [r for r in ruled.roles[0].kernels if str(r.kind).startswith("attention") and r.when == phase]
        assert cores
        left += max(0.0, spent([r for r in sends if r.when == phase]) - 15 / 16 * spent(cores))
    assert waited(ruled, "context") == pytest.approx(left)


def test_tokens_hide_behind_shared_experts_or_behind_all_that_computes() -> None:
    """Each rule for experts leaves less in the open than the one before, and never less than nothing."""
    found = [compiled(EXPERTS, expert=choice) for choice in ("none", "shared", "micro_batch")]
    open_to_all = [waited(one, "expert") for one in found]
    assert open_to_all[0] == pytest.approx(spent(transfers(found[0], "expert")))
    assert all(less < more for more, less in pairwise(open_to_all))
    covers = [
        r for r in found[0].roles[0].kernels if "/shared" in r.account and not is_transfer(r) and r.when != "optimizer"
    ]
    assert open_to_all[0] - open_to_all[1] <= spent(covers) * (1 + 1e-12)


def test_no_kernel_hides_two_transfers() -> None:
    """With every rule in force, what is hidden together is no more than what computes."""
    plan = compiled(EXPERTS, tensor="matmul", context="attention", expert="micro_batch").plan
    rows = [
        row(Cause("moe", "experts", "mlp"), kernel_class("matmul.bf16"), 3.0),
        row(Cause("moe", "core", "attention"), kernel_class("attention.flash.forward"), 2.0),
        row(Cause("moe", "x", "mlp"), Transfer("all_gather", "tensor", "tensor"), 2.0),
        row(Cause("moe", "tokens"), Transfer("all_to_all", "expert", "expert"), 9.0),
    ]
    assert dict(overlapped_seconds("forward", rows, plan)) == {"tensor": 2.0, "context": 0.0, "expert": 3.0}


def row(cause: Cause, kind: KernelClass | Transfer, seconds: float) -> KernelTime:
    """A kernel or transfer of so many seconds."""
    bound = "network" if isinstance(kind, Transfer) else "compute"
    return KernelTime(cause, "forward", kind, 1, 0.0, 0.0, 0.0, seconds, seconds, bound, 0.0, calibrated=True)


def test_gradients_of_inputs_hide_behind_weight_gradients_alone_in_userbuffers() -> None:
    """Frozen weights have none, so what column-parallel layers reduce is waited for."""
    plan = compiled(EXPERTS, tensor="userbuffers").plan
    scatter = row(
        Cause("moe", "up", "mlp", purpose=Purpose.COLUMN_INPUT_GRADIENT),
        Transfer("reduce_scatter", "tensor", "tensor"),
        2.0,
    )
    gather = row(Cause("moe", "down", "mlp"), Transfer("all_gather", "tensor", "tensor"), 1.0)
    product = row(Cause("moe", "up", "mlp"), kernel_class("matmul.bf16"), 3.0)
    weight = row(Cause("moe", "up", "mlp", purpose=Purpose.WEIGHT_GRADIENT), kernel_class("matmul.bf16"), 3.0)
    assert sum(s for _, s in overlapped_seconds("backward", [product, scatter, gather], plan)) == 1.0
    assert sum(s for _, s in overlapped_seconds("backward", [product, weight, scatter, gather], plan)) == 3.0


def test_the_first_set_of_layers_is_waited_for() -> None:
    """Sets of 1 to 32 layers that move as one wait ever longer, all of them as long as one set of the whole model."""
    parts = {"model": "llama-3-8b", "cluster": {"base": "h100-400g", "devices": 64}} | {
        "run": {"seq_len": 8192, "micro_batch": 1, "global_batch": 64}
    }
    waits = []
    for wrap in ("layer", {"every": 4}, {"every": 16}, {"every": 32}, "model"):
        found = compiled(parts | {"parallelism": {"data": 64, "zero": 3, "wrap": wrap}})
        waits.append(float(found.totals["time.exposed"]))
        assert waits[-1] < float(found.totals["time.comm"]) * (1 + 1e-9)
    assert all(less < more for less, more in pairwise(waits[:-1]))
    assert waits[-2] == pytest.approx(waits[-1], rel=0.02)


def test_every_choice_has_rules_of_their_own_and_a_source() -> None:
    """No transfers twice in one choice, words for each, and a stack's rules are said kind by kind."""
    assert len({(rule.kind, rule.choice, rule.transfers) for rule in RULES}) == len(RULES)
    assert all(rule.source and rule.transfers and rule.cover_text for rule in RULES)
    assert [row.kind for row in rules_in_words(Overlap())] == list(vars(Overlap()))
    assert {rule.kind for rule in in_force(Overlap())} == {"data", "gather", "context"}


def test_weight_gradients_hide_the_gathers_of_backward_alone() -> None:
    """Korthikanti et al.: what row-parallel layers reduce is waited for, and so is everything of forward."""
    (rule,) = (rule for rule in RULES if rule.choice == "weight_gradient")
    assert rule.moved is not None
    gather, scatter = (Transfer(collective, "tensor", "tensor") for collective in ("all_gather", "reduce_scatter"))
    again = row(Cause("decoder", "x", purpose=Purpose.GATHERED_AGAIN), gather, 1.0)
    assert rule.moved(again, "backward")
    assert not rule.moved(again, "forward")
    assert not rule.moved(row(Cause("decoder", "out"), scatter, 1.0), "backward")


def test_plain_order_waits_for_the_last_part() -> None:
    """With a causal mask the last of 16 parts has 31/16 of the average work; FLOPs stay the average's."""
    even, plain = (
        plans.compiled(**{**RING, "parallelism": {**RING["parallelism"], "context_balance": order}})
        for order in ("zigzag", "none")
    )
    assert even.totals["flops.step"] == plain.totals["flops.step"]
    seq = 32768
    for kind in ("attention.flash.forward", "attention.flash.backward"):
        (first,), (second,) = (
            [one for one in found.roles[0].kernels if str(one.kind) == kind] for found in (even, plain)
        )
        assert second.flops / first.flops == pytest.approx((seq * 31 / 16 + 1) / (seq + 1))
