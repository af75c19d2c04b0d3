"""`ledger check`: exit codes, what is told, and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ledger
from ledger.books.compiled import Compiled
from ledger.books.results import Check
from ledger.cli import main
from ledger.cli.tables import GOOD, coloured
from ledger.report import checked
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.spec.library import default_library, display_path
from ledger.spec.plan import Origin
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.rules.table import WARNINGS

NO_NODE = "cluster.devices_per_node=4"  # no file says what the host of four of these devices is


def test_a_plan_that_fits_passes(run: Callable[..., Result]) -> None:
    """Its verdict, 0, and silence otherwise."""
    result = run("check", "tiny.yaml")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "tiny.yaml: passed: It fits.\n", "")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{parameters: 70553706496}", 0),
        ("{parameters: 70553706497}", 1),
        ("{parameters: 70e9, tolerance: 1 %}", 0),
        ("{parameters: 69e9, tolerance: 1 %}", 1),
        ("{parameters: 48e9, tolerance: 50 %}", 0),
        ("{parameters: 46e9, tolerance: 50 %}", 1),
        ("{parameters: 70553706497}, {parameters: 70553706497, tolerance: 1 %}", 1),
    ],
)
def test_expectations_hold_within_their_tolerance(line: str, code: int) -> None:
    """Llama 3 70B has 70 553 706 496 parameters (its config.json): 0.8 % above 70e9, 2.3 % above 69e9, and no more.

    A tolerance is of what is expected, and loosens no other assertion of the same total.
    """
    result = CliRunner().invoke(main, ["check", "70b", "--set", f"expect=[{line}]"])
    assert result.exit_code == code


def test_a_missed_expectation_is_shown_in_its_line() -> None:
    """With what was expected."""
    lines = CliRunner().invoke(main, ["check", "70b", "--set", "expect=[{parameters: 5}]"]).stdout.splitlines()
    assert lines[1].startswith("--set expect=[{parameters: 5}]:1:28: ")
    assert "expected 5" in lines[1]
    assert lines[3] == f"  {' ' * 27}^"


def test_an_expectation_of_the_model_is_shown_in_the_model(compiled: Compiled, run: Callable[..., Result]) -> None:
    """Its own file expects it, so that is where to look."""
    plan = replace(compiled.plan, origins={"model.expect.1.memory.peak": Origin(Location("toy.yaml", 7, 5))})
    missed = Check("expect.memory.peak", "Expected memory.peak", "fail", "1000", "expected 900")
    result = run("check", "tiny.yaml", with_={"plan": plan, "verdict": replace(compiled.verdict, checks=(missed,))})
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == "toy.yaml:7:5: Expected memory.peak: 1000; expected 900"


def test_an_unknown_expectation_fails() -> None:
    """A misspelt key must not pass as met, and the right one is offered."""
    result = CliRunner().invoke(main, ["check", "70b", "--set", "expect=[{parametrs: 5}]"])
    assert result.exit_code == 1
    assert "did you mean parameters" in result.stdout


def test_a_plan_that_does_not_fit_fails(run: Callable[..., Result], compiled: Compiled) -> None:
    """1, with the figure and the reason."""
    misfit = replace(compiled.verdict, fits=False, checks=(Check("fit", "Fits", "fail", "2 GB of 1 GB", "too large"),))
    result = run("check", "tiny.yaml", with_={"verdict": misfit})
    assert result.exit_code == 1
    assert "2 GB of 1 GB; too large" in result.stdout


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
    assert result.stdout.splitlines() == [
        "bad.yaml: bad input",
        "bad.yaml:2:1: wrong first",
        "bad.yaml:9:2: 100%, wrong",
        "help: write",
        "it: so",
        "good.yaml: passed: It fits.",
    ]
    assert not result.stderr


@pytest.mark.parametrize("option", [("--json",), ("--format", "json")])
def test_json_holds_every_spec(two_specs: Callable[..., Result], option: tuple[str, ...]) -> None:
    """A program gets records, on stdout alone."""
    result = two_specs(*option)
    bad, good = json.loads(result.stdout)["specs"]
    assert [problem["line"] for problem in bad["problems"]] == [2, 9]
    assert (bad["status"], good["status"]) == ("bad input", "passed")
    assert not result.stderr


def test_warnings_are_told_and_fail_nothing(run: Callable[..., Result], compiled: Compiled) -> None:
    """What is legal but risky is said, in text and to GitHub, and the plan still passes."""
    warned = {"plan": replace(compiled.plan, warnings=(Problem(Location("tiny.yaml", 4, 2), "odd batch"),))}
    result = run("check", "tiny.yaml", with_=warned)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "tiny.yaml: passed with 1 warning: It fits.",
        "tiny.yaml:4:2: warning: odd batch",
    ]
    github = run("check", "tiny.yaml", "--format", "github", with_=warned)
    assert github.stdout == "::warning file=tiny.yaml,line=4,col=2::odd batch\n"


def test_a_plan_that_misses_its_headroom_is_told_what_fits(
    run: Callable[..., Result], compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its figures and the lines to write, and what was looked at; `--no-search` leaves it out."""
    totals = {"time.step": 2.0, "time.calendar": 864000.0, "cost.run": 5000.0, "memory.reserved": 5e8}
    one = Recommendation({"parallelism.zero": 3}, totals)
    found = Recommendations(one, one, one, legal=12, fitting=3, fixed_keys=("parallelism.context",))
    monkeypatch.setattr("ledger.cli.check.search_layouts", lambda *_, **__: found)
    tight = replace(compiled.verdict, checks=(Check("fits", "Memory", "warn", "1 GB of 1 GB"),))
    result = run("check", "tiny.yaml", "--search", "1", with_={"verdict": tight})
    assert result.stdout.splitlines()[1].startswith("tiny.yaml:3:7: warning: Memory: 1 GB of 1 GB")
    assert result.stdout.splitlines()[3:] == [
        "  smallest edit and cheapest and fastest: 10.0 days, $5 000, 500.0 MB",
        "    parallelism:",
        "      zero: 3",
        "  12 legal layouts tried (context as in the plan), of which 3 fit",
    ]
    (record,) = json.loads(run("check", "tiny.yaml", "--search", "1", "--json", with_={"verdict": tight}).stdout)[
        "specs"
    ]
    assert record["recommendations"]["smallest"] == {"changes": {"parallelism.zero": 3}, "totals": totals}
    assert record["recommendations"]["counts"] == {"legal": 12, "fitting": 3}
    silent = run("check", "tiny.yaml", "--no-search", "--json", with_={"verdict": tight})
    assert "recommendations" not in json.loads(silent.stdout)["specs"][0]


UNFIT = ("check", "8b", "--set", "accelerator=l4")  # 8 G parameters in bf16 are 16 GB, of 24 GB in all


def test_a_search_that_fails_is_a_note(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever it dies of: the verdict stands, with its exit code, and nothing is an error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ledger.search.recommendation_cache.recommend", lambda *_: 1 / 0)
    note = "no other layouts were looked at: a mistake of ledger itself, ZeroDivisionError: division by zero"
    silent = command_line(*UNFIT, "--search", "none")
    result = command_line(*UNFIT, "--search", "1")
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith(silent.stdout)
    (line,) = result.stdout.removeprefix(silent.stdout).splitlines()
    assert line.startswith(f"  {note} (")
    record = json.loads(command_line(*UNFIT, "--search", "1", "--json").stdout)["specs"][0]
    assert record["status"] == "failed"
    assert record["recommendations"]["note"].startswith(note)
    *problems, last = command_line(*UNFIT, "--search", "1", "--format", "github").stdout.splitlines()
    assert all(line.startswith(("::error", "::warning")) for line in problems)
    assert last.startswith("::notice file=")
    assert last.partition("::")[2].partition("::")[2].startswith(note)
    where = next(line for line in problems if line.startswith("::error")).partition("::")[2].partition("::")[0]
    assert last.partition("::")[2].partition("::")[0].removeprefix("notice") == where.removeprefix("error")


def test_the_verdicts_are_there_before_any_search(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends the search with Ctrl-C has them, those of later plans too."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ledger.cli.check.search_layouts", interrupted)
    words = ("check", "8b", "7b-8xh100", "--set", "accelerator=l4")
    result = command_line(*words, "--search", "1")
    assert result.exit_code == 130
    assert result.stdout == command_line(*words, "--no-search").stdout


def test_of_several_plans_each_is_named_above_what_to_change(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their verdicts stand together above that."""
    one = Recommendation({"run.micro_batch": 2}, {"time.step": 2.0, "memory.reserved": 5e8})
    monkeypatch.setattr("ledger.cli.check.search_layouts", lambda *_, **__: Recommendations(smallest=one, legal=9))
    lines = command_line("check", "8b", "gpt2", "7b-8xh100", "--set", "accelerator=l4", "--search", "1").stdout
    heads = [line for line in lines.splitlines() if line.endswith(": what to change")]
    assert heads == ["8b: what to change", "7b-8xh100: what to change"]
    assert lines.index("7b-8xh100: failed") < lines.index("8b: what to change")


@pytest.mark.parametrize(
    ("words", "environment", "asked"),
    [
        ([], None, (False, 1.0)),
        (["--search", "2.5"], None, (False, 2.5)),
        (["--search", "2.5"], "0", (False, 2.5)),
        (["--search", "all"], None, (True, inf)),
        (["--search", "1e300"], None, (True, inf)),  # more seconds than a timer takes
        (["--search", "none"], None, None),
        (["--search", "0"], None, None),
        (["--no-search"], None, None),
        ([], "0", None),
        ([], "none", None),
        ([], "all", (True, inf)),
        ([], "1", (False, 1.0)),
    ],
)
def test_for_how_long_is_searched(
    words: list[str],
    environment: str | None,
    asked: tuple[bool, float] | None,
    command_line: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second where nobody says more; what is typed counts before the environment."""
    found: list[tuple[bool, float]] = []
    monkeypatch.delenv("LEDGER_SEARCH", raising=False)
    if environment is not None:
        monkeypatch.setenv("LEDGER_SEARCH", environment)
    monkeypatch.setattr(
        "ledger.cli.check.search_layouts", lambda _, *, whole, seconds, **__: found.append((whole, float(seconds)))
    )
    assert command_line(*UNFIT, *words).exit_code == 1
    assert found == ([asked] if asked else [])


@pytest.mark.parametrize("time", ["soon", "-1", "nan", "1 s"])
def test_what_is_no_time_is_refused(time: str, command_line: Callable[..., Result]) -> None:
    """Before anything is compiled, with what may be given."""
    result = command_line(*UNFIT, "--search", time)
    assert result.exit_code == 2
    assert "give seconds, as in `--search 10`, `all`, or `none`" in result.stderr
    assert not result.stdout


def test_a_plan_that_fits_is_not_searched(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that passes stays as fast as it was."""
    asked: list[object] = []
    monkeypatch.setattr("ledger.cli.check.search_layouts", lambda plan, **_: asked.append(plan))
    assert run("check", "tiny.yaml", "--search", "1").exit_code == 0
    assert asked == []


def test_what_lacks_of_the_headroom_is_told_before_what_to_edit(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that fits is edited for the memory that its policy keeps free; one that leaves it has no such line."""
    one = Recommendation({"run.micro_batch": 2}, {"time.step": 2.0, "memory.reserved": 5e8})
    monkeypatch.setattr("ledger.cli.check.search_layouts", lambda *_, **__: Recommendations(smallest=one))
    production = ("check", "7b-8xh100", "--search", "1", "--set", "assumptions.headroom=production")
    lines = command_line(*production).stdout.splitlines()
    warned = "--set assumptions.headroom=production:1:28: warning: 18.0 GB free, 2.01 GB short of the 20.0 GB of"
    assert lines[1] == f"{warned} production headroom"
    assert lines[5].startswith("  smallest edit")
    assert "short of" not in command_line(*production, "--set", "run.micro_batch=2").stdout


def test_a_host_that_is_too_small_is_what_is_missed(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a layout that the device holds nothing else is said to lack, and no layout is said to fit no device."""
    held = {"memory.host": 12.9e12, "memory.host.capacity": 2e12}
    near = Recommendation({"run.micro_batch": 1}, {"memory.reserved": 4e9, "memory.capacity": 24.2e9, **held})
    monkeypatch.setattr("ledger.cli.check.search_layouts", lambda *_, **__: Recommendations(nearest=near, legal=9))
    lines = command_line(*UNFIT, "--search", "1").stdout.splitlines()
    assert lines[-3:-1] == [
        "  none fits; the nearest miss: micro_batch 1",
        "    it needs 12.9 TB of host memory, 10.9 TB more than there is",
    ]


def test_what_fits_is_not_said_to_fit_in_no_layout(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that fits and misses its headroom has layouts that fit, and may have none that leaves it free."""
    totals = {"memory.reserved": 70e9, "memory.capacity": 85.5e9}
    near = Recommendation({"parallelism.tensor": 8}, totals)
    own = Recommendation({}, totals)
    words = ("check", "7b-8xh100", "--search", "1", "--set", "assumptions.headroom=production")
    for nearest, line in (
        (near, "  none leaves 20.0 GB free; the nearest miss: tensor 8"),
        (own, "  none leaves 20.0 GB free, or misses it by less than the plan"),
    ):
        found = Recommendations(nearest=nearest, legal=9, headroom=20e9)
        monkeypatch.setattr("ledger.cli.check.search_layouts", lambda *_, found=found, **__: found)
        assert line in command_line(*words).stdout.splitlines()


def test_the_nearest_miss_is_told_with_by_how_much(
    command_line: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the headroom leaves of a device."""
    near = Recommendation({"parallelism.tensor": 8}, {"memory.reserved": 4.71e9, "memory.capacity": 24.2e9})
    monkeypatch.setattr(
        "ledger.cli.check.search_layouts", lambda *_, **__: Recommendations(nearest=near, legal=9, headroom=20e9)
    )
    lines = command_line("check", "8b", "--set", "accelerator=l4", "--search", "1").stdout.splitlines()
    assert lines[-3:-1] == [
        "  none fits with 20.0 GB free; the nearest miss: tensor 8",
        "    it needs 4.71 GB, 510.0 MB more than 24.2 GB less 20.0 GB headroom",
    ]


def warned(*settings: str, spec: str = "8b") -> list[tuple[str, str, int]]:
    """Rule, file and line of every warning of a library plan under these settings."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    result = CliRunner().invoke(main, ["check", spec, "--no-search", "--json", *arguments])
    (record,) = json.loads(result.stdout)["specs"]
    return [(one["rule"], one["file"], one["line"]) for one in record["warnings"]]


def line_of(spec: str, text: str) -> int:
    """The line of a library plan that holds a text, from 1."""
    lines = (default_library().root / f"{spec}.yaml").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (["assumptions.headroom=cloud", "run.micro_batch=2", "run.global_batch=128"], "headroom"),
        (["assumptions.mfu=0.9"], "run"),
        (["model.max_seq_len=1024"], "sequences_are_longer_than_the_model"),
        (["accelerator=a100-sxm-80gb", "assumptions.price={accelerator: h100-sxm}"], "price_is_of_the_device"),
        (["precision.gradients=fp8_e5m2"], "precision.gradients"),
        (["precision.weights=fp16", "precision.master=none"], "precision.weights"),
        (["accelerator=l40s"], "evidence"),
        (["parallelism.offload=[activations]", NO_NODE], "host_is_stated"),
    ],
)
def test_all_that_the_checklist_says_is_a_warning(settings: list[str], rule: str) -> None:
    """What a reader of the report would look at is told without a report, once each."""
    rules = [found for found, _, _ in warned("expect=[]", *settings)]
    assert rules.count(rule) == 1
    assert len(rules) == len(set(rules))


def test_a_warning_stands_at_the_input_that_decides() -> None:
    """The line of the file where it is changed, or the override."""
    assert ("headroom", "--set assumptions.headroom=cloud", 1) in warned("assumptions.headroom=cloud", spec="405b")
    path = display_path(default_library().root / "70b.yaml")
    assert warned(spec="70b") == [("mfu", path, line_of("70b", "mfu:"))]


@pytest.mark.parametrize(
    ("data", "named", "ahead"),
    [
        ("workers: 1, rate: 100 images/s", "`data.workers`", False),
        ("sample: 110 kB, bandwidth: 10 MB/s", "`data.bandwidth`", False),
        ("workers: 9999, rate: 9999 images/s, prefetch: 0", "`accelerator.host_link`", True),
    ],
)
def test_what_is_slow_of_data_is_what_to_change(data: str, named: str, *, ahead: bool) -> None:
    """Of storage, workers and link the slowest; and batches ahead where there are none."""
    outcome = checked.check_plan("resnet-50", lambda: ledger.compile("resnet-50", [f"data={{{data}}}"]))
    (late,) = (problem for problem in outcome.warnings if problem.rule == checked.DATA)
    assert named in late.help
    assert sum(key in late.help for key in ("data.workers", "data.bandwidth", "host_link")) == 1
    assert ("prefetch" in late.help) == ahead


def test_every_line_of_a_checklist_says_what_decides_it() -> None:
    """A line without a row would be told at the plan's title, whatever it is about."""
    plans = [], ["parallelism.offload=[optimizer]", "precision.gradients=fp16"], ["model={parameters: 8e9}"]
    for settings in plans:
        names = {check.name for check in ledger.compile("8b", settings).verdict.checks}
        told = {name for name in names if not name.startswith(checked.EXPECTED)} - {"parameters"}  # always passes
        assert told <= set(checked.DECISIONS)


def test_what_a_rule_says_already_is_a_rule() -> None:
    """A rule that is renamed would be told twice, once by the checklist."""
    rules = {rule.__name__ for rule in WARNINGS}
    assert {one.said_by for one in checked.DECISIONS.values()} - {""} <= rules


def test_one_cause_is_one_line() -> None:
    """A plan that does not fit has several lines of the checklist that fail, and fails for one reason."""
    result = CliRunner().invoke(main, ["check", "8b", "--set", "accelerator=l4", "--no-search", "--json"])
    (record,) = json.loads(result.stdout)["specs"]
    assert [one["rule"] for one in record["failures"]] == ["fits"]
    assert "also: Activations and logits" in record["failures"][0]["message"]
    rules = [rule for rule, _, _ in warned("parallelism.offload=[optimizer]", NO_NODE)]
    assert "host_is_stated" in rules
    assert "host" not in rules


def test_strict_fails_what_is_warned_of(run: Callable[..., Result], compiled: Compiled) -> None:
    """1 instead of 0, and errors instead of warnings in every format."""
    with_ = {"plan": replace(compiled.plan, warnings=(Problem(Location("tiny.yaml", 4, 2), "odd batch"),))}
    result = run("check", "tiny.yaml", "--strict", with_=with_)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["tiny.yaml: failed: It fits.", "tiny.yaml:4:2: odd batch"]
    github = run("check", "tiny.yaml", "--strict", "--format", "github", with_=with_)
    assert github.stdout == "::error file=tiny.yaml,line=4,col=2::odd batch\n"
    assert run("check", "tiny.yaml", "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("environment", "terminal", "colours"),
    [({}, True, True), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False), ({}, False, False)],
)
def test_colours_are_for_terminals(
    environment: dict[str, str], terminal: bool, colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Green, yellow and red there; none in pipes, and none for who asks for none."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Terminal(terminal))
    assert (coloured("passed", GOOD) == "\x1b[32mpassed\x1b[0m") == colours
    assert (coloured("passed", GOOD) == "passed") != colours


class Terminal(StringIO):
    """A standard output that is a terminal, or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        """As it was made."""
        return self.terminal
