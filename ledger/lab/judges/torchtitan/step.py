"""What torchtitan's rank holds, saves and sends in one step. Imports torch and torchtitan at its top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torchtitan.distributed.utils import clip_grad_norm_, get_spmd_context
from torchtitan.trainer import Trainer

from ledger.lab.judges.fake_values import FakeValues
from ledger.lab.judges.rank_collectives import RankCollectives
from ledger.lab.judges.rank_figures import RankFigures
from ledger.lab.judges.rank_meter import RankMeter
from ledger.lab.judges.rank_moments import RankMoments
from ledger.lab.judges.real_meshes import real_meshes
from ledger.lab.judges.saved_storages import SavedStorage, SavedStorages, by_group, by_layer, sizes
from ledger.lab.judges.torchtitan import rank as ranks
from ledger.lab.judges.torchtitan.rank import BuiltRank
from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.observed.stand_ins import isolated_propagation
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan


def judge_rank(plan: Plan) -> RankFigures:
    """The figures of the rank that this process is; its stand-ins are installed and its fake group is there."""
    dims, axes = ranks.meshes(plan)
    meter, fake = RankMeter("cuda"), FakeTensorMode(allow_non_fake_inputs=True)
    with isolated_propagation(), fake, meter.resizes_seen(), meter, FakeValues(), real_meshes():
        job, model, loss = ranks.build(plan, dims)
        optimizers = job.optimizer.build(model_parts=[model])
    rank = BuiltRank(plan, job, dims, model, loss, optimizers)
    meter.watch([*rank.parameters, *rank.buffers])
    stepper = MeteredRank(rank, meter, fake, axes)
    with isolated_propagation(), real_meshes():
        stepper.step(1)  # makes the states of the optimizer, and what lasts
        saved = stepper.saved()
        step, agreements = stepper.step(int(micro_batches(plan)))
    return RankFigures(
        parameters=sum(tensor.numel() for tensor in rank.parameters),
        standing={name: sum(found) for name, found in stepper.standing().items()},
        padding={},
        saved={} if plan.recompute.policy == "keep" else by_group(rank.groups, by_layer(saved)),  # not in its hooks
        step=step,
        agreements=agreements,
    )


@dataclass
class MeteredRank:
    """A rank that takes steps under a meter; `after`: what was held when the last forward pass was over."""

    rank: BuiltRank
    meter: RankMeter
    fake: FakeTensorMode
    axes: Mapping[str, str]
    after: AllocatedBytes = field(default=AllocatedBytes())

    def saved(self) -> list[SavedStorage]:
        """What autograd keeps of one micro-batch that runs forward and backward."""
        found = SavedStorages(self.rank.layers, self.rank.ends)
        storages: list[SavedStorage] = []
        begun = self._before_backward(lambda: storages.extend(found.storages()))
        with self.fake, self.meter.resizes_seen(), self.meter, FakeValues(), found.observed(), begun:
            self._micro_batch()
        return storages

    def step(self, passes: int) -> tuple[DeviceStep, int]:
        """One step of so many micro-batches, and how often ranks agreed on numbers."""
        self.meter.moments.clear()
        moments = RankMoments(self.meter, self.rank.layers, self.rank.groups)
        log = RankCollectives(self.axes, lambda: moments.phase)
        with self.fake, self.meter:
            self.rank.optimizers.zero_grad()
        static = self.meter.allocated

        def begin_backward() -> None:
            self.after = self.meter.allocated
            moments.begin_backward()

        told = self._told_of_the_end()
        with self.fake, self.meter.resizes_seen(), self.meter, log, FakeValues(), moments.followed(), told:
            for _ in range(passes):
                moments.begin_forward()
                with self._before_backward(begin_backward):
                    self._micro_batch()
            moments.begin_optimizer()
            with log.agreement():
                self._clip()
            self.rank.optimizers.step()
        self.meter.enter("")
        held = {"static": static, "after forward": self.after, **self.meter.moments}
        return DeviceStep(held, log.collectives()), log.agreements

    def _micro_batch(self) -> None:
        """Forward, loss and backward, as torchtitan's trainer runs them."""
        rank = self.rank
        tokens, labels, more = rank.batch()
        context = get_spmd_context(parallel_dims=rank.dims)
        trainer: Any = mock.Mock(train_context=context, model_parts=[rank.model], loss_fn=rank.loss)
        number = torch.zeros((), dtype=torch.long, device="cuda")
        Trainer._forward_backward_body(trainer, tokens, labels, number, more)  # noqa: SLF001  # a step of its own

    def _clip(self) -> None:
        """Gradients are scaled where their norm is too large."""
        parameters = list(self.rank.model.parameters())
        clip_grad_norm_(parameters, self.rank.job.training.max_norm, foreach=True)

    @contextmanager
    def _told_of_the_end(self) -> Iterator[None]:
        """Within, the meter knows that backward has left the layers before FSDP2 does, which then copies weights."""

        def hear(_: Any, __: Any, output: Any) -> None:
            if output.requires_grad:
                output.register_hook(lambda _: self.meter.enter("backward/input"))

        handle = self.rank.model.tok_embeddings.register_forward_hook(hear, prepend=True)
        try:
            yield
        finally:
            handle.remove()

    @contextmanager
    def _before_backward(self, begin: Any) -> Iterator[None]:
        """Within, `begin` is called when the backward pass of the layers begins."""
        original = Tensor.backward

        def backward(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
            begin()
            original(tensor, *args, **kwargs)

        with mock.patch.object(Tensor, "backward", backward):
            yield

    def standing(self) -> dict[str, list[int]]:
        """Bytes of the storages that the rank holds from step to step, by what they are."""
        grouped = {
            "weights": self.rank.parameters,
            "gradients": [],
            "master": [],
            "optimizer": ranks.states(self.rank.optimizers),
        }
        return {name: list(sizes(tensors).values()) for name, tensors in grouped.items()}
