"""The device that is measured: what it is, what runs on it, how it is measured, and whether others use it."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

import torch

from ledger import __version__
from ledger.lab.bench import gpu
from ledger.lab.bench.cases import DeviceLimits, MeasuredDevice
from ledger.lab.bench.timing import error_line
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
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
        return _measured_cpu(threads, quick=quick)
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
        return _measured_gpu(index, quick=quick)
    except RuntimeError as error:  # another process has it for itself, or the driver has lost it
        raise NoDeviceError(f"{device} cannot be used: {error_line(error)}") from error


def slug(name: str) -> str:
    """A name for a file: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _measured_cpu(threads: int, *, quick: bool) -> MeasuredDevice:
    processor = this_processor()
    torch.set_num_threads(threads or processor.cores)
    used = torch.get_num_threads()
    title = f"{processor.name}, {used} {'thread' if used == 1 else 'threads'}"
    clock = "seconds that the thread ran" if used == 1 else "the clock on the wall"
    origin = {
        **_software(),
        "threads": f"{used}, by torch.set_num_threads",
        "blas": "MKL" if torch.backends.mkl.is_available() else "OpenBLAS or another",
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


def _measured_gpu(index: int, *, quick: bool) -> MeasuredDevice:
    about = torch.cuda.get_device_properties(index)
    uuid = f"GPU-{about.uuid}"
    cache = int(getattr(about, "L2_cache_size", 0)) or 32 * 2**20
    driver_origin = gpu.driver_origin(uuid)
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
        **({"power_limit": driver_origin["power_limit"]} if "power_limit" in driver_origin else {}),
    }
    limits = DeviceLimits("cuda", about.total_memory, cache, torch.cuda.device_count(), dtypes, quick)
    origin = {
        **_software(),
        **versions,
        **driver_origin,
        "method": f"{METHOD}; device events, CUDA graphs of short kernels",
    }
    library_name = library_accelerator(
        about.name, about.multi_processor_count, about.total_memory, driver_origin.get("power_limit", "")
    )
    return MeasuredDevice(library_name or slug(about.name), about.name, f"cuda:{index}", origin, hardware, limits, uuid)


def _software() -> dict[str, str]:
    """Versions; transformers is asked for by whole steps alone, and may be missing."""
    versions = {"ledger": __version__, "python": python_version(), "torch": str(torch.__version__)}
    try:
        return {**versions, "transformers": version("transformers")}
    except PackageNotFoundError:
        return versions


def library_accelerator(name: str, multiprocessors: int, memory: int, power: str) -> str:
    """The accelerator of the library that this is: by alias, else by name, multiprocessors, memory and power limit."""
    library = default_library()
    for spelling in (name, name.removeprefix("NVIDIA ")):
        exact = library.matching_names("accelerator", spelling)
        if len(exact) == 1:
            return exact[0]
    words = set(re.findall(r"[a-z]+\d+\w*", name.lower()))
    alike = []
    for spec_name in library.names("accelerator"):
        try:
            accelerator = load_accelerator(spec_name)
        except SpecError:
            continue
        named = set(re.findall(r"[a-z]+\d+\w*", f"{accelerator.name} {accelerator.title}".lower()))
        if (
            words & named
            and accelerator.multiprocessors == multiprocessors
            and abs(accelerator.memory / memory - 1) < SAME
        ):
            alike.append(accelerator)
    watts = float(power.split(maxsplit=1)[0]) if power else 0.0
    return min(alike, key=lambda device: abs(device.power - watts) if watts else 0.0).name if alike else ""


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
            free, total = torch.cuda.mem_get_info()
            share = (total - free - torch.cuda.memory_reserved()) / total
            return f"the device may be busy: others hold {share:.0%} of its memory" if share > TAKEN else ""
        if share <= BUSY:
            return ""
    return f"the device is busy: {share:.0%} used by others"


# --- the processor, from /proc and /sys ---

CPUINFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
VECTORS = ("avx512_bf16", "avx512f", "avx2", "avx", "sve", "asimd")  # the widest first
FALLBACK_CACHE = 32 * 2**20
STAT = Path("/proc/stat")
HOST_IDLE = (3, 4)  # columns of /proc/stat that count waiting: idle and iowait (proc_stat(5))


@dataclass(frozen=True)
class Processor:
    """The processors that this process may run on; `frequency` in Hz as the system reports it, sizes in bytes."""

    name: str
    cores: int
    frequency: float
    vectors: str
    cache: int
    memory: int


def this_processor() -> Processor:
    """This machine; what it does not publish is empty, zero, or a guess on the small side."""
    info = _read(CPUINFO)
    flags = set(_field(info, "flags|Features").split())
    return Processor(
        name=_field(info, "model name|Hardware") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        frequency=float(_field(info, "cpu MHz") or 0) * 1e6,
        vectors=next((name for name in VECTORS if name in flags), ""),
        cache=_cache_bytes(),
        memory=_memory_bytes(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(text: str, names: str) -> str:
    match = re.search(rf"^(?:{names})\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""


def _cache_bytes() -> int:
    """Bytes of the last cache."""
    sizes = [_read(path).strip() for path in CACHES.glob("index*/size")]
    return max((int(size[:-1]) * UNITS.get(size[-1], 1) for size in sizes if size[:-1].isdigit()), default=0) or (
        FALLBACK_CACHE
    )


def _memory_bytes() -> int:
    """Bytes of memory, as many as the control group of this process may have."""
    total = _field(_read(MEMINFO), "MemTotal").split()
    limits = [int(total[0]) * 1024] if total else []
    limits += [int(text) for path in LIMITS if (text := _read(path).strip()).isdigit()]
    return min(limits, default=8 * 2**30)


@dataclass(frozen=True)
class ProcessorLoad:
    """Processor seconds at a moment: of everybody, and of this process and its children; `wall` is the clock."""

    everybody: float
    ours: float
    wall: float

    @classmethod
    def now(cls) -> ProcessorLoad:
        """The counters as they stand; zeros where the system does not publish them."""
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        try:
            first = STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        except OSError:
            return cls(0.0, 0.0, time.perf_counter())
        ticks = sum(int(count) for index, count in enumerate(first) if index not in HOST_IDLE)
        return cls(ticks / os.sysconf("SC_CLK_TCK"), ours, time.perf_counter())

    def share_of_others(self) -> float:
        """The share of the machine's processors that others have used since then."""
        now = ProcessorLoad.now()
        seconds = (now.wall - self.wall) * (os.cpu_count() or 1)
        used = (now.everybody - self.everybody) - (now.ours - self.ours)
        return round(min(1.0, max(0.0, used / seconds)), 2) if seconds > 0 else 0.0
