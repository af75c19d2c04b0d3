"""What torchtitan's rank holds, saves and sends in one step. Imports torch and torchtitan at its top."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torchtitan.distributed.utils import clip_grad_norm_, get_spmd_context
from torchtitan.trainer import Trainer

from ledger.lab.judges.fake_values import FakeValues
from ledger.lab.judges.metered_rank import MeteredRank
from ledger.lab.judges.rank_collectives import RankCollectives
from ledger.lab.judges.rank_figures import RankFigures
from ledger.lab.judges.rank_meter import RankMeter
from ledger.lab.judges.rank_moments import RankMoments
from ledger.lab.judges.real_meshes import real_meshes
from ledger.lab.judges.saved_storages import SavedStorage, SavedStorages
from ledger.lab.judges.torchtitan import rank as ranks
from ledger.lab.judges.torchtitan.rank import BuiltRank
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
    stepper = TrainerRank(rank, meter, fake, axes)
    with isolated_propagation(), real_meshes():
        stepper.step(1)  # makes the states of the optimizer, and what lasts
        saved = stepper.saved()
        step = stepper.step(int(micro_batches(plan)))
    hooked = plan.recompute.policy != "keep"  # what a policy keeps of operators is not in hooks
    return stepper.figures(rank.parameters, saved if hooked else None, step)


class TrainerRank(MeteredRank[BuiltRank]):
    """A rank of torchtitan's trainer."""

    def saved(self) -> list[SavedStorage]:
        """What autograd keeps of one micro-batch that runs forward and backward."""
        found = SavedStorages(self.rank.layers, self.rank.ends)
        storages: list[SavedStorage] = []
        begun = self._before_backward(lambda: storages.extend(found.storages()))
        with self.metered(), found.observed(), begun:
            self._micro_batch()
        return storages

    def clear(self) -> None:
        """Drops the gradients of the step, as torchtitan does before the next one."""
        self.rank.optimizers.zero_grad()

    def run(self, micro_batches: int, moments: RankMoments, log: RankCollectives) -> None:
        """Every micro-batch, the norm of all gradients, and the update."""

        def begin_backward() -> None:
            self.after = self.meter.allocated
            moments.begin_backward()

        with self._told_of_the_end():
            for _ in range(micro_batches):
                moments.begin_forward()
                with self._before_backward(begin_backward):
                    self._micro_batch()
            moments.begin_optimizer()
            with log.agreement():
                self._clip()
            self.rank.optimizers.step()

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

    def standing(self) -> Mapping[str, Iterable[Tensor]]:
        """Shares of weights, and states of the optimizer."""
        states = ranks.states(self.rank.optimizers)
        return {"weights": self.rank.parameters, "gradients": (), "master": (), "optimizer": states}
