"""Modules that are imported and that no step on fake tensors runs: Triton's kernels, loaders of data, loggers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

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
        """What configures a kernel says nothing."""


def _decorator(*given: Any, **_: Any) -> Any:
    """A kernel, with options or without."""
    return UnlaunchedKernel() if given and callable(given[0]) else lambda _: UnlaunchedKernel()


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
