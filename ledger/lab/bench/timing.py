"""Seconds of repeated work: warm-up, many samples, the median and the quartiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from statistics import median, quantiles

import torch

FEWEST = 5  # samples, however long one takes; fewer say nothing of the spread
MOST = 2000
WARM = 4  # pieces of work before any is timed, at least
CPU_SAMPLE = 200e-6  # a sample much longer than the clock's resolution and the cost of reading it
CUDA_SAMPLE = 2e-3  # many launches between two events, whose resolution is half a microsecond
EVENTS, GRAPH = "device events", "device events, CUDA graph"
SHORT = 100e-6  # operations that may end before the host has sent the next are replayed from a graph
QUEUED = 5  # samples the host may be ahead of the device


@dataclass(frozen=True)
class TimedWork:
    """Repeated work: `run(i)` works on the i-th of `sets` equal sets of buffers, and is so many `operations`."""

    run: Callable[[int], object]
    sets: int = 1
    operations: int = 1
    capturable: bool = True  # may be recorded into a CUDA graph


@dataclass(frozen=True)
class Timing:
    """Seconds of one piece of work: the median, the quartiles, how many samples, and which clock told them.

    `started` and `end`: when the samples that count were taken, by `time.perf_counter`.
    """

    value: float
    low: float
    high: float
    count: int
    timer: str
    started: float = 0.0
    end: float = 0.0

    def divided(self, count: int) -> Timing:
        """Seconds of one of `count` equal operations."""
        return replace(self, value=self.value / count, low=self.low / count, high=self.high / count)


class DeviceLostError(RuntimeError):
    """The device, or what this process knows of it, can no longer be used; another process may."""


def quartiles(samples: Sequence[float], timer: str) -> Timing:
    """Median and quartiles of samples in seconds."""
    if len(samples) < 2:
        return Timing(samples[0], samples[0], samples[0], len(samples), timer)
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return Timing(median(samples), low, high, len(samples), timer)


def host_clock(threads: int) -> tuple[Callable[[], float], str]:
    """The clock for work of so many threads on the host, and its name.

    One thread is timed by the seconds that it ran: what else a shared machine does meanwhile is not its work. Several
    threads wait for each other, so there the clock on the wall counts.
    """
    return (time.process_time, "processor clock") if threads == 1 else (time.perf_counter, "host clock")


def time_on_cpu(work: TimedWork, seconds: float, threads: int, fewest: int = FEWEST) -> Timing:
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
    return quartiles(samples, name).divided(work.operations)


def time_on_cuda(work: TimedWork, seconds: float, fewest: int = FEWEST) -> Timing:
    """Work timed by events of the device for at least so many seconds; of a long run the second half counts.

    By then a device that has to save power does so, as it does in a training run.
    """
    plain = partial(_run_repeatedly, work, max(WARM, 2 * work.sets))
    plain()  # loads kernels, chooses among them, makes handles and workspaces
    torch.cuda.synchronize()
    estimate = _event_seconds([plain])[0] / max(WARM, 2 * work.sets)
    inner = max(1, ceil(CUDA_SAMPLE / max(estimate, 1e-7)))
    short = work.capturable and estimate < SHORT * work.operations
    piece, timer = (_record_graph(work, inner), GRAPH) if short else (partial(_run_repeatedly, work, inner), EVENTS)
    samples: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while len(samples) < fewest or (time.perf_counter() < until and len(samples) < MOST):
        begun = time.perf_counter()
        samples += [(begun, seconds_of_piece / inner) for seconds_of_piece in _event_seconds([piece] * QUEUED)]
    counted = samples[len(samples) // 2 :] if len(samples) >= 2 * fewest else samples
    timing = quartiles([value for _, value in counted], timer)
    return replace(timing, started=counted[0][0], end=time.perf_counter()).divided(work.operations)


def _run_repeatedly(work: TimedWork, times: int) -> None:
    """So many pieces of work in a row, over the sets in turn."""
    for index in range(times):
        work.run(index % work.sets)


def _record_graph(work: TimedWork, times: int) -> Callable[[], object]:
    """The pieces recorded as a CUDA graph, where launching them one by one would be what is measured.

    Raises DeviceLostError where something in it cannot be recorded: PyTorch then keeps the stream and the pool of the
    recording (torch.cuda.graph leaves its block before it restores them), so nothing else is right in this process.
    """
    graph = torch.cuda.CUDAGraph()
    replay: Callable[[], object] = graph.replay
    try:
        with torch.cuda.graph(graph):
            _run_repeatedly(work, times)
    except RuntimeError as error:
        raise DeviceLostError(f"cannot be recorded into a CUDA graph: {error_line(error)}") from error
    return replay


def _event_seconds(pieces: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of each piece between two events on the device, all sent before the first is waited for."""
    marks = []
    for piece in pieces:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        piece()
        end.record()
        marks.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e-3 for begin, end in marks]


def error_line(error: BaseException) -> str:
    """The error in a line of at most 200 characters; one that ends in a colon goes on, as Inductor's do."""
    first, *more = str(error).strip().splitlines() or [""]
    text = f"{first} {more[0].strip()}" if first.endswith(":") and more else first
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
