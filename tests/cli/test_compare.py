"""`ledger compare`: files, JSON, and what is wrong with any of the plans."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

import ledger
from ledger.spec.library import default_library

CommandLine = Callable[..., Result]
GPT2 = (Path(__file__).resolve().parents[2] / "specs" / "gpt2.yaml").read_text("utf-8")


@pytest.fixture
def half() -> None:
    """Half the micro-batch, in a file of the current folder."""
    Path("half.yaml").write_text(GPT2.replace("micro_batch: 12", "micro_batch: 6"), "utf-8")


@pytest.mark.usefixtures("command_line", "half")
def test_files_are_named_after_the_plans_and_printed(command_line: CommandLine) -> None:
    """Standard output is the list of files, for a script to go on with; the recommendation is for the person."""
    result = command_line("compare", "gpt2", "half.yaml", "--format", "html,md,json")
    names = [f"reports/gpt2-vs-half.{form}" for form in ("html", "md", "json")]
    assert (result.exit_code, result.stdout.split()) == (0, names)
    assert result.stderr.startswith("`gpt2` is recommended: the cheapest (`cost.run`)")
    assert all(Path(name).stat().st_size for name in names)


@pytest.mark.usefixtures("command_line", "half")
def test_json_is_as_published(command_line: CommandLine) -> None:
    """What is printed is as `ledger schema compare` says; file and Python say the same; no file is written unasked."""
    printed = json.loads(command_line("compare", "gpt2", "half.yaml", "--json").stdout)
    jsonschema.validate(printed, json.loads(command_line("schema", "compare").stdout))
    assert not Path("reports").exists()
    assert printed == ledger.compare(["gpt2", Path("half.yaml")])
    result = command_line("compare", "gpt2", "half.yaml", "--json", "--format", "json")
    assert json.loads(result.stdout) == printed == json.loads(Path("reports/gpt2-vs-half.json").read_text("utf-8"))
    assert "reports/gpt2-vs-half.json" in result.stderr


@pytest.mark.usefixtures("command_line", "half")
def test_totals_are_those_of_each_plan(command_line: CommandLine) -> None:
    """A column is what `show` says of its plan, and `--set` is on all of them."""
    printed = json.loads(command_line("compare", "gpt2", "half.yaml", "--json", "--set", "run.tokens=1T tokens").stdout)
    for plan, spec in zip(printed["plans"], ("gpt2", "half.yaml"), strict=True):
        assert plan["totals"] == ledger.show(spec, "run.tokens=1T tokens")["totals"]
        assert plan["overrides"] == ["run.tokens=1T tokens"]


@pytest.mark.usefixtures("command_line", "half")
def test_the_rule_can_be_stated(command_line: CommandLine) -> None:
    """Half the micro-batch is slower and holds less: by memory it is the one, and so where a limit leaves it alone."""
    least = command_line("compare", "gpt2", "half.yaml", "--json", "--for", "memory.reserved")
    assert json.loads(least.stdout)["choice"]["plan"] == "half"
    limited = command_line("compare", "gpt2", "half.yaml", "--json", "--subject-to", "memory.reserved < 10 GB")
    choice = json.loads(limited.stdout)["choice"]
    assert (choice["plan"], choice["total"], choice["stated"]) == ("half", "cost.run", False)
    assert choice["left_out"][0]["plan"] == "gpt2"


def test_problems_of_all_plans_are_told_at_once(command_line: CommandLine) -> None:
    """Each at its place, and nothing is compiled or written."""
    Path("wrong.yaml").write_text(GPT2.replace("optimizer: adamw", "optimiser: adamw"), "utf-8")
    Path("worse.yaml").write_text(GPT2.replace("zero: 0", "zero: 7"), "utf-8")
    result = command_line("compare", "gpt2", "wrong.yaml", "nowhere.yaml", "worse.yaml")
    assert (result.exit_code, result.stdout, Path("reports").exists()) == (2, "", False)
    assert all(f"{name}.yaml:" in result.stderr for name in ("wrong", "nowhere", "worse"))


@pytest.mark.usefixtures("command_line", "half")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gpt2",), "one plan is named"),
        (("gpt2", "gpt2"), "`gpt2` is named twice"),
        (("half.yaml", "gpt2", "./half.yaml"), "`./half.yaml` is named twice, as `half.yaml` too"),
        (tuple(f"{number}.yaml" for number in range(9)), "9 plans are named"),
        (("gpt2", "7b-8xh100", "--for", "cost.rnu"), "did you mean `cost.run`"),
        (("gpt2", "7b-8xh100", "--format", "docx"), "html, pdf, md, json"),
    ],
)
def test_bad_usage_says_what_to_type(command_line: CommandLine, words: tuple[str, ...], message: str) -> None:
    """Too few, too many, one twice, a total that there is not, an unknown format."""
    result = command_line("compare", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_revisions_are_compared_with_the_working_tree(command_line: CommandLine) -> None:
    """`REV:path` is a plan as it was; the two have one name and are told apart by what was typed."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)

    Path("plan.yaml").write_text(GPT2, "utf-8")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    Path("plan.yaml").write_text(GPT2.replace("micro_batch: 12", "micro_batch: 6"), "utf-8")
    printed = json.loads(command_line("compare", "HEAD:plan.yaml", "plan.yaml", "--json").stdout)
    assert len({plan["plan"] for plan in printed["plans"]}) == 2
    (change,) = printed["differences"][0]["inputs"]
    assert (change["path"], change["old"], change["new"]) == ("run.micro_batch", "12", "6")


def test_python_writes_the_same_files(tmp_path: Path) -> None:
    """The paths are returned, an unknown format is a problem."""
    assert ledger.write_comparison(["gpt2", "7b-8xh100"], tmp_path, "md") == [tmp_path / "gpt2-vs-7b-8xh100.md"]
    with pytest.raises(ledger.SpecError, match="no format 'docx'"):
        ledger.write_comparison(["gpt2", "7b-8xh100"], tmp_path, "docx")


def test_a_count_stands_beside_a_plan_with_a_step(command_line: CommandLine) -> None:
    """One bar is drawn where only one of the plans has layers."""
    count = "spec: ledger/1\nplan: a count\naccelerator: h100-sxm\ncluster: {base: h100-400g, devices: 64}\n"
    Path("count.yaml").write_text(
        f"{count}model: {{parameters: 70e9}}\nprecision: bf16-mixed\nrun: {{tokens: 1T tokens}}\n"
    )
    shown = command_line("compare", "8b", "count.yaml", "--no-search", "--format", "md,html")
    assert (shown.exit_code, len(shown.stdout.split())) == (0, 2)


@pytest.mark.parametrize(
    ("total", "unlike"), [("time.step", True), ("time.calendar", False), ("tokens_per_second", False)]
)
def test_steps_of_unlike_batches_are_no_like_work(command_line: CommandLine, total: str, unlike: bool) -> None:
    """A step of twice the batch takes twice as long and trains twice as much; a run of both trains the same."""
    text = default_library().path("plan", "8b").read_text("utf-8")
    Path("twice.yaml").write_text(text.replace("global_batch: 64", "global_batch: 128"), "utf-8")
    shown = command_line("compare", "8b", "twice.yaml", "--no-search", "--format", "md", "--for", total)
    assert ("`twice` does not do the work of `8b`: `run.global_batch`" in shown.output) == unlike


def test_what_is_set_over_all_says_which_plan_it_breaks(command_line: CommandLine) -> None:
    """64 sequences are no multiple of the 1024 replicas of one of them, and as many as the other has."""
    refused = command_line("compare", "70b", "8b", "--set", "run.global_batch=64", "--no-search")
    assert refused.exit_code == 2
    assert "of `70b`: global_batch = 64 is no multiple" in refused.stderr
    assert "of `8b`" not in refused.stderr


def test_services_that_answer_other_prompts_are_not_weighed(command_line: CommandLine) -> None:
    """A service is cheaper a token where prompts are shorter, which recommends nothing."""
    serve = (default_library().root / "serve-70b.yaml").read_text("utf-8")
    Path("short.yaml").write_text(serve.replace("prompt: 4096 tokens", "prompt: 2048 tokens"), "utf-8")
    result = command_line("compare", "serve-70b", "short.yaml", "--format", "md")
    assert result.exit_code == 0
    assert "No plan is recommended" in result.stderr
    assert "`serve.prompt`" in result.stderr
