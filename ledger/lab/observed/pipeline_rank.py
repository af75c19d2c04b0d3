"""The body of a pipeline's step: one device runs its layers in the order of PyTorch's own schedule, on fake tensors.

A result is let go once it is sent, and backward begins at its edge of the graph, as in Megatron-LM
(`deallocate_output_tensor`); what is received is a new tensor. Imports torch at its top.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, distributed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.distributed.pipelining import schedules
from torch.testing._internal.distributed.fake_pg import FakeStore

from ledger.lab.observed.collective_log import CollectiveLog
from ledger.lab.observed.moments import Moments
from ledger.lab.observed.sharded_step import ShardedStep, Stage
from ledger.lab.observed.storage_meter import StorageMeter
from ledger.lab.reference.model import Workload, checkpoint_layers, freeze, reference_model, torch_dtype
from ledger.lab.reference.modules import imaginary_gpu
from ledger.lab.reference.optimizers import Numbers, reference_optimizer
from ledger.lab.transformers.config import NoReferenceError, family

ORDERS = {"1f1b": schedules.Schedule1F1B, "gpipe": schedules.ScheduleGPipe}
PASSES = {"FORWARD": True, "FULL_BACKWARD": False}
Tables = tuple[Tensor, Tensor]


def run_stage(work: Workload, stage: Stage) -> ShardedStep:
    """One step of one device of a pipeline. The process must not have a process group yet."""
    if family(work.model).layers != "model.layers":
        raise NoReferenceError(f"{work.model.title}: the judge cuts models with Llama's names into stages")
    distributed.init_process_group("fake", store=FakeStore(), rank=stage.place, world_size=stage.stages)
    meter, fake = StorageMeter("cpu"), FakeTensorMode(allow_non_fake_inputs=True)
    with imaginary_gpu("CPU"):
        with fake, Numbers():
            built = reference_model(work.model, work.kernels, "cpu", torch_dtype(work.precision.weights))
            freeze(built, work.train)
            checkpoint_layers(built, work.recompute)
            _cut(built, stage)
            layers, groups = attrgetter(family(work.model).layers)(built), work.model.layers
            optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
            moments = Moments(meter, layers, [group.name for group in groups])
            runner = Runner(built, work, stage, moments)
        meter.watch([*built.buffers(), *built.parameters(), *optimizer.kept(), *runner.inputs()])
        static = meter.held
        log = CollectiveLog({distributed.group.WORLD.group_name: "pipeline"}, lambda: moments.phase)
        with fake, meter, log, moments.noted():
            runner.step()
        peak = meter.restart()
        moments.optimizer()
        with fake, meter, log, Numbers():
            optimizer.step()
    return ShardedStep(static.bytes, 0, peak, log.collectives(), {"static": static, **meter.moments})


def _cut(built: Any, stage: Stage) -> None:
    """Only the ends that this device holds."""
    if not stage.first:
        built.model.embed_tokens = None
    if not stage.last:
        built.model.norm = built.lm_head = None


def order(schedule: str, stages: int, place: int, count: int) -> Iterator[bool]:
    """Whether each piece of work of a device is a forward pass, as PyTorch's schedule orders them."""
    stand_in: Any = SimpleNamespace(pp_group_size=stages, _n_microbatches=count, _num_stages=stages)
    for action in ORDERS[schedule]._get_pipeline_order(stand_in)[place]:  # noqa: SLF001  # has no public name
        if action is not None and action.computation_type.name in PASSES:
            yield PASSES[action.computation_type.name]


class Runner:
    """Passes of the micro-batches of one device; what waits for backward is what autograd keeps, and what came in."""

    def __init__(self, built: Any, work: Workload, stage: Stage, moments: Moments) -> None:
        self.built = built
        self.work = work
        self.stage = stage
        self.moments = moments
        self.waiting: list[tuple[Tensor | None, GradientEdge | Tensor]] = []
        self.batch = self.tokens() if stage.first else None  # looked up last, as a training loop names them

    def step(self) -> None:
        """Every micro-batch, in the order of the schedule; positions are looked up once."""
        tables = self.tables()
        for forward in order(self.stage.schedule, self.stage.stages, self.stage.place, self.stage.micro_batches):
            if forward:
                self.moments.forward()
                self.waiting.append(self.forward(tables))
            else:
                self.moments.backward()
                self.backward(*self.waiting.pop(0))

    def inputs(self) -> Iterator[Tensor]:
        """The tokens that are there before the step."""
        if self.batch is not None:
            yield self.batch

    def tables(self) -> Tables:
        """Cosines and sines of every position, in the dtype of the residual stream."""
        like = torch.empty((), dtype=torch_dtype(self.work.precision.activations))
        found: Tables = self.built.model.rotary_emb(like, torch.arange(self.work.seq_len)[None])
        return found

    def forward(self, tables: Tables) -> tuple[Tensor | None, GradientEdge | Tensor]:
        """What came in, and where backward begins."""
        came = None if self.stage.first else self.received()
        if came is None:
            self.batch = self.tokens()
        x = self.built.model.embed_tokens(self.batch) if came is None else came
        for layer in self.built.model.layers:
            x = layer(x, attention_mask=None, position_embeddings=tables)
        if self.stage.last:
            logits = self.built.lm_head(self.built.model.norm(x))
            return came, self.built.loss_function(logits, self.tokens(), logits.shape[-1])
        distributed.send(x.detach(), self.stage.place + 1)
        return came, get_gradient_edge(x)

    def backward(self, came: Tensor | None, edge: GradientEdge | Tensor) -> None:
        """The gradient of what came in goes back."""
        upstream = None if self.stage.last else self.received(self.stage.place + 1)
        torch.autograd.backward(edge, upstream)
        if came is not None and came.grad is not None:
            distributed.send(came.grad, self.stage.place - 1)

    def tokens(self) -> Tensor:
        """The tokens of a micro-batch, which the first device looks up and the last one predicts."""
        return torch.zeros(self.work.batch, self.work.seq_len, dtype=torch.long)

    def received(self, source: int = -1) -> Tensor:
        """The residual stream from the stage before, or its gradient from the one after."""
        shape = (self.work.batch, self.work.seq_len, self.work.model.d_model)
        stream = torch.empty(shape, dtype=torch_dtype(self.work.precision.activations))
        distributed.recv(stream, self.stage.place - 1 if source < 0 else source)
        return stream.requires_grad_(source < 0)
