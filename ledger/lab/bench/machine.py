"""The device that is measured: what it is, what runs on it, how it is measured, and whether others use it."""

from __future__ import annotations

import re
import time
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

import torch

from ledger import __version__
from ledger.lab.bench import gpu
from ledger.lab.bench.cases import DeviceLimits, MeasuredDevice
from ledger.lab.bench.host import this_processor
from ledger.lab.bench.timing import error_line
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Accelerator
from ledger.spec.problems import SpecError

SAME = 0.05  # of memory, between what two drivers report of one device
ASKED = 3  # times before a device counts as busy: the first answer may still be about ourselves
IDLE = 1.2  # seconds after which a device that nobody uses reports no work
TAKEN = 0.1  # the share of memory from which others are taken to work, where nobody says so; a context is 1 %
BUSY = 0.2  # the share of work by others from which measurements would be of them
FP8_SINCE = (8, 9)  # compute capability of the first devices with fp8 matmuls
BF16_SINCE = (8, 0)
METHOD = (
    "random normal operands, buffers rotated past the last cache, a warm-up round, then the median and the quartiles of"
    " repeated runs"
)


class NoDeviceError(RuntimeError):
    """There is no such device, or it cannot be used."""


def find_device(device: str, threads: int, *, quick: bool) -> MeasuredDevice:
    """The device `cpu`, `cuda` or `cuda:N` of this machine; raises NoDeviceError."""
    if device == "cpu":
        return _cpu(threads, quick=quick)
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise NoDeviceError(f"there is no device `{device}`: give `cpu`, `cuda` or `cuda:1`")
    if not torch.cuda.is_available():
        raise NoDeviceError(
            f"PyTorch {torch.__version__} finds no CUDA device here; `--device cpu` measures the processor"
        )
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise NoDeviceError(f"there is no {device}: PyTorch finds {torch.cuda.device_count()} CUDA devices")
    try:
        torch.cuda.set_device(index)
        return _cuda(index, quick=quick)
    except RuntimeError as error:  # another process has it for itself, or the driver has lost it
        raise NoDeviceError(f"{device} cannot be used: {error_line(error)}") from error


def slug(name: str) -> str:
    """A name for a file: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _cpu(threads: int, *, quick: bool) -> MeasuredDevice:
    processor = this_processor()
    torch.set_num_threads(threads or processor.cores)
    used = torch.get_num_threads()
    title = f"{processor.name}, {used} {'thread' if used == 1 else 'threads'}"
    clock = "seconds that the thread ran" if used == 1 else "the clock on the wall"
    origin = {
        **_software(),
        "threads": f"{used}, by torch.set_num_threads",
        "blas": _blas(),
        "allocator": "glibc, which keeps what is freed (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_MAX_)",
        "method": f"{METHOD}; {clock}",
    }
    hardware = {
        "kind": "cpu",
        "name": processor.name,
        "cores": processor.cores,
        "threads": used,
        "isa": processor.vectors or "unknown",
        "memory": f"{processor.memory // 2**20} MiB",
        "cache": f"{processor.cache // 2**10} KiB",
    }
    if processor.frequency:
        hardware["frequency"] = f"{processor.frequency / 1e9:.3g} GHz"
    limits = DeviceLimits("cpu", processor.memory, processor.cache, processor.cores, ("fp32",), quick)
    return MeasuredDevice(slug(title), title, "cpu", origin, hardware, limits)


def _cuda(index: int, *, quick: bool) -> MeasuredDevice:
    about = torch.cuda.get_device_properties(index)
    uuid = f"GPU-{about.uuid}"
    cache = int(getattr(about, "L2_cache_size", 0)) or 32 * 2**20
    said = gpu.driver_origin(uuid)
    runs = torch.cuda.get_device_capability(index)
    dtypes = (
        *(("bf16",) if runs >= BF16_SINCE else ("fp16",)),
        *(("fp8",) if runs >= FP8_SINCE and torch.version.hip is None else ()),
        *(("tf32",) if runs >= BF16_SINCE else ()),
    )
    distributed = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    nccl = torch.cuda.nccl.version() if distributed else ()
    free, _ = torch.cuda.mem_get_info(index)
    versions = {
        "cuda": torch.version.cuda or torch.version.hip or "unknown",
        "cudnn": str(torch.backends.cudnn.version()),
        "nccl": ".".join(map(str, nccl)) or "none",
        "free_memory": f"{free // 2**20} MiB of {about.total_memory // 2**20} MiB",
    }
    hardware = {
        "kind": "cuda",
        "name": about.name,
        "capability": f"{runs[0]}.{runs[1]}",
        "multiprocessors": about.multi_processor_count,
        "memory": f"{about.total_memory // 2**20} MiB",
        "cache": f"{cache // 2**10} KiB",
        "devices": torch.cuda.device_count(),
        **({"power_limit": said["power_limit"]} if "power_limit" in said else {}),
    }
    limits = DeviceLimits("cuda", about.total_memory, cache, torch.cuda.device_count(), dtypes, quick)
    origin = {**_software(), **versions, **said, "method": f"{METHOD}; device events, CUDA graphs of short kernels"}
    known = library_accelerator(
        about.name, about.multi_processor_count, about.total_memory, said.get("power_limit", "")
    )
    return MeasuredDevice(known or slug(about.name), about.name, f"cuda:{index}", origin, hardware, limits, uuid)


def _software() -> dict[str, str]:
    """Versions; transformers is asked for by whole steps alone, and may be missing."""
    known = {"ledger": __version__, "python": python_version(), "torch": str(torch.__version__)}
    try:
        return {**known, "transformers": version("transformers")}
    except PackageNotFoundError:
        return known


def _blas() -> str:
    return "MKL" if torch.backends.mkl.is_available() else "OpenBLAS or another"


def library_accelerator(name: str, multiprocessors: int, memory: int, power: str) -> str:
    """The accelerator of the library that this is: by alias, else by name, multiprocessors, memory and power limit."""
    library = default_library()
    for spelling in (name, name.removeprefix("NVIDIA ")):
        exact = library.spelt("accelerator", spelling)
        if len(exact) == 1:
            return exact[0]
    words = set(re.findall(r"[a-z]+\d+\w*", name.lower()))
    alike = []
    for known in library.names("accelerator"):
        try:
            one = load_accelerator(known)
        except SpecError:
            continue
        named = set(re.findall(r"[a-z]+\d+\w*", f"{one.name} {one.title}".lower()))
        if words & named and one.multiprocessors == multiprocessors and abs(one.memory / memory - 1) < SAME:
            alike.append(one)
    watts = float(power.split(maxsplit=1)[0]) if power else 0.0
    return min(alike, key=lambda one: _away(one, watts)).name if alike else ""


def _away(one: Accelerator, watts: float) -> float:
    return abs(one.power - watts) if watts else 0.0


def busy_reason(device: MeasuredDevice) -> str:
    """Why a CUDA device cannot be measured now: others work on it; empty where nobody is known to.

    Where the driver does not say how busy it is, memory that others hold stands for their work.
    """
    if device.limits.type != "cuda":
        return ""
    torch.cuda.synchronize()
    for _ in range(ASKED):
        time.sleep(IDLE)
        share = gpu.utilisation(device.uuid)
        if share is None:
            return _memory_reason()
        if share <= BUSY:
            return ""
    return f"the device is busy: {share:.0%} used by others"


def _memory_reason() -> str:
    """Why a device may be busy, by the memory that is taken; empty where little is."""
    free, total = torch.cuda.mem_get_info()
    held = (total - free - torch.cuda.memory_reserved()) / total
    return f"the device may be busy: others hold {held:.0%} of its memory" if held > TAKEN else ""
