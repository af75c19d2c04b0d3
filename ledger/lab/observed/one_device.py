"""One device of the reference on fake or meta tensors: its step, FLOPs and parameters, and what autograd saves."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.reference.cuda_guard import install_cuda_guard, storage_of, torch_dtype
from ledger.lab.reference.images import micro_batch
from ledger.lab.reference.model import (
    born_dtype,
    checkpoint_layers,
    experts_kernel,
    freeze,
    layers_of,
    reference_model,
    training_loss,
)
from ledger.lab.reference.workload import Workload
from ledger.lab.transformers.config import with_layers
from ledger.spec.plan import Kernels, Precision, Train
from ledger.spec.precision import WeightFormats

if TYPE_CHECKING:
    import torch

    from ledger.spec.plan import Model


def one_device_step(work: Workload, micro_batches: int = 1) -> DeviceStep:
    """One step, gradients freed before forward, optimizer states made before; raises `NoReferenceError`.

    Gradients add up over `micro_batches`; what is allocated after forward is so after the last of them.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ledger.lab.observed.metered_step import MeteredStep, trained_model
    from ledger.lab.observed.storage_meter import StepMoments, StorageMeter
    from ledger.lab.reference.modules import imaginary_gpu
    from ledger.lab.reference.optimizers import FakeScalars

    loss = None  # which a training loop still has when it updates

    def passes(moments: StepMoments) -> AllocatedBytes:
        nonlocal loss
        after = AllocatedBytes()
        for _ in range(micro_batches):
            loss = None  # the one before is let go
            moments.begin_forward()
            loss = training_loss(built, work, batch)
            after = moments.meter.allocated
            moments.begin_backward()
            loss.backward()
        return after

    install_cuda_guard()
    fake = FakeTensorMode()
    with imaginary_gpu(), torch.autograd.set_multithreading_enabled(False):
        with fake:
            dtype = torch_dtype(work.precision.weights.base)
            built = reference_model(work.model, work.kernels, "cuda", dtype, work.precision)
            freeze(built, work.train)
            batch = micro_batch(work, "cuda")
        checkpoint_layers(built, work.recompute)
        with fake, FakeScalars():
            model = trained_model(built, work)
        host = StorageMeter("cpu") if work.hosting else None
        return MeteredStep(model, batch, "cuda", fake, {}, work.hosting, host).run(passes)


# --- FLOPs and parameters, counted on meta tensors ---

# FLOPs are the same in every dtype, and meta tensors know no autocast.
TRAIN_ALL = Train()
PLAIN = Precision("bf16", WeightFormats.alike("bf16"), "bf16", None, "bf16", "bf16", "bf16", "bf16")


@dataclass(frozen=True)
class FlopCounts:
    """What FlopCounterMode reports for one micro-batch: matmuls and attention, causal masks without a discount.

    `backward` includes what checkpointed layers compute again. `kinds`: (pass, matmul | attention) -> FLOPs.
    """

    forward: int
    backward: int
    kinds: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Forward and backward together."""
        return self.forward + self.backward


def parameter_count(model: Model, train: Train = TRAIN_ALL) -> int:
    """Parameters of the transformers model, tied weights once; raises `NoReferenceError`."""
    return parameter_counts(model, train)[0]


def parameter_counts(model: Model, train: Train) -> tuple[int, int]:
    """Parameters of the transformers model, and how many of them are trained; raises `NoReferenceError`."""
    import torch

    kernels = Kernels(attention="eager", norm="eager", experts=experts_kernel(model), scan="eager")
    built = reference_model(model, kernels, "meta", torch.bfloat16)
    freeze(built, train)  # adapters are parameters, too
    weights = tuple(built.parameters())
    return sum(weight.numel() for weight in weights), sum(weight.numel() for weight in weights if weight.requires_grad)


def flop_counts(work: Workload) -> FlopCounts:
    """FLOPs of one unsharded micro-batch, forward with the loss and backward; raises `NoReferenceError`."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ledger.lab.reference.modules import imaginary_gpu

    with imaginary_gpu():
        built = reference_model(work.model, work.kernels, "meta", torch.bfloat16)
        freeze(built, work.train)
        checkpoint_layers(built, work.recompute)
        batch = micro_batch(work, "meta")
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as forward:
            loss = training_loss(built, replace(work, precision=PLAIN), batch)
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as backward:
            loss.backward()
    kinds = {**_flops_by_kind("forward", forward), **_flops_by_kind("backward", backward)}
    return FlopCounts(forward.get_total_flops(), backward.get_total_flops(), kinds)


def counter_formulas() -> dict[Any, Any]:
    """FLOPs of what the counter does not know: rows in groups, each with its matrix, or all rows for each matrix.

    Of a convolution in groups (one a channel where it is depthwise) it takes the gradient of the weight for that of a
    filter from every channel to every other one. Each of both gradients has the products of forward: a product of a
    weight and an input gives one term of an output, of the input's gradient, and of the weight's.
    """
    from math import prod

    import torch

    def grouped(left: tuple[int, ...], right: tuple[int, ...], *_: Any, **__: Any) -> int:
        return 2 * left[0] * left[1] * right[-1]  # rows x k x n; towards the weights m x rows x n

    def convolved_back(upstream: tuple[int, ...], _: Any, weight: tuple[int, ...], *arguments: Any, **__: Any) -> int:
        gradients = sum(arguments[7][:2])  # of the input, of the weight
        return int(2 * upstream[0] * prod(upstream[2:]) * prod(weight) * gradients)

    aten = torch.ops.aten
    return {aten._grouped_mm: grouped, aten.convolution_backward: convolved_back}  # noqa: SLF001  # the operator's own name


def _flops_by_kind(phase: str, counter: Any) -> dict[tuple[str, str], int]:
    """FLOPs of one pass in fused attention operators and in all others, which are matrix products."""
    flops = {(phase, "matmul"): 0, (phase, "attention"): 0}
    for operator, count in counter.get_flop_counts().get("Global", {}).items():
        flops[phase, "attention" if "attention" in str(operator) else "matmul"] += count
    return flops


# --- tensors that autograd saves, storage by storage ---

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
    packed: list[weakref.ref[_Packed]] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    layer: int = BEFORE
    unpacked: int = -1

    def pack(self, tensor: torch.Tensor) -> _Packed:
        packed = _Packed(len(self.tensors))
        self.tensors.append(tensor)
        self.layers.append(self.layer)
        self.packed.append(weakref.ref(packed))
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
        with _note_layers(layers_of(built, work.model), recorder), hooks:
            loss = training_loss(built, work, batch)
        return _storages(recorder, loss.grad_fn, {storage_of(tensor) for tensor in lasting(built)})


def lasting(built: Any) -> Iterator[torch.Tensor]:
    """What a node of the graph refers to, and a model has all the time: weights, and statistics of batch norms."""
    yield from built.parameters()
    yield from (buffer for name, buffer in built.named_buffers() if name.endswith(("running_mean", "running_var")))


@contextmanager
def _note_layers(layers: Any, recorder: _Recorder) -> Iterator[None]:
    """Within, the recorder knows which layer runs."""

    def note(layer: int, *_: Any) -> None:
        recorder.layer = layer

    handles = [module.register_forward_pre_hook(partial(note, index)) for index, module in enumerate(layers)]
    handles += [module.register_forward_hook(partial(note, BETWEEN)) for module in layers[:-1]]
    handles.append(layers[-1].register_forward_hook(partial(note, AFTER)))
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
        if storage_of(tensor) not in parameters and recorder.packed[index]() is not None:  # a choice has no gradient
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
