"""What mechanisms are worth on the runs that the library carries."""

from __future__ import annotations

import pytest

from ledger.lab.score.ablations import MECHANISMS, AblationErrors, ablation_errors
from ledger.lab.score.library_runs import LibraryRun, library_rows, library_runs
from ledger.lab.score.predictions import measured_step
from ledger.spec.library import default_library

IDS = ("torchtitan-202412-0001", "internevo-0002", "fms-fsdp-0001")


@pytest.fixture(scope="module")
def runs() -> tuple[LibraryRun, ...]:
    """A few runs of PyTorch's stacks: limited power, stated networks, eager norms."""
    return tuple(library_runs([row for row in library_rows() if row.text("id") in IDS], default_library()))


def test_nothing_left_out_is_the_prediction(runs: tuple[LibraryRun, ...]) -> None:
    """The first line of the table is the score."""
    errors = ablation_errors("nothing", runs).errors
    assert len(runs) == len(IDS)
    for one in runs:
        measured = measured_step(one.row) or 0.0
        assert errors[one.row.source_id][0] == pytest.approx(one.step / measured - 1)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "nothing"])
def test_without_a_mechanism_no_run_is_slower(runs: tuple[LibraryRun, ...], name: str) -> None:
    """Each is time that a rough model leaves out."""
    whole, left = ablation_errors("nothing", runs), ablation_errors(name, runs)
    for source, errors in left.errors.items():
        assert errors[0] <= whole.errors[source][0] + 1e-9


@pytest.mark.parametrize("name", ["the level of matmuls that PyTorch calls", "networks that publications state"])
def test_what_runs_lean_on_moves_them(runs: tuple[LibraryRun, ...], name: str) -> None:
    """A mechanism that changes nothing is not a mechanism."""
    assert ablation_errors(name, runs).signed < ablation_errors("nothing", runs).signed


def test_each_publication_weighs_the_same() -> None:
    """One with many rows counts as much as one with few."""
    left = AblationErrors("it", {"a": (0.1, -0.1, 0.1, -0.1), "b": (-0.3,)})
    assert left.absolute == pytest.approx(0.2)
    assert left.signed == pytest.approx(-0.15)
