"""Hosts: what an update there takes, whether its memory holds, and that nothing is made up where neither is stated."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import compile_roles
from ledger.books.price_changes import PRICES, step_time
from ledger.books.what_if.solve import solve
from ledger.model.schedule import roles
from ledger.report.gates import plan_outcome
from ledger.spec.problems import SpecError
from tests.model import plans

HOST = {"memory": "1 TB", "bandwidth": "400 GB/s", "source": "this test"}
PARAMETERS = 8_030_261_248  # Llama 3 8B (Grattafiori et al. 2024)
# fp32 weight, two fp32 moments read and written, an fp32 gradient read (DeepSpeed 0.19.8, csrc/includes/cpu_adam.h)
BYTES_OF_AN_UPDATE = 3 * 2 * 4 + 4
DEVICES, NODE = 16, 8
SPREAD = {"parallelism": {"data": 8}, "run": {"seq_len": 128, "micro_batch": 1, "global_batch": 8}}


def offloaded(host: dict[str, Any] | None, batches: int = 1, **overlap: str) -> Compiled:
    """Llama 3 8B under FSDP2 with weights and states on the host: fp32 shards and gradients."""
    cluster = {"devices": DEVICES, "devices_per_node": NODE, "scaleout": {"bandwidth": "400 Gb/s", "source": "test"}}
    stack = {"base": "pytorch-fsdp2-2025", "overlap": overlap} if overlap else "pytorch-fsdp2-2025"
    return plans.compiled(
        model="llama-3-8b",
        accelerator="h100-pcie",
        cluster={**cluster, **({"host": host} if host else {})},
        precision="bf16-autocast",
        parallelism={"data": DEVICES, "zero": 3, "offload": ["weights"]},
        run={"seq_len": 4096, "micro_batch": 1, "global_batch": DEVICES * batches},
        stack=stack,
    )


def check(found: Compiled) -> tuple[str, str]:
    """The line of the checklist about the host."""
    line = next(one for one in found.verdict.checks if one.name == "host")
    return line.status, line.figure


def test_an_update_on_the_host_takes_its_bytes_over_the_node_s_bandwidth() -> None:
    """Eight devices of a node share 400 GB/s; each updates a sixteenth of the weights, 28 bytes an element."""
    found = offloaded(HOST)
    passed_over = len(set(found.plan.stack.optimizer_passes) - {"copy", "cast"})
    update = next(row for row in found.roles[0].kernels if row.cause.name == "update")
    assert update.payload == pytest.approx(BYTES_OF_AN_UPDATE * PARAMETERS / DEVICES, rel=1e-6)
    assert update.seconds == pytest.approx(BYTES_OF_AN_UPDATE * PARAMETERS / DEVICES * NODE / 400e9, rel=1e-6)
    assert found.totals["time.optimizer"] == pytest.approx(float(found.totals["time.host"]))
    assert passed_over == 0 or found.totals["time.host"] > update.seconds


def test_the_step_is_longer_by_what_the_host_takes() -> None:
    """Nothing of PyTorch or DeepSpeed hides the update: with its host unknown the step lacks exactly those seconds."""
    timed, untimed = offloaded(HOST), offloaded(None)
    added = float(timed.totals["time.step"]) - float(untimed.totals["time.step"])
    assert added == pytest.approx(float(timed.totals["time.host"]))
    assert float(timed.totals["time.serial"]) >= float(timed.totals["time.step"])
    assert float(timed.totals["time.floor"]) <= float(timed.totals["time.roofline"])


def test_sums_of_gradients_on_the_host_are_waited_for() -> None:
    """Each further micro-batch adds its gradients there: one is read, the sum read and written, 12 bytes an element."""
    one, two = (offloaded(HOST, batches) for batches in (1, 2))
    sums = 12 * PARAMETERS / DEVICES * NODE / 400e9
    added = float(two.totals["time.host"]) - float(one.totals["time.host"])
    assert added == pytest.approx(2 * sums, rel=1e-6)


def test_an_update_behind_backward_is_waited_for_as_far_as_it_is_longer() -> None:
    """A stack that updates as gradients arrive saves the last backward, no more."""
    waited, hidden = offloaded(HOST), offloaded(HOST, update="backward")
    gained = float(waited.totals["time.step"]) - float(hidden.totals["time.step"])
    assert gained == pytest.approx(float(waited.totals["time.host"]))  # less than that backward takes
    slow = offloaded({**HOST, "bandwidth": "10 GB/s"}, update="backward")
    assert float(slow.totals["time.optimizer"]) > 0


def test_a_share_of_the_bandwidth_that_was_measured_counts() -> None:
    """`efficiency` is what updates reach of all channels together."""
    whole, half = offloaded(HOST), offloaded({**HOST, "efficiency": "50 %"})
    assert float(half.totals["time.host"]) == pytest.approx(2 * float(whole.totals["time.host"]))


def test_a_host_without_room_fails_the_plan_with_the_figure() -> None:
    """16 bytes an element (weight, gradient, two moments in fp32) of a node's eight devices against its memory."""
    needed = 16 * PARAMETERS * NODE / DEVICES
    found = offloaded({**HOST, "memory": "60 GB"})
    assert found.totals["memory.host"] == pytest.approx(needed, rel=1e-6)
    assert check(found) == ("fail", "64.2 GB of 60.0 GB")
    assert not found.verdict.fits
    assert found.verdict.headline.startswith("does not fit: 64.2 GB of 60.0 GB of host memory")
    assert not plan_outcome(found.plan, found.totals).fits
    assert check(offloaded(HOST))[0] == "pass"


def test_what_no_host_states_is_said_and_refuses_nothing() -> None:
    """Without a host there is neither a capacity nor seconds; both are named as not stated."""
    found = offloaded(None)
    assert check(found) == ("warn", "64.2 GB")
    assert "memory.host.capacity" not in found.totals
    assert "time.host" not in found.totals
    assert found.verdict.fits
    assert any("host is not stated" in problem.message for problem in found.plan.warnings)


def test_a_device_s_own_node_is_its_host_where_nodes_are_alike() -> None:
    """H100 SXM are sold by eights: nodes of eight take the file's host, others none; a cluster's own comes first."""
    sold = plans.compiled(accelerator="h100-sxm", cluster={"base": "h100-400g", "devices": 8}, **SPREAD).plan
    assert sold.host is not None
    assert sold.host == sold.accelerator.host
    assert plans.compiled(accelerator="h100-sxm", cluster="single").plan.host is None
    stated = {"base": "h100-400g", "devices": 8, "host": HOST}
    mine = plans.compiled(accelerator="h100-sxm", cluster=stated, **SPREAD).plan.host
    assert mine is not None
    assert mine.memory == 10**12


def test_more_bandwidth_of_host_memory_is_a_price_like_any_other() -> None:
    """Twice the bandwidth halves what the host takes, and moves nothing else."""
    found = offloaded(HOST)
    (price,) = (one for one in PRICES if one.path == "cluster.host.bandwidth")
    faster = step_time(price.moved(found.plan, 2.0), compile_roles(found.plan, roles(found.plan)))
    gained = float(found.totals["time.step"]) - float(faster)
    assert gained == pytest.approx(float(found.totals["time.host"]) / 2)
    assert float(found.totals["pace.host_memory"]) > 0


def test_solve_asks_the_host_for_room_too() -> None:
    """The most layers that fit are those that the host holds, where it is full before the device is."""
    room = offloaded({**HOST, "memory": "60 GB"})
    found = solve(room.plan, "model.layers.decoder.repeat")
    assert found.values is not None
    (layers,) = found.values.values()
    assert int(layers) < 32
    assert any(bound.key == "memory.host" and bound.binds for bound in found.bounds)


# --- drives -------------------------------------------------------------------------------------

DRIVES = {"capacity": "10 TB", "read": "20 GB/s", "write": "10 GB/s", "source": "this test"}


def on_drives(drives: dict[str, Any] | None, offload: Any = None) -> Compiled:
    """Llama 3 8B under DeepSpeed's ZeRO 3 with the optimizer on NVMe: bf16 weights, fp32 master copy and states."""
    host = {**HOST, **({"nvme": drives} if drives else {})}
    return plans.compiled(
        model="llama-3-8b",
        accelerator="h100-pcie",
        cluster={
            "devices": DEVICES,
            "devices_per_node": NODE,
            "host": host,
            "scaleout": {"bandwidth": "400 Gb/s", "source": "test"},
        },
        precision="bf16-mixed",
        parallelism={"data": DEVICES, "zero": 3, "offload": offload or {"optimizer": "nvme"}},
        run={"seq_len": 4096, "micro_batch": 1, "global_batch": DEVICES},
        stack="deepspeed-zero3-transformers-2026",
    )


def test_an_optimizer_on_drives_is_read_and_written_once_a_step() -> None:
    """fp32 copy, gradient and two moments, 16 bytes an element: over a node's share of each rate, and as bytes held.

    DeepSpeed 0.19.8, runtime/swap_tensor/partitioned_optimizer_swapper.py; nothing is read ahead (`pipeline_read`).
    """
    found = on_drives(DRIVES)
    mine = 16 * PARAMETERS / DEVICES
    assert found.totals["memory.nvme"] == pytest.approx(NODE * mine, rel=1e-6)
    assert found.totals["memory.host"] == 0
    for direction, rate in (("read", 20e9), ("write", 10e9)):
        assert found.totals[f"traffic.nvme.{direction}"] == pytest.approx(mine, rel=1e-6)
        (row,) = (row for row in found.roles[0].kernels if row.cause.name == f"swap.{direction}")
        assert row.seconds == pytest.approx(mine * NODE / rate, rel=1e-6)
    in_memory = on_drives(DRIVES, offload=["optimizer"])
    longer = float(found.totals["time.step"]) - float(in_memory.totals["time.step"])
    assert longer == pytest.approx(mine * NODE / 20e9 + mine * NODE / 10e9, rel=1e-6)
    assert float(found.totals["pace.nvme"]) > 0


def test_drives_without_room_fail_the_plan_and_drives_have_to_be_stated() -> None:
    """The figure of a node against its drives; without any the plan is refused."""
    found = on_drives({**DRIVES, "capacity": "50 GB"})
    (line,) = (check for check in found.verdict.checks if check.name == "nvme")
    assert (line.status, line.figure) == ("fail", "64.2 GB of 50.0 GB")
    assert found.verdict.headline.startswith("does not fit: 64.2 GB of 50.0 GB of NVMe")
    with pytest.raises(SpecError, match="no drives are stated"):
        on_drives(None)
