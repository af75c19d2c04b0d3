"""`ledger check`: exit codes and the three ways to tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

import ledger
from ledger.books.results import Check, Compiled
from ledger.cli import main
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.spec.plan import Origin
from ledger.spec.problems import Location, Problem, SpecError


def test_a_plan_that_fits_passes(run: Callable[..., Result]) -> None:
    """Silence and 0."""
    result = run("check", "tiny.yaml")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{parameters: 70553706496}", 0),
        ("{parameters: 70553706497}", 1),
        ("{parameters: 70e9, tolerance: 1 %}", 0),
        ("{parameters: 69e9, tolerance: 1 %}", 1),
    ],
)
def test_expectations_hold_within_their_tolerance(line: str, code: int) -> None:
    """Llama 3 70B has 70 553 706 496 parameters (its config.json): 0.8 % above 70e9, 2.3 % above 69e9, and no more."""
    result = CliRunner().invoke(main, ["check", "70b", "--set", f"expect=[{line}]"])
    assert result.exit_code == code


def test_a_missed_expectation_is_shown_in_its_line() -> None:
    """With what was expected."""
    stderr = CliRunner().invoke(main, ["check", "70b", "--set", "expect=[{parameters: 5}]"]).stderr
    assert stderr.startswith("--set expect=[{parameters: 5}]:1:28: ")
    assert "expected 5" in stderr


def test_an_expectation_of_the_model_is_shown_in_the_model(compiled: Compiled, run: Callable[..., Result]) -> None:
    """Its own file expects it, so that is where to look."""
    plan = replace(compiled.plan, origins={"model.expect.1.memory.peak": Origin(Location("toy.yaml", 7, 5))})
    missed = Check("expect.memory.peak", "Expected memory.peak", "fail", "1000", "expected 900")
    result = run("check", "tiny.yaml", with_={"plan": plan, "verdict": replace(compiled.verdict, checks=(missed,))})
    assert result.exit_code == 1
    assert result.stderr.startswith("toy.yaml:7:5: Expected memory.peak: 1000")


def test_an_unknown_expectation_fails() -> None:
    """A misspelt key must not pass as met, and the right one is offered."""
    result = CliRunner().invoke(main, ["check", "70b", "--set", "expect=[{parametrs: 5}]"])
    assert result.exit_code == 1
    assert "did you mean parameters" in result.stderr


def test_a_plan_that_does_not_fit_fails(run: Callable[..., Result], compiled: Compiled) -> None:
    """1, with the figure and the reason."""
    misfit = replace(compiled.verdict, fits=False, checks=(Check("fit", "Fits", "fail", "2 GB of 1 GB", "too large"),))
    result = run("check", "tiny.yaml", with_={"verdict": misfit})
    assert result.exit_code == 1
    assert "2 GB of 1 GB" in result.stderr


@pytest.fixture
def two_specs(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Checks a good spec and a bad one, which has two problems."""

    def compile_(spec: str, _: object) -> Compiled:
        if spec == "good.yaml":
            return compiled
        raise SpecError(
            [
                Problem(Location("bad.yaml", 9, 2), "100%, wrong", "write\nit: so"),
                Problem(Location("bad.yaml", 2, 1), "wrong first"),
            ]
        )

    monkeypatch.setattr(ledger, "compile", compile_)
    return lambda *args: CliRunner().invoke(main, ["check", "bad.yaml", "good.yaml", *args])


def test_the_worst_spec_decides(two_specs: Callable[..., Result]) -> None:
    """All specs are checked, all problems shown in the order of their place, and 2 wins over 0."""
    result = two_specs()
    assert result.exit_code == 2
    assert result.stderr.index("bad.yaml:2:1: wrong first") < result.stderr.index("bad.yaml:9:2: 100%, wrong")
    assert [line.split(":")[1] for line in result.stdout.splitlines()] == [" bad input", " passed"]


@pytest.mark.parametrize("option", [("--json",), ("--format", "json")])
def test_json_holds_every_spec(two_specs: Callable[..., Result], option: tuple[str, ...]) -> None:
    """A program gets records, on stdout alone."""
    result = two_specs(*option)
    bad, good = json.loads(result.stdout)["specs"]
    assert [problem["line"] for problem in bad["problems"]] == [2, 9]
    assert (bad["status"], good["status"]) == ("bad input", "passed")
    assert not result.stderr


def test_annotations_are_escaped(two_specs: Callable[..., Result]) -> None:
    """GitHub's workflow commands: percent signs and line ends in a message are encoded, one command a line."""
    lines = two_specs("--format", "github").stdout.splitlines()
    assert lines == [
        "::error file=bad.yaml,line=2,col=1::wrong first",
        "::error file=bad.yaml,line=9,col=2::100%25, wrong%0Awrite%0Ait: so",
    ]


def test_warnings_are_told_and_fail_nothing(run: Callable[..., Result], compiled: Compiled) -> None:
    """What is legal but risky is said, in text and to GitHub, and the plan still passes."""
    warned = {"plan": replace(compiled.plan, warnings=(Problem(Location("tiny.yaml", 4, 2), "odd batch"),))}
    result = run("check", "tiny.yaml", with_=warned)
    assert result.exit_code == 0
    assert "tiny.yaml:4:2: warning: odd batch" in result.stderr
    github = run("check", "tiny.yaml", "--format", "github", with_=warned)
    assert github.stdout == "::warning file=tiny.yaml,line=4,col=2::odd batch\n"


def test_a_plan_that_misses_its_headroom_is_told_what_fits(
    run: Callable[..., Result], compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its figures and the lines to write, and what was looked at; `--no-search` leaves it out."""
    totals = {"time.step": 2.0, "time.run": 864000.0, "cost.run": 5000.0, "memory.reserved": 5e8}
    one = Recommendation({"parallelism.zero": 3}, totals)
    found = Recommendations(one, one, one, legal=12, fitting=3, kept=("parallelism.context",))
    monkeypatch.setattr("ledger.cli.check.searched", lambda *_, **__: found)
    tight = replace(compiled.verdict, checks=(Check("fits", "Memory", "warn", "1 GB of 1 GB"),))
    result = run("check", "tiny.yaml", "--search", with_={"verdict": tight})
    assert result.stdout.splitlines()[1:] == [
        "  smallest edit and cheapest and fastest: 10.0 days, $5 000, 500.0 MB",
        "    parallelism:",
        "      zero: 3",
        "  12 legal layouts looked at, 3 fit; context as in the plan",
    ]
    (record,) = json.loads(run("check", "tiny.yaml", "--search", "--json", with_={"verdict": tight}).stdout)["specs"]
    assert record["recommendations"]["smallest"] == {"changes": {"parallelism.zero": 3}, "totals": totals}
    assert record["recommendations"]["counts"] == {"legal": 12, "fitting": 3}
    silent = run("check", "tiny.yaml", "--no-search", "--json", with_={"verdict": tight})
    assert "recommendations" not in json.loads(silent.stdout)["specs"][0]


def test_a_plan_that_fits_is_not_searched(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that passes stays as fast as it was."""
    asked: list[object] = []
    monkeypatch.setattr("ledger.cli.check.searched", lambda plan, **_: asked.append(plan))
    assert run("check", "tiny.yaml", "--search").exit_code == 0
    assert asked == []


def test_what_lacks_of_the_headroom_is_told_before_what_to_edit(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that fits is edited for the memory that its policy keeps free; one that leaves it has no such line."""
    one = Recommendation({"run.micro_batch": 2}, {"time.step": 2.0, "memory.reserved": 5e8})
    monkeypatch.setattr("ledger.cli.check.searched", lambda *_, **__: Recommendations(smallest=one))
    lines = command_line("check", "7b-8xh100", "--search").stdout.splitlines()
    assert lines[1] == "  18.0 GB free, 2.01 GB short of the 20.0 GB of production headroom"
    assert lines[2].startswith("  smallest edit")
    assert "short of" not in command_line("check", "7b-8xh100", "--set", "run.micro_batch=2", "--search").stdout


def test_the_nearest_miss_is_told_with_by_how_much(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the headroom leaves of a device."""
    near = Recommendation({"parallelism.tensor": 8}, {"memory.reserved": 4.71e9, "memory.capacity": 24.2e9})
    monkeypatch.setattr(
        "ledger.cli.check.searched", lambda *_, **__: Recommendations(nearest=near, legal=9, headroom=20e9)
    )
    lines = command_line("check", "8b", "--set", "accelerator=l4", "--search").stdout.splitlines()
    assert lines[1:3] == [
        "  no layout fits; the nearest miss: tensor 8",
        "    it needs 4.71 GB, 510.0 MB more than 24.2 GB less 20.0 GB headroom",
    ]
