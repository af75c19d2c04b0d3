"""What a machine may lack: room on its disk, a locale, libraries, a clock that goes forward, streams that take all."""

from __future__ import annotations

import ast
import importlib.abc
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import Result

from ledger.report import pdf
from ledger.spec.problems import SpecError

ROOT = Path(__file__).resolve().parents[2]
LEDGER = (sys.executable, "-m", "ledger")
PLAN = ROOT / "specs" / "gpt2.yaml"
FEW = ("--over", "parallelism.tensor=1", "--over", "parallelism.pipeline=1", "--over", "run.micro_batch=1,2")


def run(words: Sequence[str], folder: Path, blocks: int = 0, **further: str) -> subprocess.CompletedProcess[str]:
    """The command line in a folder, where files may have so many blocks of 512 bytes."""
    limit = f"ulimit -f {blocks}; " if blocks else ""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")} | further
    command = ["sh", "-c", f'{limit}exec "$@"', "sh", *LEDGER, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False
    )


@pytest.mark.parametrize(
    ("words", "blocks", "named"),
    [
        (("calibrate", "h100-sxm-send", "--out", "a.yaml"), 1, "error: a.yaml: File too large"),
        (("report", "gpt2", "--out", ".", "--format", "html"), 2000, "error: gpt2.html: File too large"),
        (("report", "gpt2", "--out", ".", "--format", "md"), 100, ".csv: File too large"),
        (("sweep", "gpt2", *FEW, "--out", "a.csv"), 1, "/000000.csv: File too large"),
        (("sweep", "gpt2", *FEW, "--out", "a.csv", "--workers", "2"), 1, "File too large: "),
        (("init", "a.yaml"), 1, "error: a.yaml: File too large"),
        (("show", "gpt2", "--json"), 0, "error: standard output: No space left on device"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_full_disk_names_the_file_and_leaves_the_old_one(
    tmp_path: Path, words: Sequence[str], blocks: int, named: str
) -> None:
    """The limit of a process is the disk of everybody who is not root; what was there stays, and nothing else does."""
    out = tmp_path / "out"
    out.mkdir()
    if blocks:
        done = run(words, out, blocks, XDG_CACHE_HOME=str(tmp_path / "cache"), TMPDIR=str(tmp_path))
        told = done.stderr
    else:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*LEDGER, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        told = done.stderr
    assert done.returncode == 2, told
    assert named in told
    assert "Traceback" not in told
    assert "ignored" not in told
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "cache" not in path.parts] == []


def test_output_without_a_buffer_is_all_there_or_an_error(tmp_path: Path) -> None:
    """Python itself drops what a full disk does not take of an unbuffered stream, and exits with 0."""
    command = f'ulimit -f 1; exec "{sys.executable}" -m ledger schema plan >all.json'
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "error: standard output: File too large\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--help >/dev/full", "error: standard output: No space left on device"),
        ("--version >/dev/full", "error: standard output: No space left on device"),
        ("list >/dev/full", "error: standard output: No space left on device"),
        ("show nope.yaml 2>/dev/full", ""),
        ("show nope.yaml 2>&-", ""),
        ("show 2>/dev/full", ""),
    ],
)
def test_streams_that_take_nothing_are_bad_input(words: str, told: str, tmp_path: Path) -> None:
    """Standard output names itself; where standard error is full nothing can be said, and the code is the same."""
    command = f'exec "{sys.executable}" -m ledger {words}'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (2, told)


def test_a_machine_without_memory_is_no_mistake_of_the_program(tmp_path: Path) -> None:
    """Neither is a file that may not grow: neither blames a file of the library."""
    for limit, told in (("-v 150000", "error: there is not enough memory"), ("-f 1", "File too large")):
        command = f'ulimit {limit}; exec "{sys.executable}" -m ledger report 8b --no-search --format html'
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr
        assert "unpacked" not in done.stderr


def test_calibrate_writes_the_files_that_it_is_told_and_no_other(
    command_line: Callable[..., Result], tmp_path: Path
) -> None:
    """The page of the same name is somebody's."""
    (tmp_path / "mine.html").write_text("mine", encoding="utf-8")
    assert command_line("calibrate", "h100-sxm-send", "--out", "mine.yaml").exit_code == 0
    assert {path.name: path.stat().st_size > 4 for path in tmp_path.iterdir()} == {
        "mine.html": False,
        "mine.yaml": True,
    }


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "xx_YY.none"},
    ],
    ids=lambda value: " ".join(f"{name}={text}" for name, text in value.items()),
)
def test_no_locale_is_needed(tmp_path: Path, locale: dict[str, str]) -> None:
    """Names and titles with letters of their own are read and printed, and what has no character is no traceback."""
    (tmp_path / "modèle.yaml").write_text(
        PLAN.read_text(encoding="utf-8").replace("GPT-2 small", "Modèle → petit"), encoding="utf-8"
    )
    for words in (
        ("show", "modèle.yaml"),
        ("check", "modèle.yaml"),
        ("solve", "modèle.yaml", "--for", "run.micro_batch"),
    ):
        done = run(words, tmp_path, **locale)
        assert done.returncode == 0, done.stderr
    named = run(("show", "modele.yaml"), tmp_path, **locale)
    assert named.returncode == 2
    assert "Traceback" not in named.stderr


def test_a_report_is_the_same_in_every_time_zone(tmp_path: Path) -> None:
    """No clock and no calendar of the machine is in it."""
    for zone in ("UTC", "Pacific/Kiritimati", "America/St_Johns"):
        words = ("report", "gpt2", "--format", "md,json", "--out", str(tmp_path / zone))
        assert run(words, tmp_path, TZ=zone).returncode == 0
    found = {(path.parent.name, path.suffix): path.read_bytes() for path in tmp_path.rglob("gpt2.*")}
    assert len(found) == 6
    assert len(set(found.values())) == 2


CLOCKS = ("time.time", "datetime.now", "datetime.today", "date.today", "time.localtime", "datetime.utcnow")


def test_durations_are_not_measured_by_a_clock_that_may_be_set_back() -> None:
    """The calendar is asked for the date of a measurement alone, in UTC; ages of files are held to both signs."""
    asked: dict[str, set[str]] = {}
    for path in (ROOT / "ledger").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).endswith(CLOCKS):
                asked.setdefault(str(path.relative_to(ROOT / "ledger")), set()).add(f"{name}({ast.unparse(node.args)})")
    assert asked == {
        "lab/bench/runner.py": {"datetime.now(UTC)"},
        "lab/verification/suites.py": {"datetime.now(UTC)"},
        "whole_files.py": {"time.time()"},
    }


@pytest.fixture
def no_pango(monkeypatch: pytest.MonkeyPatch) -> None:
    """WeasyPrint as it is without its libraries: importing it prints a page and raises OSError."""

    class Without(importlib.abc.MetaPathFinder):
        """Finds no library for WeasyPrint."""

        def find_spec(self, name: str, *_: object) -> None:
            """Fails for WeasyPrint alone."""
            if name == "weasyprint":
                sys.stderr.write("WeasyPrint could not import some external libraries\n" * 5)
                raise OSError("cannot load library 'libpango-1.0-0'")

    for name in [name for name in sys.modules if name.partition(".")[0] == "weasyprint"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Without(), *sys.meta_path])


@pytest.mark.parametrize("verb", [("report", "gpt2"), ("report", "lecture/lecture"), ("compare", "gpt2", "8b")])
def test_without_pango_nothing_is_computed_and_a_sentence_says_what_to_do(
    command_line: Callable[..., Result],
    tmp_path: Path,
    no_pango: None,
    monkeypatch: pytest.MonkeyPatch,
    verb: tuple[str],
) -> None:
    """Exit code 2, no file, what to install, and what does without: not a set of files that lacks one."""
    monkeypatch.setattr(pdf, "PANGO", ("libnothing-of-this-name.so",))
    words = [str(ROOT / "specs" / f"{word}.yaml") if "/" in word else word for word in verb]
    result = command_line(*words, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert result.stdout == ""
    first, *_, help_line = result.stderr.splitlines()
    assert first == "--format pdf:1:10: a PDF needs Pango and HarfBuzz, which this machine does not have"
    assert "`--format html,md,json`" in help_line
    assert not (tmp_path / "out").exists()


def test_a_library_that_is_missing_after_all_is_the_same_sentence(
    no_pango: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pango is there, and another one is not: the error is the problem's, and WeasyPrint's page is not printed."""
    with pytest.raises(SpecError, match="a PDF needs Pango and HarfBuzz"):
        pdf.render_pdf("<p>", "plan", "")
    assert capsys.readouterr().err == ""


def test_the_packages_are_those_that_make_installs() -> None:
    """One list, for people and for `make`."""
    script = (ROOT / "scripts" / "pango").read_text(encoding="utf-8")
    packages = script.partition('packages="')[2].partition('"')[0]
    assert f"`apt-get install {packages}`" in pdf.INSTALLS


def test_a_plan_that_was_begun_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Files follow the umask of who runs the verb."""
    command = ["sh", "-c", 'umask 077; exec "$@"', "sh", *LEDGER, "init", "plan.yaml"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert stat.S_IMODE((tmp_path / "plan.yaml").stat().st_mode) == 0o600
