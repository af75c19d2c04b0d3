"""A step of one device of a pipeline, which runs its layers in the order of PyTorch's own schedule.

A result is let go once it is sent, and backward begins at its edge of the graph, as in Megatron-LM
(`deallocate_output_tensor`); what is received is a new tensor. Imports torch at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, distributed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.distributed.pipelining import schedules

from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.metered_step import MeteredStep, trained_model
from ledger.lab.observed.ranks import StageRank
from ledger.lab.observed.storage_meter import StepMoments
from ledger.lab.reference.cuda_guard import torch_dtype
from ledger.lab.reference.images import one_sequence_only
from ledger.lab.reference.model import checkpoint_layers, freeze, reference_model
from ledger.lab.reference.modules import imaginary_gpu
from ledger.lab.reference.optimizers import FakeScalars
from ledger.lab.reference.workload import Workload
from ledger.lab.transformers.config import NoReferenceError, family

ORDERS = {"1f1b": schedules.Schedule1F1B, "gpipe": schedules.ScheduleGPipe}
PASSES = {"FORWARD": True, "FULL_BACKWARD": False}
Tables = tuple[Tensor, Tensor]


def run_stage(work: Workload, rank: StageRank) -> DeviceStep:
    """One step of `rank`, whose fake process group is there."""
    if family(work.model).layers != "model.layers":
        raise NoReferenceError(f"{work.model.title}: the judge cuts models with Llama's names into stages")
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with imaginary_gpu("CPU"):
        with fake, FakeScalars():
            one_sequence_only(work.model)
            built = reference_model(work.model, work.kernels, "cpu", torch_dtype(work.precision.weights.base))
            freeze(built, work.train)
            checkpoint_layers(built, work.recompute)
            if not rank.first:  # each device holds its own end of the model alone
                built.model.embed_tokens = None
            if not rank.last:
                built.model.norm = built.lm_head = None
            model = trained_model(built, work)
            batch = [_tokens(work)] if rank.first else []
        axes = {distributed.group.WORLD.group_name: "pipeline"}
        return MeteredStep(model, batch, "cpu", fake, axes).run(StagePasses(built, work, rank, batch).run)


def _tokens(work: Workload) -> Tensor:
    """The tokens of a micro-batch, which the first device looks up and the last one predicts."""
    return torch.zeros(work.batch, work.seq_len, dtype=torch.long)


def forward_passes(rank: StageRank) -> Iterator[bool]:
    """Whether each pass of a device is a forward pass, in the order of PyTorch's schedule."""
    schedule: Any = SimpleNamespace(
        pp_group_size=rank.world_size, _n_microbatches=rank.micro_batches, _num_stages=rank.world_size
    )
    for action in ORDERS[rank.schedule]._get_pipeline_order(schedule)[rank.place]:  # noqa: SLF001  # has no public name
        if action is not None and action.computation_type.name in PASSES:
            yield PASSES[action.computation_type.name]


@dataclass
class StagePasses:
    """Passes of the micro-batches of one device; `waiting`: of each in flight what came in, and where backward begins.

    `batch` holds the tokens that the first device looked up last, as a training loop names them.
    """

    built: Any
    work: Workload
    rank: StageRank
    batch: list[Tensor]
    waiting: list[tuple[Tensor | None, GradientEdge | Tensor]] = field(default_factory=list)

    def run(self, moments: StepMoments) -> None:
        """Every micro-batch, in the order of the schedule; positions are looked up once."""
        tables = self.rotary_tables()
        for is_forward in forward_passes(self.rank):
            if is_forward:
                moments.begin_forward()
                self.waiting.append(self.forward(tables))
            else:
                moments.begin_backward()
                self.backward(*self.waiting.pop(0))

    def rotary_tables(self) -> Tables:
        """Cosines and sines of every position, in the dtype of the residual stream."""
        like = torch.empty((), dtype=torch_dtype(self.work.precision.activations))
        tables: Tables = self.built.model.rotary_emb(like, torch.arange(self.work.seq_len)[None])
        return tables

    def forward(self, tables: Tables) -> tuple[Tensor | None, GradientEdge | Tensor]:
        """A forward pass: what came in, and where its backward pass begins."""
        came = None if self.rank.first else self.received(self.rank.place - 1).requires_grad_()
        if came is None:
            self.batch[:] = [_tokens(self.work)]
        x = self.built.model.embed_tokens(*self.batch) if came is None else came
        for layer in self.built.model.layers:
            x = layer(x, attention_mask=None, position_embeddings=tables)
        if self.rank.last:
            logits = self.built.lm_head(self.built.model.norm(x))
            return came, self.built.loss_function(logits, _tokens(self.work), logits.shape[-1])
        distributed.send(x.detach(), self.rank.place + 1)
        return came, get_gradient_edge(x)

    def backward(self, came: Tensor | None, edge: GradientEdge | Tensor) -> None:
        """A backward pass: the gradient of what came in goes back."""
        upstream = None if self.rank.last else self.received(self.rank.place + 1)
        torch.autograd.backward(edge, upstream)
        if came is not None and came.grad is not None:
            distributed.send(came.grad, self.rank.place - 1)

    def received(self, source: int) -> Tensor:
        """The residual stream from the stage before, or its gradient from the one after."""
        shape = (self.work.batch, self.work.seq_len, self.work.model.d_model)
        stream = torch.empty(shape, dtype=torch_dtype(self.work.precision.activations))
        distributed.recv(stream, source)
        return stream
