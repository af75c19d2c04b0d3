"""Collectives and sends by size and number of ranks: a world of its own for each number, started by torchrun."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import IO

from ledger.lab.bench.cases import Case, Kind, Limits, Measured
from ledger.lab.bench.rig import Rig

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
CUDA_SIZES = (64 * 1024, 1024**2, 16 * 1024**2, 256 * 1024**2)
CPU_SIZES = (64 * 1024, 1024**2, 16 * 1024**2)
RANKS = (2, 4, 8)
PATIENCE = 90.0  # seconds for a world to start, and for its next result
GRACE = 2.0  # seconds between the end of its output and its own


class WorldError(RuntimeError):
    """A world that did not start, or broke off."""


def cases(limits: Limits) -> Iterator[Case]:
    """Collectives x sizes x ranks: as many as there are GPUs, over NCCL; two or four processes of a CPU, over gloo."""
    cuda = limits.sort == "cuda"
    backend, sizes = ("nccl", CUDA_SIZES) if cuda else ("gloo", CPU_SIZES)
    for ranks in RANKS:
        if ranks > limits.devices or (limits.quick and ranks > 2):
            continue
        for name in NAMES:
            if name == "send" and ranks > 2:
                continue
            for size in sizes[1:2] if limits.quick else sizes:
                yield Case(
                    "collective", name, {"ranks": ranks, "nodes": 1, "bytes": size, "backend": backend, "dtype": "fp32"}
                )


def measure(cases: Sequence[Case], rig: Rig) -> Iterator[Measured]:
    """One world for each number of ranks; where it fails, its cases say why."""
    for ranks, some in groupby(cases, key=lambda case: int(case.keys["ranks"])):
        mine = list(some)
        done = 0
        try:
            for found in _world(ranks, mine, rig):
                yield Measured(mine[done], found)
                done += 1
        except WorldError as error:
            for case in mine[done:]:
                yield Measured(case, {"error": str(error)})


def command(ranks: int, tasks: str, seconds: float) -> list[str]:
    """What starts a world on this machine."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*torchrun, "-m", "ledger.lab.bench.collective_rank", tasks, str(seconds)]


def _world(ranks: int, cases: Sequence[Case], rig: Rig) -> Iterator[dict[str, object]]:
    """The result of each case, as rank 0 prints it; raises WorldError."""
    with tempfile.TemporaryDirectory() as folder, _started(ranks, cases, rig, folder) as (process, errors):
        if process.stdout is None:
            raise WorldError(f"the world of {ranks} ranks has no output")
        for _ in cases:
            line = _line(process.stdout, time.monotonic() + PATIENCE)
            if line is None:
                raise WorldError(f"the world of {ranks} ranks {_end(process)}{_last(errors)}")
            yield json.loads(line)


@contextmanager
def _started(
    ranks: int, cases: Sequence[Case], rig: Rig, folder: str
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The processes of a world, none of which outlives the block."""
    tasks = f"{folder}/tasks.json"
    with open(tasks, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump([case.record for case in cases], file)
    threads = max(1, (os.cpu_count() or 1) // ranks)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    with open(f"{folder}/errors", "w+b") as errors:  # noqa: PTH123
        process = subprocess.Popen(  # noqa: S603
            command(ranks, tasks, rig.seconds),
            bufsize=0,  # a line in a buffer would not wake who waits for it
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        try:
            yield process, errors
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout:
                process.stdout.close()


def _line(stream: IO[bytes], until: float) -> bytes | None:
    """The next line of results; None where none comes in time, or no more."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(stream, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            if not waiting.select(left):
                return None
            line = stream.readline()
            if not line:
                return None
            if line.startswith(b"{"):
                return line
    return None


def _end(process: subprocess.Popen[bytes]) -> str:
    """How a world ended that says no more, or that it has not."""
    try:
        return f"ended with {process.wait(GRACE)}"
    except subprocess.TimeoutExpired:
        return f"gave no answer in {PATIENCE:.0f} s"


def _last(errors: IO[bytes]) -> str:
    """The last thing that a world said of its errors."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if "Error" in line]
    return f": {lines[-1][:200]}" if lines else ""


COLLECTIVE = Kind("collective", cases, measure)
