"""How long the compiler takes: cold processes as a user starts them, and each stage on its own.

Usage: python benchmarks/compile.py SPEC. Medians of fresh processes, or of calls in one process.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

import ledger

PROCESSES = 5
CALLS = 20


def seconds(work: Callable[[], object], times: int) -> float:
    """The median wall time of one call."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken)


def process(*args: str) -> Callable[[], object]:
    """Runs the command line in a fresh interpreter."""
    return lambda: subprocess.run([sys.executable, "-m", "ledger", *args], check=True, stdout=subprocess.DEVNULL)


def stages(spec: str) -> list[tuple[str, Callable[[], object]]]:
    """Each arrow of the compiler on its own, warm."""
    from ledger.books import compiler, kernels
    from ledger.books.closed import close
    from ledger.model.program import program
    from ledger.model.schedule import roles
    from ledger.report.html import render
    from ledger.report.views.parts import Report
    from ledger.spec.load import load_plan

    plan = load_plan(spec)
    books = close(plan, roles(plan))
    compiled = compiler.compile_plan(plan)
    return [
        ("spec: text to plan", lambda: load_plan(spec)),
        ("model: plan to one device's operations, each role", lambda: [program(plan, role) for role in roles(plan)]),
        ("books: operations to entries, bound", lambda: close(plan, roles(plan))),
        ("books: prices", lambda: [list(kernels.priced(book.ledger, plan, book.value)) for book in books]),
        ("books: all of it, plan to totals and verdict", lambda: compiler.compile_plan(plan)),
        ("report: compiled plan to HTML", lambda: render(Report(compiled))),
    ]


def main(spec: str) -> None:
    """Prints a line per figure."""
    print(f"{platform.machine()}, Python {platform.python_version()}, {spec}")
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            ("ledger --help", process("--help"), PROCESSES),
            ("ledger show --json", process("show", spec, "--json"), PROCESSES),
            ("ledger report, HTML alone", process("report", spec, "--format", "html", "--out", folder), PROCESSES),
            ("ledger report, HTML and PDF", process("report", spec, "--out", folder), 1),
        ]
        for title, work, times in runs:
            print(f"{seconds(work, times):8.3f} s  {title}, a process")
    print(f"{seconds(lambda: ledger.compile(spec), CALLS):8.3f} s  ledger.compile, warm")
    print(f"{seconds(lambda: ledger.compile(spec, ['run.seq_len=4096']), CALLS):8.3f} s  ledger.compile, another size")
    for title, work in stages(spec):
        print(f"{seconds(work, CALLS):8.3f} s  {title}")


if __name__ == "__main__":
    main(sys.argv[1])
