"""The reference model over the ranks of a mesh, as torchtitan parallelises its own: FSDP2 units and DTensor's plans.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from ledger.lab.observed.rank_mesh import RankMesh
from ledger.lab.observed.ranks import ShardedRank
from ledger.lab.reference import dispatched_experts
from ledger.lab.reference.model import Workload, layers_of
from ledger.lab.reference.torch_dtypes import torch_dtype
from ledger.lab.transformers.config import NoReferenceError, family, mlp_of

RESHARD = {"all": True, "layers": None, "none": False}  # fully_shard's `reshard_after_forward` for the root


def parallelise(built: Any, work: Workload, rank: ShardedRank, mesh: RankMesh) -> None:
    """Tensor parallelism with a split sequence, then, where there are shards, one FSDP unit per layer and one more."""
    layers = layers_of(built, work.model)
    if rank.tensor > 1:
        if family(work.model).layers != "model.layers" or work.model.groups[0].norms != "pre":
            raise NoReferenceError(f"{work.model.title}: the judge splits Llama's, Mistral's and Qwen2's layers only")
        if mlp_of(work.model).experts:
            raise NoReferenceError(f"{work.model.title}: the judge splits no experts")
        _split_tensors(built, layers, mesh.whole["tensor"], rank)
    if not rank.shards:
        return
    policy = MixedPrecisionPolicy(torch_dtype(work.precision.compute), torch_dtype(work.precision.reduction))
    offload = CPUOffloadPolicy(pin_memory=False) if rank.offload else OffloadPolicy()  # only CUDA pins
    shard = partial(fully_shard, mp_policy=policy, offload_policy=offload)
    if rank.expert > 1:
        unasked = replace(policy, cast_forward_inputs=False)  # scores multiply outside of torchtitan's experts
        _shard_experts(layers, rank, partial(shard, mesh=mesh.copies, mp_policy=unasked))
    shard = partial(shard, mesh=mesh.shards)
    for unit in _fsdp_units(layers, rank.wrap):
        shard(unit, reshard_after_forward=rank.reshard != "none", shard_placement_fn=partial(_rows, ranks=rank.data))
    if rank.ends == "apart" and rank.wrap and not work.model.tied:
        _shard_ends(built, shard, rank)
    shard(built, reshard_after_forward=RESHARD[rank.reshard])
    if rank.expert > 1:
        for layer, after, before in dispatched_experts.prefetched(layers):
            layer.set_modules_to_forward_prefetch(after)
            layer.set_modules_to_backward_prefetch(before)


def _shard_experts(layers: nn.ModuleList, rank: ShardedRank, shard: Any) -> None:
    """Routed experts by themselves, over the ranks that have the same ones; each layer holds the rest (torchtitan)."""
    placement = partial(_rows, ranks=rank.data // rank.expert)
    for layer in layers:
        if (experts := dispatched_experts.experts_of(layer)) is not None:
            shard(experts, reshard_after_forward=rank.reshard != "none", shard_placement_fn=placement)


def _shard_ends(built: Any, shard: Any, rank: ShardedRank) -> None:
    """The embedding by itself, and the last norm with the head, which stay gathered (torchtitan, `apply_fsdp`)."""
    shard(built.get_input_embeddings(), reshard_after_forward=rank.reshard != "none")
    shard([built.model.norm, built.get_output_embeddings()], reshard_after_forward=False)


def _rows(parameter: nn.Parameter, ranks: int) -> Shard:
    """Shards are rows; of experts that do not divide, rows of each, as in torchtitan (parallelize_llama4.py)."""
    return Shard(1 if parameter.ndim == 3 and parameter.shape[0] % ranks else 0)


def _fsdp_units(layers: nn.ModuleList, size: int) -> Iterator[nn.Module | list[nn.Module]]:
    """Layers whose weights are gathered as one; none where all layers are gathered with the root."""
    if size == 1:
        yield from layers
    elif size:
        yield from (list(layers[first : first + size]) for first in range(0, len(layers), size))


def _split_tensors(built: Any, layers: nn.ModuleList, mesh: DeviceMesh, rank: ShardedRank) -> None:
    """Heads, hidden units and vocabulary split; the sequence split between, gathered where a layer part reads it."""
    whole = rank.gathered_logits
    logits = Replicate() if whole else Shard(-1)
    parallelize_module(
        built,
        mesh,
        {
            "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "model.norm": SequenceParallel(),
            "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=logits, use_local_output=whole),
        },
    )
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    attention = PrepareModuleInput(
        input_kwarg_layouts={"hidden_states": Shard(1)}, desired_input_kwarg_layouts={"hidden_states": Replicate()}
    )
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("self_attn.o_proj", "mlp.down_proj")}
    plan |= {name: SequenceParallel() for name in ("input_layernorm", "post_attention_layernorm")}
    for layer in layers:
        parallelize_module(layer, mesh, plan | {"self_attn": attention, "mlp": gathered})
