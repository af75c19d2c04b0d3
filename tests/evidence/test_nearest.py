"""The microbenchmarks that a report puts beside a plan: near its kernels, of its device, none where none is near."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

import ledger
from ledger.books.compiled import Compiled
from ledger.evidence.nearest import MOST_MICROBENCHMARKS, NearMeasurement, nearest_microbenchmarks, nearest_runs
from ledger.report.views.nearby import NAPKIN, basis_sentence
from tests.layouts import TENSOR_PARALLEL

SPECS = Path(__file__).parents[2] / "specs"
BAND = 0.35  # the worst single point of a class whose mean error is a tenth


@pytest.fixture(scope="module")
def large() -> Compiled:
    """Llama 3 70B on 1024 H100, tensor parallel within nodes."""
    return ledger.compile(SPECS / "70b.yaml", TENSOR_PARALLEL)


def _seconds(found: tuple[NearMeasurement, ...]) -> dict[str, list[float]]:
    classes: dict[str, list[float]] = {}
    for one in found:
        classes.setdefault(one.what, []).append(one.error)
    return classes


def test_kernels_that_take_the_step_have_a_measurement_beside_them(large: Compiled) -> None:
    """Matmuls, attention and the collectives of a node were measured on H100; each row cites its file."""
    found = nearest_microbenchmarks(large)
    assert {"matmul.bf16", "attention.flash", "all_gather", "reduce_scatter"} <= {one.what for one in found}
    assert len(found) <= MOST_MICROBENCHMARKS
    assert all(("specs/evidence/h100-sxm" in one.origin) != bool(one.device) for one in found)
    assert len({(one.what, one.name, one.origin) for one in found}) == len(found)


def test_predictions_are_by_the_prices_of_the_plan(large: Compiled) -> None:
    """They are within the spread of their fits, so they are no kernel's of another size."""
    assert all(abs(error) < BAND for errors in _seconds(nearest_microbenchmarks(large)).values() for error in errors)


def test_as_many_ranks_on_other_nodes_are_no_near_measurement() -> None:
    """16 ranks on 2 nodes send through 8 adapters each; 16 groups of copies, one rank a node, through one."""
    across = ["parallelism={data: 1024, tensor: 1, zero: 3, replicate: 16}", "run.micro_batch=1"]
    assert not [
        one
        for one in nearest_microbenchmarks(ledger.compile(SPECS / "70b.yaml", across))
        if one.what == "all_reduce.scaleout"
    ]
    two_nodes = ["cluster.devices=16", "parallelism={data: 16, tensor: 1, zero: 0}", "run.micro_batch=1"]
    found = nearest_microbenchmarks(ledger.compile(SPECS / "8b.yaml", two_nodes))
    assert "all_reduce.scaleout" in {one.what for one in found}


def test_a_measurement_is_within_a_factor_of_two_of_a_kernel(large: Compiled) -> None:
    """What is called near: of a collective, its bytes against the plan's own messages."""
    slowest = max(large.roles, key=lambda role: sum(one.seconds * one.times for one in role.kernels))
    sent = [one.payload for one in slowest.kernels if str(one.kind).startswith("all_gather")]
    gathers = [one for one in nearest_microbenchmarks(large) if one.what == "all_gather"]
    for gather in gathers:
        size = float(gather.name.rpartition(" ")[2].replace("\u202fMB", "")) * 1e6
        assert min(abs(log(size / one)) for one in sent) <= log(2) + 1e-3


def test_shares_are_of_the_step(large: Compiled) -> None:
    """Kernels like a measurement are counted once: together they take no more than the step, and matmuls most of it."""
    found = nearest_microbenchmarks(large)
    shares = {what: sum(one.share for one in found if one.what == what) for what in {one.what for one in found}}
    assert 0.5 < sum(shares.values()) <= 1
    assert max(shares, key=lambda what: shares[what]) == "matmul.bf16"
    spent = sum(kernel.open for kernel in large.roles[0].kernels if str(kernel.kind) == "matmul.bf16")
    assert shares["matmul.bf16"] <= spent / float(large.totals["time.step"]) + 1e-9


def test_a_price_that_was_fitted_on_the_file_is_in_sample(large: Compiled) -> None:
    """The fit's error on what it had not seen is the curve's own; the file is the one its source cites."""
    curves = {str(curve.what): curve for curve in large.plan.accelerator.calibration if curve.regime == "burst"}
    matmuls = [one for one in nearest_microbenchmarks(large) if one.what == "matmul.bf16"]
    assert "specs/evidence/h100-sxm-matmul.yaml" in curves["matmul.bf16"].source
    assert {one.unseen for one in matmuls} == {curves["matmul.bf16"].error}


def test_prices_of_a_sister_show_what_they_were_fitted_on() -> None:
    """Nothing was measured on an H800, whose prices are the H100's: the H100's measurements, named as such."""
    found = nearest_microbenchmarks(ledger.compile(SPECS / "8b.yaml", ["accelerator=h800-sxm"]))
    assert {"h100-sxm"} <= {one.device for one in found}
    assert all(one.device for one in found)


def test_between_nodes_the_plans_own_network_is_asked() -> None:
    """Sends over another fabric are no measurement of this plan's: its own figures are held against them."""
    compiled = ledger.compile(SPECS / "405b.yaml", ["stack.overlap.pipeline=none"])
    sends = [one for one in nearest_microbenchmarks(compiled) if one.what == "send.scaleout"]
    assert sends
    assert all(one.unseen is None and "another network" in one.differs for one in sends)


def test_a_device_without_evidence_has_none() -> None:
    """Nothing was measured on an L4: the list is empty and the report says so."""
    assert nearest_microbenchmarks(ledger.compile(SPECS / "8b.yaml", ["accelerator=l4"])) == ()


def test_a_parameter_count_has_no_kernels() -> None:
    """Nothing is priced, so nothing is near it, on a device with measurements too."""
    found = ledger.compile(SPECS / "8b.yaml", ["model={model: some, parameters: 8e9}", "expect=[]"])
    assert nearest_microbenchmarks(found) == () == nearest_runs(found)
    assert basis_sentence(found) == NAPKIN


def test_files_are_read_once(large: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second report of a process reads no evidence again, and no report that of other devices."""
    nearest_microbenchmarks(large)
    read: list[Path] = []
    monkeypatch.setattr("ledger.evidence.nearest.read_evidence", read.append)
    nearest_microbenchmarks(large)
    assert read == []
