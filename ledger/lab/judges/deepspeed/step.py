"""What DeepSpeed's rank holds, saves and sends in one step. Imports torch and DeepSpeed at its top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.lab.judges.deepspeed import rank as ranks
from ledger.lab.judges.deepspeed.rank import BuiltRank
from ledger.lab.judges.fake_values import FakeValues
from ledger.lab.judges.metered_rank import MeteredRank
from ledger.lab.judges.rank_collectives import RankCollectives
from ledger.lab.judges.rank_figures import RankFigures
from ledger.lab.judges.rank_meter import RankMeter
from ledger.lab.judges.rank_moments import RankMoments
from ledger.lab.judges.saved_storages import SavedStorage, SavedStorages
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

WARM_UP = 2  # steps: the first makes the states and records the order of modules, the second is the first to use it


def judge_rank(plan: Plan) -> RankFigures:
    """The figures of the rank that this process is, whose fake group is there."""
    meter, fake = RankMeter("cuda"), FakeTensorMode(allow_non_fake_inputs=True)
    with ranks.alike():
        with fake, meter.resizes_seen(), meter, FakeValues():
            rank = ranks.build(plan)
        stepper = EngineRank(rank, meter, fake, defaultdict(lambda: "data"))
        saved, batches = stepper.saved(), int(micro_batches(plan))
        for _ in range(WARM_UP):
            stepper.step(batches)
        step = stepper.step(batches)
    return stepper.figures(_weights(rank), saved, step)


class EngineRank(MeteredRank[BuiltRank]):
    """A rank of DeepSpeed's engine."""

    def saved(self) -> list[SavedStorage]:
        """What autograd keeps of one micro-batch, in a step of its own; gathered weights are no part of it."""
        found = SavedStorages(self.rank.layers, self.rank.ends, self.rank.parameters)
        with self.metered():
            with found.observed():
                loss = self.rank.loss()
                storages = found.storages()
            self.rank.engine.backward(loss)
            del loss
            self.rank.engine.step()
            for _ in range(int(micro_batches(self.rank.plan)) - 1):
                self._micro_batch()
        return storages

    def run(self, micro_batches: int, moments: RankMoments, log: RankCollectives) -> None:  # noqa: ARG002
        """Every micro-batch; the engine updates after the last one."""
        for left in reversed(range(micro_batches)):
            self._micro_batch(moments, last=not left)

    def _micro_batch(self, moments: RankMoments | None = None, *, last: bool = False) -> None:
        """Forward, backward and what DeepSpeed's engine does after it: of the last one, the update."""
        if moments:
            moments.begin_forward()
        loss = self.rank.loss()
        self.after = self.meter.allocated
        if moments:
            moments.begin_backward()
        self.rank.engine.backward(loss)
        del loss
        if moments and last:
            moments.begin_optimizer()
        self.rank.engine.step()

    def standing(self) -> Mapping[str, Iterable[Tensor]]:
        """Weights or their shares, and what the optimizer has on the device."""
        optimizer = self.rank.engine.optimizer
        grouped = {
            "weights": _weights(self.rank),
            "master": _masters(optimizer),
            "gradients": _gradients(optimizer),
            "optimizer": _states(optimizer.optimizer),
        }
        return {name: [tensor for tensor in tensors if tensor.is_cuda] for name, tensors in grouped.items()}


def _weights(rank: BuiltRank) -> list[Tensor]:
    """The weights, or of each that is held split this rank's share."""
    return [getattr(parameter, "ds_tensor", parameter.data) for parameter in rank.parameters]


def _masters(optimizer: Any) -> Sequence[Tensor]:
    """fp32 copies of weights, whole or this rank's part."""
    names = ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups")
    found = next(getattr(optimizer, name) for name in names if hasattr(optimizer, name))
    return [tensor for group in found for tensor in ([group] if isinstance(group, Tensor) else group)]


def _gradients(optimizer: Any) -> Sequence[Tensor]:
    """Gradients of this rank's shares, where they have a buffer that lasts."""
    buffer = getattr(optimizer, "grad_partitions_flat_buffer", None)
    return [] if buffer is None else [buffer]


def _states(optimizer: Any) -> Iterator[Tensor]:
    """Moments of the optimizer; its counts of steps are single numbers."""
    for state in optimizer.state.values():
        yield from (tensor for tensor in state.values() if isinstance(tensor, Tensor) and tensor.ndim)
