"""A step of one rank of Megatron-Core: its model, its DDP, its distributed optimizer and its own schedule.

Imports torch, Megatron-Core and Transformer Engine at its top, so it is imported where their stand-ins are installed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.activations import squared_relu
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from torch import Tensor

from ledger.lab.judges.megatron import configuration
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
        others = ranks is not None and place not in ranks
        return torch.distributed.GroupMember.NON_GROUP_MEMBER if others else make(ranks, *args, **kwargs)

    @cache
    def cut_once(size: int, degrees: tuple[int, ...], mask: tuple[bool, ...]) -> Any:
        return cut(size, list(degrees), list(mask))

    def rank_groups(world_size: int, parallel_size: Sequence[int], mask: Sequence[bool]) -> Any:
        return [list(ranks) for ranks in cut_once(world_size, tuple(parallel_size), tuple(mask))]

    stand_ins = {"create_group": create_group, "generate_masked_orthogonal_rank_groups": rank_groups}
    with ExitStack() as patched:
        for name, stand_in in stand_ins.items():
            patched.enter_context(mock.patch.object(parallel_state, name, stand_in))
        yield


@contextmanager
def plain_random_numbers() -> Iterator[None]:
    """Within, there is one stream of random numbers: fake tensors have none."""
    with ExitStack() as patched:
        for name, stand_in in (("fork", lambda *_, **__: nullcontext()), ("add", lambda *_, **__: None)):
            patched.enter_context(mock.patch.object(CudaRNGStatesTracker, name, stand_in))
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
        """The group of each of them."""
        names = [group.name for group in self.plan.model.layers]
        return [names[layer.layer_number - 1] for layer in self.layers]

    @property
    def ends(self) -> list[Any]:
        """What runs before the first layer of a chunk and after the last."""
        found = ((chunk, chunk.decoder.final_layernorm, getattr(chunk, "output_layer", None)) for chunk in self.chunks)
        return [module for modules in found for module in modules if module is not None]

    @property
    def parameters(self) -> list[Any]:
        """The parameters of all chunks."""
        return [parameter for chunk in self.chunks for parameter in chunk.parameters()]

    @property
    def length(self) -> int:
        """Tokens of a sequence on this rank."""
        return self.plan.run.seq_len // self.plan.parallelism.context

    def stream(self) -> Tensor:
        """What a stage gets from the one before."""
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
        virtual_pipeline_model_parallel_size=_virtual(plan),
        activation_func=ACTIVATIONS[plan.model.groups[0].mlp.activation],
        bf16=True,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        autocast_dtype=dtype,
    )
    return config, [_chunk(plan, config, place) for place in range(plan.parallelism.interleave)]


def _virtual(plan: Plan) -> int | None:
    """Chunks of a stage, where it has several."""
    return plan.parallelism.interleave if plan.parallelism.interleave > 1 else None


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


def _as_bf16(chunk: Any) -> Any:
    """`Module.bfloat16`, which would exchange the whole fake parameters, with what is known of them."""
    for parameter in chunk.parameters():
        if parameter.dtype is not torch.bfloat16:
            parameter.data = parameter.data.bfloat16()
    return chunk


def replicate(plan: Plan, config: Any, chunks: Sequence[Any]) -> list[Any]:
    """Each chunk in bf16 under DDP; only the first one of a stage has its gradients in buckets."""
    fields = configuration.data_parallel(plan)
    with mock.patch.object(GPTModel, "bfloat16", _as_bf16):
        halves = [Float16Module(config, chunk) for chunk in chunks]
    return [
        DistributedDataParallel(config, DistributedDataParallelConfig(**fields), chunk, disable_bucketing=index > 0)
        for index, chunk in enumerate(halves)
    ]


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
    """What follows the last backward pass."""
    finalize_model_grads(list(replicas), None)


def passes(plan: Plan) -> int:
    """Micro-batches of a step."""
    return int(micro_batches(plan))
