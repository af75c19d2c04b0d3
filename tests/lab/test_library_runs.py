"""Published runs that the library carries: cited, predicted by a command, near a plan or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from ledger.books import compile_plan
from ledger.evidence.nearest import (
    FARTHEST,
    MOST_RUNS,
    differences_in_kind,
    distance,
    mechanisms_not_run,
    nearest_runs,
    neighbours,
)
from ledger.evidence.published_runs import PublishedRun, published_runs, run_of_plan
from ledger.lab.score import ablations
from ledger.lab.score.library_runs import library_rows, library_runs, runs_of_files, scored_runs, table_text
from ledger.lab.score.predictions import predict_rows
from ledger.spec.library import default_library
from ledger.spec.load import load_plan, load_stack

SPECS = Path(__file__).parents[2] / "specs"
PLAN = load_plan(str(SPECS / "8b.yaml"))
SMALL = ("korthikanti22", "fms-fsdp", "torchtitan-202412", "nvidia-mbridge")  # whose rows take no time to predict


def test_every_row_names_its_publication() -> None:
    """A measurement without a source is a rumour."""
    assert all(row.text("source") and row.text("source_id") for row in library_rows())
    assert len({row.text("id") for row in library_rows()}) == len(library_rows())


def test_stored_predictions_are_what_the_compiler_says_today() -> None:
    """`make neighbours` writes them; a change of prices or stacks needs it again."""
    rows = [row for row in library_rows() if row.text("source_id") in SMALL]
    stored = {one.id: one for one in published_runs()}
    for one in library_runs(rows, default_library()):
        assert stored[one.row.id].step == pytest.approx(one.step, rel=5e-4), "run `make neighbours`"  # four digits
    for run in runs_of_files(default_library(), {row.text("id") for row in library_rows()} - {"nvidia-dgxc-0006"}):
        assert stored[run.id].step == pytest.approx(run.step, rel=5e-4), "run `make neighbours`"


def test_published_plans_of_the_library_have_their_runs() -> None:
    """19.9 s of DeepSeek-V3: 2664 thousand H800 hours for 14.8T tokens in steps of 15360 x 4096 (arXiv 2412.19437)."""
    (deepseek,) = (run for run in published_runs() if run.id == "deepseek-v3-2048")
    steps = 14.8e12 / (15360 * 4096)
    assert deepseek.measured_step == pytest.approx(2664e3 * 3600 / 2048 / steps, rel=1e-3)
    nearest = neighbours(load_plan(str(SPECS / "deepseek-v3.yaml")), published_runs())
    assert [run.id for run in nearest] == ["deepseek-v3-2048"]
    assert neighbours(load_plan(str(SPECS / "405b.yaml")), published_runs())[0].measured_step == 17.62


def test_what_is_written_is_read_again() -> None:
    """All fields survive, numbers to four digits."""
    one = published_runs()[0]
    assert len(table_text(published_runs()).splitlines()) == len(published_runs()) + 1
    assert table_text([replace(one, step=1.23456)]).splitlines()[1].split(",")[-4] == "1.235"


def test_a_run_like_the_plan_is_at_distance_nought() -> None:
    """Nothing counts where nothing differs, and a doubling of the width counts most."""
    same = _like_the_plan()
    assert distance(same, PLAN) == 0
    wider, longer = (distance(replace(same, **{name: 2 * getattr(same, name)}), PLAN) for name in ("d_model", "layers"))
    assert wider > longer > 0
    assert list(differences_in_kind(replace(same, dtype="fp8", zero=1), PLAN)) == ["fp8 matmuls", "ZeRO 1"]
    assert list(differences_in_kind(replace(same, experts=8), PLAN)) == ["8 experts a layer"]


def test_what_a_run_says_nothing_of_is_told() -> None:
    """A dense run without splits says nothing of experts, stages or split tensors, and all of a plan like it."""
    assert list(mechanisms_not_run(_like_the_plan(), PLAN)) == []
    mixtral = load_plan(str(SPECS / "mixtral-8x7b.yaml"))
    assert "routes tokens to experts" in list(mechanisms_not_run(replace(_like_the_plan(), zero=3), mixtral))
    staged = replace(PLAN, parallelism=replace(PLAN.parallelism, pipeline=4, tensor=2))
    assert list(mechanisms_not_run(_like_the_plan(), staged)) == ["splits tensors over devices", "runs as a pipeline"]


def test_neighbours_are_of_the_same_device_and_the_nearest_come_first() -> None:
    """A run on another device says nothing about this one's prices."""
    found = neighbours(PLAN, published_runs())
    far = [distance(run, PLAN) for run in found]
    assert 0 < len(found) <= MOST_RUNS
    assert {run.accelerator for run in found} == {PLAN.accelerator.name}
    assert far == sorted(far)
    assert far[-1] <= FARTHEST


def test_a_plan_without_evidence_has_no_neighbours() -> None:
    """On a device that nobody published runs of, and of a width that nobody trained."""
    assert neighbours(load_plan(str(SPECS / "8b.yaml"), ("accelerator=l40s",)), published_runs()) == []
    narrow = replace(PLAN, model=replace(PLAN.model, d_model=64))
    assert neighbours(narrow, published_runs()) == []


def test_a_neighbour_tells_its_error_and_how_it_differs() -> None:
    """Each measurement stands beside what the compiler says of that very run."""
    stored = {one.id: one for one in published_runs()}
    for told in nearest_runs(compile_plan(PLAN)):
        run = stored[told.name.rpartition("(")[2].rstrip(")")]
        predicted, measured = {
            "time.step": (run.step, run.measured_step),
            "memory.reserved": (run.memory, run.measured_memory),
        }[told.what]
        assert (told.predicted, told.measured, told.origin) == (predicted, measured, run.source)
        assert told.differs


def test_devices_of_unknown_power_get_no_step() -> None:
    """Nobody states the limit of these B200, so a step would be of other devices; their memory is predicted."""
    rows = [row for row in library_rows() if row.text("hardware") == "B200-powerlimited"]
    for score in predict_rows(rows, default_library()):
        assert (score.step, score.counts_time) == (None, False)
        assert score.memory
        assert any("power limit" in said for said in score.assumed)


# --- the constants of stacks ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("stack", ["pytorch-aten", "megatron-te-2024"])
def test_the_constant_is_what_its_half_says(stack: str) -> None:
    """Fitted on every other publication in alphabetical order; the rest see it for the first time."""
    level = load_stack(stack).matmul_level
    found = ablations.trials(scored_runs(), (level - 0.04, level, level + 0.04))[level]
    fitted, rest = ablations.halves(found)
    assert ablations.best_trial(found).level == level
    assert not set(fitted) & set(rest)
    assert ablations.best_trial(found).mean_error(rest) < 0.10


def test_a_trial_weighs_each_publication_the_same() -> None:
    """One with a thousand rows counts as much as one with ten."""
    trial = ablations.LevelTrial(1.0, {"a": 0.1, "b": 0.3})
    assert trial.mean_error(("a", "b")) == pytest.approx(fmean((0.1, 0.3)))


def _like_the_plan() -> PublishedRun:
    """A run of the very plan."""
    return replace(run_of_plan(PLAN, "same", "nobody", "this"), step=1.0, measured_step=1.0)
