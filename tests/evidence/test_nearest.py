"""The microbenchmarks that a report puts beside a plan: near its kernels, of its device, none where none is near."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

import ledger
from ledger.books.results import Compiled
from ledger.evidence.calibration.nearest import MOST, nearest
from ledger.evidence.nearby import Nearby

SPECS = Path(__file__).parents[2] / "specs"
BAND = 0.35  # the worst single point of a class whose mean error is a tenth


@pytest.fixture(scope="module")
def large() -> Compiled:
    """Llama 3 70B on 1024 H100."""
    return ledger.compile(SPECS / "70b.yaml")


def _seconds(found: tuple[Nearby, ...]) -> dict[str, list[float]]:
    classes: dict[str, list[float]] = {}
    for one in found:
        classes.setdefault(one.what, []).append(one.error)
    return classes


def test_kernels_that_take_the_step_have_a_measurement_beside_them(large: Compiled) -> None:
    """Matmuls, attention and the collectives of a node were measured on H100; each row cites its file."""
    found = nearest(large)
    assert {"matmul.bf16", "attention.flash", "all_gather", "reduce_scatter"} <= {one.what for one in found}
    assert len(found) <= MOST
    assert all("specs/evidence/h100-sxm" in one.origin for one in found)
    assert len({(one.what, one.name, one.origin) for one in found}) == len(found)


def test_predictions_are_by_the_prices_of_the_plan(large: Compiled) -> None:
    """They are within the spread of their fits, so they are no kernel's of another size."""
    assert all(abs(error) < BAND for errors in _seconds(nearest(large)).values() for error in errors)


def test_a_measurement_is_within_a_factor_of_two_of_a_kernel(large: Compiled) -> None:
    """What is called near: of a collective, its bytes against the plan's own messages."""
    slowest = max(large.roles, key=lambda role: sum(one.seconds * one.times for one in role.kernels))
    sent = [one.payload for one in slowest.kernels if one.kind.startswith("all_gather")]
    gathers = [one for one in nearest(large) if one.what == "all_gather"]
    for gather in gathers:
        size = float(gather.name.rpartition(" ")[2].replace(",", ""))
        assert min(abs(log(size / one)) for one in sent) <= log(2) + 1e-9


def test_a_device_without_evidence_has_none() -> None:
    """Nothing was measured on an L4: the list is empty and the report says so."""
    assert nearest(ledger.compile(SPECS / "8b.yaml", ["accelerator=l4"])) == ()


def test_files_are_read_once(large: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second report of a process reads no evidence again, and no report that of other devices."""
    nearest(large)
    read: list[Path] = []
    monkeypatch.setattr("ledger.evidence.calibration.nearest.read_evidence", read.append)
    nearest(large)
    assert read == []
