"""What Megatron-Core's rank holds, saves and sends in one step. Imports torch and Megatron-Core at its top."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import torch
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformer_engine.pytorch.module.base import _dummy_wgrads

from ledger.lab.judges.fakes import FakeValues
from ledger.lab.judges.megatron import rank as ranks
from ledger.lab.judges.megatron.rank import BuiltRank
from ledger.lab.judges.metered_rank import (
    MeteredRank,
    RankCollectives,
    RankFigures,
    RankMeter,
    RankMoments,
    SavedStorage,
    SavedStorages,
)
from ledger.lab.observed.device_step import CollectiveCalls
from ledger.spec.plan import Plan

GATHERED = ("data", "expert_data")  # axes over which updated weights are gathered


def judge_rank(plan: Plan) -> RankFigures:
    """The figures of the rank that this process is; its stand-ins are installed and its fake group is there."""
    axes = ranks.initialise(plan)
    meter, fake = RankMeter("cuda"), FakeTensorMode(allow_non_fake_inputs=True)
    with ranks.plain_random_numbers(), fake, meter.resizes_seen(), meter, FakeValues():
        with torch.device("cuda"):  # where Megatron-LM moves what was made on the host
            config, chunks = ranks.build(plan)
        replicas = ranks.replicate(plan, config, chunks)
        optimizer = ranks.optimize(plan, replicas)
    rank = BuiltRank(plan, config, chunks, replicas, optimizer)
    stepper = StageRank(rank, meter, fake, axes)
    arriving = plan.assumptions.expert_imbalance if plan.parallelism.expert > 1 else Fraction(1)
    with ranks.plain_random_numbers(), dealt_evenly(arriving):
        saved = stepper.saved()
        stepper.warm_up()
        step = stepper.step(ranks.passes(plan))
    return stepper.figures(rank.parameters, saved, step, _padding(rank))


class StageRank(MeteredRank[BuiltRank]):
    """A rank of a stage of Megatron-Core's pipeline."""

    def saved(self) -> list[SavedStorage]:
        """What autograd keeps of one micro-batch, in a forward pass of its own.

        Hooks hand back tensors that are no parameters, so no backward pass of Megatron-Core can follow them.
        """
        found = SavedStorages(self.rank.layers, self.rank.ends)
        with self.metered(), found.observed():
            ends = [self._forward_alone(index) for index in range(len(self.rank.chunks))]
            storages = found.storages()
            del ends
        return storages

    def warm_up(self) -> None:
        """A micro-batch through every chunk and an update, which make the optimizer's states and what lasts.

        The shortest step that an interleaved schedule takes is a round of all stages, which makes nothing else.
        """
        rank = self.rank
        with self.metered():
            for index in range(len(rank.chunks)):
                result = self._forward_alone(index)
                torch.autograd.backward(result, torch.empty_like(result))
                del result
            ranks.finalize(rank.replicas)
            rank.optimizer.step()

    def _forward_alone(self, index: int) -> Tensor:
        """The loss, or what goes to the next chunk."""
        chunk, replica = self.rank.chunks[index], self.rank.replicas[index]
        tokens, positions, labels = self.rank.batch(chunk)
        if not chunk.pre_process:
            chunk.set_input_tensor([self.rank.stream()])
        with replica.no_sync():
            result: Tensor = replica(tokens, positions, None, labels=labels)
        return result.float().mean() if chunk.post_process else result

    def clear(self) -> None:
        """Gradients, in their buffers and beside them."""
        for replica in self.rank.replicas:
            replica.zero_grad_buffer()
        self.rank.optimizer.zero_grad()

    def run(self, micro_batches: int, moments: RankMoments, log: RankCollectives) -> None:  # noqa: ARG002
        """Megatron-Core's own schedule, then the update."""
        with self._told(moments):
            self._passes(micro_batches)
        moments.begin_optimizer()
        self.rank.optimizer.step()

    def calls(self, log: RankCollectives) -> Iterable[CollectiveCalls]:
        """Updated weights are gathered for the update, though Megatron-Core begins it when forward needs them.

        Of two stages one sends through the group of all ranks, so that transfers overlap
        (megatron/core/pipeline_parallel/p2p_communication.py, _p2p_ops).
        """
        for calls in log.collectives():
            gathers = calls.kind == "all_gather" and calls.axis in GATHERED
            sends = calls.kind == "send" and calls.axis == "other"
            yield replace(calls, phase="optimizer") if gathers else replace(calls, axis="pipeline") if sends else calls

    def _passes(self, micro_batches: int) -> None:
        """Every micro-batch forward and backward, and what follows the last one."""
        rank, run = self.rank, self.rank.plan.run
        config, several = rank.config, len(rank.replicas) > 1
        overlaps = rank.replicas[0].ddp_config.overlap_grad_reduce
        waits = [replica.no_sync for replica in rank.replicas]
        begins = [replica.start_grad_sync for replica in rank.replicas]
        config.finalize_model_grads_func = ranks.finalize
        config.no_sync_func = waits if several else waits[0]
        config.grad_sync_func = (begins if several else begins[0]) if overlaps else None
        get_forward_backward_func()(
            forward_step_func=ranks.step_function(rank),
            data_iterator=[None] * len(rank.replicas) if several else None,
            model=list(rank.replicas),
            num_microbatches=micro_batches,
            seq_length=run.seq_len,
            micro_batch_size=run.micro_batch,
            forward_only=False,
        )

    @contextmanager
    def _told(self, moments: RankMoments) -> Iterator[None]:
        """Within, the moments know which pass of the schedule runs."""
        forward, backward = schedules.forward_step, schedules.backward_step

        def forward_step(step: Any, iterator: Any, replica: Any, *args: Any, **kwargs: Any) -> Any:
            moments.begin_forward(embeds=replica.module.module.pre_process)
            result = forward(step, iterator, replica, *args, **kwargs)
            self.after = self.meter.allocated
            return result

        def backward_step(*args: Any, **kwargs: Any) -> Any:
            moments.begin_backward()
            return backward(*args, **kwargs)

        with ExitStack() as patched:
            for told in (forward_step, backward_step):
                patched.enter_context(mock.patch.object(schedules, told.__name__, told))
            yield

    def standing(self) -> Mapping[str, Iterable[Tensor]]:
        """Weights with quantised copies, buffers of gradients with what autograd is given, the optimizer's own."""
        return {
            "weights": (*(parameter.data for parameter in self.rank.parameters), *_quantised(self.rank)),
            "gradients": (*(buffer.grad_data for buffer in _buffers(self.rank)), *_dummy_wgrads.values()),
            "master": _masters(self.rank.optimizer),
            "optimizer": _states(self.rank.optimizer),
        }


def _buffers(rank: BuiltRank) -> Iterator[Any]:
    """Buffers of gradients, those of experts apart."""
    for replica in rank.replicas:
        yield from (*replica.buffers, *replica.expert_parallel_buffers)


def _optimizers(optimizer: Any) -> list[Any]:
    return list(getattr(optimizer, "chained_optimizers", [optimizer]))


def _quantised(rank: BuiltRank) -> Iterator[Tensor]:
    """Copies of weights in which matmuls multiply, and what delayed scaling keeps of each tensor."""
    for module in (module for chunk in rank.chunks for module in chunk.modules()):
        for copy in getattr(module, "_fp8_workspaces", {}).values():
            yield from (part for part in vars(copy).values() if isinstance(part, Tensor))
        for scaling in getattr(module, "fp8_meta", {}).values():
            yield from (part for part in getattr(scaling, "__dict__", {}).values() if isinstance(part, Tensor))


def _masters(optimizer: Any) -> Iterator[Tensor]:
    """fp32 copies of weights, whole or this rank's part."""
    for one in _optimizers(optimizer):
        groups = getattr(one, "shard_fp32_from_float16_groups", None) or one.fp32_from_float16_groups
        yield from (tensor for group in groups for tensor in group if tensor is not None)


def _states(optimizer: Any) -> Iterator[Tensor]:
    """Moments of the optimizer."""
    for one in _optimizers(optimizer):
        for state in one.optimizer.state.values():
            yield from (tensor for tensor in state.values() if isinstance(tensor, Tensor))


def _padding(rank: BuiltRank) -> dict[str, int]:
    """Bytes of buffers that no parameter fills, and what that adds to or takes from the optimizer's share of them."""
    buffers = list(_buffers(rank))
    unfilled = [buffer.numel - sum(parameter.numel() for parameter in buffer.params) for buffer in buffers]
    gradients = [buffer.grad_data.element_size() * count for buffer, count in zip(buffers, unfilled, strict=True)]
    if not rank.replicas[0].ddp_config.use_distributed_optimizer:
        return {"gradients": sum(gradients)}
    more = sum(_filled_share(buffer) - _even_share(buffer) for buffer in buffers)
    return {"weights": 2 * sum(unfilled), "gradients": sum(gradients), "master": 4 * more, "optimizer": 8 * more}


def _even_share(buffer: Any) -> int:
    """Elements of parameters that a rank would have of a buffer without padding."""
    return int(sum(parameter.numel() for parameter in buffer.params) // buffer.data_parallel_world_size)


def _filled_share(buffer: Any) -> int:
    """Elements of parameters in the first rank's share of each bucket."""
    ends = {
        index: bucket.offset + bucket.grad_data.numel() // buffer.data_parallel_world_size
        for index, bucket in enumerate(buffer.buckets)
    }
    return sum(max(0, min(end, ends[bucket]) - start) for start, end, bucket in buffer.param_index_map.values())


# --- How many rows each rank and each expert gets: fake tensors do not say, so rows are dealt evenly ---


def dealt(rows: int, places: int) -> Any:
    """So many rows at each place, the first ones with one more where they do not come out even."""
    each, rest = divmod(rows, places)
    return np.array([each + (place < rest) for place in range(places)])


def _counted(arriving: Fraction) -> Callable[..., Any]:
    """What stands for counts that the dispatcher copies to the host."""

    def copy(dispatcher: Any, point: str, tokens_per_expert: Any = None) -> Any:
        if point != dispatcher.cuda_dtoh_point:
            return tokens_per_expert
        sent = dispatcher.routing_map.size(0) * dispatcher.config.moe_router_topk
        received = int(sent * arriving)
        dispatcher.input_splits = dealt(sent, dispatcher.ep_size)
        dispatcher.output_splits = dealt(received, dispatcher.ep_size)
        dispatcher.output_splits_tp = np.array([received] * dispatcher.tp_size)
        return dealt(received * dispatcher.tp_size, dispatcher.num_local_experts)

    return copy


@contextmanager
def dealt_evenly(arriving: Fraction) -> Iterator[None]:
    """Within, every rank sends as many rows to each, and this one gets `arriving` times as many as it sends."""
    name = "_maybe_dtoh_and_synchronize"
    with mock.patch.object(MoEAlltoAllTokenDispatcher, name, _counted(arriving)):
        yield
