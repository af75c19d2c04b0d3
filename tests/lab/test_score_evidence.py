"""Measured runs, predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from ledger.cli import main
from ledger.cli.score import find_runs
from ledger.evidence.documents import read_evidence
from ledger.evidence.verification import head_text
from ledger.lab.bench.step_plans import step_records_plan
from ledger.lab.score.contract import published
from ledger.lab.score.predictions import predict_runs
from ledger.lab.score.rows import Score, ScoreRow
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError

KORTHIKANTI = default_library().folder("evidence") / "korthikanti-2022.yaml"


@pytest.fixture(scope="module")
def rows() -> tuple[ScoreRow, ...]:
    """Every run of Korthikanti et al. 2022, table 5."""
    return tuple(predict_runs(read_evidence(KORTHIKANTI)))


def test_megatron_runs_are_met_without_fitting(rows: tuple[ScoreRow, ...]) -> None:
    """Prices from microbenchmarks of the A100 alone predict eight published step times within 8 % on average."""
    errors = Score(rows).overall.time
    assert errors.rows == 8
    assert errors.absolute is not None
    assert errors.absolute <= 0.08
    assert abs(errors.signed or 0.0) <= errors.absolute


def test_measurements_lie_in_the_band(rows: tuple[ScoreRow, ...]) -> None:
    """The estimate's own band holds what was measured."""
    for row in rows:
        assert (row.step_low or 0.0) <= (row.measured_step or 0.0) <= (row.step_high or 0.0)


def test_recomputation_costs_what_was_measured(rows: tuple[ScoreRow, ...]) -> None:
    """Full over selective recomputation, model by model: 1.29, 1.32, 1.30 and 1.32 in the paper's table."""
    for full, selective in zip(rows[::2], rows[1::2], strict=True):
        predicted = (full.step or 0.0) / (selective.step or 1.0)
        assert predicted == pytest.approx((full.measured_step or 0.0) / (selective.measured_step or 1.0), rel=0.08)


def test_a_mechanism_left_out_shows(rows: tuple[ScoreRow, ...]) -> None:
    """Without the kernels of dropout every run is predicted too fast."""
    without = ("model.residual_dropout=0", "model.layers.0.attention.dropout=0", "model.embedding.dropout=0")
    evidence = read_evidence(KORTHIKANTI)
    shortened = tuple(predict_runs(replace(evidence, runs=evidence.runs[:2]), without))
    assert all((less.step or 0.0) < (more.step or 0.0) for less, more in zip(shortened, rows, strict=False))


def test_a_summary_keeps_signs_and_sizes_apart() -> None:
    """Errors of +10 % and -20 % are 15 % on average, and -5 % with their signs."""
    runs = (("a", 11.0), ("b", 8.0))
    made = tuple(ScoreRow(name, "", "", step=step, measured_step=10.0, counts_time=True) for name, step in runs)
    errors = Score(made).overall.time
    assert errors.absolute == pytest.approx(0.15)
    assert errors.signed == pytest.approx(-0.05)
    assert errors.worst == pytest.approx(-0.2)


def test_measured_steps_of_a_device_are_scored(tmp_path: Path) -> None:
    """Time and memory of what ran; a step that ran out of memory has neither and is left out."""
    sizes = "run.micro_batch: 2, run.global_batch: 2"
    text = head_text(
        {"spec": "ledger/1", "evidence": "a GPU", "device": "h100-sxm", "source": "a test", "origin": {"a": "b"}}
    )
    text = text.replace("records:", yaml.safe_dump({"plan": step_records_plan("cuda", "h100-sxm")}) + "records:")
    text += f"  - {{what: step, id: small, set: {{{sizes}}}, measured: {{time.step: 20 ms, memory.peak: 2 GB}}}}\n"
    text += f"  - {{what: step, id: large, set: {{{sizes}}}, error: out of memory}}\n"
    path = tmp_path / "steps.yaml"
    path.write_text(text, encoding="utf-8")
    (found,) = predict_runs(read_evidence(path))
    assert found.time_error == pytest.approx((found.step or 0.0) / 20e-3 - 1)
    assert found.memory_error == pytest.approx((found.memory or 0.0) / 2e9 - 1)
    said = published(Score((found,)))
    assert said["rows"][0]["mem_error"] == found.memory_error
    assert said["overall"]["mem_rows"] == 1


def test_runs_on_a_device_without_prices_ask_for_its_spec(tmp_path: Path) -> None:
    """One's own measurements are scored once `ledger calibrate` has made prices of them, which the problem says."""
    text = KORTHIKANTI.read_text(encoding="utf-8").replace("accelerator: a100-sxm-80gb", "accelerator: my-own-device")
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        find_runs(str(path)).predicted(())
    (problem,) = raised.value.problems
    assert problem.message == "no accelerator of the library is named `my-own-device`"
    assert f"`ledger calibrate {path} --out my-own-device.yaml`" in problem.help
    assert text.splitlines()[problem.where.line - 1].startswith("  accelerator: my-own-device")
    with pytest.raises(SpecError, match=r"my-own-device\.yaml.*no such file"):
        find_runs(str(path)).predicted(("accelerator=my-own-device.yaml",))


def test_a_plan_may_be_named(tmp_path: Path) -> None:
    """By its name in the library, whatever lies in the folder one stands in, or by a path from the file."""
    named = default_library().folder("evidence") / "deepseek-v3-2024.yaml"
    (run,) = read_evidence(named).runs
    assert load_plan(run.plan, run.settings).title == "DeepSeek-V3 on 2048 H800, as published"
    (tmp_path / "mine.yaml").write_text(Path(run.plan).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "own.yaml").write_text(
        named.read_text(encoding="utf-8").replace("plan: deepseek-v3", "plan: mine.yaml"), encoding="utf-8"
    )
    (own,) = read_evidence(tmp_path / "own.yaml").runs
    assert Path(own.plan) == tmp_path / "mine.yaml"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("measured: {time.step: 5 s}", "`record` lacks `id`"),
        ("id: a", "`record` lacks `measured`"),
        ("id: a, measured: {memory.peak: 5 GB}", "`record.measured` lacks `time.step`"),
        ("id: a, measured: {time.step: 0 s}", "`record.measured.time.step`: `0 s` is zero"),
        ("id: a, measured: {time.step: -5 s}", "`record.measured.time.step`: `-5 s` is negative"),
        ("id: a, measured: {time.step: 5}", "`record.measured.time.step`: `5` has no unit"),
        ("id: a, measured: {time.step: 5 parsec}", "`parsec` is no unit"),
        ("id: a, measured: {time.step: 5 GB}", "`record.measured.time.step`: `5 GB` is a size, not a time"),
        ("id: a, measured: {time.step: 5 s, memory.peak: 0 B}", "`record.measured.memory.peak`: `0 B` is zero"),
        ("id: a, measured: {time.step: 5 s, memroy.peak: 5 GB}", "`memroy.peak` is no field of `record.measured`"),
        ("id: a, set: [1], measured: {time.step: 5 s}", "`record.set` must be a mapping"),
        ("id: {name: a}, measured: {time.step: 5 s}", "`record.id` must be text or a number"),
        (
            "id: a, measured: {time.step: 5 s}}\n  - {what: step, id: a, measured: {time.step: 6 s}",
            "two records have the id",
        ),
    ],
)
def test_a_run_that_says_too_little_is_told_with_its_place(tmp_path: Path, record: str, message: str) -> None:
    """A step without a name, a time, a unit or a value above zero is no measurement, and has a line."""
    path = tmp_path / "runs.yaml"
    text = "spec: ledger/1\nevidence: A\ndevice: h100-sxm\nsource: this test\norigin: {a: b}\nplan: 8b\nrecords:\n"
    path.write_text(f"{text}  - {{what: step, {record}}}\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["score", str(path)])
    assert result.exit_code == 2
    assert message in result.output
    assert f"{path}:{9 if 'two' in message else 8}:" in result.output


def test_evidence_without_runs_is_refused() -> None:
    """A file of microbenchmarks has no plan to predict."""
    with pytest.raises(SpecError, match="holds no whole runs"):
        find_runs("h100-sxm-nccl")


def test_the_verb_prints_each_run_and_the_whole(tmp_path: Path) -> None:
    """The table has a line for each run; --json is the published contract."""
    text = KORTHIKANTI.read_text(encoding="utf-8")
    path = tmp_path / "two.yaml"
    path.write_text(text[: text.index("  - what: step\n    id: korthikanti22-0003")], encoding="utf-8")
    printed = CliRunner().invoke(main, ["score", str(path)])
    assert printed.exit_code == 0
    assert "korthikanti22-0002" in printed.stdout
    assert any(line.startswith("step time: 2 rows, mean absolute error") for line in printed.stdout.splitlines())
    assert "each source" not in printed.stdout
    found = json.loads(CliRunner().invoke(main, ["score", str(path), "--json"]).stdout)
    assert found["schema"] == "ledger-score/2"
    assert found["overall"]["time_rows"] == len(found["rows"]) == 2


def test_unknown_evidence_is_a_problem() -> None:
    """A name that the library lacks leaves with 2 and a near miss."""
    result = CliRunner().invoke(main, ["score", "korthikanti"])
    assert result.exit_code == 2
    assert "help: did you mean `korthikanti-2022`" in result.output
