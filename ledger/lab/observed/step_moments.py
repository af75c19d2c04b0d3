"""Which moment of a step runs, told to a meter by hooks: the moments that the ledger names, layer by layer.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ledger.lab.observed.storage_meter import StorageMeter

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
        """Forward and loss are done."""
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
        same = [other for other, group in enumerate(self.groups) if group == self.groups[index]]
        name = f"{phase}/{self.groups[index]}"
        if index == same[-1]:
            return name
        return f"{name}/{'start' if phase == FORWARD else 'end'}" if index == same[0] else f"{name}/inner"

    def _layer_begins(self, index: int, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A layer's forward pass begins; its first one leaves word for when backward has left all layers."""
        if self.phase == BACKWARD:  # what is computed again belongs to the backward pass of its layer
            return
        self.meter.enter(self.moment_name(FORWARD, index))
        stream = _stream((*args, *kwargs.values()))
        if index in (0, self.encoder) and stream is not None and stream.requires_grad:
            left = "backward/bridge" if index else "backward/input"
            stream.register_hook(lambda _: self.meter.enter(left))

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
