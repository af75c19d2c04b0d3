"""A CUDA device that a CPU plays: what `ledger bench` asks of torch.cuda, over kernels that really run.

Every stand-in is called with what the function of PyTorch's that it stands for would take: another argument is a
TypeError. Graphs hold operations and run them again; what a real one cannot hold, it refuses.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ledger.lab.bench import machine, worker
from ledger.lab.bench.rig import Rig

UUID = "12345678-0000-0000-0000-000000000000"
WAITING = (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten.embedding_dense_backward)
GIB = 2**30


class Event:
    """A moment of the host's clock, since a CPU has done what it was told when it returns."""

    def __init__(self, *args: Any, **named: Any) -> None:
        inspect.signature(REAL["Event"].__new__).bind(None, *args, **named)
        self.at = 0.0

    def record(self) -> None:
        """Now."""
        self.at = time.perf_counter()

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return (other.at - self.at) * 1e3


class Graph:
    """Operations, to be run again."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any]] = []

    def replay(self) -> None:
        """All of them, in order."""
        for operation, args, named in self.calls:
            operation(*args, **named)


class Recording(TorchDispatchMode):
    """Within, operations are kept in a graph; one that waits for the device is an error, as in a capture."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func.overloadpacket in WAITING:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nFor debugging ...")
        self.graph.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@dataclass
class Properties:
    """What cudaDeviceProp says of an H200."""

    name: str = "NVIDIA H200"
    uuid: str = UUID
    multi_processor_count: int = 132
    total_memory: int = 150_000_000_000
    L2_cache_size: int = 60 * 2**20


@dataclass
class Device:
    """A device with so much free memory; `broken` is the error that every call meets once it has been set."""

    about: Properties = field(default_factory=Properties)
    free: int = 149_000_000_000
    broken: str = ""
    emptied: list[Callable[[], None]] = field(default_factory=list)

    def synchronize(self, device: Any = None) -> None:
        """Raises what the device has met."""
        if self.broken:
            raise RuntimeError(self.broken)

    def empty_cache(self) -> None:
        """Tells who wants to know."""
        self.synchronize()
        for told in self.emptied:
            told()

    @contextmanager
    def graph(self, recorded: Graph, **_: Any) -> Iterator[None]:
        """Records; what fails leaves it unusable."""
        with Recording(recorded):
            yield

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In torch.cuda, under the names and with the arguments that it has."""
        stand_ins: dict[str, Callable[..., Any]] = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "set_device": lambda device: None,
            "get_device_properties": lambda device=None: self.about,
            "get_device_capability": lambda device=None: (9, 0),
            "mem_get_info": lambda device=None: (self.free, self.about.total_memory),
            "memory_allocated": lambda device=None: 1 * GIB,
            "memory_reserved": lambda device=None: 0,
            "max_memory_allocated": lambda device=None: 3 * GIB,
            "max_memory_reserved": lambda device=None: 4 * GIB,
            "reset_peak_memory_stats": lambda device=None: None,
            "synchronize": self.synchronize,
            "empty_cache": self.empty_cache,
        }
        for name, stand_in in stand_ins.items():
            monkeypatch.setattr(torch.cuda, name, _as_called(getattr(torch.cuda, name), stand_in))
        for name, whole in (("Event", Event), ("CUDAGraph", Graph), ("graph", self.graph)):
            monkeypatch.setattr(torch.cuda, name, whole)
        monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
        monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
        monkeypatch.setattr(torch.accelerator, "current_stream", lambda device=None: NoCapture())  # optimizers ask it
        monkeypatch.setattr(torch, "empty", _pageable(torch.empty))


def serve(marker: str, error: str) -> None:
    """A worker of `ledger bench` on such a device; it breaks after one case of the worker that finds no marker."""
    found = Device()
    found.install(pytest.MonkeyPatch())
    worker.Rig = lambda _, *others: Rig("cpu", *others)
    machine.IDLE = 0.0
    if not Path(marker).exists():
        Path(marker).touch()
        found.emptied.append(lambda: setattr(found, "broken", error))
    worker.main()


class NoCapture:
    """A stream on which nothing is recorded."""

    def is_capturing(self) -> bool:
        """Never."""
        return False


REAL = {"Event": torch.cuda.Event}


def _as_called(real: Any, stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """The stand-in, for calls that the real one would take."""
    signature = inspect.signature(real)

    def called(*args: Any, **named: Any) -> Any:
        bound = signature.bind(*args, **named)
        return stand_in(*bound.args, **bound.kwargs)

    return called


def _pageable(empty: Callable[..., Any]) -> Callable[..., Any]:
    """torch.empty, which a CPU build cannot ask for memory that a device reads itself."""

    def called(*sizes: Any, pin_memory: bool = False, **named: Any) -> Any:
        return empty(*sizes, **named)

    return called
