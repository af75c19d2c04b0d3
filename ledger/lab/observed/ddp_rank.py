"""Weights that are whole on every rank: DistributedDataParallel with its reducer, on fake tensors.

The reducer is PyTorch's own, buckets included. Two of its steps read values, which fake tensors do not have, and are
done before: it checks that ranks agree, and after the first pass it fills its buckets anew, in the order in which
gradients were ready. Buffers are not sent from the first rank, since tables of positions are alike on all. Imports
torch at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.observed.metered_step import MeteredStep, causal_loss, run_micro_batches, trained_model
from ledger.lab.observed.ranks import DdpRank
from ledger.lab.observed.storage_meter import StepMoments
from ledger.lab.reference.cuda_guard import torch_dtype
from ledger.lab.reference.images import one_sequence_only
from ledger.lab.reference.model import checkpoint_layers, freeze, reference_model
from ledger.lab.reference.modules import imaginary_gpu
from ledger.lab.reference.optimizers import FakeScalars
from ledger.lab.reference.workload import Workload

MEGABYTE = 2**20
DEFAULT = 25 * MEGABYTE  # torch/nn/parallel/distributed.py, _DEFAULT_BUCKET_CAP_MB


def run_ddp(work: Workload, rank: DdpRank) -> DeviceStep:
    """One step of `rank`, whose fake process group is there."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with imaginary_gpu("CPU"):
        with fake, FakeScalars():
            one_sequence_only(work.model)
            built = reference_model(work.model, work.kernels, "cpu", torch_dtype(work.precision.weights.base))
            freeze(built, work.train)
            batch = torch.zeros(work.batch, work.seq_len, dtype=torch.long), torch.arange(work.seq_len)[None]
            checkpoint_layers(built, work.recompute)
            model = trained_model(built, work)
            order = gradient_order(built, lambda: causal_loss(built, *batch))
        replicas = []  # of which there is one, whose buckets stay for the update

        def passes(moments: StepMoments) -> AllocatedBytes:
            replicas.append(replica := replicated(built, order, rank.bucket))
            added_up = (remaining and rank.once for remaining in reversed(range(rank.micro_batches)))
            contexts = (replica.no_sync() if added else nullcontext() for added in added_up)
            return run_micro_batches(moments, contexts, lambda: causal_loss(replica, *batch))

        axes = {distributed.group.WORLD.group_name: "data"}
        return MeteredStep(model, batch, "cpu", fake, axes).run(passes)


class SettledReducer:
    """A reducer whose buckets are filled in the order of gradients from the beginning."""

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reducer, name)

    def _rebuild_buckets(self) -> bool:
        """There is nothing to rebuild."""
        return False


def gradient_order(built: nn.Module, one_pass: Callable[[], Tensor]) -> list[nn.Parameter]:
    """The trained parameters in the order in which backward has their gradients, which are freed again."""
    order: list[nn.Parameter] = []
    trained = [parameter for parameter in built.parameters() if parameter.requires_grad]
    handles = [parameter.register_post_accumulate_grad_hook(order.append) for parameter in trained]
    one_pass().backward()
    for handle in handles:
        handle.remove()
    for parameter in trained:
        parameter.grad = None
    return order


def replicated(built: nn.Module, order: Sequence[nn.Parameter], bucket: int) -> DistributedDataParallel:
    """`built` whose gradients are reduced in buckets of `bucket` bytes (0: torch's default), filled in `order`."""
    place = {id(parameter): index for index, parameter in enumerate(order)}
    assign = distributed._compute_bucket_assignment_by_size  # noqa: SLF001  # has no public name

    def in_order(parameters: Sequence[Tensor], *_: Any) -> tuple[list[list[int]], list[int]]:
        """What the reducer does after a first pass (reducer.cpp, rebuild_buckets); the caller reverses both lists."""
        indices = sorted(range(len(parameters)), key=lambda index: place[id(parameters[index])])
        first = bucket or distributed._DEFAULT_FIRST_BUCKET_BYTES  # noqa: SLF001  # as above
        buckets, limits = assign([parameters[index] for index in indices], [first, bucket or DEFAULT], [])
        return [[indices[member] for member in members] for members in reversed(buckets)], list(reversed(limits))

    with mock.patch.object(distributed, "_compute_bucket_assignment_by_size", in_order):
        wrapped = DistributedDataParallel(built, init_sync=False, forward_sync_buffers=False)
    wrapped.register_comm_hook(None, lambda _, bucket: all_reduced(bucket))  # whose annotations torch would read
    wrapped.reducer = SettledReducer(wrapped.reducer)
    return wrapped


def all_reduced(bucket: Any) -> torch.futures.Future[Tensor]:
    """The sum of a bucket over all ranks; a fake group's own future has no result."""
    distributed.all_reduce(bucket.buffer())
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
