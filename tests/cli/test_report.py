"""`ledger report`: the command around the writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ledger.report.recommendations import Recommendation, Recommendations

CommandLine = Callable[..., Result]


def test_files_are_named_after_the_plan_and_printed(command_line: CommandLine) -> None:
    """Standard output is the list of files, for a script to go on with; the verdict is for the person."""
    result = command_line("report", "gpt2", "--format", "json,md")
    assert (result.exit_code, result.stdout.split()) == (0, ["reports/gpt2.json", "reports/gpt2.md"])
    assert json.loads(Path("reports/gpt2.json").read_text(encoding="utf-8"))["schema"] == "ledger-show/1"
    assert result.stderr


def test_json_lists_the_files(command_line: CommandLine) -> None:
    """The same list for programs, in the folder that was asked for."""
    result = command_line("report", "gpt2", "--format", "md", "--out", "here", "--json")
    assert json.loads(result.stdout) == {"schema": "ledger-report/1", "files": ["here/gpt2.md"]}


def test_a_plan_that_does_not_fit_is_reported(command_line: CommandLine) -> None:
    """Exit code 0, and the verdict says so. The fp32 logits alone are 240 x 1024 x 50257 x 4 B."""
    two = ["cluster.devices=2", "parallelism.data=2", "run.micro_batch=240"]
    result = command_line("report", "gpt2", "--format", "json", *(part for item in two for part in ("--set", item)))
    shown = json.loads(Path("reports/gpt2.json").read_text(encoding="utf-8"))
    assert (result.exit_code, shown["verdict"]["fits"]) == (0, False)


@pytest.mark.parametrize("text", ["docx", "html,docx", ""])
def test_an_unknown_format_is_told_the_known_ones(command_line: CommandLine, text: str) -> None:
    """Before anything is compiled or written."""
    result = command_line("report", "gpt2", "--format", text)
    assert result.exit_code == 2
    assert "html, pdf, md, json" in result.stderr
    assert not Path("reports").exists()


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_compiled(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's reason with the path, not a traceback, and no headline of a plan before it."""
    compiled: list[object] = []
    monkeypatch.setattr("ledger.compile", lambda *asked: compiled.append(asked))
    Path("taken").write_text("", encoding="utf-8")
    result = command_line("report", "gpt2", "--format", "md", "--out", "taken/below")
    assert (result.exit_code, compiled) == (2, [])
    assert result.stderr == "error: taken/below: Not a directory\n"


def test_a_plan_that_is_refused_leaves_no_folder(command_line: CommandLine) -> None:
    """That files can be written is found out without making the folder."""
    assert command_line("report", "no-such-plan", "--format", "md", "--out", "new/below").exit_code == 2
    assert list(Path().glob("**/*")) == []


def test_a_missing_typesetter_is_said_in_a_line(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ziamath no page is begun: exit code 2 and how to get it; Markdown and JSON need none."""
    monkeypatch.setattr("ledger.cli.report.find_spec", lambda _: None)
    refused = command_line("report", "gpt2", "--format", "html")
    assert refused.exit_code == 2
    assert "ziamath is not installed" in refused.stderr
    assert "Traceback" not in refused.output


def test_the_search_is_of_all_layouts_and_can_be_left_out(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds stands in the report; JSON shows nothing of it, so that it asks for none."""
    one = Recommendation({"parallelism.zero": 3}, {"time.step": 0.1, "memory.reserved": 5e8})
    asked: list[bool] = []

    def searched(_: object, *, whole: bool) -> Recommendations:
        asked.append(whole)
        return Recommendations(one, one, None, (one,), legal=12, fitting=3)

    monkeypatch.setattr("ledger.cli.report.search_layouts", searched)
    command_line("report", "gpt2", "--format", "json", "--search")
    command_line("report", "gpt2", "--format", "md", "--no-search")
    assert (asked, "Other layouts were not searched." in Path("reports/gpt2.md").read_text("utf-8")) == ([], True)
    command_line("report", "gpt2", "--format", "md", "--search")
    text = Path("reports/gpt2.md").read_text("utf-8")
    assert asked == [True]
    assert "12 legal layouts tried, of which 3 fit." in text
    assert "parallelism:\n  zero: 3" in text


def test_a_search_that_fails_is_a_note_of_the_report(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The report is written, and says why it names no other layout."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("ledger.search.recommendation_cache.recommend", lambda *_: 1 / 0)
    result = command_line("report", "gpt2", "--format", "md", "--search")
    assert result.exit_code == 0
    text = Path("reports/gpt2.md").read_text("utf-8")
    assert "No other layouts were looked at: a mistake of ledger itself, ZeroDivisionError: division by zero" in text


@pytest.mark.parametrize("formats", ["html", "html,md", "md", "json"])
def test_a_plan_is_priced_whichever_formats_are_written(formats: str, command_line: CommandLine) -> None:
    """Tokens that follow from the parameters are counted wherever a page or a panel needs them."""
    words = ("report", "gpt2", "--no-search", "--set", "run.tokens=20 a parameter", "--format", formats)
    result = command_line(*words)
    assert result.exit_code == 0, result.stderr
    assert sorted(Path("reports").iterdir()) == sorted(Path(f"reports/gpt2.{form}") for form in formats.split(","))


def test_a_plan_is_reported_with_the_layout_that_was_found(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--with fastest` takes what a search recommends as `--set` would; where it found none, that is said."""
    one = Recommendation({"parallelism.zero": 3, "run.micro_batch": 6}, {"time.step": 0.1, "memory.reserved": 5e8})
    monkeypatch.setattr("ledger.cli.progress.search_layouts", lambda *_, **__: Recommendations(fastest=one, legal=12))
    taken = command_line("report", "gpt2", "--format", "json", "--with", "fastest", "--out", "taken")
    typed = command_line(
        *("report", "gpt2", "--format", "json", "--out", "typed"),
        *("--set", "parallelism.zero=3", "--set", "run.micro_batch=6"),
    )
    assert (taken.exit_code, typed.exit_code) == (0, 0)
    assert Path("taken/gpt2.json").read_bytes() == Path("typed/gpt2.json").read_bytes()
    refused = command_line("report", "gpt2", "--format", "json", "--with", "cheapest")
    assert refused.exit_code == 2
    assert "there is no such layout of gpt2: 12" in refused.stderr


def test_a_layout_that_must_not_be_searched_for_is_refused(command_line: CommandLine) -> None:
    """The two words contradict each other, and neither wins in silence."""
    refused = command_line("report", "gpt2", "--format", "json", "--with", "fastest", "--no-search")
    assert refused.exit_code == 2
    assert "--no-search forbids" in refused.stderr
