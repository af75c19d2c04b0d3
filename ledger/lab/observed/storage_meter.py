"""Counts the bytes of live storages while operators run. Imports torch at its top; import it inside functions."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ledger.lab.observed.device_step import AllocatedBytes
from ledger.lab.reference.cuda_guard import identity

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
        if wraps_tensors(types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        self.watch(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        return result


def wraps_tensors(types: Iterable[type]) -> bool:
    """Whether an operator is on tensors that wrap others (DTensor): the operators on those follow by themselves."""
    return any(hasattr(kind, "__tensor_flatten__") for kind in types)


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


# --- moments of a step, told to a meter by hooks ---

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


@dataclass
class StepMoments:
    """Tells `meter` which of `layers` runs; `groups` names the group of each, `encoder` counts those of an encoder.

    Forward: `forward/input`, `forward/GROUP/start` for the first layer of a group, `forward/GROUP` for its last and
    `.../inner` between, then `forward/loss` from the last layer on (norm, head, loss). Backward: `backward/loss`,
    `backward/GROUP` for the layer of a group that backward visits first, `.../end` for the one it visits last and
    `.../inner` between, then `backward/input` (the embedding). Between the layers of an encoder and of a decoder stands
    `bridge`, in both passes.
    """

    meter: StorageMeter
    layers: Sequence[torch.nn.Module]
    groups: Sequence[str]
    encoder: int = 0  # layers of an encoder, which are the first ones
    phase: str = field(default=FORWARD)

    def begin_forward(self) -> None:
        """Bytes count from here for the forward pass of a micro-batch."""
        self.phase = FORWARD
        self.meter.enter("forward/input")

    def begin_backward(self) -> None:
        """Bytes count from here for the backward pass: forward and loss are done."""
        self.phase = BACKWARD
        self.meter.enter("backward/loss")

    def begin_optimizer(self) -> None:
        """Bytes count from here for the update: backward is done."""
        self.phase = OPTIMIZER
        self.meter.enter(OPTIMIZER)

    @contextmanager
    def followed(self) -> Iterator[StepMoments]:
        """Within, hooks tell the meter of every pass through the layers."""
        self.meter.enter("forward/input")
        handles = [
            handle
            for index, layer in enumerate(self.layers)
            for handle in (
                layer.register_forward_pre_hook(partial(self._layer_begins, index), with_kwargs=True, prepend=True),
                layer.register_forward_hook(partial(self._layer_ends, index), prepend=True),
                layer.register_forward_hook(partial(self._layer_left, index)),
            )
        ]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def moment_name(self, phase: str, index: int) -> str:
        """The moment at which a pass visits layer `index`."""
        in_group = [place for place, group in enumerate(self.groups) if group == self.groups[index]]
        name = f"{phase}/{self.groups[index]}"
        if index == in_group[-1]:
            return name
        return f"{name}/{'start' if phase == FORWARD else 'end'}" if index == in_group[0] else f"{name}/inner"

    def _layer_begins(self, index: int, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A layer's forward pass begins; its first one leaves word for when backward has left all layers."""
        if self.phase == BACKWARD:  # what is computed again belongs to the backward pass of its layer
            return
        self.meter.enter(self.moment_name(FORWARD, index))
        stream = _stream((*args, *kwargs.values()))
        if index in (0, self.encoder) and stream is not None and stream.requires_grad:
            next_moment = "backward/bridge" if index else "backward/input"
            stream.register_hook(lambda _: self.meter.enter(next_moment))

    def _layer_ends(self, index: int, _: Any, __: Any, output: Any) -> None:
        """A layer's forward pass ends; the gradient of what it gives begins its backward pass, before other hooks."""
        if self.phase == BACKWARD:
            return
        stream = _stream(output if isinstance(output, tuple) else (output,))
        if stream is not None and stream.requires_grad:
            stream.register_hook(lambda _: self.meter.enter(self.moment_name(BACKWARD, index)))

    def _layer_left(self, index: int, *_: Any) -> None:
        """A layer is left: after the last one come norm, head and loss."""
        if self.phase == FORWARD and index == len(self.layers) - 1:
            self.meter.enter(f"{FORWARD}/loss")
        elif self.phase == FORWARD and index == self.encoder - 1:
            self.meter.enter(f"{FORWARD}/bridge")


def _stream(values: Sequence[Any]) -> Tensor | None:
    """The residual stream: the first tensor among a layer's arguments or results."""
    return next((value for value in values if isinstance(value, Tensor)), None)
