"""What shells complete, as their scripts ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

import ledger
from ledger.books.compiled import Compiled
from ledger.cli import completion, main
from ledger.cli.completion import known_names, values
from ledger.spec.library import default_library
from ledger.spec.load import plan_keys
from ledger.spec.overrides import read_overrides
from ledger.spec.paths import is_known

Completed = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Completed:
    """Type and value of what is offered after some words, the last of which is not ended, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def ask(*words: str) -> list[tuple[str, str]]:
        shell = ShellComplete(main, {}, "ledger", "_LEDGER_COMPLETE")
        return [(item.type, item.value) for item in shell.get_completions(list(words[:-1]), words[-1])]

    return ask


def test_specs_are_plans_of_the_library_and_files_here(completed: Completed) -> None:
    """Both are offered by name; a path into a folder is completed by the shell itself."""
    Path("8bit.yaml").touch()
    Path("notes.txt").touch()
    Path("runs").mkdir()
    assert completed("show", "8") == [("plain", "8b"), ("plain", "8bit.yaml")]
    for verb in (["check"], ["explain"], ["report"], ["solve"], ["sweep"], ["diff", "8b"]):
        assert ("plain", "70b") in completed(*verb, "7")
    assert completed("show", "runs/a") == [("file", "runs/a")]
    assert completed("show", "ru") == [("file", "ru")]
    assert completed("show", "nothing") == [("file", "nothing")]


def test_accounts_and_totals_are_those_of_the_plan(
    completed: Completed, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the plan that is named before, with the overrides that were typed."""
    asked = []
    monkeypatch.setattr(ledger, "compile", lambda *given: asked.append(given) or compiled)
    assert completed("explain", "tiny.yaml", "decoder/") == [("plain", "decoder/mlp/up")]
    assert completed("show", "--set", "run.micro_batch=2", "tiny.yaml", "memory.p") == [("plain", "memory.peak")]
    assert completed("solve", "tiny.yaml", "--maximize", "flops") == [("plain", "flops.forward")]
    assert asked[1] == ("tiny.yaml", ("run.micro_batch=2",))


def test_nobody_waits_for_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that takes long offers nothing, and so does what is none: a key was pressed, not a verb run."""
    monkeypatch.setattr(completion, "PATIENCE", 0.05)
    monkeypatch.setattr(ledger, "compile", lambda *_: time.sleep(5))
    began = time.monotonic()
    assert known_names("slow.yaml", ()) == []
    assert time.monotonic() - began < 2
    monkeypatch.undo()
    assert known_names("nowhere.yaml", ()) == []
    assert known_names("-", ()) == []


def test_keys_are_completed_step_by_step(completed: Completed) -> None:
    """The parts of a plan, then what lies below one; of a step that is the only one, also what follows it."""
    run = {
        f"run.{key}"
        for key in ("seq_len", "micro_batch", "global_batch", "tokens", "images", "documents", "source_len")
    }
    assert {value for _, value in completed("solve", "8b", "--for", "run.")} == run
    lengths = {f"run.documents.{key}" for key in ("length", "lengths", "lengths.0.tokens", "lengths.0.share")}
    assert {value for _, value in completed("check", "8b", "--set", "run")} == {"run", *run, *lengths}
    assert ("plain", "parallelism") in completed("solve", "8b", "--for", "")
    assert ("plain", "model.layers.0.attention.heads") in completed("show", "8b", "--set", "model.layers.0.attention.")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("precision=fp16", {"precision=fp16-mixed", "precision=fp16-pure"}),
        ("parallelism.zero=", {f"parallelism.zero={stage}" for stage in range(4)}),
        ("assumptions.price=h1", {"assumptions.price=h100-sxm"}),
        ("run.micro_batch=", set()),
    ],
)
def test_values_of_a_key_are_its_choices(completed: Completed, typed: str, offered: set[str]) -> None:
    """Names of the library, or what the table of the fields lists; of a number, nothing."""
    assert {value for _, value in completed("show", "8b", "--set", typed)} == offered
    assert {value for _, value in completed("sweep", "8b", "--over", typed)} == offered


@pytest.mark.parametrize("kind", ["accelerator", "model", "stack"])
def test_kinds_and_names_are_the_library_s(completed: Completed, kind: str) -> None:
    """Of `list`, of `schema`, of the device of a first plan."""
    assert ("plain", kind) in completed("list", kind[:3])
    assert ("plain", kind) in completed("schema", kind[:3])
    assert {value for _, value in completed("import", "x", "--accelerator", "")} == set(
        default_library().names("accelerator")
    )


def test_every_key_that_is_offered_is_one() -> None:
    """What is completed is read: by the table, and by `--set`, with each of its values."""
    assert len(plan_keys()) > 100
    for key in plan_keys():
        assert is_known(key), key
        read_overrides([f"{key}={value}" for value in values(key)])


def test_a_step_that_is_finished_has_a_meaning() -> None:
    """Shells that show help beside a completion have what the field means."""
    context = click.Context(main)
    (item, *_) = completion.keys(context, click.Option(["--for"]), "run.micro")
    assert item.help == "Sequences that one replica works on at once."


def test_a_verb_that_is_none_completes_nothing(completed: Completed) -> None:
    """A key that is pressed after a misspelt verb prints no error into the line."""
    assert completed("chek", "8") == []
