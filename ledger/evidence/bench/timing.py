"""Seconds of repeated work: warm-up, many samples, the median and the quartiles.

Imports torch inside functions only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles
from typing import Any

FEWEST = 5  # samples, however long one takes; fewer say nothing of the spread
MOST = 2000
WARM = 4  # pieces of work before any is timed
CPU_SAMPLE = 200e-6  # a sample much longer than the clock's resolution and the cost of reading it
CUDA_SAMPLE = 2e-3  # many launches between two events, whose resolution is half a microsecond
SHORT = 100e-6  # operations that may end before the host has sent the next are replayed from a graph
QUEUED = 8  # samples the host may be ahead of the device


@dataclass(frozen=True)
class Work:
    """What is repeated: `run(i)` works on the i-th of `sets` equal sets of buffers, and is so many `operations`."""

    run: Callable[[int], object]
    sets: int = 1
    operations: int = 1
    capturable: bool = True  # may be recorded into a CUDA graph


@dataclass(frozen=True)
class Spread:
    """Seconds of one piece of work: the median, the quartiles, how many samples, and what told the time."""

    value: float
    low: float
    high: float
    count: int
    timer: str


def spread(samples: Sequence[float], timer: str) -> Spread:
    """Median and quartiles."""
    if len(samples) < 2:
        return Spread(samples[0], samples[0], samples[0], len(samples), timer)
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return Spread(median(samples), low, high, len(samples), timer)


def host_clock(threads: int) -> tuple[Callable[[], float], str]:
    """The clock for work of so many threads on the host, and its name.

    One thread is timed by the seconds that it ran: what else a shared machine does meanwhile is not its work. Several
    threads wait for each other, so there the clock on the wall counts.
    """
    return (time.process_time, "processor clock") if threads == 1 else (time.perf_counter, "host clock")


def on_cpu(work: Work, seconds: float, threads: int, fewest: int = FEWEST) -> Spread:
    """Work of so many threads timed by the host for at least so many seconds, after warming up."""
    clock, name = host_clock(threads)
    for index in range(max(WARM, 2 * work.sets)):  # until results lie where memory was used before
        work.run(index % work.sets)
    begun = clock()
    work.run(0)
    inner = max(1, ceil(CPU_SAMPLE / max(clock() - begun, 1e-9)))
    samples: list[float] = []
    turn, until = 0, time.perf_counter() + seconds
    while len(samples) < fewest or (time.perf_counter() < until and len(samples) < MOST):
        begun = clock()
        for _ in range(inner):
            work.run(turn % work.sets)
            turn += 1
        samples.append((clock() - begun) / inner)
    return _each(spread(samples, name), work)


def on_cuda(work: Work, seconds: float, fewest: int = FEWEST) -> Spread:
    """Work timed by events of the device for at least so many seconds; of a long run the second half counts.

    By then a device that has to save power does so, as it does in a training run.
    """
    import torch

    for index in range(work.sets):
        work.run(index)
    torch.cuda.synchronize()
    rounds = max(2, work.sets)
    estimate = _between([lambda: [work.run(index % work.sets) for index in range(rounds)]])[0] / rounds
    inner = max(1, ceil(CUDA_SAMPLE / max(estimate, 1e-7)))
    once, timer = _repeated(work, inner, graph=work.capturable and estimate < SHORT * work.operations)
    samples: list[float] = []
    until = time.perf_counter() + seconds
    while len(samples) < fewest or (time.perf_counter() < until and len(samples) < MOST):
        samples += [found / inner for found in _between([once] * min(QUEUED, fewest))]
    return _each(spread(samples[len(samples) // 2 :] if len(samples) >= 2 * fewest else samples, timer), work)


def _repeated(work: Work, inner: int, *, graph: bool) -> tuple[Callable[[], object], str]:
    """So many pieces of work in a row: a graph where launching them one by one would be what is measured."""
    import torch

    def plain() -> None:
        for index in range(inner):
            work.run(index % work.sets)

    if not graph:
        return plain, "device events"
    recorded = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(recorded):
            plain()
    except RuntimeError:  # some kernels synchronise, and cannot be recorded
        torch.cuda.synchronize()
        return plain, "device events"
    return recorded.replay, "device events, CUDA graph"


def _between(pieces: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of each piece between two events on the device, all sent before the first is waited for."""
    import torch

    marks: list[tuple[Any, Any]] = []
    for piece in pieces:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        piece()
        end.record()
        marks.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e-3 for begin, end in marks]


def _each(found: Spread, work: Work) -> Spread:
    """The same of one operation."""
    share = 1 / work.operations
    return Spread(found.value * share, found.low * share, found.high * share, found.count, found.timer)
