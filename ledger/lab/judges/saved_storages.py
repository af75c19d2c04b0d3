"""What autograd keeps of each layer of a framework's model, by storage. Imports torch at its top."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ledger.lab.judges.rank_meter import RankMeter, parts
from ledger.lab.reference.storages import storage_of

OUTSIDE = -1  # the layer of what is saved before the first or after the last


@dataclass(eq=False)
class Packed:
    """What autograd holds in place of a tensor, for as long as the node lives that saved it."""

    tensor: Tensor
    layer: int


@dataclass
class SavedStorages:
    """Collects what is packed while `layers` run forward."""

    layers: Sequence[torch.nn.Module]
    layer: int = OUTSIDE
    packed: list[weakref.ref[Packed]] = field(default_factory=list)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Within, what autograd saves is collected."""
        handles = [
            handle
            for index, layer in enumerate(self.layers)
            for handle in (
                layer.register_forward_pre_hook(partial(self._enter, index), prepend=True),
                layer.register_forward_hook(partial(self._enter, OUTSIDE)),
            )
        ]
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda packed: packed.tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def storages(self) -> dict[int, tuple[int, int]]:
        """Of each storage that is still kept, the layer that packed it first and its bytes now."""
        kept = [packed for reference in self.packed if (packed := reference()) is not None]
        found: dict[int, tuple[int, int]] = {}
        for packed, part in ((packed, part) for packed in kept for part in parts(packed.tensor)):
            found.setdefault(storage_of(part), (packed.layer, part.untyped_storage().nbytes()))
        return found

    def _enter(self, layer: int, *_: Any) -> None:
        self.layer = layer

    def _pack(self, tensor: Tensor) -> Packed:
        packed = Packed(tensor.detach(), self.layer)  # a node that holds its own result would never be freed
        self.packed.append(weakref.ref(packed))
        return packed


def by_layer(storages: Mapping[int, tuple[int, int]], meter: RankMeter) -> Counter[int]:
    """Bytes of each layer, once the graph is gone: what is still live outlives the pass, and is no part of them."""
    found: Counter[int] = Counter()
    for identity, (layer, size) in storages.items():
        if not meter.is_live(identity):
            found[layer] += size
    return found
