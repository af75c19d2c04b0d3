"""How long the compiler takes: cold processes as a user starts them, a warm compile, and each stage on its own.

    python benchmarks/compile.py [SPEC] [--score TABLE]       # seconds beside what an idle machine may take
    python benchmarks/compile.py [SPEC] --only report         # what has this text in its title
    python benchmarks/compile.py [SPEC] --against ../before   # another checkout too, turn by turn, and the ratios

Medians; user seconds are of the processor, which other work on the machine moves less than the wall's. `loops` are the
same seconds over those of a fixed loop in Python, which takes its turn beside each: they can be compared between runs
and machines. Of two checkouts both take turns within one run, so that a ratio below 1 says that this one is faster,
whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from timing import Seconds, loop_seconds, medians, timed

HERE = Path(__file__).resolve().parents[1]
CALLS = 20
# Prints the median wall and processor seconds of a compile in a process that has compiled the plan before.
WARM = """
import json, statistics, sys, time, ledger
_, spec, calls, *overrides = sys.argv
ledger.compile(spec)
walls, users = [], []
for _ in range(int(calls)):
    wall, user = time.perf_counter(), time.process_time()
    ledger.compile(spec, overrides)
    walls.append(time.perf_counter() - wall)
    users.append(time.process_time() - user)
print(json.dumps([statistics.median(walls), statistics.median(users)]))
"""


@dataclass(frozen=True)
class Figure:
    """One line of the table: how it is measured in a checkout, how often, and the `limit` of its wall seconds."""

    title: str
    measure: Callable[[Path], Seconds]
    times: int
    limit: float | None = None


def start(tree: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Runs Python on the package of a checkout, from its root."""
    return subprocess.run(
        [sys.executable, *words],
        check=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "LEDGER_SEARCH": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def process(*words: str) -> Callable[[Path], Seconds]:
    """Measures a command of `ledger` of a checkout in a fresh interpreter."""

    def measure(tree: Path) -> Seconds:
        return timed(lambda: start(tree, "-m", "ledger", *words))[0]

    return measure


def warm(spec: str, *overrides: str) -> Callable[[Path], Seconds]:
    """Measures the median compile of a plan, with overrides, in a process that has compiled it without them."""

    def measure(tree: Path) -> Seconds:
        wall, user = json.loads(start(tree, "-c", WARM, spec, str(CALLS), *overrides).stdout)
        return Seconds(wall, user)

    return measure


def figures(spec: str, table: str, folder: str, runs: int) -> Iterator[Figure]:
    """What is measured; limits are those of an idle machine of two cores."""
    html = ("report", spec, "--out", folder, "--format", "html")
    both = (*html[:-1], "html,pdf")
    yield Figure("ledger --help, a process", process("--help"), runs, 0.08)
    yield Figure("ledger show --json, a process", process("show", spec, "--json"), runs, 0.75)
    yield Figure("ledger report, HTML alone, a process", process(*html), runs, 1.6)
    yield Figure("ledger report, HTML and PDF, a process", process(*both), -(-runs // 2), 6.0)
    yield Figure("ledger.compile, warm", warm(spec), -(-runs // 2), 0.044)
    yield Figure("ledger.compile, warm, another size", warm(spec, "run.seq_len=4096"), -(-runs // 2))
    if table:
        yield Figure(f"ledger score {Path(table).name}, a process", process("score", table), 1, 33.0)


def measured(figure: Figure, trees: Sequence[Path]) -> list[Seconds]:
    """The medians of the loop and of each checkout, which take turns."""
    turns = [[loop_seconds(), *(figure.measure(tree) for tree in trees)] for _ in range(figure.times)]
    return [medians(some) for some in zip(*turns, strict=True)]


def compare(wanted: Callable[[str], Iterator[Figure]], trees: Sequence[Path], spec: str) -> None:
    """Prints a line per figure: seconds and loops of this checkout, its limit, of two the other's and the ratios."""
    for tree in trees:
        start(tree, "-m", "ledger", "show", spec)  # writes the byte code that a later process reads
    other = "  other's wall  user's ratio  wall's ratio" if trees[1:] else ""
    print(f"      wall      user  wall's loops  user's loops{other}  limit")
    with tempfile.TemporaryDirectory() as folder:
        for figure in wanted(folder):
            loop, own, *others = measured(figure, trees)
            line = f"{own.wall:8.3f} s{own.user:8.3f} s{own.wall / loop.wall:14.2f}{own.user / loop.user:14.2f}"
            for one in others:
                line += f"{one.wall:12.3f} s{own.user / one.user:14.3f}{own.wall / one.wall:14.3f}"
            limit = f"{figure.limit:5.3g} s" if figure.limit else "       "
            print(f"{line}  {limit}  {figure.title}", flush=True)


def stages(spec: str) -> None:
    """Prints what each arrow of the compiler takes on its own, warm, in this process."""
    from ledger.books import compiler, kernels
    from ledger.books.compiled_roles import compile_roles
    from ledger.model.program import program
    from ledger.model.schedule import roles
    from ledger.report.html import render
    from ledger.report.views.parts import Report
    from ledger.spec.load import load_plan

    plan = load_plan(spec)
    books = compile_roles(plan, roles(plan))
    compiled = compiler.compile_plan(plan)
    works: list[tuple[str, Callable[[], object]]] = [
        ("spec: text to plan", lambda: load_plan(spec)),
        ("model: plan to one device's operations, each role", lambda: [program(plan, role) for role in roles(plan)]),
        ("books: operations to entries, bound", lambda: compile_roles(plan, roles(plan))),
        ("books: prices", lambda: [list(kernels.price_calls(book.ledger, plan, book.value)) for book in books]),
        ("books: all of it, plan to totals and verdict", lambda: compiler.compile_plan(plan)),
        ("report: compiled plan to HTML", lambda: render(Report(compiled))),
    ]
    for title, work in works:
        taken = []
        for _ in range(CALLS):
            begun = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begun)
        print(f"{median(taken):8.3f} s  {title}")


def main() -> None:
    """Prints a line for each figure of this checkout, and for each stage where there is no other to compare with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", nargs="?", default="specs/70b.yaml", help="a plan, by its path in each checkout")
    parser.add_argument("--score", default="", metavar="TABLE", help="a table of measured runs to predict too")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--only", default="", metavar="TEXT", help="figures whose titles hold this text")
    parser.add_argument("--runs", type=int, default=5, help="turns of a figure")
    args = parser.parse_args()
    trees = [HERE, *([args.against.resolve()] if args.against else [])]
    print(f"{platform.machine()}, Python {platform.python_version()}, {args.spec}")
    table = str(Path(args.score).resolve()) if args.score else ""

    def wanted(folder: str) -> Iterator[Figure]:
        return (one for one in figures(args.spec, table, folder, args.runs) if args.only in one.title)

    compare(wanted, trees, args.spec)
    if not args.against and not args.only:
        stages(args.spec)


if __name__ == "__main__":
    main()
