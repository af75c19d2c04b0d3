"""What a terminal or a runner would obey does not come out of any verb, wherever it was written."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ledger.cli import main
from ledger.cli.plain_streams import PlainStream

ESCAPES = "a\x1b]0;title\x07b\x1b[2J\x1b[8mc\x9b1md\u202ee\x07\x08f"


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self) -> bool:
        """It is."""
        return True


def written(*texts: str, stream: io.StringIO | None = None) -> str:
    """What is left of texts that are written one after the other."""
    held = stream or io.StringIO()
    guarded = PlainStream(held)  # type: ignore[arg-type]  # a stream of text
    assert [guarded.write(text) for text in texts] == [len(text) for text in texts]
    return held.getvalue()


def test_sequences_that_a_terminal_obeys_are_taken_out() -> None:
    """Whole, so that nothing of a title or a number is left over; also those of one byte (C1)."""
    assert written(ESCAPES) == "abc1mdef"
    assert written(ESCAPES, stream=Terminal()) == "abc1mdef"


def test_our_colours_are_for_terminals() -> None:
    """Bold, three colours, and their end; a pipe gets none."""
    assert written("\x1b[31mbad\x1b[0m", stream=Terminal()) == "\x1b[31mbad\x1b[0m"
    assert written("\x1b[31mbad\x1b[0m") == "bad"


@pytest.mark.parametrize(
    ("texts", "readable"),
    [
        (("::error::x\n",), ": :error::x\n"),
        (("a\n \t::set-output name=x::y\n",), "a\n \t: :set-output name=x::y\n"),
        (("  ", "::error::x"), "  : :error::x"),
        (("a", "::b\n", "::c"), "a::b\n: :c"),
        (("a ##[error]b ##vso[task.complete]c ##  [d",), "a ## [error]b ## vso[task.complete]c ##  [d"),
        (("\x1b[0m::error::x",), ": :error::x"),
        (("\r::error::x",), ": :error::x"),
        (("::::",), ": :::"),
    ],
)
def test_no_line_is_a_command_to_a_runner(texts: tuple[str, ...], readable: str) -> None:
    """GitHub reads a command where a line begins, after blanks, or after `##` anywhere."""
    assert written(*texts) == readable


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["::error::x.yaml", "a\n::error::x.yaml", "\x1b]0;title\x07x.yaml", "a ##[error]x.yaml"]
)
@pytest.mark.parametrize("words", [["check"], ["check", "--format", "github"], ["check", "--json"], ["show"]])
def test_the_name_of_a_file_is_no_command(here: Path, name: str, words: list[str]) -> None:
    """Who opens a pull request names files; verbs print these names."""
    Path(name).write_text("spec: ledger/1\nplan: x\n", encoding="utf-8")
    done = CliRunner().invoke(main, [*words, f"./{name}" if name.startswith("a") else name])
    printed = done.stdout + done.stderr
    ours = "::error file=" if "github" in words else "no command"
    assert done.exit_code == 2
    assert printed
    assert not {"\x1b", "\x07"} & {*printed}
    for line in printed.splitlines():
        assert line.startswith(ours) or not line.lstrip().startswith("::")
        assert line.startswith(ours) or "##[" not in line
    if "--json" in words and "##[" not in name:
        assert json.loads(done.stdout)["specs"][0]["spec"].endswith(name.replace("./", ""))
