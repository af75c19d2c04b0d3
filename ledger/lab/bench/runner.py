"""Measures a suite: a worker process makes the records, this one keeps them, and goes on where a worker fails.

Knows no torch.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol, Self

from ledger import __version__
from ledger.evidence.microbenchmarks.records import identity
from ledger.lab.bench.cases import Case, Limits, Measured
from ledger.lab.bench.plans import plan
from ledger.lab.bench.records import Book, add, opened
from ledger.lab.bench.table import suite
from ledger.lab.bench.worker import COMMAND, KEPT

START = 120.0  # seconds for a worker to import torch and find its device
PATIENCE = 300.0  # seconds without a sign of a case after which its worker is ended
ERROR = re.compile(r"[\w.]*(Error|Exception)\b")  # how the last line of a traceback begins; CUDA's goes on for several
TRIES = 5  # workers in a row that fail before they have measured anything


@dataclass(frozen=True)
class Settings:
    """What was asked for: the device, threads of a CPU (0: all), a quick suite, seconds for a case."""

    device: str
    threads: int = 0
    quick: bool = False
    seconds: float = 0.2
    hold: float = 1.0  # for kernels that draw most power
    only: tuple[str, ...] = ()


class Described(Protocol):
    """What the head of a file says of a device."""

    @property
    def name(self) -> str:
        """Its name as a spec."""

    @property
    def title(self) -> str:
        """What it calls itself."""

    @property
    def origin(self) -> Mapping[str, Any]:
        """With what it was measured."""

    @property
    def hardware(self) -> Mapping[str, Any]:
        """What it says of itself."""

    @property
    def limits(self) -> Limits:
        """What decides its cases."""


@dataclass(frozen=True)
class Found:
    """What a worker says of its device, as an evidence file has it."""

    name: str
    title: str
    origin: dict[str, Any]
    hardware: dict[str, Any]
    limits: Limits


# What would change how fast a GPU is, or how much memory a plan is said to reserve, is not taken from a shell.
UNWANTED = (
    *("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
)


class DeviceError(RuntimeError):
    """The device cannot be measured, or can no longer."""


@dataclass
class Worker:
    """A process that measures. It is ended with the block that it is used in."""

    settings: Settings
    errors: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - this very program
            COMMAND,
            bufsize=0,  # a line in a buffer would not wake who waits for it
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment(self.settings.device),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream:
                stream.close()

    def tell(self, what: Any) -> None:
        """One line to the worker; a worker that is gone is noticed when it should answer."""
        if self.process.stdin:
            with suppress(BrokenPipeError):
                self.process.stdin.write((json.dumps(what) + "\n").encode())

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; None where the worker is gone, or gives none in time."""
        stream = self.process.stdout
        if stream is None:
            return None
        with selectors.DefaultSelector() as waiting:
            waiting.register(stream, selectors.EVENT_READ)
            if not waiting.select(seconds):
                return None
        text = stream.readline()
        return json.loads(text) if text.endswith(b"\n") else None

    def end(self) -> str:
        """How it ended, in words: the last error it printed, or the signal; it is killed where it still runs."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return f"no answer in {PATIENCE:.0f} s"
        if code == -9:
            return "the process was killed (signal 9), as a machine out of memory does"
        self.errors.seek(0)
        lines = [text.strip() for text in self.errors.read().decode(errors="replace").splitlines() if text.strip()]
        errors = [text for text in lines if ERROR.match(text)] or lines[-1:]
        how = f"the process ended by signal {-code}" if code < 0 else f"the process ended with {code}"
        return errors[-1][:200] if errors else how

    def found(self) -> Found:
        """What its device is; raises DeviceError."""
        told = {"device": self.settings.device, "threads": self.settings.threads, "quick": self.settings.quick}
        self.tell({**told, "seconds": self.settings.seconds, "hold": self.settings.hold})
        answer = self.answer(START)
        if answer is None:
            raise DeviceError(f"the device cannot be used: {self.end()}")
        if "no_device" in answer:
            raise DeviceError(answer["no_device"])
        known = answer["machine"]
        limits = Limits(**{**known["limits"], "dtypes": tuple(known["limits"]["dtypes"])})
        return Found(known["name"], known["title"], known["origin"], known["hardware"], limits)


def fields(found: Described, when: datetime) -> dict[str, Any]:
    """The head of an evidence file."""
    return {
        "spec": "ledger/1",
        "evidence": f"{found.title}, measured by ledger bench",
        "device": found.name,
        "source": f"`ledger bench` {__version__} on the device itself, {when.date().isoformat()}",
        "origin": {**found.origin, "date": when.date().isoformat()},
        "hardware": found.hardware,
        "plan": plan(found.limits.sort, found.name),
    }


def file_name(found: Found, when: datetime) -> str:
    """The name under which the library keeps a measurement."""
    return f"{found.name}-{when.date().isoformat()}.yaml"


def bench(
    settings: Settings, where: Callable[[str], Path], *, retry: bool = False, begin: Callable[[Book, int], None]
) -> Iterator[tuple[Case, Measured | None]]:
    """Every case that the file at `where(name)` has not: with None when it begins, and when it is kept.

    `begin` is told the file and how many are to come. Raises DeviceError, and SpecError for a file of something else.
    """
    now = datetime.now(UTC)
    with Worker(settings) as first:
        found = first.found()
        book = opened(where(file_name(found, now)), fields(found, now), retry=retry)
        todo = [case for case in suite(found.limits, settings.only) if identity(case.record) not in book.known]
        begin(book, len(todo))
        left = yield from _portion(first, todo, book)
    failures = 0
    while left:
        with Worker(settings) as worker:
            try:
                worker.found()
            except DeviceError as error:
                raise DeviceError(f"{error}; {len(todo) - len(left)} of {len(todo)} are kept") from error
            before = len(left)
            left = yield from _portion(worker, left, book)
            failures = failures + 1 if len(left) >= before - 1 else 0
        if failures >= TRIES and left:
            raise DeviceError(f"the device fails in every case; {len(todo) - len(left)} of {len(todo)} are kept")


def _portion(worker: Worker, todo: Sequence[Case], book: Book) -> Any:
    """What one worker makes of the cases; returns those that are left where it fails.

    The case that it failed in is kept with the reason; where it failed between two, none is.
    """
    if not todo:
        return []
    worker.tell([asdict(case) for case in todo])
    done, begun = 0, -1
    while done < len(todo):
        answer = worker.answer(PATIENCE)
        if answer is None and begun < done:
            break
        if answer is None:
            measured = Measured(todo[done], {"error": worker.end()})
        elif "begun" in answer:
            begun = answer["begun"]
            yield todo[begun], None
            continue
        elif "done" in answer:
            measured = Measured(todo[answer["done"]], answer["result"])
        else:  # finished, or lost
            break
        add(book, measured)
        done += 1
        yield measured.case, measured
        if answer is None:
            break
    return list(todo[done:])


def environment(device: str) -> dict[str, str]:
    """What a worker is started with."""
    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    return {**kept, **(KEPT if device == "cpu" else {})}
