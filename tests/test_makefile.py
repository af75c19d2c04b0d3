"""Two makes in one fresh clone, and one after another that was killed, with an interpreter that installs nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Stands for every interpreter: makes environments of copies of itself, slowly, and keeps a record of what it is asked.
INTERPRETER = """#!/bin/sh
echo "$*" >>"$RECORD"
case "$*" in
*"venv --help"* | *"import ensurepip"*) exit 0 ;;
*"-m pip --version") [ -e "$(dirname "$0")/pip" ] ;;
*"-m venv "*)
    for last in "$@"; do :; done
    mkdir -p "$last/bin"
    cp "$0" "$last/bin/python"
    sleep "${PIP_TAKES:-0.3}"
    touch "$last/bin/pip"
    ;;
*"schema --out "*) mkdir -p "$3" ;;
*"-m pip install"*)
    [ -e "$(dirname "$0")/pip" ] || exit 1
    sleep 0.2
    cp "$0" "$(dirname "$0")/ledger"
    ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder as after `git clone`: what the Makefile reads, and nothing that it makes."""
    folder = tmp_path / "clone"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "pyproject.toml").touch()
    interpreter = tmp_path / "python"
    interpreter.write_text(INTERPRETER, encoding="utf-8")
    interpreter.chmod(0o755)
    return folder


def start(clone: Path, *words: str, **further: str) -> subprocess.Popen[str]:
    """A make in the clone, of its own."""
    for name in ("MAKEFLAGS", "MAKELEVEL", "ALONE"):
        os.environ.pop(name, None)
    environment = os.environ | {"PYTHON": str(clone.parent / "python"), "RECORD": str(clone.parent / "record")}
    return subprocess.Popen(
        ["make", *words],
        cwd=clone,
        env=environment | further,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def asked(clone: Path, what: str) -> int:
    """How often the interpreter was asked for something."""
    return (clone.parent / "record").read_text(encoding="utf-8").count(what)


def test_two_makes_in_one_clone_do_not_collide(clone: Path) -> None:
    """One of them makes the environment, the other finds it made; both write their report, and a third one at once."""
    first = start(clone, "report", "SPEC=a.yaml")
    second = start(clone, "report", "SPEC=b.yaml")
    told = [one.communicate()[0] for one in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), told
    assert asked(clone, "-m venv ") == 1
    installed = asked(clone, "-m pip install")
    assert asked(clone, "report a.yaml") == asked(clone, "report b.yaml") == 1
    third = start(clone, "report", "SPEC=c.yaml")
    assert third.communicate()[0] == ""
    assert asked(clone, "report c.yaml") == 1
    assert asked(clone, "-m pip install") == installed
    assert "\n".join(told).count("installing ledger") == 1


def test_an_environment_that_was_left_half_made_is_made_anew(clone: Path) -> None:
    """Killed before pip is there, it would otherwise fail in every further make."""
    killed = start(clone, "report", PIP_TAKES="60")
    while not (clone / ".venv" / "bin" / "python").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    after = start(clone, "report")
    told = after.communicate()[0]
    assert after.returncode == 0, told
    assert asked(clone, "-m venv ") == 2


@pytest.mark.parametrize(("words", "workers"), [((), "-n auto"), (("WORKERS=2",), "-n 2 --workers 2")])
def test_workers_are_as_many_as_is_said(words: tuple[str, ...], workers: str) -> None:
    """Tests take every core by themselves; a benchmark counts its own, and has no word for that."""
    outer = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "WORKERS")  # of a make that runs this test
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "-n", "test", "bench-sweep", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = re.findall(r"--(?:numprocesses|workers) \S+", done.stdout)
    assert " ".join(found).replace("--numprocesses", "-n") == workers


def test_without_the_command_flock_python_takes_turns(clone: Path, tmp_path: Path) -> None:
    """macOS has none: the same file is locked by the interpreter."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "sleep", "cat"):
        (tools / name).symlink_to(str(shutil.which(name)))
    # The interpreter itself: what a shell finds by its name may be a script that needs other commands, as pyenv's does.
    (tools / "python3").symlink_to(Path(sys.executable).resolve())
    command = [
        str(clone / "scripts" / "alone"),
        str(tmp_path / "lock"),
        "sh",
        "-c",
        "cat log; sleep 0.3; echo done >log",
    ]
    (tmp_path / "log").touch()
    environment = {"PATH": str(tools)}
    both = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert sorted(one.communicate()[0] for one in both) == ["", "done\n"]
