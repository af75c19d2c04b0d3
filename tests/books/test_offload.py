"""What lives in host memory: nothing is lost on the way there, and each byte moves as often as it has to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume

from ledger.books import prices
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import compile_roles
from ledger.books.price_changes import PRICES, step_time
from ledger.books.results import KernelTime
from ledger.model.schedule import micro_batches, roles
from ledger.spec.kernel_classes import kernel_class
from ledger.spec.plan import Curve
from tests.model import plans
from tests.model.strategies import parts
from tests.sampling import law

STATE = ("master", "optimizer")


def compiled(whole: plans.Mapped, **changes: Any) -> Compiled:
    """A plan under further keys of its parallelism."""
    return plans.compiled(**{**whole, "parallelism": {**whole["parallelism"], **changes}})


def at_home(whole: plans.Mapped) -> Compiled:
    """The same plan with everything on the device."""
    degrees = {key: value for key, value in whole["parallelism"].items() if key != "offload"}
    return plans.compiled(**{**whole, "parallelism": degrees})


def hosted(found: Compiled, category: str, role: str) -> int:
    """Bytes of a category that host memory holds for one device of a role."""
    rows = [a for a in found.accounts if a.resource.name == f"host.{category}" and a.role == role]
    return int(sum(row.amount * row.times for row in rows))


def moved(found: Compiled, direction: str, role: str) -> int:
    """Bytes over the link of one device of a role."""
    rows = [a for a in found.accounts if a.resource.name == f"host_link.{direction}" and a.role == role]
    return int(sum(row.amount * row.times for row in rows))


@law(parts(), few=3, many=8)
def test_the_host_holds_what_the_device_no_longer_does(whole: plans.Mapped) -> None:
    """Master weights and states on the host are those that the same plan has on the device; nothing else moves out."""
    assume(whole.get("optimizer") != "muon")
    on_device, on_host = at_home(whole), compiled(whole, offload=["optimizer"])
    for before, after in zip(on_device.roles, on_host.roles, strict=True):
        last, left = before.moments[-1].parts, after.moments[-1].parts
        plan = on_device.plan
        if plan.precision.master:
            assert hosted(on_host, "master", after.name) == last["master"]
        elif plan.train.kind == "all" and plan.parallelism.zero in (0, 3):
            assert hosted(on_host, "master", after.name) == last["weights"]
        assert hosted(on_host, "optimizer", after.name) == last["optimizer"]
        assert [left[category] for category in STATE] == [0, 0]
        assert not [a for a in on_host.accounts if a.account.startswith("optimizer/") and a.resource.kind == "memory"]
        for category in ("weights", "gradients"):
            assert left[category] == last[category]
        assert after.peak.total <= before.peak.total


@law(parts(), few=3, many=8)
def test_gradients_go_down_once_and_weights_come_up_once(whole: plans.Mapped) -> None:
    """Each direction moves this device's share of the weights, in the dtype of gradients and in that of weights."""
    assume(whole.get("optimizer") != "muon")
    sizes = {"fp32": 4, "bf16": 2, "fp16": 2}
    found = compiled(whole, offload=["optimizer"])
    precision = found.plan.precision
    for role in found.roles:
        elements = hosted(found, "gradients", role.name) // sizes[precision.master or precision.weights.every]
        assert moved(found, "down", role.name) == elements * sizes[precision.gradients]
        assert moved(found, "up", role.name) == elements * sizes[precision.weights.every]


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
    assert (host.status, host.figure) == ("pass", "64.2 GB of 2.00 TB")
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
    largest = max(row.payload for row in hidden.roles[0].kernels if str(row.kind) == "host_link.down") / link
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
    measured = Curve(kernel_class("host_link.down"), "send", {"a": 1e-5, "B": 5e10}, 0.03, "sustained", "test")
    price = prices.host_copy(replace(device, calibration=(measured,)), "down", 1e9)
    assert price.calibrated
    assert price.seconds == pytest.approx(1e-5 + 1e9 / 5e10)


def test_a_link_twice_as_fast_halves_what_its_copies_take() -> None:
    """The price of the link to the host is an input of the step like any other, and moves nothing but its copies."""
    found = compiled(EIGHT_BILLION, offload=["optimizer"])
    (link,) = (price for price in PRICES if price.path == "accelerator.host_link")
    faster = link.moved(found.plan, 2.0)
    gained = found.totals["time.step"] - step_time(faster, compile_roles(found.plan, roles(found.plan)))
    assert gained == pytest.approx(waited(found) / 2)


# --- weights ------------------------------------------------------------------------------------


@law(parts(), few=3, many=8)
def test_shards_on_the_host_are_those_of_the_device(whole: plans.Mapped) -> None:
    """With its weights on the host a device keeps nothing between steps, and at no moment holds more than before."""
    degrees = whole["parallelism"]
    assume(whole.get("optimizer") != "muon" and degrees["data"] * degrees["context"] > 1)
    whole = {**whole, "parallelism": {**degrees, "zero": 3}}
    on_device, on_host = at_home(whole), compiled(whole, offload=["weights"])
    for before, after in zip(on_device.roles, on_host.roles, strict=True):
        last, left = before.moments[-1].parts, after.moments[-1].parts
        for category in ("weights", "master", "optimizer"):
            assert hosted(on_host, category, after.name) == last[category]
            assert left[category] == 0
        assert left["gradients"] == 0
        assert after.peak.total <= before.peak.total
    for key, value in on_device.totals.items():
        if key.startswith(("comm.", "flops.", "saved.")):
            assert on_host.totals[key] == value


def fully_sharded(batches: int = 1, host: str = "none", **layout: Any) -> Compiled:
    """Llama 3 8B by FSDP2 on eight devices: fp32 shards, bf16 compute."""
    return plans.compiled(
        model="llama-3-8b",
        cluster={"base": "h100-400g", "devices": 8},
        precision="bf16-autocast",
        parallelism={"data": 8, "zero": 3, **layout},
        run={"seq_len": 8192, "micro_batch": 1, "global_batch": 8 * batches},
        stack={"base": "pytorch-fsdp2-2025", "ends": "root", "overlap": {"host": host}},
    )


SHARE = PARAMETERS // 8  # elements of one device; 8 divides the rows of every tensor
ENDS = 2 * 128_256 * 4096 + 4096  # embedding, head and last norm of Llama 3 8B: the root


def test_shards_come_up_before_each_gather_and_gradients_go_down_with_each_reduction() -> None:
    """fp32 shares come before both passes of each micro-batch, the root's once where it stays; gradients in fp32."""
    for batches in (1, 2):
        found = fully_sharded(batches, offload=["weights"])
        assert found.totals["host_link.up.bytes"] == batches * 2 * 4 * SHARE
        assert found.totals["host_link.down.bytes"] == batches * 4 * SHARE
    kept = fully_sharded(offload=["weights"], reshard="layers")
    assert kept.totals["host_link.up.bytes"] == 2 * 4 * SHARE - 4 * ENDS // 8
    once = fully_sharded(2, offload=["weights"], reduce="step")
    assert once.totals["host_link.down.bytes"] == 4 * SHARE
    assert once.totals["memory.host"] == 8 * 16 * SHARE  # weights, gradients and two moments in fp32


def test_a_host_that_adds_reads_and_writes_each_sum() -> None:
    """A second micro-batch is added in host memory: a gradient read, its sum read and written, both times."""
    one, two = (fully_sharded(batches, offload=["weights"]) for batches in (1, 2))
    assert two.totals["traffic.host"] - one.totals["traffic.host"] == 2 * 3 * 4 * SHARE
    assert "elementwise" not in {str(row.kind) for row in two.roles[0].kernels if row.account.endswith("/accumulate")}


def test_a_share_waits_for_the_room_that_its_gather_leaves() -> None:
    """Hidden, nothing but the root's copies is waited for, unless sums on the host wait for every gradient."""
    link = fully_sharded().plan.accelerator.host_bandwidth
    shown = fully_sharded(offload=["weights"])
    bytes_moved = shown.totals["host_link.up.bytes"] + shown.totals["host_link.down.bytes"]
    assert waited(shown) == pytest.approx(bytes_moved / link)
    root = 3 * 4 * ENDS / 8 / link  # up twice, down once
    assert waited(fully_sharded(host="compute", offload=["weights"])) == pytest.approx(root)
    layers = 2 * 4 * (PARAMETERS - ENDS) / 8 / link
    assert waited(fully_sharded(2, "compute", offload=["weights"])) == pytest.approx(2 * root + layers)


# --- activations --------------------------------------------------------------------------------


@law(parts(), few=3, many=8)
def test_what_leaves_comes_back(whole: plans.Mapped) -> None:
    """As many bytes come up as go down in each micro-batch, and the host holds those that are in flight, once each."""
    on_device, found = at_home(whole), compiled(whole, offload=["activations"])
    for before, role in zip(on_device.roles, found.roles, strict=True):
        assert moved(found, "down", role.name) == moved(found, "up", role.name)
        flying = next(each for each in roles(found.plan) if each.name == role.name).in_flight
        if len(found.plan.model.groups) == 1 and found.plan.train.kind == "all":  # layers that save alike
            held = hosted(found, "activations", role.name)
            assert held * micro_batches(found.plan) == moved(found, "down", role.name) * flying
        same = {moment.name: moment.parts for moment in before.moments}
        for moment in role.moments:
            if moment.name in same:
                assert sum(moment.parts.values()) <= sum(same[moment.name].values())
        assert role.peak.total <= before.peak.total
    for key, value in on_device.totals.items():
        if key.startswith(("comm.", "flops.", "saved.")):
            assert found.totals[key] == value


def test_one_layer_is_left_where_copies_go_on_beside_the_next() -> None:
    """Llama 3 8B: when forward is over nothing that its layers save is there, or the last layer's, on its way."""
    for host, left in (("none", 0), ("compute", 1)):
        (before,), found = fully_sharded(host=host).roles, fully_sharded(host=host, offload=["activations"])
        gone = hosted(found, "activations", found.roles[0].name)
        assert found.totals["memory.host"] == 8 * gone
        assert found.totals["host_link.down.bytes"] == gone
        there, here = (
            next(moment.parts["activations"] for moment in role.moments if moment.name == "backward/loss")
            for role in (before, found.roles[0])
        )
        assert 32 * (there - here) == (32 - left) * gone


def test_the_first_layers_of_a_stage_can_leave_alone() -> None:
    """Eight of 32 layers send a quarter of the bytes, and leave three quarters on the device."""
    all_of_them, eight = (fully_sharded(offload={"activations": count}) for count in (True, 8))
    assert 4 * eight.totals["host_link.up.bytes"] == all_of_them.totals["host_link.up.bytes"]
    assert 4 * eight.totals["memory.host"] == all_of_them.totals["memory.host"]
    assert all_of_them.totals["memory.peak"] < eight.totals["memory.peak"] < fully_sharded().totals["memory.peak"]
    assert fully_sharded(offload={"activations": 32}).totals == all_of_them.totals


def test_copies_of_activations_hide_behind_the_layers_that_run() -> None:
    """What a pass waits for is what its copies take beyond its kernels, layer by layer and in each direction."""
    shown, hidden = (fully_sharded(host=host, offload=["activations"]) for host in ("none", "compute"))
    link = shown.plan.accelerator.host_bandwidth
    each = shown.totals["host_link.down.bytes"] / link
    assert waited(shown) == pytest.approx(2 * each)
    compute = {
        phase: sum(row.seconds * row.times for row in hidden.roles[0].kernels if row.when == phase and layer(row))
        for phase in ("forward", "backward")
    }
    assert waited(hidden) == pytest.approx(sum(max(0.0, each - seconds) for seconds in compute.values()))


def layer(row: KernelTime) -> bool:
    """Whether a row is a kernel of a layer."""
    return row.account.startswith("decoder/") and not row.payload
