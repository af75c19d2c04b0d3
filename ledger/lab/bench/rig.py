"""The device that is measured and how: buffers on it, past its caches, and the time that a case may take."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from typing import Any

import torch

from ledger.lab.bench.cases import BenchCase, BenchResult, DeviceLimits, Result
from ledger.lab.bench.gpu import LOAD_KEYS, PowerMonitor, ask_driver
from ledger.lab.bench.machine import ProcessorLoad
from ledger.lab.bench.timing import DeviceLostError, TimedWork, Timing, error_line, time_on_cpu, time_on_cuda

DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SIZES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
MOST_SETS = 64
PAST_CACHE = 3  # all sets together are so many times the last cache
SHARE = 0.5  # of a device's memory that buffers may take
BURST, SUSTAINED = "burst", "sustained"
SETTLED = 1.0  # seconds of work after which a device runs at its power limit


@dataclass(frozen=True)
class Rig:
    """Where cases run: `place` as torch names it, `seconds` for each case, `hold` for those that draw most power.

    `threads` are those of a CPU, `uuid` is what the driver calls a GPU.
    """

    place: str
    limits: DeviceLimits
    seconds: float
    hold: float
    threads: int = 1
    uuid: str = ""

    def driver_readings(self) -> Mapping[str, str]:
        """Clock and power of the device at this moment, as the driver says them."""
        return ask_driver(self.uuid, LOAD_KEYS)

    @property
    def cuda(self) -> bool:
        """Whether it is a CUDA device."""
        return self.limits.type == "cuda"

    def random_tensor(self, *shape: int, dtype: str = "fp32", grad: bool = False) -> torch.Tensor:
        """Normal random numbers: zeros would draw less power and run faster."""
        tensor = torch.randn(*shape, device=self.place, dtype=getattr(torch, DTYPES[dtype]))
        return tensor.requires_grad_(grad)

    def rotated_buffers(self, make: Callable[[], Any], size: int) -> list[Any]:
        """Sets of buffers of `size` bytes each, so many that no set is still in a cache when its turn comes."""
        past_cache = ceil(PAST_CACHE * self.limits.cache / max(size, 1))
        room = int(SHARE * self.limits.memory / max(size, 1))
        return [make() for _ in range(max(1, min(past_cache, room, MOST_SETS)))]

    def time_work(self, work: TimedWork, seconds: float | None = None, fewest: int = 5) -> Timing:
        """Seconds of one operation of the work."""
        budget = self.seconds if seconds is None else seconds
        return time_on_cuda(work, budget, fewest) if self.cuda else time_on_cpu(work, budget, self.threads, fewest)

    def synchronize(self) -> None:
        """Returns when nothing is left to do on the device."""
        if self.cuda:
            torch.cuda.synchronize()


def bytes_of(dtype: str, *shapes: Sequence[int]) -> int:
    """Bytes of tensors of these shapes."""
    return SIZES[dtype] * sum(map(prod, shapes))


def fits(size: int, share: float, limits: DeviceLimits) -> bool:
    """Whether so many bytes are at most this share of a device's memory."""
    return size <= share * limits.memory


Build = Callable[[BenchCase, Rig], TimedWork]
Measure = Callable[[Sequence[BenchCase], Rig], Iterator[BenchResult]]


def timed_builds(build: Build, *, power: bool = False) -> Measure:
    """Times the work that is built of each case; `power`: long enough to reach the power limit."""
    return one_by_one(partial(_time_build, build, power=power))


def one_by_one(measure_case: Callable[[BenchCase, Rig], Result]) -> Measure:
    """Measures cases one by one, each with the device's memory to itself."""

    def measure(cases: Sequence[BenchCase], rig: Rig) -> Iterator[BenchResult]:
        for case in cases:
            yield run_case(case, rig, partial(measure_case, case, rig))

    return measure


def run_case(case: BenchCase, rig: Rig, run: Callable[[], Result]) -> BenchResult:
    """The case with its result; what it raises is its error. Raises DeviceLostError where the device is lost."""
    load = ProcessorLoad.now()
    result = _result_or_error(run)  # an exception that lived on would keep the buffers of the frames it passed
    if rig.cuda:
        _check_device(rig, str(result.get("error", "")))
    release_memory(rig)
    shared = {} if rig.cuda or "error" in result else {"others": load.share_of_others()}
    return BenchResult(case, {**result, **shared})


def _result_or_error(run: Callable[[], Result]) -> Result:
    torch.backends.cuda.matmul.allow_tf32 = False  # a case that wants it says so
    try:
        return run()
    except DeviceLostError:
        raise
    except torch.cuda.OutOfMemoryError as error:
        return {"error": f"out of memory: {error_line(error)}"}
    except Exception as error:  # noqa: BLE001 - whatever a case dies of is its record, and the next one is measured
        return {"error": error_line(error)}


def _check_device(rig: Rig, error: str) -> None:
    """Raises DeviceLostError for an error that stays with the device, as an illegal address does."""
    try:
        rig.synchronize()
    except RuntimeError as stays:
        raise DeviceLostError(error or error_line(stays)) from stays


def release_memory(rig: Rig) -> None:
    """Buffers that nobody holds go back to the device, and so do the workspaces that cuBLAS has for each stream."""
    gc.collect()
    if rig.cuda:
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - its only name; every graph was recorded in a stream
        torch.cuda.empty_cache()


def timing_record(timing: Timing, regime: str) -> dict[str, Any]:
    """Fields of a record, in microseconds."""
    value, low, high = (float(f"{seconds * 1e6:.5g}") for seconds in (timing.value, timing.low, timing.high))
    fields: dict[str, Any] = {"value": value, "unit": "us", "low": low, "high": high, "count": timing.count}
    return {**fields, "regime": regime, "timer": timing.timer}


def _time_build(build: Build, case: BenchCase, rig: Rig, *, power: bool) -> Result:
    """Where there is no power limit to reach, as on a CPU or at the pace of memory, every run is a sustained one."""
    work = build(case, rig)
    if not (power and rig.cuda):
        return timing_record(rig.time_work(work, rig.hold if power else rig.seconds), SUSTAINED)
    with PowerMonitor(rig.driver_readings) as monitor:
        timing = rig.time_work(work, rig.hold)
    regime = BURST if rig.hold < SETTLED else SUSTAINED
    return {**timing_record(timing, regime), **monitor.medians(timing.started, timing.end)}


@dataclass(frozen=True)
class BenchKind:
    """One kind of measurement: which cases a device is given, and how they are measured, one by one."""

    name: str
    cases: Callable[[DeviceLimits], Iterator[BenchCase]]
    measure: Callable[[Sequence[BenchCase], Rig], Iterator[BenchResult]]
