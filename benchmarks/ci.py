"""How long `ledger ci` takes on thirty plans: each change of a small repository, and one that affects every plan.

    python benchmarks/ci.py

Wall and processor seconds of a cold process, the median of three.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from plan_repository import CHANGES, build, commit, edit, git
from timing import Seconds, medians, timed

HERE = Path(__file__).resolve().parents[1]
TURNS = 3


def edit_everything(folder: Path) -> None:
    """Both networks and the price of every plan: thirty plans, each of two causes."""
    for path in sorted(folder.glob("*/*.yaml")):
        if path.parent.name != "hw":
            edit(path, ("per_device_hour: 2.50", "per_device_hour: 2.00"))
    edit(folder / "hw" / "cloud.yaml", ("400 Gb/s", "300 Gb/s"))
    edit(folder / "hw" / "pod.yaml", ("400 Gb/s", "300 Gb/s"))


def compare(folder: Path, base: str, head: str) -> tuple[Seconds, str]:
    """What `ledger ci` takes in a fresh interpreter on two revisions, and the line of it that decides."""
    words = [sys.executable, "-m", "ledger", "ci", "--base", base, "--head", head]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    taken, done = timed(
        lambda: subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    )
    return taken, done.stdout.splitlines()[0] if done.stdout else done.stderr


def main() -> None:
    """Prints a line of seconds for each change of the repository, for none, and for one of every plan."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "plans"
        commits = list(build(folder))
        git(folder, "checkout", "--quiet", "--detach", commits[0])
        edit(folder / "hw" / "cloud.yaml", ("200 Gb/s", "400 Gb/s"))
        edit_everything(folder)
        everything = commit(folder, "Every plan")
        pairs = [*zip(CHANGES, commits[:-1], commits[1:], strict=True), ("Every plan", commits[0], everything)]
        for subject, base, head in (("", commits[0], commits[0]), *pairs):
            turns = [compare(folder, base, head) for _ in range(TURNS)]
            taken, said = medians(seconds for seconds, _ in turns), turns[0][1]
            print(f"{taken.wall:8.2f} s{taken.user:8.2f} s  {subject or 'No change'}: {said}", flush=True)


if __name__ == "__main__":
    main()
