"""`ledger-score/2`: one shape for tables of runs and for evidence files, on the terminal, as JSON and as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from ledger.cli import main
from ledger.cli.score import find_runs
from ledger.evidence.documents import read_evidence
from ledger.evidence.verification import head_text, record_line
from ledger.lab.score.predictions import run_plan_text
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError
from tests.lab.published_rows import NANOTRON, TORCHTITAN, written

SCHEMA = Path(__file__).parents[2] / "ledger" / "cli" / "schemas" / "score.schema.json"
SMALL = {"parallelism.data": 1, "cluster.devices": 1, "run.global_batch": 1, "run.micro_batch": 1}
RUNS = (
    {"what": "step", "id": "ran", "set": SMALL, "measured": {"time.step": "2 s", "memory.peak": "9 GB"}},
    {"what": "fit", "id": "ran out", "set": SMALL, "measured": {"fits": False}},
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table, one of whose rows is skipped, and an evidence file with a run and a plan that ran out of memory."""
    folder = tmp_path_factory.mktemp("score")
    table = written(folder, NANOTRON, {**TORCHTITAN, "id": "other", "kind": "dpo"})
    head = {"spec": "ledger/1", "evidence": "A GPU", "source": "a test", "origin": {"a": "b"}, "plan": "gpt2"}
    evidence = folder / "runs.yaml"
    evidence.write_text(head_text(head) + "".join(map(record_line, RUNS)), encoding="utf-8")
    return table, evidence


def score(*arguments: object) -> str:
    """What the verb prints."""
    result = CliRunner().invoke(main, ["score", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def objects(inputs: tuple[Path, Path]) -> list[dict[str, Any]]:
    """Both as JSON."""
    return [json.loads(score(path, "--json")) for path in inputs]


def test_json_meets_its_published_schema(objects: list[dict[str, Any]]) -> None:
    """What other tools read is what the schema promises them, whatever was scored."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for found in objects:
        Draft202012Validator(schema).validate(found)


def test_tables_and_evidence_have_one_shape(objects: list[dict[str, Any]]) -> None:
    """The same keys at every place; a row of a file says as much as one of a table."""
    table, evidence = objects
    assert {tuple(row) for row in (*table["rows"], *evidence["rows"])} == {tuple(table["rows"][0])}
    (own,) = evidence["sources"].values()
    for source in table["sources"].values():
        assert list(source) == list(own)
        assert list(source["time"]) == list(own["mem"]) == ["rows", "absolute", "signed", "median", "worst"]
    assert list(table["overall"]) == list(evidence["overall"])


def test_runs_of_a_file_are_of_one_source(objects: list[dict[str, Any]]) -> None:
    """Its name is the source's, and each record counts for what was measured of it."""
    _, evidence = objects
    ran, ran_out = evidence["rows"]
    assert list(evidence["sources"]) == ["runs"]
    assert (ran["source"], ran["counts"], ran_out["counts"]) == (
        "A GPU",
        {"time": True, "mem": True},
        {"time": False, "mem": False},
    )
    assert ran["time_error"] == pytest.approx(ran["predicted_step_s"] / 2 - 1)
    assert ran["predicted_step_low_s"] < ran["predicted_step_s"] < ran["predicted_step_high_s"]


def test_a_run_that_ran_must_fit(objects: list[dict[str, Any]], inputs: tuple[Path, Path]) -> None:
    """Runs on a device that is too small for them are counted, as is what ran out of memory and is said to fit."""
    table, evidence = objects
    assert (table["overall"]["said_not_to_fit"], evidence["overall"]["said_to_fit"]) == (0, 1)
    assert [row["seen_fits"] for row in evidence["rows"]] == [True, False]
    assert [row["seen_fits"] for row in table["rows"]] == [True, None]
    crowded = json.loads(score(inputs[0], "--json", "--set", "run.micro_batch=16"))
    assert crowded["rows"][0]["needed_bytes"] > crowded["rows"][0]["capacity_bytes"]
    assert crowded["overall"]["said_not_to_fit"] == 1
    said = score(inputs[0], "--rows", "--set", "run.micro_batch=16")
    assert "fit: 0 of 1 row as seen; 1 that ran said not to fit" in said
    assert "out of memory, but ran" in said


def test_the_terminal_has_one_table_for_both(inputs: tuple[Path, Path]) -> None:
    """Rows of a file are always printed, those of a table on demand; the columns are the same."""
    table, evidence = inputs
    columns = score(table, "--rows").splitlines()[0].split()
    assert columns[:4] == score(evidence).splitlines()[0].split()[:4] == ["run", "step", "band", "measured"]
    assert score(evidence).splitlines()[-1] == "0 of 2 rows skipped"


def test_both_have_a_page(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    """The page of an evidence file shows its runs as that of a table does."""
    for path in inputs:
        score(path, "--out", tmp_path, "--format", "html")
        assert f"<h1>{path.name}</h1>" in (tmp_path / f"{path.stem}.html").read_text(encoding="utf-8")


def test_the_plan_of_a_run_can_be_printed(inputs: tuple[Path, Path]) -> None:
    """`--explain` prints a spec of the very plan that is scored, its settings put in."""
    plan = load_plan(score(inputs[1], "--explain", "ran"))
    assert (plan.parallelism.data, plan.run.global_batch) == (1, 1)
    with pytest.raises(SpecError, match="no row has the id `run`"):
        find_runs(str(inputs[1])).plan_of("run")


@pytest.mark.parametrize("name", ["korthikanti-2022", "llama-3.1-405b-nvidia-2024", "nanotron-out-of-memory"])
def test_printed_plans_are_those_of_the_runs(name: str) -> None:
    """Also where a setting reaches into a part that the shared plan only names."""
    evidence = read_evidence(default_library().folder("evidence") / f"{name}.yaml")
    for run in (*evidence.runs, *evidence.fits):
        printed, scored = load_plan(run_plan_text(run)), load_plan(run.plan, run.settings)
        assert printed.digest == scored.digest
