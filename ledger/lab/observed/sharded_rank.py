"""A step of rank 0 under FSDP2, DTensor's tensor parallelism, and experts and sequences over ranks.

Imports torch at its top; `ledger.lab.observed.rank_step` imports it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor.parallel import loss_parallel

from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.metered_step import MeteredStep, causal_loss, run_micro_batches, trained_model
from ledger.lab.observed.parallelised_model import parallelise
from ledger.lab.observed.rank_mesh import rank_mesh
from ledger.lab.observed.ranks import ShardedRank
from ledger.lab.observed.stand_ins import imaginary_rank, isolated_propagation
from ledger.lab.observed.storage_meter import StorageMeter
from ledger.lab.reference import dispatched_experts, exchanged_attention
from ledger.lab.reference.dispatched_experts import Dispatch
from ledger.lab.reference.exchanged_attention import SequenceExchange
from ledger.lab.reference.images import micro_batch, text_only
from ledger.lab.reference.model import Workload, checkpoint_layers, freeze, reference_model
from ledger.lab.reference.optimizers import FakeScalars
from ledger.lab.reference.torch_dtypes import torch_dtype
from ledger.lab.reference.two_stacks import loss_of_two_stacks


def run_sharded(work: Workload, rank: ShardedRank) -> DeviceStep:
    """One step of `rank`, whose fake process group is there."""
    device = "cuda" if rank.offload or work.hosting else "cpu"
    mesh = rank_mesh(rank, device)
    fake, two = FakeTensorMode(allow_non_fake_inputs=True), bool(work.model.encoder_groups)
    with imaginary_rank(device), isolated_propagation():
        with fake:
            text_only(work.model)
            built = reference_model(work.model, work.kernels, device, torch_dtype(work.precision.weights.base))
            if rank.expert > 1:
                dispatched_experts.install(built, Dispatch(mesh.within["expert"], rank.arriving))
            freeze(built, work.train)
            batch = _batch(work, rank, device)
        if rank.context > 1:
            exchanged = (mesh.within["context"], work.kernels.attention, rank.balanced, device)
            exchanged_attention.install(built, SequenceExchange(rank.exchange, *exchanged))
        checkpoint_layers(built, work.recompute)
        with fake if device == "cuda" else nullcontext():  # a mesh reads its own, real, tensors; buffers must be fake
            parallelise(built, work, rank, mesh)
        with fake, FakeScalars():
            model = trained_model(built, work)
        host = StorageMeter("cpu" if device == "cuda" else "none")
        host.watch([*batch, *model.resident()])
        step = MeteredStep(model, batch, device, fake, mesh.axes(), work.hosting, host)
        contexts = _micro_batches(built, rank)
        loss = partial(loss_of_two_stacks, built, work, batch) if two else partial(causal_loss, built, *batch)
        return step.run(lambda moments: run_micro_batches(moments, contexts, loss))


def _batch(work: Workload, rank: ShardedRank, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens with their positions, of a cut sequence a part; of a model with an encoder, what both its sides read."""
    if work.model.encoder_groups:
        given, tokens = micro_batch(work, device)
        return given, tokens
    length = work.seq_len // rank.context
    tokens = torch.zeros(work.batch, length, dtype=torch.long, device=device)
    return tokens, torch.arange(length, device=device)[None]


def _micro_batches(built: Any, rank: ShardedRank) -> Iterator[AbstractContextManager[None]]:
    """A context for each micro-batch; with the last one alone, or with each, gradients are reduced."""
    for left in reversed(range(rank.micro_batches)):
        if rank.shards:
            built.set_requires_gradient_sync(not left or rank.reduce == "micro_batch")
        yield loss_parallel() if rank.tensor > 1 and not rank.gathered_logits else nullcontext()
