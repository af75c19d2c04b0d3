"""The device that is measured and how: buffers on it, past its caches, and the time that a case may take.

Imports torch inside functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from ledger.lab.bench.cases import Case, Limits, Measured, Result
from ledger.lab.bench.gpu import AT_WORK, Watch, said
from ledger.lab.bench.load import Load
from ledger.lab.bench.timing import LostError, Spread, Work, first_line, on_cpu, on_cuda

if TYPE_CHECKING:
    import torch

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
    limits: Limits
    seconds: float
    hold: float
    threads: int = 1
    uuid: str = ""

    def watched(self) -> Mapping[str, str]:
        """What the driver says of the device at this moment."""
        return said(self.uuid, AT_WORK)

    @property
    def cuda(self) -> bool:
        """Whether it is a CUDA device."""
        return self.limits.sort == "cuda"

    def random(self, *shape: int, dtype: str = "fp32", grad: bool = False) -> torch.Tensor:
        """Normal random numbers: zeros would draw less power and run faster."""
        import torch

        made = torch.randn(*shape, device=self.place, dtype=getattr(torch, DTYPES[dtype]))
        return made.requires_grad_(grad)

    def rotated(self, make: Callable[[], Any], size: int) -> list[Any]:
        """Sets of buffers of `size` bytes each, so many that no set is still in a cache when its turn comes."""
        wanted = ceil(PAST_CACHE * self.limits.cache / max(size, 1))
        room = int(SHARE * self.limits.memory / max(size, 1))
        return [make() for _ in range(max(1, min(wanted, room, MOST_SETS)))]

    def timed(self, work: Work, seconds: float | None = None, fewest: int = 5) -> Spread:
        """Seconds of one operation of the work."""
        wanted = self.seconds if seconds is None else seconds
        return on_cuda(work, wanted, fewest) if self.cuda else on_cpu(work, wanted, self.threads, fewest)


Build = Callable[[Case, Rig], Work]


def each(build: Build, *, power: bool = False) -> Callable[[Sequence[Case], Rig], Iterator[Measured]]:
    """Measures cases one by one; `power`: long enough to reach the power limit."""

    def measure(cases: Sequence[Case], rig: Rig) -> Iterator[Measured]:
        for case in cases:
            yield attempt(case, rig, partial(_built, build, case, rig, power=power))

    return measure


def attempt(case: Case, rig: Rig, run: Callable[[], Result]) -> Measured:
    """The case with its result; what it raises is its error. Raises LostError where the device can be used no more."""
    load = Load.now()
    found = _outcome(run)  # an exception that lived on would keep the buffers of the frames it passed
    if rig.cuda:
        _settled(str(found.get("error", "")))
    release(rig)
    return Measured(case, found if rig.cuda or "error" in found else {**found, "others": load.others()})


def _outcome(run: Callable[[], Result]) -> Result:
    """What is found, or the error."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False  # a case that wants it says so
    try:
        return run()
    except LostError:
        raise
    except torch.cuda.OutOfMemoryError as error:
        return {"error": f"out of memory: {first_line(error)}"}
    except Exception as error:  # noqa: BLE001 - whatever a case dies of is its record, and the next one is measured
        return {"error": first_line(error)}


def _settled(error: str) -> None:
    """Nothing is left to do on the device; an error that stays, as an illegal address does, is raised as LostError."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError as stays:
        raise LostError(error or first_line(stays)) from stays


def release(rig: Rig) -> None:
    """Buffers that nobody holds go back to the device, and so do the workspaces that cuBLAS has for each stream."""
    import gc

    import torch

    gc.collect()
    if rig.cuda:
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - its only name; every graph was recorded in a stream
        torch.cuda.empty_cache()


def written(found: Spread, regime: str) -> dict[str, Any]:
    """A spread as fields of a record, in microseconds."""
    value, low, high = (float(f"{seconds * 1e6:.5g}") for seconds in (found.value, found.low, found.high))
    fields: dict[str, Any] = {"value": value, "unit": "us", "low": low, "high": high, "count": found.count}
    return {**fields, "regime": regime, "timer": found.timer}


def _built(build: Build, case: Case, rig: Rig, *, power: bool) -> Result:
    """Where there is no power limit to reach, as on a CPU or at the pace of memory, every run is a sustained one."""
    work = build(case, rig)
    if not (power and rig.cuda):
        return written(rig.timed(work, rig.hold if power else rig.seconds), SUSTAINED)
    with Watch(rig.watched) as watch:
        found = rig.timed(work, rig.hold)
    regime = BURST if rig.hold < SETTLED else SUSTAINED
    return {**written(found, regime), **watch.between(found.begin, found.end)}
