"""A stated link speed acts on transfers that were measured over another one."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

from ledger.books import compile_plan
from ledger.spec.kernel_classes import HOST_LINK
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from tests.layouts import TENSOR_PARALLEL

SPECS = Path(__file__).resolve().parents[2] / "specs"
FASTER = 1.01


def bandwidths(plan: Plan) -> list[float]:
    """What measured transfers reach between devices of a domain, B/s."""
    device = plan.accelerator
    curves = [one for one in device.calibration if "B" in one.parameters and one.what.family != HOST_LINK]
    return [device.over_links(one.parameters["B"]) for one in curves]


@pytest.mark.parametrize(("name", "settings"), [("70b", TENSOR_PARALLEL), ("405b", ())])
def test_a_stated_link_does_what_its_sensitivity_says(name: str, settings: tuple[str, ...]) -> None:
    """One per cent more of it shortens the step by what `pace.scaleup` says."""
    given = load_plan(SPECS / f"{name}.yaml", settings)
    speed = given.accelerator.scaleup_bandwidth * FASTER
    better = compile_plan(
        load_plan(SPECS / f"{name}.yaml", (*settings, f"accelerator.scaleup.bandwidth={speed / 1e9} GB/s"))
    )
    known = compile_plan(given).totals
    assert known["pace.scaleup"] > 0
    bought = log(known["time.step"] / better.totals["time.step"]) / log(FASTER)
    assert bought == pytest.approx(known["pace.scaleup"], rel=1e-6)


@pytest.mark.parametrize("spelling", ["accelerator.scaleup.bandwidth=225 GB/s", "base"])
def test_measured_bandwidth_follows_the_link(spelling: str) -> None:
    """Half the link, half of every measured bandwidth, said as a warning; on the command line and in a spec alike."""
    slow = "accelerator={base: h100-sxm, scaleup: {bandwidth: 225 GB/s}}" if spelling == "base" else spelling
    plan, slower = load_plan(SPECS / "70b.yaml"), load_plan(SPECS / "70b.yaml", (slow,))
    assert bandwidths(slower) == pytest.approx([speed / 2 for speed in bandwidths(plan)])
    said = [problem.message for problem in slower.warnings]
    assert any("scaled by 0.5" in message for message in said), said


def test_a_host_link_acts_too() -> None:
    """Copies of offloaded states take twice as long over half the link."""
    spec, offload = SPECS / "70b.yaml", "parallelism.offload=[optimizer]"
    whole = compile_plan(load_plan(spec, (offload,)))
    half = compile_plan(load_plan(spec, (offload, "accelerator.host_link=31.5 GB/s")))
    assert half.totals["time.step"] > whole.totals["time.step"]
    assert half.totals["pace.host"] > 0


def test_a_link_that_is_stated_as_it_was_changes_nothing() -> None:
    """The same speed in other words is no other plan."""
    plan = load_plan(SPECS / "70b.yaml")
    same = load_plan(SPECS / "70b.yaml", ("accelerator.scaleup.bandwidth=450 GB/s",))
    assert bandwidths(same) == bandwidths(plan)
    assert same.digest == plan.digest
    without = load_plan(SPECS / "8b.yaml", ("accelerator=l40s", "accelerator.scaleup.bandwidth=0 B/s")).accelerator
    assert (without.scaleup_measured, without.host_measured) == (0, 0)


def test_without_links_nothing_was_measured() -> None:
    """Devices that share only PCIe send by its data sheet."""
    plan = load_plan(SPECS / "70b.yaml", ("accelerator.scaleup.bandwidth=0 GB/s",))
    assert compile_plan(plan).totals["time.step"] > compile_plan(load_plan(SPECS / "70b.yaml")).totals["time.step"]


def test_devices_without_links_send_over_the_hosts() -> None:
    """What was measured between devices that share only PCIe follows the speed of that, and is counted as its pace."""
    given = load_plan(SPECS / "8b.yaml", ("accelerator=l40s",))
    host = given.accelerator.host_bandwidth
    faster = load_plan(SPECS / "8b.yaml", ("accelerator=l40s", f"accelerator.host_link={2 * host / 1e9} GB/s"))
    assert bandwidths(faster) == pytest.approx([speed * 2 for speed in bandwidths(given)])
    known = compile_plan(given).totals
    assert known["pace.scaleup"] == 0
    assert known["pace.host"] > 0


def test_links_that_a_device_did_not_have_scale_what_was_sent_over_the_hosts() -> None:
    """Three times PCIe's speed is three times what was measured over PCIe, in a spec and where it is solved for."""
    given = load_plan(SPECS / "8b.yaml", ("accelerator=l40s",))
    device = given.accelerator
    speed = 3 * device.host_bandwidth
    joined = ("accelerator=l40s", f"accelerator.scaleup.bandwidth={speed / 1e9} GB/s", "accelerator.scaleup.domain=8")
    linked = load_plan(SPECS / "8b.yaml", joined)
    assert bandwidths(linked) == pytest.approx([speed * 3 for speed in bandwidths(given)])
    assert device.with_links(speed, device.host_bandwidth).scaleup_measured == linked.accelerator.scaleup_measured
    assert any("scaled by 3" in problem.message for problem in linked.warnings)


def test_a_device_whose_transfers_nobody_measured_is_not_told_otherwise() -> None:
    """The warning is of measured transfers: a link of a device without them is its own business."""
    bare = "accelerator={base: h100-sxm, calibration: [], scaleup: {bandwidth: 225 GB/s}}"
    assert not [one for one in load_plan(SPECS / "70b.yaml", (bare,)).warnings if "measured" in one.message]
