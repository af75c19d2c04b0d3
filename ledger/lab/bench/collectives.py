"""Collectives and sends by size and number of ranks: a world of its own for each number, started by torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import IO

from torch.distributed import run

from ledger.lab.bench.cases import BenchCase, BenchResult, DeviceLimits, read_answer
from ledger.lab.bench.rig import BenchKind, Rig
from ledger.processes import end_with_input
from ledger.whole_files import scratch_folder

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
CUDA_SIZES = (64 * 1024, 1024**2, 16 * 1024**2, 256 * 1024**2)
CPU_SIZES = (64 * 1024, 1024**2, 16 * 1024**2)
RANKS = (2, 4, 8)
PATIENCE = 90.0  # seconds for a world to start, and for its next result
GRACE = 2.0  # seconds between the end of its output and its own


class WorldError(RuntimeError):
    """A world that did not start, or broke off."""


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Collectives x sizes x ranks: as many as there are GPUs, over NCCL; two or four processes of a CPU, over gloo."""
    cuda = limits.type == "cuda"
    backend, sizes = ("nccl", CUDA_SIZES) if cuda else ("gloo", CPU_SIZES)
    for ranks in RANKS:
        if ranks > limits.devices or (limits.quick and ranks > 2):
            continue
        for name in NAMES if ranks == 2 else NAMES[:-1]:  # a send is between two
            for size in sizes[1:2] if limits.quick else sizes:
                keys = {"ranks": ranks, "nodes": 1, "bytes": size, "backend": backend, "dtype": "fp32"}
                yield BenchCase("collective", name, keys)


def measure(cases: Sequence[BenchCase], rig: Rig) -> Iterator[BenchResult]:
    """One world for each number of ranks; where it fails, its cases say why."""
    for ranks, cases_of_world in groupby(cases, key=lambda case: int(case.keys["ranks"])):
        remaining = list(cases_of_world)
        try:
            for result in _world_results(ranks, tuple(remaining), rig):
                yield BenchResult(remaining.pop(0), result)
        except WorldError as error:
            yield from (BenchResult(case, {"error": str(error)}) for case in remaining)


def command(ranks: int, tasks: str, seconds: float) -> list[str]:
    """The command that starts a world on this machine."""
    return [sys.executable, "-m", "ledger.lab.bench.collectives", str(ranks), tasks, str(seconds)]


def _world_results(ranks: int, cases: Sequence[BenchCase], rig: Rig) -> Iterator[dict[str, object]]:
    """The result of each case, as rank 0 prints it; raises WorldError."""
    with scratch_folder() as folder, _launch_world(ranks, cases, rig, folder) as (process, errors):
        if process.stdout is None:
            raise WorldError(f"the world of {ranks} ranks has no output")
        for _ in cases:
            answer = read_answer(process.stdout, PATIENCE)
            if answer is None:
                raise WorldError(f"the world of {ranks} ranks {_exit_reason(process)}{_last_error(errors)}")
            yield answer


@contextmanager
def _launch_world(
    ranks: int, cases: Sequence[BenchCase], rig: Rig, folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The processes of a world, none of which outlives the block."""
    tasks = f"{folder}/tasks.json"
    with open(tasks, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump([case.record for case in cases], file)
    threads = max(1, (os.cpu_count() or 1) // ranks)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)}
    with open(f"{folder}/errors", "w+b") as errors:  # noqa: PTH123
        process = subprocess.Popen(  # noqa: S603
            command(ranks, tasks, rig.seconds),
            bufsize=0,  # a line in a buffer would not wake who waits for it
            stdin=subprocess.PIPE,  # it ends when this is closed, also by the end of this process
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
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()


def _exit_reason(process: subprocess.Popen[bytes]) -> str:
    """How a world ended that says no more, or that it has not."""
    try:
        return f"ended with {process.wait(GRACE)}"
    except subprocess.TimeoutExpired:
        return f"gave no answer in {PATIENCE:.0f} s"


def _last_error(errors: IO[bytes]) -> str:
    """The last thing that a world said of its errors."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if "Error" in line]
    return f": {lines[-1][:200]}" if lines else ""


COLLECTIVE = BenchKind("collective", cases, measure)


# --- the processes of a world ---


def main(ranks: str, tasks: str, seconds: str) -> None:
    """Measures every case of a file of tasks in so many ranks, to which torchrun gives sessions of their own."""
    end_with_input()
    torchrun = ["--standalone", f"--nproc-per-node={ranks}", "-m", "ledger.lab.bench.collective_rank"]
    run.main([*torchrun, tasks, seconds])


if __name__ == "__main__":
    main(*sys.argv[1:])
