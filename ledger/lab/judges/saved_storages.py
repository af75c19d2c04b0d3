"""What autograd keeps of each layer of a framework's model, by storage. Imports torch at its top."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ledger.lab.judges.rank_meter import parts
from ledger.lab.reference.storages import identity, storage_of

OUTSIDE = -1  # the layer of what is saved before the first or after the last


@dataclass(eq=False)
class Packed:
    """What autograd holds in place of a tensor, for as long as the node lives that saved it."""

    tensor: Tensor
    layer: int


@dataclass(frozen=True)
class SavedStorage:
    """One storage with the layer that packed it first; `alive` gives it until it is freed."""

    layer: int
    bytes: int
    alive: weakref.ref[Any]


@dataclass
class SavedStorages:
    """Collects what is packed while `layers` run forward, and until the next of them or of `ends` begins.

    What `weights` have when it is packed is left out: gathered ones do not outlive a pass.
    """

    layers: Sequence[torch.nn.Module]
    ends: Sequence[torch.nn.Module]
    weights: Sequence[Tensor] = ()
    layer: int = OUTSIDE
    packed: list[weakref.ref[Packed]] = field(default_factory=list)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Within, what autograd saves is collected."""
        begun = (*enumerate(self.layers), *((OUTSIDE, end) for end in self.ends))
        handles = [
            module.register_forward_pre_hook(partial(self._enter, index), prepend=True) for index, module in begun
        ]
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda packed: packed.tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def storages(self) -> list[SavedStorage]:
        """Every storage that is still kept, with its bytes now: what is rebuilt has given them back."""
        kept = [one for reference in self.packed if (one := reference()) is not None]
        found: dict[int, SavedStorage] = {}
        for packed, part in ((one, part) for one in kept for part in parts(one.tensor)):
            storage = part.untyped_storage()
            found.setdefault(identity(storage), SavedStorage(packed.layer, storage.nbytes(), weakref.ref(storage)))
        return list(found.values())

    def _enter(self, layer: int, *_: Any) -> None:
        self.layer = layer

    def _pack(self, tensor: Tensor) -> Packed:
        packed = Packed(tensor.detach(), self.layer)  # a node that holds its own result would never be freed
        if not any(storage_of(weight) == storage_of(tensor) for weight in self.weights):
            self.packed.append(weakref.ref(packed))
        return packed


def by_layer(storages: Iterable[SavedStorage]) -> Counter[int]:
    """Bytes of each layer, once a step has run since: what is still there outlives a pass, and is no part of them."""
    found: Counter[int] = Counter()
    for storage in storages:
        found[storage.layer] += storage.bytes * (storage.alive() is None)
    return found


def by_group(groups: Sequence[str], found: Mapping[int, int]) -> dict[str, int]:
    """Bytes of one layer of each group: the second of them where there is one, since the first may make tables."""
    places = {group: [index for index, name in enumerate(groups) if name == group] for group in groups}
    return {group: found[indices[min(1, len(indices) - 1)]] for group, indices in places.items()}


def sizes(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of the storages of tensors, each once."""
    return {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
