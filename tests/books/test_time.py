"""Bounds, bands and prices of a step."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

import ledger
from ledger.books import prices
from ledger.books.compiled import Compiled
from ledger.model.schedule import roles
from ledger.spec.kernel_classes import kernel_class
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Accelerator
from tests.model import plans

TIED_PIPELINE = {
    "model": "gpt2",
    "stack": "megatron-lm-2022",
    "accelerator": "a100-sxm-80gb",
    "cluster": {"base": "a100-200g", "devices": 16},
    "parallelism": {"data": 8, "pipeline": 2, "zero": 1},
    "run": {"seq_len": 1024, "micro_batch": 12, "global_batch": 480},
}
SHARDED = {
    "model": "llama-3-8b",
    "cluster": {"base": "h100-400g", "devices": 64},
    "precision": "bf16-mixed",
    "parallelism": {"data": 64, "zero": 3},
    "run": {"seq_len": 8192, "micro_batch": 1, "global_batch": 64},
}


def accelerators() -> list[Accelerator]:
    """Every accelerator of the library."""
    return [load_accelerator(name) for name in default_library().names("accelerator")]


def ordered(found: Compiled) -> None:
    """Floor, roofline, lower end, estimate, upper end and serial in this order; what is exposed was sent."""
    keys = ["time.floor", "time.roofline", "time.step.low", "time.step"]
    times = [float(found.totals[key]) for key in keys]
    assert times == sorted(times)
    assert float(found.totals["time.step"]) <= float(found.totals["time.step.high"])
    assert float(found.totals["time.step"]) <= float(found.totals["time.serial"]) * (1 + 1e-12)
    assert float(found.totals["time.exposed"]) <= float(found.totals["time.comm"]) * (1 + 1e-12)


APART = {
    "cluster": {"devices": 64, "devices_per_node": 1, "scaleout": "400 Gb/s"}
}  # one memory, and no links of its own
NARROW = {
    "v100-sxm-16gb": {"precision": "fp16-mixed", "kernels": {"attention": "efficient"}},  # no bf16 there
    "apple-a17-pro": {"precision": "fp16-mixed", **APART},
    "xeon-8480": APART,
}


@pytest.mark.parametrize("device", default_library().names("accelerator"))
def test_the_band_stays_above_what_no_software_beats(device: str) -> None:
    """On every accelerator, measured or not, the estimate's lower end is no better than each kernel's own limit."""
    ordered(plans.compiled(**{**SHARDED, "accelerator": device, **NARROW.get(device, {})}))


def test_transfers_once_a_step_are_in_the_serial_bound() -> None:
    """A tied embedding's gradient is summed over the end stages, of which the slowest may be neither."""
    ordered(plans.compiled(**TIED_PIPELINE))


def test_a_data_sheet_does_not_beat_a_measurement() -> None:
    """The PCIe card of the same chip, with lower rates and slower links, is slower, measured or not."""
    sxm, pcie = (plans.compiled(**{**SHARDED, "accelerator": name}) for name in ("h100-sxm", "h100-pcie"))
    assert pcie.totals["time.step"] > sxm.totals["time.step"]
    assert pcie.verdict.evidence in pcie.verdict.headline
    assert sxm.verdict.evidence == "calibrated"


def shares(kind: str, parameter: str) -> list[float]:
    """What measured accelerators reach of their data sheets, each measurement once, however many devices it is for."""
    curves = [prices.curve(device, kernel_class(kind), head_dim=128) for device in accelerators()]
    return [share for _, share in sorted({(curve.source, curve.parameters[parameter]) for curve in curves if curve})]


def test_typical_shares_are_those_of_the_library() -> None:
    """The stand-in for what nobody measured is the median of what was measured, to a twentieth."""
    assert median(shares("matmul.bf16", "e")) == pytest.approx(prices.TYPICAL_MATMUL, abs=0.05)
    assert median(shares("attention.flash.forward", "e")) == pytest.approx(prices.TYPICAL_ATTENTION, abs=0.05)
    assert median(shares("elementwise", "b")) == pytest.approx(prices.TYPICAL_BANDWIDTH, abs=0.05)
    linked = [device for device in accelerators() if device.scaleup_bandwidth]
    reached = [
        curve.parameters["B"] / device.scaleup_bandwidth
        for device in linked
        if (curve := prices.curve(device, kernel_class("all_gather"), ranks=8)) is not None
    ]
    assert median(reached) == pytest.approx(prices.TYPICAL_BUS, abs=0.05)


def test_devices_beyond_a_bridge_talk_over_the_host() -> None:
    """Two cards share a bridge of 300 GB/s; eight of them in a node are as fast as PCIe lets them."""
    device = load_accelerator("h100-pcie")
    plan = plans.compiled(**SHARDED).plan
    two, eight = (prices.Mesh(count, count, count) for count in (2, 8))
    bridged, hosted = (prices.transfer(device, plan.cluster, "all_gather", mesh, 1e9).seconds for mesh in (two, eight))
    assert bridged == pytest.approx(0.5 * 1e9 / (prices.TYPICAL_BUS * device.scaleup_bandwidth))
    assert hosted == pytest.approx(0.875 * 1e9 / (prices.TYPICAL_BUS * device.host_bandwidth))


def test_what_leaves_a_pod_shares_its_uplinks() -> None:
    """Rings of neighbours hardly notice 1:7 between pods; where all devices of a pod send at once, they wait."""
    device, plan = load_accelerator("h100-sxm"), plans.compiled(**SHARDED).plan
    open_ = replace(plan.cluster, scaleout_bandwidth=50e9, scaleout_latency=0.0)
    pods = replace(open_, pod=64, oversubscription=7.0)

    def slower(collective: str, mesh: prices.Mesh) -> float:
        """Seconds in pods over seconds without, of as much as no start counts in."""
        apart, whole = (prices.transfer(device, cluster, collective, mesh, 1e12).seconds for cluster in (pods, open_))
        return apart / whole

    assert slower("all_gather", prices.Mesh(8, 8, 8)) == 1  # in a node
    assert slower("all_gather", prices.Mesh(64, 8, 8)) == 1  # in a pod
    assert slower("all_gather", prices.Mesh(256, 8, 8)) == 1  # one ring a node: 8 of 64 cards, where 64 / 7 may leave
    assert slower("all_gather", prices.Mesh(16, 1, 32)) == pytest.approx(32 * 7 / 64, rel=1e-3)
    assert slower("send", prices.Mesh(4, 1, 64)) == pytest.approx(7, rel=1e-3)
    assert slower("all_to_all", prices.Mesh(256, 8, 8)) == pytest.approx(0.75 * 7, rel=1e-3)


@pytest.mark.parametrize(("devices", "data", "published"), [(8192, 64, 0.43), (16384, 128, 0.41)])
def test_a_published_run_in_unequal_stages_is_close(devices: int, data: int, published: float) -> None:
    """Utilisation of Llama 3.1 405B (Grattafiori et al. 2024, table 4), within a tenth, with the kernels of PyTorch."""
    overrides = [f"cluster.devices={devices}", f"parallelism.data={data}"]
    found = ledger.compile("llama-3.1-405b-meta", overrides)
    assert found.totals["mfu"] == pytest.approx(published, rel=0.1)
    assert sum(roles(found.plan)[0].layers) == 7
    assert sum(sum(role.layers) * len(role.stages) for role in roles(found.plan)) == 126


LAUNCHED = {
    "precision": "bf16-autocast",
    "run": {"seq_len": 48, "micro_batch": 4, "global_batch": 8},
    "stack": {"base": "pytorch-fsdp2-2025", "launch": {"per_operation": "18 us"}},
}


def test_a_cpu_waits_for_every_launch() -> None:
    """A GPU hides what its host takes for an operation behind the kernels before; a CPU is its own host."""
    found = plans.compiled(**LAUNCHED, model=plans.LLAMA, accelerator={"base": "h100-sxm", "kind": "cpu"})
    kernels = sum(row.times for role in found.roles for row in role.kernels if row.when != "optimizer")
    waited = {span.name: span.seconds for span in found.waterfall}["launch"]
    assert waited == pytest.approx(18e-6 * kernels)


def test_both_gradients_of_a_tied_weight_are_read_and_their_sum_is_written() -> None:
    """Three times 211 x 102 numbers of 4 bytes in each of two micro-batches; an untied head has its own gradient."""
    tied, untied = (
        plans.compiled(**LAUNCHED, model={**plans.LLAMA, "embedding": {"tied": flag}}) for flag in (True, False)
    )
    (row,) = (row for row in tied.roles[0].kernels if row.account == "root/weights/tied")
    assert (row.bytes, row.times) == (3 * 4 * 211 * 102, 2)
    assert not [row for row in untied.roles[0].kernels if row.account.endswith("/tied")]
