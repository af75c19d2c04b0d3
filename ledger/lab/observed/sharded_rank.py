"""A step of rank 0 under FSDP2, DTensor's tensor parallelism, and experts and sequences over ranks.

Imports torch at its top; `ledger.lab.verification.stages` imports it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.metered_step import MeteredStep, causal_loss, run_micro_batches, trained_model
from ledger.lab.observed.ranks import ShardedRank
from ledger.lab.observed.stand_ins import imaginary_rank, isolated_propagation
from ledger.lab.observed.storage_meter import StorageMeter
from ledger.lab.reference import dispatched_experts, exchanged_attention
from ledger.lab.reference.cuda_guard import torch_dtype
from ledger.lab.reference.dispatched_experts import Dispatch
from ledger.lab.reference.exchanged_attention import SequenceExchange
from ledger.lab.reference.images import loss_of_two_stacks, micro_batch, text_only
from ledger.lab.reference.model import checkpoint_layers, freeze, layers_of, reference_model
from ledger.lab.reference.optimizers import FakeScalars
from ledger.lab.reference.workload import Workload
from ledger.lab.transformers.config import NoReferenceError, family, mlp_of


def run_sharded(work: Workload, rank: ShardedRank) -> DeviceStep:
    """One step of `rank`, whose fake process group is there."""
    device = "cuda" if rank.offload or work.hosting else "cpu"
    mesh = rank_mesh(rank, device)
    fake, two = FakeTensorMode(allow_non_fake_inputs=True), bool(work.model.encoder_groups)
    with imaginary_rank(device), isolated_propagation():
        with fake:
            text_only(work.model)
            built = reference_model(work.model, work.kernels, device, torch_dtype(work.precision.weights.base))
            if rank.expert > 1:
                dispatched_experts.install(built, Dispatch(mesh.within["expert"], rank.arriving))
            freeze(built, work.train)
            batch = _batch(work, rank, device)
        if rank.context > 1:
            exchanged = (mesh.within["context"], work.kernels.attention, rank.balanced, device)
            exchanged_attention.install(built, SequenceExchange(rank.exchange, *exchanged))
        checkpoint_layers(built, work.recompute)
        with fake if device == "cuda" else nullcontext():  # a mesh reads its own, real, tensors; buffers must be fake
            parallelise(built, work, rank, mesh)
        with fake, FakeScalars():
            model = trained_model(built, work)
        host = StorageMeter("cpu" if device == "cuda" else "none")
        host.watch([*batch, *model.resident()])
        step = MeteredStep(model, batch, device, fake, mesh.axes(), work.hosting, host)
        contexts = _micro_batches(built, rank)
        loss = partial(loss_of_two_stacks, built, work, batch) if two else partial(causal_loss, built, *batch)
        return step.run(lambda moments: run_micro_batches(moments, contexts, loss))


def _batch(work: Workload, rank: ShardedRank, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens with their positions, of a cut sequence a part; of a model with an encoder, what both its sides read."""
    if work.model.encoder_groups:
        source, tokens = micro_batch(work, device)
        return source, tokens
    length = work.seq_len // rank.context
    tokens = torch.zeros(work.batch, length, dtype=torch.long, device=device)
    return tokens, torch.arange(length, device=device)[None]


def _micro_batches(built: Any, rank: ShardedRank) -> Iterator[AbstractContextManager[None]]:
    """A context for each micro-batch; with the last one alone, or with each, gradients are reduced."""
    for remaining in reversed(range(rank.micro_batches)):
        if rank.shards:
            built.set_requires_gradient_sync(not remaining or rank.reduce == "micro_batch")
        yield loss_parallel() if rank.tensor > 1 and not rank.gathered_logits else nullcontext()


# --- the reference model over a mesh, as torchtitan parallelises its own ---

RESHARD = {"all": True, "layers": None, "none": False}  # fully_shard's `reshard_after_forward` for the root


def parallelise(built: Any, work: Workload, rank: ShardedRank, mesh: RankMesh) -> None:
    """Tensor parallelism with a split sequence, then, where there are shards, one FSDP unit per layer and one more."""
    layers = layers_of(built, work.model)
    if rank.tensor > 1:
        if family(work.model).layers != "model.layers" or work.model.groups[0].norms != "pre":
            raise NoReferenceError(f"{work.model.title}: the judge splits Llama's, Mistral's and Qwen2's layers only")
        if mlp_of(work.model).experts:
            raise NoReferenceError(f"{work.model.title}: the judge splits no experts")
        _split_tensors(built, layers, mesh.all_ranks["tensor"], rank)
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
        shard(
            unit, reshard_after_forward=rank.reshard != "none", shard_placement_fn=partial(_shard_rows, ranks=rank.data)
        )
    if rank.ends == "apart" and rank.wrap and not work.model.tied:
        # the embedding by itself, and the last norm with the head, which stay gathered (torchtitan, `apply_fsdp`)
        shard(built.get_input_embeddings(), reshard_after_forward=rank.reshard != "none")
        shard([built.model.norm, built.get_output_embeddings()], reshard_after_forward=False)
    shard(built, reshard_after_forward=RESHARD[rank.reshard])
    if rank.expert > 1:
        for layer, after, before in dispatched_experts.prefetched(layers):
            layer.set_modules_to_forward_prefetch(after)
            layer.set_modules_to_backward_prefetch(before)


def _shard_experts(layers: nn.ModuleList, rank: ShardedRank, shard: Any) -> None:
    """Routed experts by themselves, over the ranks that have the same ones; each layer holds the rest (torchtitan)."""
    placement = partial(_shard_rows, ranks=rank.data // rank.expert)
    for layer in layers:
        if (experts := dispatched_experts.experts_of(layer)) is not None:
            shard(experts, reshard_after_forward=rank.reshard != "none", shard_placement_fn=placement)


def _shard_rows(parameter: nn.Parameter, ranks: int) -> Shard:
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
    gathered_logits = rank.gathered_logits
    logits = Replicate() if gathered_logits else Shard(-1)
    parallelize_module(
        built,
        mesh,
        {
            "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "model.norm": SequenceParallel(),
            "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=logits, use_local_output=gathered_logits),
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


# --- the meshes and groups of a rank ---

AXES = ("replicate", "data", "tensor")


@dataclass(frozen=True)
class RankMesh:
    """`all_ranks` is the mesh of all ranks, `experts` that of the ranks among which experts are dealt.

    `within` are the groups of ranks that share `data` in another way, by axis.
    """

    all_ranks: DeviceMesh
    experts: DeviceMesh | None
    within: Mapping[str, Any]
    replicated: bool

    @property
    def shards(self) -> DeviceMesh:
        """The ranks over which FSDP2 shards."""
        return self.all_ranks["replicate", "data"] if self.replicated else self.all_ranks["data"]

    @property
    def copies(self) -> DeviceMesh:
        """The ranks over which FSDP2 shards the experts that this rank has."""
        mesh = self.experts if self.experts is not None else self.all_ranks
        return mesh["replicate", "expert_data"] if self.replicated else mesh["expert_data"]

    def axes(self) -> dict[str, str]:
        """The axis of each process group, by the group's name."""
        groups = [(axis, self.all_ranks[axis].get_group()) for axis in AXES]
        if self.experts is not None:
            groups += [(axis, self.experts[axis].get_group()) for axis in ("replicate", "expert_data")]
        return {group.group_name: axis for axis, group in (*groups, *self.within.items())}


def rank_mesh(rank: ShardedRank, device: str) -> RankMesh:
    """The meshes and groups of rank 0. Outside the fake mode, since a mesh reads its own tensors."""
    all_ranks = init_device_mesh(device, tuple(getattr(rank, axis) for axis in AXES), mesh_dim_names=AXES)
    experts, degree = None, rank.expert
    if degree > 1:
        sizes = (rank.replicate, rank.data // degree, degree * rank.tensor)
        experts = init_device_mesh(device, sizes, mesh_dim_names=("replicate", "expert_data", "expert_tensor"))
    within = {
        axis: distributed.new_group([member * rank.tensor for member in range(ranks)])
        for axis, ranks in (("expert", degree), ("context", rank.context))
        if ranks > 1
    }
    return RankMesh(all_ranks, experts, within, rank.replicate > 1)
