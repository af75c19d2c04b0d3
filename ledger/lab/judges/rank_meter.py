"""A meter of a rank's storages that knows quantised tensors, and kernels that a compiler makes of many.

Imports torch at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from ledger.lab.observed.storage_meter import StorageMeter

WRAPPED = ("_local_tensor", "elem")  # of DTensor and AsyncCollectiveTensor
NUMBER = 8  # bytes of an int64


class RankMeter(StorageMeter):
    """Counts what a rank holds; of a tensor that wraps quantised data, the data. Single numbers are left out."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.pauses = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, what operators make is not counted."""
        self.pauses += 1
        try:
            yield
        finally:
            self.pauses -= 1

    def _record(self, identity: int, size: int | None) -> None:
        super()._record(identity, 0 if size is not None and size <= NUMBER else size)

    def watch(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the storages of `tensors` from now until they are freed."""
        if not self.pauses:
            super().watch(part for tensor in tensors for part in parts(tensor))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {})) if self.pauses else super().__torch_dispatch__(func, types, args, kwargs)


def parts(tensor: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that have storages of their own: a quantised one wraps its data, and has a nominal dtype.

    So does a rank's part of a larger tensor (DTensor), and what a collective is about to give.
    """
    for name in WRAPPED:
        if isinstance(inner := getattr(tensor, name, None), torch.Tensor):
            return parts(inner)
    if not hasattr(tensor, "_quantizer"):
        return (tensor,)
    return tuple(part for part in vars(tensor).values() if isinstance(part, torch.Tensor))


def as_one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a compiler fuses it: what it makes for itself alone is not allocated, what autograd keeps is."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        meters = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, RankMeter)]
        kept: list[torch.Tensor] = []
        with ExitStack() as paused:
            if not torch._C._autograd._top_saved_tensors_default_hooks(False):  # noqa: SLF001  # others' hooks
                paused.enter_context(torch.autograd.graph.saved_tensors_hooks(partial(_kept, kept), _as_it_is))
            for meter in meters:
                paused.enter_context(meter.paused())
            result = function(*args, **kwargs)
        for meter in meters:
            meter.watch(leaf for leaf in (*tree_leaves(result), *kept) if isinstance(leaf, torch.Tensor))
        return result

    return run


def _kept(kept: list[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    kept.append(tensor)
    return tensor.detach()  # a node that holds its own result would never be freed


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
