"""Verbs that write files, and the folders in which they are ended: what is typed, and what is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNFINISHED = ".unfinished"
RECORD, RECORDS = b"\n  - {", 60  # what begins a record of `ledger bench`, and how many there are
# A worker of `ledger bench` that measures nothing and answers every 20 ms, in place of the one that needs PyTorch.
WORKER = """
import json, sys, time
sys.stdin.readline()
limits = dict(type="cpu", memory=2**32, cache=0, devices=2, dtypes=["fp32"], quick=True)
known = dict(name="a-cpu", title="A CPU", place="cpu", origin=dict(torch="2"), hardware=dict(kind="cpu"))
cases = [dict(kind="stream", what="copy", keys=dict(operation="clone", bytes=n, dtype="fp32")) for n in range(60)]
print(json.dumps(dict(device=dict(known, limits=limits), cases=cases)), flush=True)
for index in range(len(json.loads(sys.stdin.readline()))):
    time.sleep(0.02)
    print(json.dumps(dict(done=index, result=dict(unit="us", value=5.0, low=4.0, high=6.0, count=9))), flush=True)
print(json.dumps(dict(finished=True)), flush=True)
"""
BENCH = f"""
import sys
from ledger.cli import main
from ledger.lab.bench import runner
runner.COMMAND = (sys.executable, "-c", {WORKER!r})
main()
"""
KEYS = ("parallelism.tensor=1", "parallelism.pipeline=1", "parallelism.zero=0,1", "run.micro_batch=1,2")
LAYOUTS = (*(word for key in KEYS for word in ("--over", key)), "--workers", "2")


@dataclass(frozen=True)
class Verb:
    """What is typed, with {out} for the folder, in two variants whose files have the same names and other contents."""

    words: tuple[str, ...]
    variants: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    program: tuple[str, ...] = ("-m", "ledger")
    appends: bool = False  # to its file, and goes on with what is there


VERBS: Mapping[str, Verb] = {
    "report": Verb(("report", "gpt2", "--out", "{out}"), ((), ("--set", "run.micro_batch=6"))),
    "sweep": Verb(("sweep", "gpt2", *LAYOUTS, "--out", "{out}/x.csv"), ((), ("--set", "run.seq_len=512"))),
    "bench": Verb(
        ("bench", "--device", "cpu", "--only", "stream", "--out", "{out}/a.yaml"),
        program=("-c", BENCH),
        appends=True,
    ),
    "score": Verb(("score",), (("{runs}/a/runs.csv", "--out", "{out}"), ("{runs}/b/runs.csv", "--out", "{out}"))),
    "calibrate": Verb(
        ("calibrate", "--out", "{out}/a.yaml", "--html", "{out}/a.html"),
        (("h100-sxm-send",), ("h100-sxm-send", "h100-sxm-nccl")),
    ),
}


@dataclass
class Place:
    """A folder for the files of a verb, and beside it all folders that it may use for others."""

    home: Path

    @property
    def out(self) -> Path:
        """Where its files go."""
        return self.home / "out"

    def start(self, verb: Verb, variant: int, mark: str = "") -> subprocess.Popen[bytes]:
        """A process of the verb, in a group of its own; all that come of it carry the mark."""
        for name in ("out", "tmp", "cache", "state"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        words = [word.format(out=self.out, runs=self.home / "runs") for word in (*verb.words, *verb.variants[variant])]
        folders = {"TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state"}
        environment = {name: self.home / folder for name, folder in folders.items()} | {"MARK": mark}
        return subprocess.Popen(
            [sys.executable, *verb.program, *words],
            cwd=ROOT,
            env=os.environ | {"LEDGER_SEARCH": "0"} | {name: str(value) for name, value in environment.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, verb: Verb, variant: int) -> float:
        """The verb from its beginning to its end; in how many seconds."""
        begin = time.monotonic()
        process = self.start(verb, variant)
        _, errors = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{' '.join(verb.words)}: {errors.decode()}")
        return time.monotonic() - begin

    def files(self) -> dict[str, bytes]:
        """The files in the folder, but those in the making."""
        return {path.name: path.read_bytes() for path in self.out.iterdir() if path.is_file() and not unfinished(path)}

    def left(self) -> list[Path]:
        """Everything that is in the making, or is temporary, anywhere."""
        several = [path for path in self.home.rglob("*") if unfinished(path) or "parts-" in path.name]
        return [*several, *(self.home / "tmp").iterdir()]


def unfinished(path: Path) -> bool:
    """Whether a file's name says that it is in the making."""
    return path.name.endswith(UNFINISHED)


def marked(mark: str) -> list[int]:
    """The processes that carry a mark in their environment; none where the system does not tell."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"MARK={mark}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def tables(home: Path) -> None:
    """Two tables of runs, of the same name."""
    rows = (ROOT / "specs" / "evidence" / "published-runs.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    for name, count in (("a", 6), ("b", 9)):
        (home / "runs" / name).mkdir(parents=True)
        (home / "runs" / name / "runs.csv").write_text("".join(rows[:count]), encoding="utf-8")
