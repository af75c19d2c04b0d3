"""Measures a suite: a worker process makes the records, this one keeps them, and goes on where a worker fails.

Knows no torch.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from ledger import __version__
from ledger.evidence.microbenchmarks.records import identity
from ledger.lab.bench.cases import BenchCase, BenchResult, DeviceLimits, MeasuredDevice, read_answer
from ledger.lab.bench.records import EvidenceFile, append_record, open_evidence
from ledger.lab.bench.step_plans import step_records_plan

COMMAND = (sys.executable, "-m", "ledger.lab.bench.worker")
START_TIMEOUT = 120.0  # seconds for a worker to import torch and find its device
CASE_TIMEOUT = 300.0  # seconds without a sign of a case after which its worker is ended
ERROR = re.compile(r"[\w.]*(Error|Exception)\b")  # how the last line of a traceback begins; CUDA's goes on for several
FINISH = 5.0  # seconds between the last answer of a worker and its end
LEAVE = 0.5  # seconds for a worker to end the processes that it has started
TRIES = 5  # workers in a row that fail before they have measured anything
# A heap that is given back and asked for again would cost a page fault for every 4 KiB of it, in every operation.
CPU_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_MMAP_MAX_": "0", "MALLOC_TOP_PAD_": str(64 * 2**20)}


@dataclass(frozen=True)
class BenchSettings:
    """What was asked for: the device, threads of a CPU (0: all), a quick suite, seconds for a case, kinds (none: all).

    A worker gets them as its first line.
    """

    device: str
    threads: int = 0
    quick: bool = False
    seconds: float = 0.2
    hold: float = 1.0  # for kernels that draw most power
    only: tuple[str, ...] = ()


# What would change how fast a GPU is, or how much memory a plan is said to reserve, is not taken from a shell.
IGNORED_VARIABLES = (
    *("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
)


class DeviceError(RuntimeError):
    """The device cannot be measured, or can no longer."""


@dataclass
class Worker:
    """A process that measures. It is ended with the block that it is used in."""

    settings: BenchSettings
    errors: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - this very program
            COMMAND,
            bufsize=0,  # a line in a buffer would not wake who waits for it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=worker_environment(self.settings.device),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LEAVE)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream:
                stream.close()

    def send(self, message: Any) -> None:
        """One line to the worker; a worker that is gone is noticed when it should answer."""
        if self.process.stdin:
            with suppress(BrokenPipeError):
                self.process.stdin.write((json.dumps(message) + "\n").encode())

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; None where the worker is gone, or gives none in time."""
        return read_answer(self.process.stdout, seconds) if self.process.stdout else None

    def failure(self, seconds: float) -> str:
        """How it ended, in words: the last error it printed, or the signal; killed where it gave no answer in time."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return f"no answer in {seconds:.0f} s"
        if code == -9:
            return "the process was killed (signal 9), as a machine out of memory does"
        self.errors.seek(0)
        lines = [text.strip() for text in self.errors.read().decode(errors="replace").splitlines() if text.strip()]
        errors = [text for text in lines if ERROR.match(text)] or lines[-1:]
        how = f"the process ended by signal {-code}" if code < 0 else f"the process ended with {code}"
        return errors[-1][:200] if errors else how

    def device(self) -> tuple[MeasuredDevice, tuple[BenchCase, ...]]:
        """Its device, and all cases that there are for it; raises DeviceError."""
        self.send(asdict(self.settings))
        answer = self.receive(START_TIMEOUT)
        if answer is None:
            raise DeviceError(f"the device cannot be used: {self.failure(START_TIMEOUT)}")
        if "no_device" in answer:
            raise DeviceError(answer["no_device"])
        facts = answer["device"]
        limits = DeviceLimits(**{**facts["limits"], "dtypes": tuple(facts["limits"]["dtypes"])})
        return MeasuredDevice(**{**facts, "limits": limits}), tuple(BenchCase(**case) for case in answer["cases"])


def file_head(device: MeasuredDevice, when: datetime) -> dict[str, Any]:
    """The head of an evidence file."""
    return {
        "spec": "ledger/1",
        "evidence": f"{device.title}, measured by ledger bench",
        "device": device.name,
        "source": f"`ledger bench` {__version__} on the device itself, {when.date().isoformat()}",
        "origin": {**device.origin, "date": when.date().isoformat()},
        "hardware": device.hardware,
        "plan": step_records_plan(device.limits.type, device.name),
    }


def bench(
    settings: BenchSettings,
    where: Callable[[str], Path],
    *,
    retry: bool = False,
    begin: Callable[[EvidenceFile, int], None],
) -> Iterator[tuple[BenchCase, BenchResult | None]]:
    """Every case that the file at `where(name)` has not: with None when it begins, and when it is kept.

    `begin` is told the file and how many are to come. Raises DeviceError, and SpecError for a file of something else.
    """
    now = datetime.now(UTC)
    with Worker(settings) as worker:
        device, cases = worker.device()
        name = f"{device.name}-{now.date().isoformat()}.yaml"
        file = open_evidence(where(name), file_head(device, now), retry=retry)
        todo = [case for case in cases if identity(case.record) not in file.identities]
        begin(file, len(todo))
        remaining = yield from _run_cases(worker, todo, file)
    failures = 0
    while remaining:
        progress = f"{len(todo) - len(remaining)} of {len(todo)} are kept"
        if failures >= TRIES:
            raise DeviceError(f"the device fails in every case; {progress}")
        with Worker(settings) as worker:
            try:
                worker.device()
            except DeviceError as error:
                raise DeviceError(f"{error}; {progress}") from error
            before = len(remaining)
            remaining = yield from _run_cases(worker, remaining, file)
            failures = failures + 1 if len(remaining) >= before - 1 else 0


def _run_cases(
    worker: Worker, todo: Sequence[BenchCase], file: EvidenceFile
) -> Generator[tuple[BenchCase, BenchResult | None], None, list[BenchCase]]:
    """Runs the cases in one worker, and returns those that are left where it fails.

    The case that it failed in is kept with the reason; where it failed between two, none is.
    """
    if not todo:
        return []
    worker.send([asdict(case) for case in todo])
    done, begun = 0, -1
    while done < len(todo):
        answer = worker.receive(CASE_TIMEOUT)
        if answer is None and begun < done:
            break
        if answer is None:
            measured = BenchResult(todo[done], {"error": worker.failure(CASE_TIMEOUT)})
        elif "begun" in answer:
            begun = answer["begun"]
            yield todo[begun], None
            continue
        elif "done" in answer:
            measured = BenchResult(todo[answer["done"]], answer["result"])
        else:  # finished, or lost
            break
        append_record(file, measured)
        done += 1
        yield measured.case, measured
        if answer is None:
            break
    else:
        worker.receive(FINISH)  # by then the ranks of its last cases have ended
    return list(todo[done:])


def worker_environment(device: str) -> dict[str, str]:
    """The environment of a worker: this process's, without what would change how fast the device is."""
    inherited = {name: value for name, value in os.environ.items() if name not in IGNORED_VARIABLES}
    return {**inherited, **(CPU_ENVIRONMENT if device == "cpu" else {})}
