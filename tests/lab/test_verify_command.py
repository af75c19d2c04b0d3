"""`ledger verify`: exit codes, the published JSON, what is refused, and that a wrong prediction fails."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

import ledger
from ledger.books.compiled import Compiled
from ledger.cli import main, options
from ledger.evidence import verification as records
from ledger.lab.verification import checks, predicted, suites
from tests.model import plans

SCHEMA = Path(__file__).resolve().parents[2] / "ledger" / "cli" / "schemas" / "verify.schema.json"
DEEP = {**plans.ONE_DEVICE, "model": plans.layer(plans.LLAMA, repeat=5), "kernels": {"attention": "flash"}}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A small Llama, five layers deep, on one device."""
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(DEEP), encoding="utf-8")
    return path


def run(*args: str | Path) -> Result:
    """The command line."""
    return CliRunner().invoke(main, ["verify", *map(str, args)], prog_name="ledger")


def statuses(result: Result) -> dict[str, str]:
    """Figure -> outcome, of the JSON."""
    return {check["account"]: check["status"] for check in json.loads(result.stdout)["checks"]}


def test_a_plan_that_agrees_exits_with_0_and_prints_the_contract(plan: Path) -> None:
    """Every kind of figure is compared; the JSON is what its schema says, and progress goes to standard error."""
    result = run(plan, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(printed)
    assert {account.partition(".")[0] for account in statuses(result)} == {"parameters", "flops", "saved", "memory"}
    assert printed["layers"] == "3 and 4 layers ran, and their difference stands for each further one of 5"
    assert "memory of a step: 3 layers deep" in result.stderr


def test_a_wrong_prediction_exits_with_1(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One parameter too many is one too many: the row says so, and so does the exit code."""

    def wrong(compiled: Compiled) -> dict[str, int]:
        return {"parameters": predicted.parameters(compiled)["parameters"] + 1}

    first, *others = checks.JUDGES
    monkeypatch.setattr(checks, "JUDGES", (checks.replace(first, tells=wrong), *others))
    result = run(plan, "--json")
    assert result.exit_code == 1
    assert [account for account, status in statuses(result).items() if status == "differs"] == ["parameters"]


def test_a_layer_less_is_found_out(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are off by what one layer saves are explained by no cause and allowed by no tolerance."""
    honest = predicted.memory

    def shallow(compiled: Compiled) -> dict[str, int]:
        layer = int(compiled.totals["saved.per_layer.decoder"])
        return {name: size - layer * (name != "static") for name, size in honest(compiled).items()}

    *others, last = checks.JUDGES
    monkeypatch.setattr(checks, "JUDGES", (*others, checks.replace(last, tells=shallow)))
    found = statuses(run(plan, "--json"))
    assert found["memory.static"] in {"equal", "explained"}
    assert {found[f"memory.{name}"] for name in ("after_forward", "forward", "backward")} == {"differs"}


@pytest.mark.parametrize("depth", [("--layers", "2"), ("--full",)])
def test_other_depths(plan: Path, depth: tuple[str, ...]) -> None:
    """A plan cut to two layers, and one of which all layers run, agree as well."""
    result = run(plan, "--json", *depth)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["layers"].startswith(f"{depth[-1] if len(depth) > 1 else 5} layers")


def test_what_cannot_be_judged_is_said(plan: Path) -> None:
    """A split sequence has no judge: its step is not checked, with the reason, and the rest is."""
    layout = ["cluster.devices=2", "parallelism.context=2", "run.seq_len=36"]
    result = run(plan, "--json", "--layers", "2", *(word for text in layout for word in ("--set", text)))
    (open_,) = (check for check in json.loads(result.stdout)["checks"] if check["status"] == "not checked")
    assert result.exit_code == 0
    assert "context = 2" in open_["reason"]


@pytest.mark.parametrize("depth", [1, pytest.param(None, marks=pytest.mark.long)])
def test_the_same_in_python(plan: Path, depth: int | None) -> None:
    """`ledger.verify` returns what the command line prints, but for the depth in the command that it tells."""
    words = ("--layers", str(depth)) if depth else ()
    printed = json.loads(run(plan, "--json", "--set", "run.seq_len=41", *words).stdout)
    found = ledger.verify(str(plan), ["run.seq_len=41"], depth)
    if depth:
        assert printed["judge"].pop("command") == f"{found['judge'].pop('command')} --layers {depth}"
    assert found == printed


def test_the_table_names_causes(plan: Path) -> None:
    """For people: each line has its outcome, and what the difference is."""
    result = run(plan, "--layers", "1")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.startswith(("memory", "param"))}
    assert "exact" in lines["parameters"]
    assert "rounding of storages to 512 B" in lines["memory.static"]


def test_without_pytorch_it_says_how_to_get_it(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input leaves with 2, and so does a judge that is not there."""
    monkeypatch.setattr(options, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    result = run(plan)
    assert result.exit_code == 2
    assert "pip install -e '.[evidence]'" in result.output


@pytest.mark.parametrize("words", [("--full", "--layers", "2"), ("--quick",)])
def test_options_that_exclude_each_other(plan: Path, words: tuple[str, ...]) -> None:
    """Two depths at once, or the quick cases of a single plan, are a usage error."""
    assert run(plan, *words).exit_code == 2


def test_a_depth_at_which_the_plan_cannot_exist(tmp_path: Path) -> None:
    """Sets of two layers hold no three: the place of the sets, and the depths that come out even."""
    path = tmp_path / "sets.yaml"
    parallelism = {"data": 2, "zero": 3, "wrap": {"every": 2}}
    cluster = {"base": "h100-400g", "devices": 2, "devices_per_node": 2}
    sets = {**DEEP, "model": plans.layer(plans.LLAMA, repeat=6), "cluster": cluster, "parallelism": parallelism}
    path.write_text(json.dumps(sets | {"run": {**DEEP["run"], "global_batch": 6}}), encoding="utf-8")
    result = run(path, "--layers", "3")
    assert result.exit_code == 2, result.output
    assert "--layers 3: 3 layers of `decoder` do not divide into sets of 2" in result.output
    assert "`--layers` of 2 or 4" in result.output


# --- suites -------------------------------------------------------------------------------------


def suite(folder: Path, *cases: dict[str, Any]) -> Path:
    """A suite over the small plan."""
    path = folder / "suite.yaml"
    group = {"group": "small plans", "plan": "small.yaml", "cases": list(cases)}
    path.write_text(yaml.safe_dump({"spec": "ledger/1", "suite": "a test", "groups": [group]}), encoding="utf-8")
    return path


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.long)], ids=["here", "processes"])
def test_a_suite_runs_its_quick_cases_and_keeps_their_verdicts(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    """--quick leaves the others out; --record writes what was found, which reads back the same.

    In this process, which has PyTorch already, and in one for each case.
    """
    if not apart:
        monkeypatch.setattr(suites, "process_pool", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(records, "folder", lambda: tmp_path / "kept")
    path = suite(plan.parent, {"case": "small", "quick": True}, {"case": "slow", "set": {"run.seq_len": 41}})
    result = run(path, "--quick", "--record", "--layers", "1")
    assert result.exit_code == 0, result.output
    (kept,) = (tmp_path / "kept").glob("*.yaml")
    found = records.read(kept)
    assert result.stdout.splitlines() == [f"small: {found.sentence}"]
    assert found.agrees


def test_a_case_that_is_no_plan_fails_the_suite(plan: Path) -> None:
    """A suite with bad input cannot pass for one that agrees."""
    path = suite(plan.parent, {"case": "broken", "set": {"run.seq_len": "long"}})
    result = run(path)
    assert result.exit_code == 1
    assert "broken: " in result.stderr


def test_a_judge_that_breaks_down_fails_its_case(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the process of a case is told under its name, and the next case runs."""
    broken = MagicMock()
    broken.__enter__.return_value.submit.return_value.result.side_effect = RuntimeError("out of luck")
    monkeypatch.setattr(suites, "process_pool", lambda *_, **__: broken)
    result = run(suite(plan.parent, {"case": "first"}, {"case": "second"}))
    assert result.exit_code == 1
    assert [line for line in result.stderr.splitlines() if "luck" in line] == [
        "first: RuntimeError: out of luck",
        "second: RuntimeError: out of luck",
    ]


def test_a_suite_takes_no_overrides(plan: Path) -> None:
    """--set is about one plan."""
    path = suite(plan.parent, {"case": "small"})
    assert run(path, "--set", "run.seq_len=41").exit_code == 2


def test_a_service_is_compared_with_what_answers() -> None:
    """A plan that serves has verdicts of its own, in the published form."""
    found = CliRunner().invoke(main, ["verify", "serve-70b", "--json"])
    assert found.exit_code == 0
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(json.loads(found.stdout))
    assert {"serve.cache.elements", "flops.counter.prefill", "parameters.read"} <= set(statuses(found))
