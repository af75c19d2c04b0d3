"""One training step of a model on fake tensors, metered: what all judged devices have in common.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn, zeros_like
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from ledger.lab.observed.collective_log import CollectiveLog
from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.observed.storage_meter import StepMoments, StorageMeter
from ledger.lab.reference.cuda_guard import storage_of
from ledger.lab.reference.model import layers_of
from ledger.lab.reference.optimizers import FakeScalars, ReferenceOptimizer, reference_optimizer
from ledger.lab.reference.workload import Workload


@dataclass(frozen=True)
class TrainedModel:
    """A transformers model with its decoder layers, the group of each, and its optimizer, whose states are in place."""

    built: Any
    layers: Sequence[nn.Module]
    groups: Sequence[str]
    optimizer: ReferenceOptimizer
    encoder: int = 0  # of the layers, those of an encoder, which are the first

    def resident(self) -> Iterator[Tensor]:
        """The tensors that are there before the step and after it; of a DTensor, this rank's part."""
        yield from _local(*self.built.buffers(), *self.built.parameters(), *self.optimizer.states())

    def gradients(self) -> Iterator[Tensor]:
        """Gradients that last from step to step; of a DTensor, this rank's part."""
        yield from _local(*(weight.grad for weight in self.built.parameters() if weight.grad is not None))


def _local(*tensors: Any) -> Iterator[Tensor]:
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors)


def trained_model(built: Any, work: Workload) -> TrainedModel:
    """`built` with the optimizer of `work`, and with gradients where it fills them with zeros.

    Call it inside the fake mode and within `FakeScalars`.
    """
    layers = layers_of(built, work.model)
    optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
    for weight in built.parameters() if work.optimizer.zero_grad == "fill" else ():
        weight.grad = zeros_like(weight) if weight.requires_grad else None
    groups = work.model.layers
    encoder = sum(group.encodes_source for group in groups)
    return TrainedModel(built, layers, [group.name for group in groups], optimizer, encoder)


def causal_loss(model: Any, tokens: Tensor, positions: Tensor) -> Tensor:
    """The loss of transformers, taken outside the model: inside, FSDP2 would gather the root anew for its backward."""
    inner = getattr(model, "module", model)
    types = {"token_type_ids": zeros_like(tokens)} if getattr(inner.config, "type_vocab_size", 0) else {}
    logits = model(tokens, position_ids=positions, use_cache=False, **types).logits
    loss: Tensor = inner.loss_function(logits, tokens, logits.shape[-1])
    return loss


def run_micro_batches(
    moments: StepMoments, contexts: Iterable[AbstractContextManager[Any]], loss: Callable[[], Tensor]
) -> AllocatedBytes:
    """Forward and backward of a micro-batch within each of the contexts; what is allocated after the last forward."""
    after = AllocatedBytes()
    for context in contexts:
        with context:
            moments.begin_forward()
            value = loss()
            after = moments.meter.allocated
            moments.begin_backward()
            value.backward()
            del value
    return after


@dataclass(frozen=True)
class MeteredStep:
    """A step that is about to run on `device`, with what is there before it.

    `axes`: process group name -> axis. `hosting` as in `Workload`. `host` counts what lies in host memory meanwhile.
    """

    model: TrainedModel
    batch: Sequence[Tensor]
    device: str
    fake: FakeTensorMode
    axes: Mapping[str, str]
    hosting: str = ""
    host: StorageMeter | None = None

    def run(self, passes: Callable[[StepMoments], AllocatedBytes | None]) -> DeviceStep:
        """Both passes of all micro-batches, which `passes` runs, then the update.

        `passes` tells the moments which pass begins, and returns what is allocated after the last forward pass.
        """
        meter, host = StorageMeter(self.device), self.host or StorageMeter("none")
        meter.watch([*self.batch, *self.model.resident()])
        static = meter.allocated
        meter.watch(self.model.gradients())
        host.enter("passes")
        moments = StepMoments(meter, self.model.layers, self.model.groups, self.model.encoder)
        log = CollectiveLog(self.axes, lambda: moments.phase)
        offloaded = offload_activations(self.model.layers, self.hosting)
        with self.fake, meter.resizes_seen(), host, meter, log, offloaded, moments.followed():
            after = passes(moments)
        moments.begin_optimizer()
        with self.fake, meter, log, FakeScalars():
            self.model.optimizer.step()
        between = {} if after is None else {"after forward": after}
        waiting = host.moments.get("passes", AllocatedBytes()).requested
        return DeviceStep({"static": static, **between, **meter.moments}, log.collectives(), waiting)


# --- activations in host memory ---

AHEAD = "ahead"  # copies go on beside the neighbouring layer; else each is waited for


class OffloadedStorage:
    """One storage that a layer saves, with its copies on the device and on the host."""

    def __init__(self, saved: Tensor) -> None:
        storage = saved.untyped_storage()
        self.device = saved.device
        self.on_device: Tensor | None = saved.as_strided((storage.nbytes() // saved.element_size(),), (1,), 0)
        self.on_host: Tensor | None = None

    def copy_to_host(self) -> None:
        """A copy on the host; that on the device stays."""
        if self.on_device is not None and self.on_host is None:
            self.on_host = self.on_device.to("cpu")

    def free_device_copy(self) -> None:
        """Drops the copy on the device, if there is one on the host."""
        if self.on_host is not None:
            self.on_device = None

    def copy_back(self) -> Tensor | None:
        """The copy on the device, made from that on the host, which goes."""
        if self.on_device is None and self.on_host is not None:
            self.on_device = self.on_host.to(self.device)
        self.on_host = None
        return self.on_device


@dataclass
class OffloadedLayer:
    """The storages that one layer's forward pass saves, which live as long as autograd holds what refers to them."""

    module: nn.Module
    storages: weakref.WeakValueDictionary[int, OffloadedStorage] = field(default_factory=weakref.WeakValueDictionary)
    shared: set[int] = field(default_factory=set)
    hooks: Any = None

    def begin_forward(self, _: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
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
        storage = self.storages.get(storage_of(saved)) or OffloadedStorage(saved)
        self.storages[storage_of(saved)] = storage
        return storage, saved.dtype, saved.size(), saved.stride(), saved.storage_offset()


def unpack(packed: Any) -> Tensor:
    """The tensor that was packed, from the device's copy of its storage."""
    if isinstance(packed, Tensor):
        return packed
    storage, dtype, *place = packed
    view: Tensor = storage.copy_back().view(dtype).as_strided(*place)
    return view


@contextmanager
def offload_activations(layers: Sequence[nn.Module], how: str) -> Iterator[None]:
    """Within, what `layers` save leaves after their forward and comes back before their backward.

    With `AHEAD` a layer leaves while the next one runs, and comes back while backward runs the one after it; nothing
    happens where `how` is empty.
    """
    passes = [OffloadedLayer(module) for module in layers] if how else []
    handles = [
        handle
        for index, layer in enumerate(passes)
        for handle in (
            layer.module.register_forward_pre_hook(layer.begin_forward, with_kwargs=True),
            layer.module.register_forward_hook(partial(_end_forward, passes, index, how)),
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _end_forward(passes: Sequence[OffloadedLayer], index: int, how: str, *result: Any) -> None:
    """A layer's forward is over: its copies begin, and those that began a layer before are done."""
    passes[index].hooks.__exit__(None, None, None)
    for storage in list(passes[index].storages.values()):
        storage.copy_to_host()
    copied = index - 1 if how == AHEAD else index
    for storage in list(passes[copied].storages.values()) if copied >= 0 else ():
        storage.free_device_copy()
    stream = next(value for value in tree_leaves(result[-1]) if isinstance(value, Tensor))
    stream.register_hook(lambda _: _copy_back(passes[max(0, index - (how == AHEAD)) : index + 1]))


def _copy_back(passes: Sequence[OffloadedLayer]) -> None:
    """The storages of these layers are on the device again, those of the last layer first."""
    for layer in reversed(passes):
        for storage in list(layer.storages.values()):
            storage.copy_back()
