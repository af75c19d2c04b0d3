"""What autograd keeps between forward and backward, storage by storage, read from the running model."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ledger.lab.reference.cuda_guard import install_cuda_guard, storage_of
from ledger.lab.reference.images import micro_batch
from ledger.lab.reference.model import Workload, born_dtype, freeze, layers_of, reference_model, training_loss
from ledger.lab.transformers.config import with_layers

if TYPE_CHECKING:
    import torch

BEFORE, AFTER, BETWEEN = -1, -2, -3  # the `layer` of what is saved outside the layers


@dataclass(frozen=True)
class SavedStorage:
    """One storage that autograd keeps; `layer`: where it was packed first, from 0, or BEFORE, AFTER or BETWEEN them."""

    bytes: int
    shape: tuple[int, ...]  # of the view first packed
    dtype: str
    layer: int
    users: tuple[str, ...]  # node.slot of everyone who packed it, in order of execution
    order: int  # autograd's sequence number of the first user


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that one layer saves (three layers less two), and bytes saved outside the layers."""

    per_layer: int
    outside: int

    def total(self, layers: int) -> int:
        """Bytes of a model with `layers` equal layers."""
        return self.per_layer * layers + self.outside


@dataclass(eq=False)
class _Packed:
    """What autograd holds in place of a tensor, for as long as the node lives that saved it."""

    index: int


@dataclass
class _Recorder:
    """Collects packed tensors; keeps each alive, so that no storage's identity is used twice."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    held: list[weakref.ref[_Packed]] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    layer: int = BEFORE
    unpacked: int = -1

    def pack(self, tensor: torch.Tensor) -> _Packed:
        packed = _Packed(len(self.tensors))
        self.tensors.append(tensor)
        self.layers.append(self.layer)
        self.held.append(weakref.ref(packed))
        return packed

    def unpack(self, packed: _Packed) -> torch.Tensor:
        self.unpacked = packed.index
        return self.tensors[packed.index]


def saved_bytes(work: Workload) -> SavedBytes:
    """Bytes autograd packs for one micro-batch: distinct storages, parameters excluded, cast weights included.

    Recomputation is left aside. Raises `NoReferenceError`, and `GuardBuildError` without a C++ compiler.
    """
    two, three = (
        sum(storage.bytes for storage in saved_storages(replace(work, model=with_layers(work.model, layers))))
        for layers in (2, 3)
    )
    return SavedBytes(per_layer=three - two, outside=two - 2 * (three - two))


def saved_storages(work: Workload) -> tuple[SavedStorage, ...]:
    """Every storage that forward and loss leave for backward, in order of first use; raises as `saved_bytes`.

    Runs on fake cuda tensors: no memory, and the operators, masks and casts of a GPU.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ledger.lab.reference.modules import imaginary_gpu

    install_cuda_guard()
    recorder = _Recorder()
    with imaginary_gpu(), FakeTensorMode():
        dtype = born_dtype(work.precision)
        built = reference_model(work.model, work.kernels, "cuda", dtype, work.precision)
        freeze(built, work.train, work.precision)
        batch = micro_batch(work, "cuda")
        hooks = torch.autograd.graph.saved_tensors_hooks(recorder.pack, recorder.unpack)
        with _layers_noted(layers_of(built, work.model), recorder), hooks:
            loss = training_loss(built, work, batch)
        return _storages(recorder, loss.grad_fn, {storage_of(tensor) for tensor in lasting(built)})


def lasting(built: Any) -> Iterator[torch.Tensor]:
    """What a node of the graph refers to, and a model has all the time: weights, and statistics of batch norms."""
    yield from built.parameters()
    yield from (buffer for name, buffer in built.named_buffers() if name.endswith(("running_mean", "running_var")))


@contextmanager
def _layers_noted(layers: Any, recorder: _Recorder) -> Iterator[None]:
    """Within, the recorder knows which layer runs."""

    def noting(layer: int) -> Callable[..., None]:
        def note(*_: Any) -> None:
            recorder.layer = layer

        return note

    handles = [module.register_forward_pre_hook(noting(index)) for index, module in enumerate(layers)]
    handles += [module.register_forward_hook(noting(BETWEEN)) for module in layers[:-1]]
    handles.append(layers[-1].register_forward_hook(noting(AFTER)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _storages(recorder: _Recorder, root: Any, parameters: set[int]) -> tuple[SavedStorage, ...]:
    """The recorded storages, each named by the nodes of the graph at `root` that hold it."""
    users: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for node in _nodes(root):
        for slot in (name for name in dir(node) if name.startswith("_saved_")):
            recorder.unpacked = -1
            getattr(node, slot)
            if recorder.unpacked >= 0:
                order = node._sequence_nr()  # noqa: SLF001  # the only order of execution that autograd keeps
                users[recorder.unpacked].append((order, f"{node.name()}.{slot.removeprefix('_saved_')}"))
    packs: dict[int, list[int]] = defaultdict(list)
    for index, tensor in enumerate(recorder.tensors):
        if storage_of(tensor) not in parameters and recorder.held[index]() is not None:  # a choice has no gradient
            packs[storage_of(tensor)].append(index)
    return tuple(_storage(recorder, indices, users) for indices in packs.values())


def _storage(recorder: _Recorder, indices: list[int], users: dict[int, list[tuple[int, str]]]) -> SavedStorage:
    first = recorder.tensors[indices[0]]
    named = sorted(user for index in indices for user in users[index])
    return SavedStorage(
        bytes=first.untyped_storage().nbytes(),
        shape=tuple(first.shape),
        dtype=str(first.dtype).removeprefix("torch."),
        layer=recorder.layers[indices[0]],
        users=tuple(name for _, name in named),
        order=named[0][0] if named else -1,
    )


def _nodes(root: Any) -> Iterator[Any]:
    """Every node of the backward graph, once."""
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
