"""A mutant is run and judged: by its exit code, what it prints and writes, and what it takes of time and memory."""

from __future__ import annotations

import faulthandler
import gc
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import active_children
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from ledger.cli import main
from tests.fuzz.accepted import beyond_range
from tests.fuzz.mutants import Mutant
from tests.lawful import broken_laws

SLOWEST = 5.0  # seconds of the processor
SLOWER = {"solve": 20.0, "sweep": 60.0, "report": 20.0}  # of verbs that price spaces of plans, or draw pages
SLOWER |= {"verify": 60.0, "bench": 60.0}  # PyTorch runs; it is no part of what is judged
HARD_STOP = 90.0  # seconds of the processor after which a mutant is ended
WEDGED = 1200.0  # seconds of the clock after which the whole run is ended, with the place where it stands
LARGEST = 500 * 2**20  # bytes that a mutant may need
BASE = "base/"  # before the names of files of which a repository has one version more
ROOM = 8 * 2**30  # bytes of addresses that the process may take beyond those that it has
DOCUMENTED = (0, 1, 2)
NOT_FINITE = re.compile(r"(?<![\w.\-/\\])[-+]?(nan|inf|infinity)(?![\w/]| Fabric)", re.IGNORECASE)  # AMD's is a link
SAID = re.compile("nan|inf", re.IGNORECASE)  # in an input
ROOT = Path(__file__).resolve().parents[2]


class TooSlowError(BaseException):
    """A mutant has used up its time."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: its exit code, its seconds, its bytes, and what was wrong, in one line or none."""

    code: int
    seconds: float
    memory: int
    fault: str = ""
    detail: str = ""


@contextmanager
def quiet_room() -> Iterator[Path]:
    """An empty folder as working directory, no standard input, caches of its own, and a process that cannot grow."""
    before, folder = Path.cwd(), Path(tempfile.mkdtemp(prefix="fuzz-"))
    kept = {name: os.environ.get(name) for name in ("XDG_CACHE_HOME", "LEDGER_TRACEBACK", "LEDGER_SEARCH")}
    os.environ.update(XDG_CACHE_HOME=str(folder / "cache"), LEDGER_TRACEBACK="1", LEDGER_SEARCH="0")
    room = folder / "here"
    room.mkdir()
    os.chdir(room)
    try:
        yield room
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def limit_memory() -> None:
    """No mutant takes the machine's memory: beyond the limit Python has none."""
    size = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, resource.RLIM_INFINITY))


def prepared(mutant: Mutant, room: Path) -> None:
    """The files of a mutant, and nothing else, in its folder."""
    for path in room.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name, data in sorted(mutant.files.items()):
        base = name.startswith(BASE)
        (room / name.removeprefix(BASE)).write_bytes(data)
        if base:
            _committed(room)
    if mutant.verb == "ci":
        _committed(room)


def _committed(room: Path) -> None:
    """All files of a folder as a commit of the repository in it."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "core.autocrlf=false", "-C", str(room))
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "--allow-empty", "-m", "a")):
        subprocess.run([*git, *words], check=True, capture_output=True)


def run_warm(mutant: Mutant, room: Path) -> Outcome:
    """The verdict on a mutant that runs in this process, and must leave no other behind."""
    outcome = _run_warm(mutant, room)
    if active_children():
        gc.collect()
    if (left := active_children()) and not outcome.fault:
        outcome = replace(outcome, fault=f"{mutant.verb}: {len(left)} processes are left")
    for process in left:
        process.kill()
    return outcome


def _run_warm(mutant: Mutant, room: Path) -> Outcome:
    prepared(mutant, room)
    if mutant.verb in {"verify", "bench"}:
        with suppress(ImportError):
            import_module("torch")
    resident = _fresh_peak()
    started = time.process_time()
    faulthandler.dump_traceback_later(WEDGED, exit=True, file=sys.__stderr__)
    before = signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, HARD_STOP)
    error: BaseException | None = None
    code, out = 70, ""
    try:
        result = CliRunner().invoke(main, list(mutant.line), prog_name="ledger")
        error, code, out = result.exception, result.exit_code, result.stdout
    except TooSlowError as stopped:
        error = stopped
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        faulthandler.cancel_dump_traceback_later()
    seconds, memory = time.process_time() - started, max(_peak() - resident, 0)
    if isinstance(error, SystemExit):
        error = None
    fault, detail = _judged(mutant, code, error, seconds, memory)
    if not fault:
        fault = _told(mutant, out, room) or _accepted(mutant, code)
    return Outcome(code, seconds, memory, fault, detail)


def run_cold(mutant: Mutant, room: Path) -> Outcome:
    """The verdict on a mutant that is a command of its own."""
    prepared(mutant, room)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("LEDGER_TRACEBACK", None)
    words = [
        os.fsencode(word.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")) for word in mutant.line
    ]
    command = [sys.executable, "-m", "ledger", *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            command,
            cwd=room,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=WEDGED,
            check=False,
        )
    except (ValueError, OSError):  # no system starts a program with a zero byte in its arguments, or with too long ones
        return Outcome(2, 0.0, 0)
    except subprocess.TimeoutExpired:
        return Outcome(70, WEDGED, 0, f"no end after {WEDGED:g} s")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    out, told = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    fault, detail = _judged(mutant, done.returncode, None, seconds, 0)
    if not fault and "Traceback" in told:
        fault, detail = "a traceback", told[-2000:]
    if fault and not detail:
        detail = told[-2000:]
    return Outcome(done.returncode, seconds, 0, fault or _told(mutant, out, room), detail)


def _too_slow(*_: object) -> None:
    raise TooSlowError


def _fresh_peak() -> int:
    """Bytes that the process holds; its greatest amount is counted anew from here."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    """The greatest number of bytes that the process held since it was counted anew."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _judged(mutant: Mutant, code: int, error: BaseException | None, seconds: float, memory: int) -> tuple[str, str]:
    """What is wrong with how a mutant ended, and more about it."""
    if isinstance(error, TooSlowError):
        return f"more than {HARD_STOP:g} s {_place(error)}", _trace(error)
    if error is not None:
        return f"{type(error).__name__} {_place(error)}", _trace(error)
    if code not in DOCUMENTED:
        return f"exit code {code}", ""
    if seconds > (allowed := SLOWER.get(mutant.verb, SLOWEST)):
        return f"{mutant.verb}: more than {allowed:g} s", f"{seconds:.1f} s"
    if memory > LARGEST:
        gc.collect()
        return f"more than {LARGEST / 2**20:.0f} MB", f"{memory / 2**20:.0f} MB"
    return "", ""


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3000:]


def _place(error: BaseException) -> str:
    """The innermost line of the package that an error passed, by which findings are told apart."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(ROOT / "ledger"):
            return f"at {Path(frame.filename).relative_to(ROOT)}:{frame.lineno}"
    return "outside"


def _told(mutant: Mutant, out: str, room: Path) -> str:
    """A number that is none in what was printed or written, unless the input itself says the word."""
    given = b" ".join(mutant.files.values()).decode("utf-8", "replace") + " ".join(mutant.words)
    texts = {"standard output": out}
    for path in (room / "out").rglob("*") if (room / "out").is_dir() else ():
        if path.suffix in {".md", ".json"}:
            texts[path.name] = path.read_text("utf-8", errors="replace")
    for name, text in texts.items():
        found = NOT_FINITE.search(text)
        if found and not SAID.search(given):
            return f"{mutant.verb}: {found.group()} in {name}"
        if text.startswith(("{", "[")) and "json" in " ".join((*mutant.words, name)):
            with suppress(json.JSONDecodeError):
                if bad := _wrong(mutant.verb, json.loads(text)):
                    return f"{mutant.verb}: {bad} in JSON"
    return ""


def _wrong(verb: str, document: Any) -> str:
    """A number of a document that is not finite, or a law that the totals of a plan break."""
    if bad := _no_number(document):
        return bad
    if verb != "show" or not isinstance(document, dict):
        return ""
    laws = broken_laws(document.get("totals", {}), filling=True)  # a mutant may have any schedule
    return next((broken.partition(" is ")[0] for broken in laws), "")


def _no_number(value: Any) -> str:
    """A number of a document that is not finite."""
    if isinstance(value, dict | list):
        return next(filter(None, map(_no_number, value.values() if isinstance(value, dict) else value)), "")
    return str(value) if isinstance(value, float) and not math.isfinite(value) else ""


def _accepted(mutant: Mutant, code: int) -> str:
    """A value that was accepted though it is outside the range of its field."""
    if (
        code == 2
        or mutant.verb not in {"check", "show", "explain"}
        or mutant.kind not in {"plan", "part", "serve", "set"}
    ):
        return ""
    words = mutant.words
    settings = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--set"]
    return beyond_range(words[0], settings)
