"""What lives in host memory: nothing is lost on the way there, and each byte moves once a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings

from ledger.books import prices
from ledger.books.closed import close
from ledger.books.repricing import PRICES, step_time
from ledger.books.results import Compiled
from ledger.model.schedule import roles
from ledger.spec.plan import Curve
from tests.books.test_conservation import laws
from tests.model import plans
from tests.model.strategies import parts

STATE = ("master", "optimizer")
few = settings(laws, max_examples=8)


def compiled(whole: plans.Mapped, **changes: Any) -> Compiled:
    """A plan under further keys of its parallelism."""
    return plans.compiled(**{**whole, "parallelism": {**whole["parallelism"], **changes}})


def hosted(found: Compiled, category: str, role: str) -> int:
    """Bytes of a category that host memory holds for one device of a role."""
    rows = [a for a in found.accounts if a.resource == f"host.{category}" and a.role == role]
    return int(sum(row.amount * row.times for row in rows))


def moved(found: Compiled, direction: str, role: str) -> int:
    """Bytes over the link of one device of a role."""
    rows = [a for a in found.accounts if a.resource == f"host_link.{direction}" and a.role == role]
    return int(sum(row.amount * row.times for row in rows))


@few
@given(parts())
def test_the_host_holds_what_the_device_no_longer_does(whole: plans.Mapped) -> None:
    """Master weights and states on the host are those that the same plan has on the device; nothing else moves out."""
    assume(whole.get("optimizer") != "muon")
    on_device, on_host = compiled(whole), compiled(whole, offload=["optimizer"])
    for before, after in zip(on_device.roles, on_host.roles, strict=True):
        last, left = before.moments[-1].parts, after.moments[-1].parts
        plan = on_device.plan
        if plan.precision.master:
            assert hosted(on_host, "master", after.name) == last["master"]
        elif plan.train.kind == "all" and plan.parallelism.zero in (0, 3):
            assert hosted(on_host, "master", after.name) == last["weights"]
        assert hosted(on_host, "optimizer", after.name) == last["optimizer"]
        assert [left[category] for category in STATE] == [0, 0]
        assert not [a for a in on_host.accounts if a.account.startswith("optimizer/") and a.resource[:6] == "memory"]
        for category in ("weights", "gradients"):
            assert left[category] == last[category]
        assert after.peak.total <= before.peak.total


@few
@given(parts())
def test_gradients_go_down_once_and_weights_come_up_once(whole: plans.Mapped) -> None:
    """Each direction moves this device's share of the weights, in the dtype of gradients and in that of weights."""
    assume(whole.get("optimizer") != "muon")
    sizes = {"fp32": 4, "bf16": 2, "fp16": 2}
    found = compiled(whole, offload=["optimizer"])
    precision = found.plan.precision
    for role in found.roles:
        elements = hosted(found, "gradients", role.name) // sizes[precision.master or precision.weights]
        assert moved(found, "down", role.name) == elements * sizes[precision.gradients]
        assert moved(found, "up", role.name) == elements * sizes[precision.weights]


EIGHT_BILLION = {
    "model": "llama-3-8b",
    "cluster": {"base": "h100-400g", "devices": 16},
    "precision": "bf16-mixed",
    "parallelism": {"data": 16, "zero": 1},
    "run": {"seq_len": 4096, "micro_batch": 1, "global_batch": 16},
}
PARAMETERS = 8_030_261_248  # Llama 3 8B (Grattafiori et al. 2024); every tensor's rows split over 16


def test_a_node_holds_sixteen_bytes_a_parameter_of_its_devices() -> None:
    """fp32 master copy, gradient and two Adam moments (Ren et al. 2021); 8 of 16 devices share a host."""
    found = compiled(EIGHT_BILLION, offload=["optimizer"])
    assert found.plan.precision.master == "fp32"
    assert found.totals["memory.host"] == 8 * 16 * PARAMETERS // 16
    host = next(check for check in found.verdict.checks if check.name == "host")
    assert (host.status, host.figure) == ("warn", "64.2 GB")
    assert found.totals["memory.static.master"] == found.totals["memory.static.optimizer"] == 0


@pytest.mark.parametrize("field", ["memory.static.weights", "memory.static.gradients", "flops.step", "parameters"])
def test_the_host_changes_nothing_of_the_passes(field: str) -> None:
    """Weights, gradients and work are the device's wherever the update runs."""
    assert compiled(EIGHT_BILLION, offload=["optimizer"]).totals[field] == compiled(EIGHT_BILLION).totals[field]


def waited(found: Compiled) -> float:
    """Seconds of a step that copies to and from the host add."""
    return sum(span.seconds for span in found.waterfall if span.name == "comm.host")


def test_copies_take_the_link_s_time_and_hide_behind_backward_alone() -> None:
    """Unhidden, both directions at the data sheet's rate; hidden, the largest gradient and all weights stay."""
    whole = {**EIGHT_BILLION, "stack": {"base": "pytorch-fsdp2-2025", "overlap": {"host": "none"}}}
    shown = compiled(whole, offload=["optimizer"])
    link = shown.plan.accelerator.host_bandwidth
    gradients, weights = (shown.totals[f"host_link.{way}.bytes"] / link for way in ("down", "up"))
    assert waited(shown) == pytest.approx(gradients + weights)
    hiding = {**whole, "stack": {"base": "pytorch-fsdp2-2025", "overlap": {"host": "compute"}}}
    hidden = compiled(hiding, offload=["optimizer"])
    largest = max(row.payload for row in hidden.roles[0].kernels if row.kind == "host_link.down") / link
    assert waited(hidden) == pytest.approx(largest + weights)
    assert hidden.totals["time.step"] < shown.totals["time.step"]
    unsummed = {**whole, "stack": {"base": "pytorch-fsdp2-2025", "overlap": {"host": "compute", "data": "none"}}}
    assert waited(compiled(unsummed, offload=["optimizer"])) == pytest.approx(gradients + weights)


def test_a_measured_link_is_a_start_and_a_bandwidth() -> None:
    """a + bytes/B where somebody measured it; never faster than the data sheet."""
    device = compiled(EIGHT_BILLION).plan.accelerator
    alone = prices.host_copy(device, "down", 1e9)
    assert not alone.calibrated
    assert alone.seconds == 1e9 / device.host_bandwidth
    measured = Curve("host_link.down", "send", {"a": 1e-5, "B": 5e10}, 0.03, "sustained", "test")
    price = prices.host_copy(replace(device, calibration=(measured,)), "down", 1e9)
    assert price.calibrated
    assert price.seconds == pytest.approx(1e-5 + 1e9 / 5e10)


def test_a_link_twice_as_fast_halves_what_its_copies_take() -> None:
    """The price of the link to the host is an input of the step like any other, and moves nothing but its copies."""
    found = compiled(EIGHT_BILLION, offload=["optimizer"])
    (link,) = (price for price in PRICES if price.path == "accelerator.host_link")
    faster = link.moved(found.plan, 2.0)
    gained = found.totals["time.step"] - step_time(faster, close(found.plan, roles(found.plan)))
    assert gained == pytest.approx(waited(found) / 2)
