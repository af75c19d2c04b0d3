"""What tells the storages of tensors apart, which views share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def identity(storage: torch.UntypedStorage) -> int:
    """A number of its own for each storage that is alive; data_ptr() is 0 for every fake tensor."""
    return int(storage._cdata)  # noqa: SLF001  # has no public name


def storage_of(tensor: torch.Tensor) -> int:
    """The number of the storage that a tensor lies in."""
    return identity(tensor.untyped_storage())
