"""What layers save for backward, kept in host memory until backward comes to them: the judge of offloaded activations.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from ledger.lab.observed.storages import storage_of

AHEAD = "ahead"  # copies go on beside the neighbouring layer; else each is waited for


class Slot:
    """One storage that a layer saves: `here` is on the device, `there` on the host."""

    def __init__(self, saved: Tensor) -> None:
        storage = saved.untyped_storage()
        self.home = saved.device
        self.here: Tensor | None = saved.as_strided((storage.nbytes() // saved.element_size(),), (1,), 0)
        self.there: Tensor | None = None

    def send(self) -> None:
        """Copied to the host; the device's copy is still there."""
        if self.here is not None and self.there is None:
            self.there = self.here.to("cpu")

    def leave(self) -> None:
        """The device's copy is let go."""
        if self.there is not None:
            self.here = None

    def fetch(self) -> None:
        """Back on the device, and no longer on the host."""
        if self.there is not None and self.here is None:
            self.here = self.there.to(self.home)
        self.there = None


@dataclass
class Layer:
    """The slots of one layer's pass, which live as long as autograd holds what refers to them."""

    module: nn.Module
    slots: weakref.WeakValueDictionary[int, Slot] = field(default_factory=weakref.WeakValueDictionary)
    shared: set[int] = field(default_factory=set)
    hooks: Any = None

    def enters(self, _: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """What comes in beside the residual stream, as tables of positions, is shared by layers and stays."""
        tensors = [value for value in tree_leaves((args, named)) if isinstance(value, Tensor)]
        self.shared = {storage_of(tensor) for tensor in tensors[1:]}
        self.hooks = saved_tensors_hooks(self.pack, unpack)
        self.hooks.__enter__()

    def pack(self, saved: Tensor) -> Any:
        """A weight or what is shared stays where it is; of anything else, the place in its storage."""
        weights = {storage_of(weight) for weight in self.module.parameters()}
        if storage_of(saved) in self.shared | weights:
            return saved
        slot = self.slots.get(storage_of(saved)) or Slot(saved)
        self.slots[storage_of(saved)] = slot
        return slot, saved.dtype, saved.size(), saved.stride(), saved.storage_offset()


def unpack(packed: Any) -> Tensor:
    """What was packed, from the device's copy of its storage."""
    if isinstance(packed, Tensor):
        return packed
    slot, dtype, *place = packed
    slot.fetch()
    return slot.here.view(dtype).as_strided(*place)


@contextmanager
def hosted(layers: Sequence[nn.Module], how: str) -> Iterator[None]:
    """Within, what `layers` save leaves after their forward and comes back before their backward.

    With `AHEAD` a layer leaves while the next one runs, and comes back while backward runs the one after it; nothing
    happens where `how` is empty.
    """
    passes = [Layer(module) for module in layers] if how else []
    handles = [
        handle
        for index, layer in enumerate(passes)
        for handle in (
            layer.module.register_forward_pre_hook(layer.enters, with_kwargs=True),
            layer.module.register_forward_hook(partial(_left, passes, index, how)),
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _left(passes: Sequence[Layer], index: int, how: str, *result: Any) -> None:
    """A layer's forward is over: its copies begin, and those that began a layer before are done."""
    passes[index].hooks.__exit__(None, None, None)
    for slot in list(passes[index].slots.values()):
        slot.send()
    gone = index - 1 if how == AHEAD else index
    for slot in list(passes[gone].slots.values()) if gone >= 0 else ():
        slot.leave()
    stream = next(value for value in tree_leaves(result[-1]) if isinstance(value, Tensor))
    stream.register_hook(lambda _: _fetch(passes[max(0, index - (how == AHEAD)) : index + 1]))


def _fetch(passes: Sequence[Layer]) -> None:
    for layer in reversed(passes):
        for slot in list(layer.slots.values()):
            slot.fetch()
