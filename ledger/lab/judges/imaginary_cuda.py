"""A process that finds a GPU where there is none: `torch.cuda` answers as it does on one, and tensors are fake.

Nothing of the framework that runs within is changed. Imports torch at its top.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._device import _device_constructors

from ledger.lab.reference.cuda_guard import install_cuda_guard


@dataclass(frozen=True)
class ImaginaryDevice:
    """A GPU of `count` in a node, as it reports itself; memory in bytes."""

    name: str = "NVIDIA H100 80GB HBM3"
    capability: tuple[int, int] = (9, 0)
    memory: int = 80 * 2**30
    multiprocessors: int = 132
    count: int = 8

    @property
    def properties(self) -> SimpleNamespace:
        """The answer of `torch.cuda.get_device_properties`."""
        return SimpleNamespace(
            name=self.name,
            major=self.capability[0],
            minor=self.capability[1],
            total_memory=self.memory,
            multi_processor_count=self.multiprocessors,
            warp_size=32,
            gcnArchName="",
        )


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


class ImaginaryEvent:
    """An event of a stream on which all work is done at once: nothing is waited for, and work takes no time."""

    record = wait = synchronize = _answer(None)
    query = _answer(True)
    elapsed_time = _answer(0.0)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class ImaginaryStream(ImaginaryEvent):
    """A stream on which all work is done at once."""

    device = torch.device("cuda", 0)
    cuda_stream = 0
    stream_id = 0
    wait_stream = wait_event = _answer(None)

    def record_event(self, *_: Any) -> ImaginaryEvent:
        """An event that has happened."""
        return ImaginaryEvent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


TENSOR_KINDS = {
    "Float": torch.float,
    "Double": torch.double,
    "Half": torch.half,
    "BFloat16": torch.bfloat16,
    "Int": torch.int,
    "Long": torch.long,
    "Byte": torch.uint8,
}
NOTHING = (
    *("set_device", "synchronize", "reset_peak_memory_stats", "empty_cache", "manual_seed", "manual_seed_all"),
    *("init", "set_rng_state", "_lazy_init", "_lazy_call", "ipc_collect"),
)
ZERO = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_device")


def answers(device: ImaginaryDevice) -> Mapping[str, Any]:
    """What replaces each name of `torch.cuda`."""
    stream = ImaginaryStream()
    nothing = {name: _answer(None) for name in NOTHING}  # an object each: torch lists its functions by identity
    no_bytes = {name: _answer(0) for name in ZERO}
    return {
        **nothing,
        **no_bytes,
        **{name: _answer(True) for name in ("is_available", "is_initialized", "is_bf16_supported")},
        **{name: _answer(stream) for name in ("current_stream", "default_stream")},
        **{name: _answer(nullcontext()) for name in ("stream", "device")},
        "device_count": _answer(device.count),
        "is_current_stream_capturing": _answer(False),
        "get_device_capability": _answer(device.capability),
        "get_device_properties": _answer(device.properties),
        "get_device_name": _answer(device.name),
        "mem_get_info": _answer((device.memory, device.memory)),
        "memory_stats": _answer(defaultdict(int)),
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "Stream": ImaginaryStream,
        "Event": ImaginaryEvent,
        "default_generators": tuple(torch.Generator() for _ in range(device.count)),
        **{f"{name}Tensor": TensorKind(name, (), {"dtype": dtype}) for name, dtype in TENSOR_KINDS.items()},
    }


class TensorKind(type):
    """`torch.cuda.FloatTensor` and the others: constructors that know their tensors."""

    dtype: torch.dtype

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is cls.dtype

    def __call__(cls, values: Any = ()) -> torch.Tensor:
        """A tensor of so many elements, or of given values."""
        sized = isinstance(values, int)
        tensor = torch.empty(values, device="cuda") if sized else torch.tensor(values, device="cuda")
        return tensor.to(cls.dtype)


@contextmanager
def imaginary_cuda(device: ImaginaryDevice) -> Iterator[None]:
    """Within, this process takes itself for one with GPUs like `device`; backward passes run in its one thread."""
    install_cuda_guard()
    with ExitStack() as patched:
        patched.enter_context(mock.patch.multiple(torch.cuda, create=True, **answers(device)))
        for name in ("range_push", "range_pop", "mark"):
            patched.enter_context(mock.patch.object(torch.cuda.nvtx, name, _answer(None)))
        for owner, name, answer in (
            (torch.Tensor, "record_stream", _answer(None)),
            (torch.Tensor, "pin_memory", lambda tensor, *_: tensor),  # as in `_without_pinning`
            (torch._C, "_cuda_getDevice", _answer(0)),  # noqa: SLF001  # what autograd asks
            (torch.version, "cuda", "12.9"),
            (FakeTensorMode, "avoid_device_init", property(_answer(True))),  # else it asks for the first GPU
        ):
            patched.enter_context(mock.patch.object(owner, name, answer, create=True))
        _device_constructors()  # a list that torch makes once, of functions that are its own
        for name in ("tensor", "empty", "zeros"):
            patched.enter_context(mock.patch.object(torch, name, _without_pinning(getattr(torch, name))))
        patched.enter_context(torch.autograd.set_multithreading_enabled(False))
        yield


def _without_pinning(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`function` without pinned memory, which a CPU build cannot have."""

    @wraps(function)
    def construct(*args: Any, **kwargs: Any) -> torch.Tensor:
        return function(*args, **{key: value for key, value in kwargs.items() if key != "pin_memory"})

    return construct
