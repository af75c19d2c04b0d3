"""`ledger diff`: formats and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

CommandLine = Callable[..., Result]
SMALLER = ("--set", "run.micro_batch=6")


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ([], 0),
        (["memory.peak > 0"], 0),
        (["memory.peak < -5%"], 1),
        (["memory.peak > 0", "flops.run != 0", "run.what > 1"], 2),
        (["fits"], 0),
        (["headroom"], 0),
    ],
)
def test_gates_decide_the_exit_code(command_line: CommandLine, gates: list[str], code: int) -> None:
    """Half the micro-batch halves activations: no gate on growth trips, one on shrinking does, an unknown one is 2."""
    options = [part for gate in gates for part in ("--fail-on", gate)]
    assert command_line("diff", "gpt2", "gpt2", *SMALLER, *options).exit_code == code


def test_a_plan_that_fits_no_more_trips_the_gate(command_line: CommandLine) -> None:
    """240 sequences of 1024 tokens have 240 x 1024 x 50257 x 4 B = 49 GB of fp32 logits, and as much for gradients."""
    two = [
        part for key in ("cluster.devices=2", "parallelism.data=2", "run.micro_batch=240") for part in ("--set", key)
    ]
    result = command_line("diff", "gpt2", "gpt2", *two, "--fail-on", "fits")
    assert (result.exit_code, result.stderr) == (1, "failed on: fits\n")


def test_json_is_for_programs(command_line: CommandLine) -> None:
    """Stable names, and the input with both places."""
    shown = json.loads(command_line("diff", "gpt2", "gpt2", *SMALLER, "--json").stdout)
    (change,) = shown["inputs"]
    assert (shown["schema"], change["path"], change["old"], change["new"]) == (
        "ledger-diff/1",
        "run.micro_batch",
        "12",
        "6",
    )
    assert re.search(r"specs/gpt2\.yaml:\d+:\d+$", change["old_where"])
    assert change["new_where"].startswith("--set run.micro_batch=6:1:")


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_every_format_leads_with_the_verdict(command_line: CommandLine, form: str) -> None:
    """The headline stands before any table."""
    shown = command_line("diff", "gpt2", "gpt2", *SMALLER, "--format", form).stdout
    assert -1 < shown.index("headline: ") < shown.index("What changes first")


GPT2 = (Path(__file__).resolve().parents[2] / "specs" / "gpt2.yaml").read_text("utf-8")


def plans(folder: str, **texts: str) -> None:
    """Plans in a folder of their own."""
    Path(folder).mkdir()
    for name, text in texts.items():
        (Path(folder) / f"{name}.yaml").write_text(text, "utf-8")


def test_folders_are_compared_plan_by_plan(command_line: CommandLine) -> None:
    """A plan is its path: what is in both is compared, what is in one is new or deleted, in every format."""
    plans("old", same=GPT2, other=GPT2, gone=GPT2)
    plans("new", same=GPT2, other=GPT2.replace("micro_batch: 12", "micro_batch: 6"), broken="spec: ledger/1\nplan: a\n")
    result = command_line("diff", "old", "new", "--json")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["schema"], shown["plans"]) == (2, "ledger-diffs/1", 3)
    kinds = {change["path"]: change["change"] for change in shown["changes"]}
    assert kinds == {"broken.yaml": "does not compile", "other.yaml": "changed", "gone.yaml": "deleted"}
    (full,) = (change["diff"] for change in shown["changes"] if change["diff"])
    assert [one["path"] for one in full["inputs"]] == ["run.micro_batch"]
    for form in ("text", "md", "html"):
        printed = command_line("diff", "old", "new", "--format", form).stdout
        assert -1 < printed.index("1 of 3 plans changes") < printed.index("What changes first")


def test_a_path_with_dots_is_no_range(command_line: CommandLine) -> None:
    """`../a.yaml` and `HEAD:../a.yaml` are paths; what is neither two plans nor a range is told."""
    assert "no such file" in command_line("diff", "../nosuch.yaml", "gpt2").stderr
    assert "git" in command_line("diff", "HEAD:../nosuch.yaml", "gpt2").stderr
    assert "two plans or two folders" in command_line("diff", "gpt2").stderr
    assert "git" in command_line("diff", "main..nosuch").stderr


def test_folders_above_are_no_range(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither `..` nor a folder of a name with two dots."""
    plans("above", one=GPT2)
    plans("above/v1..v2", one=GPT2)
    monkeypatch.chdir("above")
    assert command_line("diff", "v1..v2", "v1..v2").exit_code == 0
    monkeypatch.chdir("v1..v2")
    result = command_line("diff", "..", ".")
    assert (result.exit_code, "deleted" in result.stdout) == (0, True)
