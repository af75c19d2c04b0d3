"""Weights that are whole on every rank: DistributedDataParallel with its reducer, on fake tensors.

The reducer is PyTorch's own, buckets included. Two of its steps read values, which fake tensors do not have, and are
done before: it checks that ranks agree, and after the first pass it fills its buckets anew, in the order in which
gradients were ready. Buffers are not sent from the first rank, since tables of positions are alike on all. Imports
torch at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from operator import attrgetter
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from ledger.lab.observed.collective_log import CollectiveLog
from ledger.lab.observed.held import Held
from ledger.lab.observed.moments import Moments
from ledger.lab.observed.sharded_step import Replicas, ShardedStep
from ledger.lab.observed.storage_meter import StorageMeter
from ledger.lab.reference.model import Workload, checkpoint_layers, freeze, reference_model, torch_dtype
from ledger.lab.reference.modules import imaginary_gpu
from ledger.lab.reference.optimizers import Numbers, reference_optimizer
from ledger.lab.transformers.config import family

MEGABYTE = 2**20
DEFAULT = 25 * MEGABYTE  # torch/nn/parallel/distributed.py, _DEFAULT_BUCKET_CAP_MB


def run_replica(work: Workload, replicas: Replicas) -> ShardedStep:
    """One step of rank 0. The process must not have a process group yet."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=replicas.ranks)
    meter, fake = StorageMeter("cpu"), FakeTensorMode(allow_non_fake_inputs=True)
    with imaginary_gpu("CPU"):
        with fake, Numbers():
            built = reference_model(work.model, work.kernels, "cpu", torch_dtype(work.precision.weights))
            freeze(built, work.train)
            batch = torch.zeros(work.batch, work.seq_len, dtype=torch.long), torch.arange(work.seq_len)[None]
            checkpoint_layers(built, work.recompute)
            layers, groups = attrgetter(family(work.model).layers)(built), work.model.layers
            optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
            order = ready(built, lambda: _loss(built, *batch))
        meter.watch([*batch, *built.buffers(), *built.parameters(), *optimizer.kept()])
        static = meter.held
        moments = Moments(meter, layers, [group.name for group in groups])
        log = CollectiveLog({distributed.group.WORLD.group_name: "data"}, lambda: moments.phase)
        with fake, meter, log, moments.noted():
            whole = replicated(built, order, replicas.bucket)  # its buckets stay for the update
            after = _passes(whole, batch, replicas, moments)
        peak = meter.restart()
        moments.optimizer()
        with fake, meter, log, Numbers():
            optimizer.step()
    kept = {"static": static, "after forward": after, **meter.moments}
    return ShardedStep(static.bytes, after.bytes - static.bytes, peak, log.collectives(), kept)


def _passes(whole: DistributedDataParallel, batch: tuple[Tensor, Tensor], replicas: Replicas, moments: Moments) -> Held:
    """Both passes of every micro-batch, gradients added up before they are reduced; what the last forward leaves."""
    for left in reversed(range(replicas.micro_batches)):
        with whole.no_sync() if left and replicas.once else nullcontext():
            moments.forward()
            loss = _loss(whole, *batch)
            after = moments.meter.held
            moments.backward()
            loss.backward()
            del loss
    return after


def _loss(built: Any, tokens: Tensor, positions: Tensor) -> Tensor:
    logits = built(tokens, position_ids=positions, use_cache=False).logits
    loss: Tensor = getattr(built, "module", built).loss_function(logits, tokens, logits.shape[-1])
    return loss


class Settled:
    """A reducer whose buckets are filled in the order of gradients from the beginning."""

    def __init__(self, reducer: Any) -> None:
        self.reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reducer, name)

    def _rebuild_buckets(self) -> bool:
        """There is nothing to rebuild."""
        return False


def ready(built: nn.Module, one_pass: Callable[[], Tensor]) -> list[nn.Parameter]:
    """The trained parameters in the order in which backward has their gradients, which are freed again."""
    found: list[nn.Parameter] = []
    trained = [parameter for parameter in built.parameters() if parameter.requires_grad]
    handles = [parameter.register_post_accumulate_grad_hook(found.append) for parameter in trained]
    one_pass().backward()
    for handle in handles:
        handle.remove()
    for parameter in trained:
        parameter.grad = None
    return found


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
    wrapped.register_comm_hook(None, lambda _, bucket: reduced(bucket))  # whose annotations torch would read
    wrapped.reducer = Settled(wrapped.reducer)
    return wrapped


def reduced(bucket: Any) -> torch.futures.Future[Tensor]:
    """The sum of a bucket over all ranks; a fake group's own future has no result."""
    distributed.all_reduce(bucket.buffer())
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
