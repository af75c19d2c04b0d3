"""Counts the bytes of live storages while operators run. Imports torch at its top; import it inside functions."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ledger.lab.observed.device_step import AllocatedBytes
from ledger.lab.reference.storages import identity

BLOCK = 512  # bytes: the CUDA caching allocator rounds every request up to this (c10/cuda/CUDACachingAllocator.cpp)


class StorageMeter(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """`live` bytes of the storages on one kind of device that were watched or made within.

    `moments`: the fullest instant of each moment that was entered.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled, and what keeps a compiler out would take a tenth of each operator's time."""
        return False

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.live = 0
        self.rounding = 0
        self.moment = ""
        self.moments: dict[str, AllocatedBytes] = {}
        self.sizes: dict[int, int] = {}

    @property
    def allocated(self) -> AllocatedBytes:
        """Bytes of the storages that are alive now."""
        return AllocatedBytes(self.live, self.rounding)

    def enter(self, moment: str) -> None:
        """From now on what is alive counts towards `moment`, which may be entered again."""
        self.moment = moment
        self._note_fullest()

    def _note_fullest(self) -> None:
        if self.moment and self.live > self.moments.get(self.moment, AllocatedBytes()).bytes:
            self.moments[self.moment] = self.allocated

    def watch(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the storages of `tensors` from now until they are freed."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if tensor.device.type == self.device and identity(storage) not in self.sizes:
                weakref.finalize(storage, self._record, identity(storage), None)
                self._record(identity(storage), storage.nbytes())

    def _record(self, identity: int, size: int | None) -> None:
        """The storage now has `size` bytes; None: it is gone."""
        before = self.sizes.pop(identity, 0)
        self.live -= _rounded(before)
        self.rounding -= _rounded(before) - before
        if size is not None:
            self.sizes[identity] = size
            self.live += _rounded(size)
            self.rounding += _rounded(size) - size
            self._note_fullest()

    @contextmanager
    def resizes_seen(self) -> Iterator[None]:
        """Within, storages that are resized in place, as FSDP frees gathered weights, are counted at their new size."""
        original = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = original(storage, size)
            if identity(storage) in self.sizes:
                self._record(identity(storage), size)
            return result

        with mock.patch.object(torch.UntypedStorage, "resize_", resize):
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if wrapped(types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        self.watch(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


def wrapped(types: Iterable[type]) -> bool:
    """Whether an operator is on tensors that wrap others (DTensor): the operators on those follow by themselves."""
    return any(hasattr(kind, "__tensor_flatten__") for kind in types)


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
