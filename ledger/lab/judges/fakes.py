"""Stand-ins for what a rank needs and no GPU gives: processes, values, kernels, device meshes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import distributed
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


class Coalesced:
    """Collectives that run one by one, where a framework has them run as one."""

    def append(self, *_: Any) -> None:
        """The collective has run."""

    def wait(self) -> None:
        """Nothing is waited for."""


@contextmanager
def _uncoalesced(*_: Any, **__: Any) -> Iterator[Coalesced]:
    yield Coalesced()


def _answer_for_all(results: list[Any], answer: Any, *_: Any, **__: Any) -> None:
    """Every rank says what this one says."""
    results[:] = [answer] * len(results)


ANSWERS: dict[str, Any] = {
    "_coalescing_manager": _uncoalesced,  # the operators that it calls have no kernel for fake tensors
    "all_gather_object": _answer_for_all,
    "broadcast_object_list": lambda *_, **__: None,
}


@contextmanager
def fake_group(size: int, place: int) -> Iterator[None]:
    """Within, this process is rank `place` of `size`; the others are alike, and what they send is not looked at."""
    with mock.patch.multiple(distributed, **ANSWERS), mock.patch.multiple(distributed.distributed_c10d, **ANSWERS):
        distributed.init_process_group("fake", store=FakeStore(), rank=place, world_size=size)
        yield


# --- values of fake tensors, where a framework reads them ---

WAIT = torch.ops._c10d_functional.wait_tensor.default  # noqa: SLF001  # has no public name
DEVICE = torch.ops.prim.device.default
EQUAL = torch.ops.aten.equal.default
ITEM = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001  # what Tensor.item() dispatches to


class FakeValues(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """Within, a fake tensor that is asked for a value that it cannot know says 1, or false; any two are equal."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled, and what keeps a compiler out would take a tenth of each operator's time."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is ITEM:
            constant = getattr(args[0], "constant", None)  # what torch.tensor was given
            if constant is not None:
                return constant.item()
            dtype = args[0].dtype
            return False if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1
        if func is DEVICE and isinstance(args[0], FakeTensor):  # more than half of what modes are asked
            return args[0].fake_device
        if func is WAIT:
            return args[0]  # of a fake tensor it would be another one
        if func is EQUAL:
            return True
        return func(*args, **(kwargs or {}))


# --- modules that are imported and that no step runs ---

TRITON = (
    *("triton", "triton.language", "triton.language.core", "triton.language.standard", "triton._internal"),
    *("triton.language.extra", "triton.language.extra.libdevice"),
)


class UnlaunchedKernel:
    """A Triton kernel that does nothing."""

    def __getitem__(self, _: Any) -> Callable[..., None]:
        return lambda *_, **__: None


class Unlaunched(ModuleType):
    """A module that has every name; Triton's decorators make kernels that are not launched."""

    __version__ = "3.5.0"
    __path__: list[str] = []  # noqa: RUF012  # has modules of its own; none is ever put there

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return TRITON_NAMES.get(name) or Unlaunched(f"{self.__name__}.{name}")

    def __call__(self, *_: Any, **__: Any) -> None:
        """A call that configures a kernel does nothing."""


def _decorator(*args: Any, **_: Any) -> Any:
    """A kernel, with options or without."""
    return UnlaunchedKernel() if args and callable(args[0]) else lambda _: UnlaunchedKernel()


TRITON_NAMES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("jit", "autotune", "heuristics"), _decorator),
    "next_power_of_2": lambda value: 1 << (value - 1).bit_length(),
    "cdiv": lambda dividend, divisor: -(-dividend // divisor),
    "constexpr": type("constexpr", (), {"__init__": lambda *_: None}),
}


def install(names: Iterable[str]) -> None:
    """Lets this process import modules of these names, for good."""
    for name in names:
        module = Unlaunched(name)
        module.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = module


# --- meshes of ranks among fake tensors ---

READING = ("__init__", "__getitem__", "_concatenate", "_flatten", "_unflatten", "get_local_rank")


@contextmanager
def real_meshes() -> Iterator[None]:
    """Within, a mesh that is made of another, or asked where this rank is, reads real tensors."""
    with ExitStack() as patched:
        for name in READING:
            method = DeviceMesh.__dict__[name]
            static = isinstance(method, staticmethod)
            outside = staticmethod(_run_outside_modes(method.__func__)) if static else _run_outside_modes(method)
            patched.enter_context(mock.patch.object(DeviceMesh, name, outside))
        yield


def _run_outside_modes(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, run outside every mode that sees operators."""

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return method(*args, **kwargs)

    return run
