"""What DeepSpeed's rank holds, saves and sends in one step. Imports torch and DeepSpeed at its top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import deepspeed
import torch
from deepspeed.runtime import utils as deepspeed_utils
from deepspeed.runtime.zero import stage3, stage_1_and_2
from deepspeed.runtime.zero import utils as zero_utils
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.lab.judges.deepspeed import configuration
from ledger.lab.judges.fakes import FakeValues
from ledger.lab.judges.metered_rank import (
    LayerStorage,
    MeteredRank,
    RankCollectives,
    RankFigures,
    RankMeter,
    RankMoments,
    SavedStorages,
)
from ledger.lab.reference.model import layers_of, reference_model
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
KERNELS = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}


@dataclass(frozen=True)
class BuiltRank:
    """An engine around a model, and the model's layers."""

    plan: Plan
    engine: Any
    layers: Sequence[Any]

    @property
    def groups(self) -> list[str]:
        """The group of each layer."""
        return [group.name for group in self.plan.model.layers]

    @property
    def ends(self) -> list[Any]:
        """The modules that run after the last layer."""
        return [self.engine.module.get_output_embeddings()]

    @property
    def parameters(self) -> list[Any]:
        """The parameters of the model, each once."""
        return list(self.engine.module.parameters())

    def loss(self) -> Tensor:
        """The loss of a micro-batch, whose tokens are made for it."""
        run = self.plan.run
        tokens = torch.zeros(run.micro_batch, run.seq_len, dtype=torch.long, device="cuda")
        loss: Tensor = self.engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        return loss


def build(plan: Plan) -> BuiltRank:
    """The model in bf16, and the engine that shares it as the plan says. Within the fake mode."""
    model = reference_model(plan.model, plan.kernels, "cuda", torch.bfloat16, plan.precision)
    model.to = model.bfloat16 = lambda *_, **__: model  # which would exchange the fake parameters for others
    layers = layers_of(model, plan.model)
    if plan.recompute.policy == "full":
        reentrant = configuration.CHECKPOINTS[plan.stack.checkpoint]
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    kernel = KERNELS[plan.kernels.optimizer]
    optimizer = OPTIMIZERS[plan.optimizer.name](model.parameters(), lr=1e-4, **kernel)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=configuration.fields(plan), dist_init_required=False
    )
    return BuiltRank(plan, engine, layers)


@contextmanager
def agreeing_ranks() -> Iterator[None]:
    """Within, ranks agree with each other without asking, and no gradient has overflowed."""
    checked = (
        (stage_1_and_2.DeepSpeedZeroOptimizer, "has_overflow"),
        (stage3.DeepSpeedZeroOptimizer_Stage3, "has_overflow"),
        (deepspeed_utils.CheckOverflow, "check"),
    )
    agreed: dict[str, Any] = {"get_lst_from_rank0": list, "assert_lst_len_same_as_other_ranks": lambda _: None}
    with mock.patch.multiple(zero_utils, **agreed), ExitStack() as patched:
        for owner, name in checked:
            patched.enter_context(mock.patch.object(owner, name, _never_overflows(getattr(owner, name))))

        yield


def _never_overflows(original: Callable[..., Any]) -> Callable[..., bool]:
    """`original` with the answer no: it looks for what overflowed, and fake gradients say nothing."""

    def has_overflow(*args: Any, **kwargs: Any) -> bool:
        original(*args, **kwargs)
        return False

    return has_overflow


WARM_UP = 2  # steps: the first makes the states and records the order of modules, the second is the first to use it


def judge_rank(plan: Plan) -> RankFigures:
    """The figures of the rank that this process is, whose fake group is there."""
    meter, fake = RankMeter("cuda"), FakeTensorMode(allow_non_fake_inputs=True)
    with agreeing_ranks():
        with fake, meter.resizes_seen(), meter, FakeValues():
            rank = build(plan)
        stepper = EngineRank(rank, meter, fake, defaultdict(lambda: "data"))
        saved, batches = stepper.saved(), int(micro_batches(plan))
        for _ in range(WARM_UP):
            stepper.step(batches)
        step = stepper.step(batches)
    return stepper.figures(_weights(rank), saved, step)


class EngineRank(MeteredRank[BuiltRank]):
    """A rank of DeepSpeed's engine."""

    def saved(self) -> list[LayerStorage]:
        """What autograd keeps of one micro-batch, in a step of its own; gathered weights are no part of it."""
        collector = SavedStorages(self.rank.layers, self.rank.ends, self.rank.parameters)
        with self.metered():
            with collector.observed():
                loss = self.rank.loss()
                storages = collector.storages()
            self.rank.engine.backward(loss)
            del loss
            self.rank.engine.step()
            for _ in range(int(micro_batches(self.rank.plan)) - 1):
                self._micro_batch()
        return storages

    def run(self, micro_batches: int, moments: RankMoments, log: RankCollectives) -> None:  # noqa: ARG002
        """Every micro-batch; the engine updates after the last one."""
        for remaining in reversed(range(micro_batches)):
            self._micro_batch(moments, last=not remaining)

    def _micro_batch(self, moments: RankMoments | None = None, *, last: bool = False) -> None:
        """Forward, backward and what DeepSpeed's engine does after it: of the last one, the update."""
        if moments:
            moments.begin_forward()
        loss = self.rank.loss()
        self.after_forward = self.meter.allocated
        if moments:
            moments.begin_backward()
        self.rank.engine.backward(loss)
        del loss
        if moments and last:
            moments.begin_optimizer()
        self.rank.engine.step()

    def lasting_tensors(self) -> Mapping[str, Iterable[Tensor]]:
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
    groups = next(getattr(optimizer, name) for name in names if hasattr(optimizer, name))
    return [tensor for group in groups for tensor in ([group] if isinstance(group, Tensor) else group)]


def _gradients(optimizer: Any) -> Sequence[Tensor]:
    """Gradients of this rank's shares, where they have a buffer that lasts."""
    buffer = getattr(optimizer, "grad_partitions_flat_buffer", None)
    return [] if buffer is None else [buffer]


def _states(optimizer: Any) -> Iterator[Tensor]:
    """Moments of the optimizer; its counts of steps are single numbers."""
    for state in optimizer.state.values():
        yield from (tensor for tensor in state.values() if isinstance(tensor, Tensor) and tensor.ndim)
