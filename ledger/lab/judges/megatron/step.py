"""What Megatron-Core's rank holds, saves and sends in one step. Imports torch and Megatron-Core at its top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.activations import squared_relu
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformer_engine.pytorch.module.base import _dummy_wgrads

from ledger.lab.judges.fakes import FakeValues
from ledger.lab.judges.megatron import configuration
from ledger.lab.judges.metered_rank import (
    LayerStorage,
    MeteredRank,
    RankCollectives,
    RankFigures,
    RankMeter,
    RankMoments,
    SavedStorages,
)
from ledger.lab.observed.device_step import CollectiveCalls
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": torch.nn.functional.gelu,
    "relu2": squared_relu,
}
# Function of parallel_state -> the axis that its group is of, in the ledger's words; the last one of a group counts.
GROUPS: Sequence[tuple[str, str, Mapping[str, bool]]] = (
    ("get_model_parallel_group", "model", {}),
    ("get_tensor_and_context_parallel_group", "tensor", {}),
    ("get_expert_data_parallel_group", "expert_data", {}),
    ("get_data_parallel_group", "data", {}),
    ("get_data_parallel_group", "data", {"with_context_parallel": True}),
    ("get_context_parallel_group", "context", {}),
    ("get_expert_tensor_and_model_parallel_group", "expert", {}),
    ("get_expert_tensor_parallel_group", "tensor", {}),
    ("get_expert_model_parallel_group", "expert", {}),
    ("get_tensor_model_parallel_group", "tensor", {}),
    ("get_pipeline_model_parallel_group", "pipeline", {}),
)


def initialise(plan: Plan) -> dict[str, str]:
    """Makes the groups of this rank, and names their axes."""
    layout = plan.parallelism
    with own_groups_alone():
        parallel_state.initialize_model_parallel(
            layout.tensor,
            layout.pipeline,
            layout.interleave if layout.interleave > 1 else None,
            context_parallel_size=layout.context,
            expert_model_parallel_size=layout.expert,
            create_gloo_process_groups=False,
        )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    axes: dict[str, str] = defaultdict(lambda: "other")
    for name, axis, options in GROUPS:
        group = getattr(parallel_state, name)(**options)
        if group.size() > 1:
            axes[group.group_name] = axis
    return axes


@contextmanager
def own_groups_alone() -> Iterator[None]:
    """Within, groups of other ranks are not made, which nobody asks for, and each cut of the world is listed once."""
    make, cut = parallel_state.create_group, parallel_state.generate_masked_orthogonal_rank_groups
    place = torch.distributed.get_rank()

    def create_group(ranks: Sequence[int] | None = None, *args: Any, **kwargs: Any) -> Any:
        is_foreign = ranks is not None and place not in ranks
        return torch.distributed.GroupMember.NON_GROUP_MEMBER if is_foreign else make(ranks, *args, **kwargs)

    @cache
    def cut_once(size: int, degrees: tuple[int, ...], mask: tuple[bool, ...]) -> Any:
        return cut(size, list(degrees), list(mask))

    def rank_groups(world_size: int, parallel_size: Sequence[int], mask: Sequence[bool]) -> Any:
        return [list(ranks) for ranks in cut_once(world_size, tuple(parallel_size), tuple(mask))]

    cuts: dict[str, Any] = {"generate_masked_orthogonal_rank_groups": rank_groups}
    with mock.patch.multiple(parallel_state, create_group=create_group, **cuts):
        yield


@contextmanager
def plain_random_numbers() -> Iterator[None]:
    """Within, there is one stream of random numbers: fake tensors have none."""
    with mock.patch.multiple(CudaRNGStatesTracker, fork=lambda *_, **__: nullcontext(), add=lambda *_, **__: None):
        yield


@dataclass(frozen=True)
class BuiltRank:
    """The chunks of a stage with their DDP, and the optimizer over them."""

    plan: Plan
    config: Any
    chunks: Sequence[Any]
    replicas: Sequence[Any]
    optimizer: Any

    @property
    def layers(self) -> list[Any]:
        """The layers of all chunks."""
        return [layer for chunk in self.chunks for layer in chunk.decoder.layers]

    @property
    def groups(self) -> list[str]:
        """The group of each layer."""
        names = [group.name for group in self.plan.model.layers]
        return [names[layer.layer_number - 1] for layer in self.layers]

    @property
    def ends(self) -> list[Any]:
        """The modules that run before the first layer of a chunk and after the last."""
        ends = ((chunk, chunk.decoder.final_layernorm, getattr(chunk, "output_layer", None)) for chunk in self.chunks)
        return [module for modules in ends for module in modules if module is not None]

    @property
    def parameters(self) -> list[Any]:
        """The parameters of all chunks."""
        return [parameter for chunk in self.chunks for parameter in chunk.parameters()]

    @property
    def length(self) -> int:
        """Tokens of a sequence on this rank."""
        return self.plan.run.seq_len // self.plan.parallelism.context

    def stream(self) -> Tensor:
        """The residual stream that a stage gets from the one before."""
        split = self.plan.parallelism.tensor if self.config.sequence_parallel else 1
        shape = (self.length // split, self.plan.run.micro_batch, self.plan.model.d_model)
        return torch.empty(shape, dtype=self.config.params_dtype, device="cuda", requires_grad=True)

    def batch(self, chunk: Any) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Tokens, positions and labels, where a chunk has the end of the model that reads them."""
        tokens = positions = None
        if chunk.pre_process or chunk.post_process:
            tokens = torch.zeros(self.plan.run.micro_batch, self.length, dtype=torch.long, device="cuda")
        if chunk.pre_process:
            positions = torch.arange(self.length, device="cuda")[None]
        return tokens if chunk.pre_process else None, positions, tokens if chunk.post_process else None


def build(plan: Plan) -> tuple[Any, list[Any]]:
    """The configuration and the chunks of this rank."""
    fields = configuration.transformer(plan)
    kind = MLATransformerConfig if fields.get("multi_latent_attention") else TransformerConfig
    dtype = torch.bfloat16
    config = kind(
        **fields,
        virtual_pipeline_model_parallel_size=plan.parallelism.interleave if plan.parallelism.interleave > 1 else None,
        activation_func=ACTIVATIONS[plan.model.groups[0].mlp.activation],
        bf16=True,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        autocast_dtype=dtype,
    )
    return config, [_chunk(plan, config, place) for place in range(plan.parallelism.interleave)]


def _chunk(plan: Plan, config: Any, place: int) -> Any:
    """One stretch of layers, with the ends of the model where they are its own."""
    stage = None if plan.parallelism.interleave == 1 else place
    if config.num_moe_experts:
        layers = get_gpt_decoder_block_spec(config, use_transformer_engine=True, vp_stage=stage)
    else:
        layers = get_gpt_layer_with_transformer_engine_spec(
            qk_layernorm=config.qk_layernorm, multi_latent_attention=config.multi_latent_attention
        )
    return GPTModel(
        config,
        layers,
        **configuration.model(plan),
        parallel_output=True,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
        vp_stage=stage,
    )


def replicate(plan: Plan, config: Any, chunks: Sequence[Any]) -> list[Any]:
    """Each chunk in bf16 under DDP; only the first one of a stage has its gradients in buckets."""
    fields = configuration.data_parallel(plan)
    with mock.patch.object(GPTModel, "bfloat16", _cast_to_bf16):
        halves = [Float16Module(config, chunk) for chunk in chunks]
    return [
        DistributedDataParallel(config, DistributedDataParallelConfig(**fields), chunk, disable_bucketing=index > 0)
        for index, chunk in enumerate(halves)
    ]


def _cast_to_bf16(chunk: Any) -> Any:
    """`Module.bfloat16`, which would exchange the whole fake parameters, with what is known of them."""
    for parameter in chunk.parameters():
        if parameter.dtype is not torch.bfloat16:
            parameter.data = parameter.data.bfloat16()
    return chunk


def optimize(plan: Plan, replicas: Sequence[Any]) -> Any:
    """The optimizer over all chunks."""
    config = OptimizerConfig(**configuration.optimizer(plan), params_dtype=torch.bfloat16)
    return get_megatron_optimizer(config, list(replicas), use_gloo_process_groups=False)


def step_function(rank: BuiltRank) -> Any:
    """What the schedule runs of one micro-batch: the chunk, and the loss of what it gives."""

    def forward(_: Any, replica: Any) -> tuple[Tensor, Any]:
        tokens, positions, labels = rank.batch(replica.module.module)
        return replica(tokens, positions, None, labels=labels), lambda losses: (losses.float().mean(), {})

    return forward


def finalize(replicas: Sequence[Any], *_: Any, **__: Any) -> None:
    """Reduces what is left of gradients after the last backward pass."""
    finalize_model_grads(list(replicas), None)


def step_micro_batches(plan: Plan) -> int:
    """Micro-batches of a step."""
    return int(micro_batches(plan))


GATHERED = ("data", "expert_data")  # axes over which updated weights are gathered


def judge_rank(plan: Plan) -> RankFigures:
    """The figures of the rank that this process is; its stand-ins are installed and its fake group is there."""
    axes = initialise(plan)
    meter, fake = RankMeter("cuda"), FakeTensorMode(allow_non_fake_inputs=True)
    with plain_random_numbers(), fake, meter.resizes_seen(), meter, FakeValues():
        with torch.device("cuda"):  # where Megatron-LM moves what was made on the host
            config, chunks = build(plan)
        replicas = replicate(plan, config, chunks)
        optimizer = optimize(plan, replicas)
    rank = BuiltRank(plan, config, chunks, replicas, optimizer)
    stepper = StageRank(rank, meter, fake, axes)
    arriving = plan.assumptions.expert_imbalance if plan.parallelism.expert > 1 else Fraction(1)
    with plain_random_numbers(), even_routing(arriving):
        saved = stepper.saved()
        stepper.warm_up()
        step = stepper.step(step_micro_batches(plan))
    return stepper.figures(rank.parameters, saved, step, _padding(rank))


class StageRank(MeteredRank[BuiltRank]):
    """A rank of a stage of Megatron-Core's pipeline."""

    def saved(self) -> list[LayerStorage]:
        """What autograd keeps of one micro-batch, in a forward pass of its own.

        Hooks hand back tensors that are no parameters, so no backward pass of Megatron-Core can follow them.
        """
        collector = SavedStorages(self.rank.layers, self.rank.ends)
        with self.metered(), collector.observed():
            ends = [self._forward_alone(index) for index in range(len(self.rank.chunks))]
            storages = collector.storages()
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
            finalize(rank.replicas)
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
        with self._follow_passes(moments):
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
        config.finalize_model_grads_func = finalize
        config.no_sync_func = waits if several else waits[0]
        config.grad_sync_func = (begins if several else begins[0]) if overlaps else None
        get_forward_backward_func()(
            forward_step_func=step_function(rank),
            data_iterator=[None] * len(rank.replicas) if several else None,
            model=list(rank.replicas),
            num_microbatches=micro_batches,
            seq_length=run.seq_len,
            micro_batch_size=run.micro_batch,
            forward_only=False,
        )

    @contextmanager
    def _follow_passes(self, moments: RankMoments) -> Iterator[None]:
        """Within, the moments know which pass of the schedule runs."""
        forward, backward = schedules.forward_step, schedules.backward_step

        def forward_step(step: Any, iterator: Any, replica: Any, *args: Any, **kwargs: Any) -> Any:
            moments.begin_forward(embeds=replica.module.module.pre_process)
            result = forward(step, iterator, replica, *args, **kwargs)
            self.after_forward = self.meter.allocated
            return result

        def backward_step(*args: Any, **kwargs: Any) -> Any:
            moments.begin_backward()
            return backward(*args, **kwargs)

        with mock.patch.multiple(schedules, forward_step=forward_step, backward_step=backward_step):
            yield

    def lasting_tensors(self) -> Mapping[str, Iterable[Tensor]]:
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


def _chained_optimizers(optimizer: Any) -> list[Any]:
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
    for inner in _chained_optimizers(optimizer):
        groups = getattr(inner, "shard_fp32_from_float16_groups", None) or inner.fp32_from_float16_groups
        yield from (tensor for group in groups for tensor in group if tensor is not None)


def _states(optimizer: Any) -> Iterator[Tensor]:
    """Moments of the optimizer."""
    for inner in _chained_optimizers(optimizer):
        for state in inner.optimizer.state.values():
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


# --- rows of each rank and expert, dealt evenly since fake tensors do not say ---


def split_evenly(rows: int, places: int) -> Any:
    """So many rows at each place, the first ones with one more where they do not come out even."""
    even, remainder = divmod(rows, places)
    return np.array([even + (place < remainder) for place in range(places)])


@contextmanager
def even_routing(arriving: Fraction) -> Iterator[None]:
    """Within, every rank sends as many rows to each, and this one gets `arriving` times as many as it sends."""
    name = "_maybe_dtoh_and_synchronize"
    with mock.patch.object(MoEAlltoAllTokenDispatcher, name, _even_counts(arriving)):
        yield


def _even_counts(arriving: Fraction) -> Callable[..., Any]:
    """A stand-in for the counts of rows that the dispatcher copies to the host."""

    def copy(dispatcher: Any, point: str, tokens_per_expert: Any = None) -> Any:
        if point != dispatcher.cuda_dtoh_point:
            return tokens_per_expert
        sent = dispatcher.routing_map.size(0) * dispatcher.config.moe_router_topk
        received = int(sent * arriving)
        dispatcher.input_splits = split_evenly(sent, dispatcher.ep_size)
        dispatcher.output_splits = split_evenly(received, dispatcher.ep_size)
        dispatcher.output_splits_tp = np.array([received] * dispatcher.tp_size)
        return split_evenly(received * dispatcher.tp_size, dispatcher.num_local_experts)

    return copy
