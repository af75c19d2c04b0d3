"""Results that are discarded after use and computed again in backward, as Megatron-Core's CheckpointWithoutOutput does.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ledger.lab.reference.storages import identity, storage_of


@dataclass
class Promise:
    """A result that is not kept: the first who asks for it has it computed again, with the graph for its gradient."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...] = ()
    packed: int = 0
    result: Any = None
    edge: Any = None
    leaves: tuple[Tensor, ...] = ()

    def kept(self) -> Tensor:
        """The result for one more of those who packed it; let go with the last."""
        self.rebuild()
        self.packed -= 1
        found: Tensor = self.result.detach()
        if not self.packed:
            self.result = None
        return found

    def rebuild(self) -> None:
        """Runs the function on its inputs once more, the first time that anybody asks for what it saved."""
        if self.edge is None:
            self.leaves = tuple(tensor.detach().requires_grad_() for tensor in self.inputs)
            with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                self.result = self.function(*self.leaves)
            self.edge = torch.autograd.graph.get_gradient_edge(self.result)
            if not self.packed:
                self.result = None


class _Discarded(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """Runs a function without a graph; backward goes through the graph of its second run."""

    @staticmethod
    def forward(ctx: Any, promise: Promise, *inputs: Tensor) -> Tensor:
        ctx.promise = promise
        promise.inputs = tuple(tensor.detach() for tensor in inputs)
        return promise.function(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        promise = ctx.promise
        promise.rebuild()
        edge, promise.edge = promise.edge, None
        torch.autograd.backward((edge,), gradients)
        found = tuple(leaf.grad for leaf in promise.leaves)
        promise.inputs = promise.leaves = ()  # the node itself lives as long as the loss
        return (None, *found)


@dataclass
class Promises:
    """The results that are discarded, by the storage that readers pack."""

    open: dict[int, Promise] = field(default_factory=dict)

    def discard(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """The function's result, which whoever reads it does not keep."""
        promise = Promise(function)
        result: Tensor = _Discarded.apply(promise, *inputs)
        storage = result.untyped_storage()
        self.open[identity(storage)] = promise
        weakref.finalize(storage, self.open.pop, identity(storage), None)
        return result

    def watched(self, forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """The forward pass, in which readers of discarded results pack promises."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            return forward(*given, **named)

    def _pack(self, tensor: Tensor) -> Any:
        promise = self.open.get(storage_of(tensor))
        if promise is None:
            return tensor
        promise.packed += 1
        return promise, tensor.shape, tensor.stride(), tensor.storage_offset()


def _unpack(packed: Any) -> Tensor:
    if isinstance(packed, Tensor):
        return packed
    promise, shape, stride, offset = packed
    return promise.kept().as_strided(shape, stride, offset)
