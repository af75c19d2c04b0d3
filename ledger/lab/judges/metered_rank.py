"""A framework's rank under a meter, as far as frameworks are alike. Imports torch at its top."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from ledger.lab.judges.fakes import FakeValues
from ledger.lab.observed.collective_log import OPERATORS, CollectiveLog, group_name
from ledger.lab.observed.device_step import AllocatedBytes, CollectiveCalls, DeviceStep
from ledger.lab.observed.storage_meter import BACKWARD, FORWARD, StepMoments, StorageMeter
from ledger.lab.reference.cuda_guard import identity, storage_of
from ledger.spec.plan import Plan

WRAPPED = ("_local_tensor", "elem")  # of DTensor and AsyncCollectiveTensor
NUMBER = 8  # bytes of an int64


class RankMeter(StorageMeter):
    """Counts what a rank holds; of a tensor that wraps quantised data, the data. Single numbers are left out."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.pauses = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, what operators make is not counted."""
        self.pauses += 1
        try:
            yield
        finally:
            self.pauses -= 1

    def _record(self, identity: int, size: int | None) -> None:
        super()._record(identity, 0 if size is not None and size <= NUMBER else size)

    def watch(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count the storages of `tensors` from now until they are freed."""
        if not self.pauses:
            super().watch(part for tensor in tensors for part in tensors_with_storage(tensor))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {})) if self.pauses else super().__torch_dispatch__(func, types, args, kwargs)


def tensors_with_storage(tensor: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that have storages of their own: a quantised one wraps its data, and has a nominal dtype.

    So does a rank's part of a larger tensor (DTensor), and what a collective is about to give.
    """
    for name in WRAPPED:
        if isinstance(inner := getattr(tensor, name, None), torch.Tensor):
            return tensors_with_storage(inner)
    if not hasattr(tensor, "_quantizer"):
        return (tensor,)
    return tuple(part for part in vars(tensor).values() if isinstance(part, torch.Tensor))


def as_one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a compiler fuses it: what it makes for itself alone is not allocated, what autograd keeps is."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        meters = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, RankMeter)]
        saved: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor)
            return tensor.detach()  # a node that holds its own result would never be freed

        with ExitStack() as paused:
            if not torch._C._autograd._top_saved_tensors_default_hooks(False):  # noqa: SLF001  # others' hooks
                paused.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor))
            for meter in meters:
                paused.enter_context(meter.paused())
            result = function(*args, **kwargs)
        for meter in meters:
            meter.watch(leaf for leaf in (*tree_leaves(result), *saved) if isinstance(leaf, torch.Tensor))
        return result

    return run


class JudgedRank(Protocol):
    """What a framework has built of a rank: `groups` are those of its layers, `ends` what runs around these."""

    @property
    def plan(self) -> Plan: ...  # noqa: D102
    @property
    def layers(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def groups(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def ends(self) -> Sequence[Any]: ...  # noqa: D102


Rank = TypeVar("Rank", bound=JudgedRank)


@dataclass
class MeteredRank(ABC, Generic[Rank]):
    """A rank that takes steps under a meter; `axes` are those of its groups by name.

    `after_forward`: what was held when the last forward pass was over.
    """

    rank: Rank
    meter: RankMeter
    fake: FakeTensorMode
    axes: Mapping[str, str]
    after_forward: AllocatedBytes = field(default=AllocatedBytes())

    @abstractmethod
    def saved(self) -> list[LayerStorage]:
        """What autograd keeps of one micro-batch."""

    @abstractmethod
    def lasting_tensors(self) -> Mapping[str, Iterable[Tensor]]:
        """The tensors on the device that the rank holds from step to step, by what they are."""

    @abstractmethod
    def run(self, micro_batches: int, moments: RankMoments, log: RankCollectives) -> None:
        """Every micro-batch forward and backward, then the update; `moments` are told which of them runs."""

    def clear(self) -> None:
        """Lets go of tensors before a step; by default of none."""

    def calls(self, log: RankCollectives) -> Iterable[CollectiveCalls]:
        """The collectives of a step."""
        return log.collectives()

    @contextmanager
    def metered(self, *beneath: AbstractContextManager[Any]) -> Iterator[None]:
        """Within, tensors are fake and what they take is counted; `beneath` see operators before the meter does."""
        with ExitStack() as entered:
            for context in (self.fake, self.meter.resizes_seen(), self.meter, *beneath, FakeValues()):
                entered.enter_context(context)
            yield

    def step(self, micro_batches: int) -> tuple[DeviceStep, int]:
        """One step of so many micro-batches, and how often ranks agreed on numbers in it."""
        self.meter.moments.clear()
        moments = RankMoments(self.meter, self.rank.layers, self.rank.groups)
        log = RankCollectives(self.axes, lambda: moments.phase)
        with self.fake, self.meter:
            self.clear()
        static = self.meter.allocated
        with self.metered(log), moments.followed():
            self.run(micro_batches, moments, log)
        self.meter.enter("")
        bytes_by_moment = {"static": static, "after forward": self.after_forward, **self.meter.moments}
        return DeviceStep(bytes_by_moment, tuple(self.calls(log))), log.agreements

    def figures(
        self,
        weights: Iterable[Tensor],
        saved: Sequence[LayerStorage] | None,
        step: tuple[DeviceStep, int],
        padding: Mapping[str, int] | None = None,
    ) -> RankFigures:
        """All that is asked of the rank; `saved` is None where what is kept cannot be told."""
        device_step, agreements = step
        return RankFigures(
            parameters=sum(weight.numel() for weight in weights),
            lasting_tensors={name: sum(sizes(tensors).values()) for name, tensors in self.lasting_tensors().items()},
            padding=padding or {},
            saved={} if saved is None else by_group(list(self.rank.groups), by_layer(list(saved))),
            step=device_step,
            agreements=agreements,
        )


# --- the figures of one rank ---

# What a rank holds from one step to the next, in the ledger's words.
STANDING = ("weights", "master", "gradients", "optimizer")


@dataclass(frozen=True)
class RankFigures:
    """One rank's parameters, what it holds between steps, what autograd saves, and its step.

    `lasting_tensors`: bytes of each of STANDING, as they were asked for. `padding`: those of them that no parameter
    fills. `saved`: bytes that autograd keeps of one layer of each group in one micro-batch, under the plan's
    recomputation, without what outlives the pass. `agreements`: collectives of single numbers that ranks agree on
    (norms of gradients, overflows), which are no part of the step's.
    """

    parameters: int
    lasting_tensors: Mapping[str, int]
    padding: Mapping[str, int]
    saved: Mapping[str, int]
    step: DeviceStep
    agreements: int = 0


# --- moments of a framework's step ---


class RankMoments(StepMoments):
    """A layer that runs while backward does is rebuilt, which is the beginning of its backward pass.

    Where several are rebuilt together, each comes again when its gradient does.
    """

    def begin_forward(self, *, embeds: bool = True) -> None:
        """A micro-batch begins, by the embedding or by the first layer of a chunk."""
        self.phase = FORWARD
        self.meter.enter(f"{FORWARD}/input" if embeds else "")

    def _layer_begins(self, index: int, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.phase == BACKWARD:
            self.meter.enter(self.moment_name(BACKWARD, index))
            return
        super()._layer_begins(index, _, args, kwargs)

    def _layer_ends(self, index: int, module: Any, args: Any, output: Any) -> None:
        if self.phase != BACKWARD:
            super()._layer_ends(index, module, args, output)
            return
        results = output if isinstance(output, tuple) else (output,)
        stream = next((result for result in results if result is not None), None)
        if stream is not None and stream.requires_grad:
            stream.register_hook(lambda _: self.meter.enter(self.moment_name(BACKWARD, index)))


# --- collectives of a rank by kind, axis and phase ---

AGREEMENT_GROUPS = ("model", "other")  # groups in which ranks agree on norms, overflows, maxima and counts
NUMBERS = 64  # bytes: what they agree on in other groups is a few numbers


class RankCollectives(CollectiveLog):
    """Counts as `CollectiveLog` does; a phase that is given holds while it is, and agreements are counted apart."""

    def __init__(self, axes: Mapping[str, str], phase: Callable[[], str]) -> None:
        super().__init__(axes, lambda: self.given or phase())
        self.given = ""
        self.agreements = 0
        self.agreeing = False

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Within, what is sent belongs to `phase`."""
        before, self.given = self.given, phase
        try:
            yield
        finally:
            self.given = before

    @contextmanager
    def agreement(self) -> Iterator[None]:
        """Within, ranks agree on numbers, however many."""
        self.agreeing = True
        try:
            yield
        finally:
            self.agreeing = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = func.__name__.split(".")[0] in OPERATORS
        if (self.agreeing and named) or (func.namespace == "c10d" and self._agrees(func, args)):
            self.agreements += 1
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _agrees(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether a collective is about numbers, not about tensors of the model."""
        if func.__name__.startswith(("recv", "send", "wait", "barrier")):
            return False
        size = sum(int(leaf.nbytes) for leaf in tree_leaves(args[0]) if isinstance(leaf, Tensor))
        return size <= NUMBERS or self.axes[group_name(args)] in AGREEMENT_GROUPS


# --- tensors that autograd saves, layer by layer ---

OUTSIDE = -1  # the layer of what is saved before the first or after the last


@dataclass(eq=False)
class PackedTensor:
    """What autograd holds in place of a tensor, for as long as the node lives that saved it."""

    tensor: Tensor
    layer: int


@dataclass(frozen=True)
class LayerStorage:
    """One storage with the layer that packed it first; `reference` gives it until it is freed."""

    layer: int
    bytes: int
    reference: weakref.ref[Any]


@dataclass
class SavedStorages:
    """Collects what is packed while `layers` run forward, and until the next of them or of `ends` begins.

    What `weights` have when it is packed is left out: gathered ones do not outlive a pass.
    """

    layers: Sequence[torch.nn.Module]
    ends: Sequence[torch.nn.Module]
    weights: Sequence[Tensor] = ()
    layer: int = OUTSIDE
    packed: list[weakref.ref[PackedTensor]] = field(default_factory=list)

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

    def storages(self) -> list[LayerStorage]:
        """Every storage that is still kept, with its bytes now: what is rebuilt has given them back."""
        live_packed = [live for reference in self.packed if (live := reference()) is not None]
        storages: dict[int, LayerStorage] = {}
        for packed, part in ((live, part) for live in live_packed for part in tensors_with_storage(live.tensor)):
            storage = part.untyped_storage()
            storages.setdefault(identity(storage), LayerStorage(packed.layer, storage.nbytes(), weakref.ref(storage)))
        return list(storages.values())

    def _enter(self, layer: int, *_: Any) -> None:
        self.layer = layer

    def _pack(self, tensor: Tensor) -> PackedTensor:
        packed = PackedTensor(tensor.detach(), self.layer)  # a node that holds its own result would never be freed
        if not any(storage_of(weight) == storage_of(tensor) for weight in self.weights):
            self.packed.append(weakref.ref(packed))
        return packed


def by_layer(storages: Iterable[LayerStorage]) -> Counter[int]:
    """Bytes of each layer, once a step has run since: what is still there outlives a pass, and is no part of them."""
    layer_bytes: Counter[int] = Counter()
    for storage in storages:
        layer_bytes[storage.layer] += storage.bytes * (storage.reference() is None)
    return layer_bytes


def by_group(groups: Sequence[str], bytes_by_layer: Mapping[int, int]) -> dict[str, int]:
    """Bytes of one layer of each group: the second of them where there is one, since the first may make tables."""
    places = {group: [index for index, name in enumerate(groups) if name == group] for group in groups}
    return {group: bytes_by_layer[indices[min(1, len(indices) - 1)]] for group, indices in places.items()}


def sizes(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of the storages of tensors, each once."""
    return {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
