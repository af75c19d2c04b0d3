"""What git and its services call: the diff driver, the hook of pre-commit, the steps of the Action."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from ledger.cli import main

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
PROGRAM = f"""\
#!/bin/sh
PYTHONPATH={ROOT} exec {sys.executable} -m ledger "$@"
"""
PYTHON = f"""\
#!/bin/sh
exec {sys.executable} "$@"
"""
GH = """\
#!/bin/sh
echo "$@" >>"$GH_LOG"
case "$*" in *--paginate*) cat "$GH_COMMENTS" ;; esac
test -z "$GH_FAILS" || case "$*" in *--method*) exit 1 ;; esac
"""
Step = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty plans and five changes, at the last of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        folder = tmp_path_factory.mktemp("repository") / "plans"
        import_module("plan_repository").build(folder)
    return folder


@pytest.fixture
def here(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of the repository, the current folder, on a machine where `ledger`, `python` and `gh` are programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("ledger", PROGRAM), ("gh", GH), ("python", PYTHON)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(repository), str(clone)], check=True)
    monkeypatch.chdir(clone)
    return tmp_path


@pytest.fixture
def step(here: Path) -> Step:
    """Runs a step of the Action as it is written there, with what a runner sets."""
    for name in ("log", "comments", "output", "summary"):
        (here / name).touch()
    runner = {
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(here / "output"),
        "GITHUB_STEP_SUMMARY": str(here / "summary"),
        "GITHUB_REPOSITORY": "owner/name",
        "RUNNER_TEMP": str(here),
        "GH_LOG": str(here / "log"),
        "GH_COMMENTS": str(here / "comments"),
        "LEDGER": str(here / "bin" / "ledger"),
    }

    def run(name: str, **given: str) -> subprocess.CompletedProcess[str]:
        assert {*given} - {"GH_FAILS"} <= {*STEPS[name].get("env", {})}, "a step takes what it says"
        command = ["bash", "-c", STEPS[name]["run"]]
        return subprocess.run(
            command, env={**os.environ, **runner, **given}, capture_output=True, text=True, check=False
        )

    return run


def outputs(here: Path) -> Mapping[str, str]:
    """What the steps have handed on."""
    return dict(line.split("=", 1) for line in (here / "output").read_text("utf-8").splitlines())


def test_git_shows_what_a_plan_comes_to(here: Path) -> None:
    """Once set up, `git diff` has the totals of both versions above their text, and parts in `../hw` are found."""
    said = [CliRunner().invoke(main, ["git-setup"], prog_name="ledger").stdout.splitlines() for _ in range(2)]
    assert [line.split(":")[0] for line in said[0]] == ["set", "set", "added"]
    assert [line.split(":")[0] for line in said[1]] == ["left", "left", "left"]
    assert Path(".gitattributes").read_text() == "*.yaml diff=ledger\n"
    shown = subprocess.run(
        ["git", "diff", "HEAD~4", "HEAD~3", "--", "long"], capture_output=True, text=True, check=True
    )
    lines = shown.stdout.splitlines()
    assert any(re.fullmatch(r"-# fits: [\d.]+ GB free", line) for line in lines)
    assert any(re.fullmatch(r"\+# does not fit: [\d.]+ GB missing", line) for line in lines)
    assert any(re.fullmatch(r"-run: .*micro_batch: 2, .*", line) for line in lines)
    assert not shown.stderr


def test_git_goes_on_with_what_is_no_sound_plan(here: Path) -> None:
    """A broken plan says so above its text, other files are shown as they are."""
    Path("broken.yaml").write_text("spec: ledger/1\nplan: A\n")
    Path("other.yaml").write_text("plan: of another tool\n")
    found = [CliRunner().invoke(main, ["git-text", name]) for name in ("broken.yaml", "other.yaml")]
    assert [result.exit_code for result in found] == [0, 0]
    assert re.fullmatch(r"# does not compile: .+\nspec: ledger/1\nplan: A\n", found[0].stdout)
    assert found[1].stdout == "plan: of another tool\n"


def test_attributes_that_are_there_stay(here: Path) -> None:
    """A line more at the end of a file that lacks its last line break, for each pattern."""
    Path(".gitattributes").write_text("*.png binary")
    CliRunner().invoke(main, ["git-setup", "plans/*.yaml", "hw/*.yml"], catch_exceptions=False)
    assert Path(".gitattributes").read_text() == "*.png binary\nplans/*.yaml diff=ledger\nhw/*.yml diff=ledger\n"


def test_the_hook_checks_the_plans_of_what_changed(here: Path) -> None:
    """pre-commit names every YAML file that changed: those that are no plans are passed over."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    program, *words = hook["entry"].split()
    assert (program, hook["language"], hook["types"]) == ("scripts/pre-commit", "script", ["yaml"])
    assert os.access(ROOT / program, os.X_OK)
    command = main.get_command(click.Context(main), words[0])
    assert command is not None
    good, bad = "archive/llama-3-8b.yaml", "long/one-node.yaml"
    for names, code in ((["hw/h100.yaml"], 0), (["hw/h100.yaml", good], 0), ([good, bad], 1), (["nosuch.yaml"], 0)):
        assert CliRunner().invoke(main, [*words, *names], prog_name="ledger").exit_code == code


def test_a_pull_request_is_commented_on(here: Path, step: Step) -> None:
    """The steps one after the other: compared with the base, annotated, commented on, and judged in the end."""
    compared = step("Compare plans", LEDGER_BASE="HEAD~3", LEDGER_FAIL_ON="fits\n\ncost.run > 5%\n")
    assert compared.returncode == 0, "the comment is written before the job fails"
    assert compared.stdout.startswith("::error file=long/one-node.yaml,")
    assert outputs(here)["code"] == "1"
    folder = Path(outputs(here)["folder"])
    comment = (folder / "comment.md").read_text("utf-8")
    assert outputs(here)["headline"] == comment.splitlines()[0]
    assert (here / "summary").read_text("utf-8") == comment
    assert {path.name for path in folder.iterdir()} == {"comment.md", "ledger.json", "ledger.sarif", "junit.xml"}

    assert step("Comment", PULL_REQUEST="7").returncode == 0
    body = f"--field body=@{folder}/comment.md"
    assert (here / "log").read_text().splitlines()[-1] == (
        f"api --silent --method POST repos/owner/name/issues/7/comments {body}"
    )
    assert step("Judge", LEDGER_CODE=outputs(here)["code"]).returncode == 1


def test_a_comment_is_updated_in_place(here: Path, step: Step) -> None:
    """Where one of ours is there it is written anew, also when nothing changes any more; else nothing is said then."""
    step("Compare plans", LEDGER_BASE="HEAD")
    step("Comment", PULL_REQUEST="7")
    assert "--method" not in (here / "log").read_text()
    (here / "comments").write_text("99\n100\n")
    step("Comment", PULL_REQUEST="7")
    last = (here / "log").read_text().splitlines()[-1]
    assert last.startswith("api --silent --method PATCH repos/owner/name/issues/comments/99 ")


def test_a_token_that_may_not_write_fails_nothing(here: Path, step: Step) -> None:
    """Of a fork's pull request the comment is in the summary, and a warning says so."""
    step("Compare plans", LEDGER_BASE="HEAD~1")
    commented = step("Comment", PULL_REQUEST="7", GH_FAILS="1")
    assert commented.returncode == 0
    assert "::warning::" in commented.stdout


def test_bad_input_of_the_action_fails_at_once(step: Step) -> None:
    """Without a comparison there is nothing to comment on."""
    assert step("Compare plans", LEDGER_PATHS="nosuch").returncode == 2


def test_reports_are_written_of_the_worst(here: Path, step: Step) -> None:
    """As many as are asked for, of affected plans that compile, in the folders of the plans."""
    pytest.importorskip("weasyprint.text.ffi", exc_type=ImportError)
    step("Compare plans", LEDGER_BASE="HEAD~3", LEDGER_PATHS="long\narchive\n")
    folder = Path(outputs(here)["folder"])
    shown = json.loads((folder / "ledger.json").read_text("utf-8"))
    assert len(shown["changes"]) > 1
    assert step("Write reports", LEDGER_REPORTS="1").returncode == 0
    written = [path.relative_to(folder / "reports").as_posix() for path in (folder / "reports").rglob("*.*")]
    assert written == [shown["changes"][0]["path"].replace(".yaml", ".pdf")]


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to another program: every `uses:` names a commit, with its version beside it."""
    files = [ROOT / "action.yml", *(ROOT / ".github").rglob("*.yml"), ROOT / "docs" / "pull-requests.md"]
    lines = [line.strip() for path in files for line in path.read_text("utf-8").splitlines()]
    used = [line for line in lines if line.startswith(("uses: ", "- uses: "))]
    assert used
    for line in used:
        assert re.fullmatch(r"(- )?uses: [\w./-]+@([0-9a-f]{40} # v[\d.]+|<commit>.*)", line), line


def test_the_steps_take_nothing_from_expressions() -> None:
    """What a pull request says reaches a shell through the environment alone: no `${{` stands in a program."""
    assert not [step for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")]
    assert shutil.which("bash"), "the steps are run by bash"
