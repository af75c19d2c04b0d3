"""How long `ledger ci` takes on thirty plans: each change of a small repository, and one that affects every plan.

    python benchmarks/ci.py

Wall and processor seconds of a cold process, the median of three.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from plan_repository import CHANGES, build, commit, edit, git

HERE = Path(__file__).resolve().parents[1]
TURNS = 3


def edit_everything(folder: Path) -> None:
    """Both networks and the price of every plan: thirty plans, each of two causes."""
    for path in sorted(folder.glob("*/*.yaml")):
        if path.parent.name != "hw":
            edit(path, ("per_device_hour: 2.50", "per_device_hour: 2.00"))
    edit(folder / "hw" / "cloud.yaml", ("400 Gb/s", "300 Gb/s"))
    edit(folder / "hw" / "pod.yaml", ("400 Gb/s", "300 Gb/s"))


@dataclass(frozen=True)
class Turn:
    """Seconds of one process, on the wall and of the processor, and the line that decides."""

    wall: float
    user: float
    said: str


def turn(folder: Path, base: str, head: str) -> Turn:
    """One process."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    words = [sys.executable, "-m", "ledger", "ci", "--base", base, "--head", head]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begun
    said = done.stdout.splitlines()[0] if done.stdout else done.stderr
    return Turn(wall, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, said)


def main() -> None:
    """Prints a line per change."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "plans"
        commits = list(build(folder))
        git(folder, "checkout", "--quiet", "--detach", commits[0])
        edit(folder / "hw" / "cloud.yaml", ("200 Gb/s", "400 Gb/s"))
        edit_everything(folder)
        everything = commit(folder, "Every plan")
        pairs = [*zip(CHANGES, commits[:-1], commits[1:], strict=True), ("Every plan", commits[0], everything)]
        for subject, base, head in (("", commits[0], commits[0]), *pairs):
            turns = [turn(folder, base, head) for _ in range(TURNS)]
            wall, user = median(one.wall for one in turns), median(one.user for one in turns)
            print(f"{wall:8.2f} s{user:8.2f} s  {subject or 'No change'}: {turns[0].said}", flush=True)


if __name__ == "__main__":
    main()
