"""`ledger ci`: a repository of thirty plans and five changes, each as its comment says it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from click.testing import CliRunner, Result

import ledger
from ledger.cli import main

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
WRITE = "LEDGER_WRITE_GOLDEN"  # set it to write the golden files anew, and read what changed
CHANGES = ("library", "layout", "new", "deleted", "renamed")
Ci = Callable[..., Result]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """The repository, and its commits from the first on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        folder = tmp_path_factory.mktemp("repository") / "plans"
        return folder, import_module("plan_repository").build(folder)


@pytest.fixture
def ci(history: tuple[Path, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> Ci:
    """Runs `ledger ci` in the repository, on the change of a number from its commit before."""
    folder, commits = history
    monkeypatch.chdir(folder)

    def invoke(number: int, *words: str) -> Result:
        revisions = ("--base", commits[number - 1][:7], "--head", commits[number][:7])
        return CliRunner().invoke(main, ["ci", *revisions, *words], prog_name="ledger")

    return invoke


@pytest.mark.parametrize("change", CHANGES)
def test_comments_are_as_they_were_read(ci: Ci, change: str) -> None:
    """The whole comment on each of the five changes, as someone has read it."""
    golden = GOLDEN / f"ci-{change}.md"
    found = ci(CHANGES.index(change) + 1).stdout.replace(f"by ledger {ledger.__version__}\n", "by ledger\n")
    if os.environ.get(WRITE):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found, "utf-8")
    assert found == golden.read_text("utf-8")


@pytest.mark.parametrize("change", CHANGES)
def test_json_is_as_published(ci: Ci, change: str) -> None:
    """What programs read is what `ledger schema ci` says, on each of the changes."""
    shown = json.loads(ci(CHANGES.index(change) + 1, "--json", "--fail-on", "cost.run > 0").stdout)
    jsonschema.validate(shown, json.loads(CliRunner().invoke(main, ["schema", "ci"]).stdout))


def test_a_library_edit_affects_the_plans_that_name_it(ci: Ci) -> None:
    """The ten wide plans read `hw/cloud.yaml`; the commit touches no plan, and a faster network saves time on each."""
    shown = json.loads(ci(1, "--json").stdout)
    assert {change["path"].split("/")[0] for change in shown["changes"]} == {"wide"}
    assert (shown["schema"], shown["plans"], len(shown["changes"])) == ("ledger-ci/1", 30, 10)
    for change in shown["changes"]:
        (cause,) = change["movements"]["seconds"]["causes"]
        assert cause["inputs"] == ["cluster.scaleout.bandwidth"]
        assert cause["amount"] == change["movements"]["seconds"]["change"] < 0


def test_causes_that_undo_each_other_have_amounts(ci: Ci) -> None:
    """Twice the tokens at half the price cost the same: each cause has an amount, and they sum to the change.

    Tokens first cost c more, and half of that once the price is halved: 0.75 c in the mean, as the price saves.
    """
    shown = json.loads(ci(2, "--json").stdout)
    (change,) = (one for one in shown["changes"] if one["plan"] == "qwen2.5-7b-long")
    dollars = change["movements"]["dollars"]
    amounts = {cause["inputs"][0]: cause["amount"] for cause in dollars["causes"]}
    assert amounts == {
        "run.tokens": pytest.approx(0.75 * dollars["old"], rel=1e-4),
        "assumptions.price": pytest.approx(-0.75 * dollars["old"], rel=1e-4),
    }
    for movement in (moved for one in shown["changes"] for moved in one["movements"].values()):
        left = movement["change"] - sum(cause["amount"] for cause in movement["causes"])
        assert abs(left) <= 1e-6 * movement["old"]


def test_the_change_that_turns_the_verdict_is_named(ci: Ci) -> None:
    """Of a plan that fits no more, the input that does it, in the first line and in the plan's."""
    shown = json.loads(ci(2, "--json").stdout)
    (turned,) = (one for one in shown["changes"] if one["verdict"])
    assert turned["verdict"] == [{"word": "fits", "holds": False, "inputs": ["run.micro_batch"]}]
    assert shown["headline"].endswith(f"; {turned['plan']} no longer fits")
    assert shown["changes"][0] == turned, "the worst is first"


@pytest.mark.parametrize(
    ("number", "gates", "code"),
    [
        (1, [], 0),
        (1, ["cost.run > +5%"], 0),
        (1, ["cost.run < -20%"], 1),
        (2, ["fits"], 1),
        (2, ["headroom"], 1),
        (3, ["fits"], 1),  # a new plan that does not fit
        (3, ["cost.run > 0"], 0),  # and that changes no cost
        (4, ["fits", "time.run != 0"], 0),
        (5, ["time.run > 7 d"], 1),
        (5, ["time.run > 8 d"], 0),
        (5, ["cost.rnu > 1 USD"], 2),
        (5, ["cost.run > 1 d"], 2),
    ],
)
def test_gates_decide_the_exit_code(ci: Ci, number: int, gates: list[str], code: int) -> None:
    """Both ways and by words; a total that no plan has is bad usage."""
    result = ci(number, *(word for gate in gates for word in ("--fail-on", gate)))
    assert result.exit_code == code
    assert result.stderr.count("failed on: ") == (code == 1) * len(result.stderr.splitlines())


def test_paths_choose_plans(ci: Ci) -> None:
    """Of folders and files; one that moved counts where it was and where it is; what names no plan is told."""
    assert ci(1, "short", "long").stdout.startswith("None of 20 plans changes\n")
    assert ci(1, "wide/qwen3-8b-wide.yaml").stdout.startswith("1 of 1 plan changes: ")
    assert json.loads(ci(5, "short", "--json").stdout)["changes"][0]["moved_from"] == "short/llama-3-8b-short.yaml"
    assert json.loads(ci(5, "archive", "--json").stdout)["headline"].endswith("; 1 moved")
    result = ci(1, "hw")
    assert (result.exit_code, result.stderr.splitlines()[0][:17]) == (2, "hw:1:1: no plan t")


def test_what_lies_below_a_folder_is_found_from_it(ci: Ci, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is from where it is typed, and no path means the whole repository."""
    monkeypatch.chdir("wide")
    assert ci(1, "qwen3-8b-wide.yaml").stdout.startswith("1 of 1 plan changes: ")
    assert ci(1).stdout.startswith("10 of 30 plans change: ")


def test_the_base_is_the_commit_before_where_there_is_no_other(ci: Ci, history: tuple[Path, tuple[str, ...]]) -> None:
    """Without `origin`, and on its default branch, HEAD is compared with its parent."""
    alone = CliRunner().invoke(main, ["ci"], prog_name="ledger").stdout
    assert alone.splitlines()[0] == ci(5).stdout.splitlines()[0]
    subprocess.run(["git", "update-ref", "refs/remotes/origin/HEAD", history[1][3]], check=True)
    try:
        assert "; 1 deleted; 1 moved" in CliRunner().invoke(main, ["ci"], prog_name="ledger").stdout.splitlines()[0]
    finally:
        subprocess.run(["git", "update-ref", "-d", "refs/remotes/origin/HEAD"], check=True)


def test_a_plan_that_does_not_compile_hides_no_other(
    history: tuple[Path, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its problems are told and the exit code is 2; the others are compared. Mended, it compiles again."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    plans, clone = import_module("plan_repository"), tmp_path / "clone"
    plans.git(tmp_path, "clone", "--quiet", str(history[0]), "clone")
    monkeypatch.chdir(clone)
    broken, other = (clone / "long" / f"{name}-long.yaml" for name in ("gemma-2-9b", "qwen3-8b"))
    sound = broken.read_text()

    def committed(text: str, tokens: str) -> Result:
        broken.write_text(text)
        other.write_text(re.sub(r"\dT tokens", tokens, other.read_text()))
        plans.commit(clone, "x")
        return CliRunner().invoke(main, ["ci", "--base", "HEAD~1", "--fail-on", "cost.run > 0"], prog_name="ledger")

    result = committed(sound.replace("gemma-2-9b\n", "gemma-2-9\n"), "3T tokens")
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert re.match(r"1 of 30 plans changes: \+.* days; `gemma-2-9b-long` does not compile", lines[0])
    rows = [line.split(" | ") for line in lines if line.startswith("| `")]
    assert [row[0] for row in rows] == ["| `gemma-2-9b-long`", "| `qwen3-8b-long`"]
    assert rows[0][-1].startswith(
        "does not compile: `` HEAD:long/gemma-2-9b-long.yaml:5:8: no model is named `gemma-2-9` ``"
    )
    assert "gemma-2-9b" in next(line for line in lines if line.startswith("<ul>"))
    again = committed(sound, "2T tokens")
    assert (again.exit_code, again.stdout.splitlines()[0].endswith("; 1 compiles again")) == (0, True)


def test_formats_are_for_their_readers(ci: Ci, tmp_path: Path) -> None:
    """Annotations at the line that changed, SARIF with its rules, JUnit with a case a plan; several at once."""
    names = [str(tmp_path / name) for name in ("c.md", "c.json", "c.sarif", "c.xml")]
    result = ci(2, "--format", "github", "--fail-on", "fits", *(word for name in names for word in ("--out", name)))
    error = "::error file=long/llama-2-7b-long.yaml,line=10,col="
    assert result.stdout.startswith(error)
    assert result.stdout.count("::notice file=") == 2
    run = json.loads(Path(names[2]).read_text("utf-8"))["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[one["ruleIndex"]] for one in run["results"]] == [one["ruleId"] for one in run["results"]]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("long/llama-2-7b-long.yaml", 10)
    suite = ET.parse(names[3]).getroot()[0]  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["system-out"], ["system-out"]]
    assert Path(names[0]).read_text("utf-8").splitlines()[0] == json.loads(Path(names[1]).read_text("utf-8"))[
        "headline"
    ].replace("llama-2-7b-long", "`llama-2-7b-long`")
    assert ci(1, "--out", str(tmp_path / "c.pdf")).exit_code == 2
