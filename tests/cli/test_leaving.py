"""How the command line ends when things go wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import ledger
from ledger.cli import VERBS, main
from ledger.cli.verbs import TYPED
from ledger.spec.problems import Location, Problem, SpecError


def ending_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Runs a verb whose compilation ends with an error."""

    def compile_(*_: object) -> None:
        raise error

    monkeypatch.setattr(ledger, "compile", compile_)
    return CliRunner().invoke(main, ["show", "plan.yaml"])


def test_problems_are_shown_in_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`file:line:column: message`, the line, a caret under the column, a help line; exit code 2, nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text("spec: ledger/1\nmemory: 80\n", encoding="utf-8")
    problem = Problem(Location("plan.yaml", 2, 9), "80 has no unit", "write 80 GB")
    result = ending_with(SpecError([problem]), monkeypatch)
    assert (result.exit_code, result.stdout) == (2, "")
    place, line, caret, help_line = result.stderr.splitlines()
    assert place == "plan.yaml:2:9: 80 has no unit"
    assert line[caret.index("^")] == "8"
    assert help_line.strip() == "help: write 80 GB"


def test_files_that_cannot_be_written_are_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own message with the file, and exit code 2."""
    result = ending_with(PermissionError(13, "Permission denied", "reports/70b.pdf"), monkeypatch)
    assert (result.exit_code, result.stderr) == (2, "error: reports/70b.pdf: Permission denied\n")


def test_an_interrupt_leaves_as_shells_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is 130 and a word, not a traceback."""
    result = ending_with(KeyboardInterrupt(), monkeypatch)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("args", [["nope"], ["show"], ["report", "a.yaml", "--format", "docx"], ["check"]])
def test_wrong_usage_is_exit_code_two(args: list[str]) -> None:
    """Usage errors share the code of bad input."""
    assert CliRunner().invoke(main, args).exit_code == 2


def test_a_reader_that_leaves_is_no_error_message() -> None:
    """`ledger schema show | head -c1` ends silently."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ledger", "schema", "show"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize(
    ("verb", "code"), [("show gpt2", 0), ("solve gpt2 --for run.micro_batch", 0), ("show -", 2), ("show nope", 2)]
)
def test_a_closed_stream_is_no_traceback(verb: str, code: int, closed: str) -> None:
    """What is printed is lost, and the exit code is that of the verb."""
    command = f"{sys.executable} -m ledger {verb} {closed}"
    told = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert told.returncode == code
    assert "Traceback" not in told.stderr


def test_no_color_on_a_pipe(run: Callable[..., Result]) -> None:
    """Output that is not for a terminal carries no escape sequences."""
    assert "\x1b" not in run("show", "tiny.yaml").stdout


def test_bad_specs_are_refused_by_every_verb_that_reads_one(command_line: Callable[..., Result]) -> None:
    """Each verb tells the same problem in the same way before it does anything else; to `check` it is the result."""
    Path("plan.yaml").write_text("spec: ledger/1\nplan: A\nplan: B\n", encoding="utf-8")
    said = set()
    for args in (["show"], ["check"], ["report"]):
        result = command_line(*args, "plan.yaml")
        assert result.exit_code == 2
        said.add(result.stderr or result.stdout.removeprefix("plan.yaml: bad input\n"))
    result = command_line("explain", "plan.yaml", "memory.peak")
    assert said == {result.stderr}
    assert "plan.yaml:3:1: " in result.stderr
    assert not Path("reports").exists()


def test_an_override_has_a_place_too(command_line: Callable[..., Result]) -> None:
    """What is wrong in `--set` points into `--set`."""
    result = command_line("show", "70b", "--set", "run.micro_batch")
    assert result.exit_code == 2
    assert "--set run.micro_batch" in result.stderr
    assert "run.micro_batch=2" in result.stderr


def test_standard_input_is_a_spec(command_line: Callable[..., Result]) -> None:
    """`-` reads a plan from a pipe, and its places say so."""
    result = command_line("check", "-", input="nonsense")
    assert result.exit_code == 2
    assert result.stdout.splitlines()[1].startswith("<stdin>:1:1: ")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("chek", "there is no verb `chek`; did you mean `check`"),
        ("plan", "there is no verb `plan`; did you mean `show` or `report`?"),
        ("validate", "there is no verb `validate`; did you mean `check`?"),
        ("zzz", "there is no verb `zzz`; known: report, "),
    ],
)
def test_a_verb_that_is_none_is_told_what_was_meant(run: Callable[..., Result], typed: str, said: str) -> None:
    """By its spelling, or by what it is called elsewhere; bad usage as ever."""
    result = run(typed, "tiny.yaml")
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_help_describes_verbs_without_importing_them() -> None:
    """Loading twenty modules takes longer than all else of `--help`: the line of each verb is read from its text."""
    loaded = f"sorted(sys.modules.keys() & {set(VERBS.values())!r})"
    script = f"import sys; from ledger.cli import main; main(['--help'], standalone_mode=False); sys.exit({loaded})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
    assert all(f"  {verb} " in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_says_of_a_verb_what_its_own_help_says(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The docstring that is found in the text of a module is that of the command in it."""
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    monkeypatch.delitem(sys.modules, VERBS[verb])
    documented = main.documented(verb)
    assert VERBS[verb] not in sys.modules
    assert documented.get_short_help_str(500) == command.get_short_help_str(500)


def test_words_for_verbs_name_verbs() -> None:
    """What is offered can be typed, and each word stands for one thing."""
    words = [word for text in TYPED.values() for word in text.split()]
    assert {verb for verbs in TYPED for verb in verbs} <= VERBS.keys()
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "8b", "--set", "fsdp=true"], "did you mean `parallelism: {zero: 3}`?"),
        (["check", "8b", "--set", "parallelism.tp=2"], "did you mean `tensor`?"),
        (["solve", "8b", "--for", "gpus"], "did you mean `cluster.devices`?"),
        (["check", "8b", "--set", "assumptions.price=h200"], "did you mean `h200-sxm`"),
        (["check", "8b", "--set", "assumptions.price=$2.50"], "write it out: `{per_device_hour: 3 USD, date:"),
    ],
)
def test_words_of_other_tools_are_understood_where_they_are_typed(
    command_line: Callable[..., Result], arguments: list[str], said: str
) -> None:
    """In overrides, in what is solved for, and of prices."""
    result = command_line(*arguments)
    assert result.exit_code == 2
    assert said in result.output
