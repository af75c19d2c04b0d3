"""Counts the bytes of live storages while operators run. Imports torch at its top; import it inside functions."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512  # bytes: the CUDA caching allocator rounds every request up to this (c10/cuda/CUDACachingAllocator.cpp)


class StorageMeter(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """`live` and `peak` bytes of the storages on one kind of device that were watched or made within."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.live = 0
        self.peak = 0
        self.known: set[int] = set()

    def restart(self) -> int:
        """The peak since the last call; the next one starts from what is live."""
        peak, self.peak = self.peak, self.live
        return peak

    def watch(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the storages of `tensors` from now until they are freed."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            identity = storage._cdata  # noqa: SLF001  # data_ptr() is 0 for every fake tensor
            if tensor.device.type != self.device or identity in self.known:
                continue
            size = -(-storage.nbytes() // BLOCK) * BLOCK
            self.known.add(identity)
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._freed, identity, size)

    def _freed(self, identity: int, size: int) -> None:
        self.known.discard(identity)
        self.live -= size

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.watch(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result
