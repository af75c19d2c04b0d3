"""How long `make test` takes by folder, file or function: a pytest plugin, and the command that runs tests with it.

    python benchmarks/suite.py [--by folder|file|function] [PYTEST ARGUMENTS]    # `make test-times`

Seconds of the processor are of the test's process and of what PyTorch judges beside it; other work on the machine moves
them less than the wall's. A fixture counts where it is made. What pytest itself takes is the difference to the whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """User and system seconds of this process, its children and the server whose forks judge ranks (Linux alone)."""
    seconds = sum(os.times()[:4])
    server = getattr(forkserver._forkserver, "_forkserver_pid", None)  # noqa: SLF001  # has no public name
    stat = Path(f"/proc/{server}/stat")
    if server is None or not stat.exists():
        return seconds
    fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
    return seconds + sum(map(int, fields[11:15])) / TICKS  # utime, stime, cutime, cstime (proc_pid_stat(5))


@dataclass(eq=False)
class Timer:
    """Seconds of each test file: told by the process that runs a test, summed up by the one that reports."""

    by: str
    started: float = field(default_factory=time.perf_counter)
    before: float = 0.0
    tests: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wall: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    processor: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def pytest_runtest_logstart(self) -> None:
        """A test begins, with its fixtures."""
        self.before = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Each phase's report carries the processor's seconds, also from one process to another."""
        report: Any = yield
        now = processor_seconds()
        report.processor_seconds, self.before = now - self.before, now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Adds a phase (set-up, call, tear-down) of a test to its folder, file or function, where all are heard of."""
        if not hasattr(report, "processor_seconds") or os.environ.get("PYTEST_XDIST_WORKER"):
            return
        file, _, function = report.nodeid.partition("::")
        parts = Path(file).parts
        key = {
            "folder": str(Path(*parts[: 2 if len(parts) > 2 else 1])),
            "file": file,
            "function": f"{file}::{function.partition('[')[0]}",
        }[self.by]
        self.tests[key] += report.when == "call"
        self.wall[key] += report.duration
        self.processor[key] += report.processor_seconds

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints seconds and numbers of tests by folder, file or function, what takes most of the processor first."""
        if not self.tests:
            return
        terminalreporter.section(f"seconds by {self.by}")
        width = max(map(len, self.tests))
        for key in sorted(self.tests, key=lambda key: -self.processor[key]):
            row = f"{key:<{width}} {self.tests[key]:>7} tests {self.wall[key]:>8.1f} s"
            terminalreporter.write_line(f"{row} {self.processor[key]:>8.1f} s of processor")
        total = f"{'together':<{width}} {sum(self.tests.values()):>7} tests {sum(self.wall.values()):>8.1f} s"
        terminalreporter.write_line(f"{total} {sum(self.processor.values()):>8.1f} s of processor")
        terminalreporter.write_line(f"wall, with start and collection: {time.perf_counter() - self.started:.1f} s")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that says over what seconds are added up."""
    parser.addoption("--by", choices=("folder", "file", "function"), default="folder", help="Add seconds up by these.")


def pytest_configure(config: pytest.Config) -> None:
    """Times the tests of this process, be it the only one or one of several workers."""
    config.pluginmanager.register(Timer(config.getoption("--by")))


def main() -> None:
    """Runs pytest with this module as a plugin; its exit status is pytest's."""
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", "-p", "suite", *sys.argv[1:]]
    sys.exit(subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode)


if __name__ == "__main__":
    main()
