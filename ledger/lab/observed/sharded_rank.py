"""The body of a sharded step: parallelises the reference model as torchtitan does, and logs what rank 0 sends.

Imports torch at its top; `ledger.lab.observed.sharded_step` imports it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
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
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from ledger.lab.observed.collective_log import CollectiveLog
from ledger.lab.observed.cuda_rank import imaginary_streams
from ledger.lab.observed.held import Held
from ledger.lab.observed.hosted_activations import hosted
from ledger.lab.observed.moments import Moments
from ledger.lab.observed.rank_mesh import RankMesh, rank_mesh
from ledger.lab.observed.sharded_step import ShardedStep, Sharding
from ledger.lab.observed.storage_meter import StorageMeter
from ledger.lab.reference import dispatched_experts, exchanged_attention
from ledger.lab.reference.cuda_guard import install_cuda_guard
from ledger.lab.reference.dispatched_experts import Dispatch
from ledger.lab.reference.exchanged_attention import Exchange
from ledger.lab.reference.model import Workload, checkpoint_layers, freeze, reference_model, torch_dtype
from ledger.lab.reference.modules import imaginary_gpu
from ledger.lab.reference.optimizers import Numbers, reference_optimizer
from ledger.lab.transformers.config import NoReferenceError, family, mlp_of

RESHARD = {"all": True, "layers": None, "none": False}  # fully_shard's `reshard_after_forward` for the root


def run_rank(work: Workload, sharding: Sharding) -> ShardedStep:
    """One step of rank 0. The process must not have a process group yet."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=sharding.ranks)
    device = "cuda" if sharding.offload or work.hosting else "cpu"
    mesh = rank_mesh(sharding, device)
    meter = StorageMeter(device)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with _stand_ins(device), _isolated_propagation():
        with fake:
            built = reference_model(work.model, work.kernels, device, torch_dtype(work.precision.weights))
            if sharding.expert > 1:
                dispatched_experts.install(built, Dispatch(mesh.within["expert"], sharding.arriving))
            freeze(built, work.train)
            length = work.seq_len // sharding.context
            tokens = torch.zeros(work.batch, length, dtype=torch.long, device=device)
            positions = torch.arange(length, device=device)[None]
        if sharding.context > 1:
            exchanged = (mesh.within["context"], work.kernels.attention, sharding.balanced, device)
            exchanged_attention.install(built, Exchange(sharding.exchange, *exchanged))
        checkpoint_layers(built, work.recompute)
        with fake if device == "cuda" else nullcontext():  # a mesh reads its own, real, tensors; buffers must be fake
            _parallelize(built, work, sharding, mesh)
        layers, groups = attrgetter(family(work.model).layers)(built), work.model.layers
        with fake, Numbers():
            optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
        beside = StorageMeter("cpu" if device == "cuda" else "none")
        for each in (meter, beside):
            each.watch(_local(t) for t in [tokens, positions, *built.buffers(), *built.parameters(), *optimizer.kept()])
        static = meter.held
        beside.enter("passes")
        moments = Moments(meter, layers, [group.name for group in groups])
        log = CollectiveLog(mesh.axes(), lambda: moments.phase)
        with fake, meter.resizes_seen(), beside, meter, log, hosted(layers, work.hosting), moments.noted():
            after = _passes(built, (tokens, positions), sharding, moments)
        peak = meter.restart()
        moments.optimizer()
        with fake, meter, log, Numbers():
            optimizer.step()
    kept = {"static": static, "after forward": after, **meter.moments}
    most = beside.moments.get("passes", Held()).asked
    return ShardedStep(static.bytes, after.bytes - static.bytes, peak, log.collectives(), kept, most)


@contextmanager
def _stand_ins(device: str) -> Iterator[None]:
    """Within, tensors of `device` are a GPU's; where that is not the host, FSDP2 needs streams for it as well."""
    if device == "cpu":
        with imaginary_gpu("CPU"):
            yield
        return
    install_cuda_guard()
    with imaginary_gpu(), imaginary_streams(), torch.autograd.set_multithreading_enabled(False):
        yield


def _passes(built: Any, batch: tuple[Tensor, Tensor], sharding: Sharding, moments: Moments) -> Held:
    """Both passes of every micro-batch; what is alive after the last forward."""
    split_loss = loss_parallel() if sharding.tensor > 1 else nullcontext()
    with split_loss:
        for left in reversed(range(sharding.micro_batches)):
            if sharding.shards:
                built.set_requires_gradient_sync(not left or sharding.reduce == "micro_batch")
            moments.forward()
            loss = _loss(built, *batch)
            after = moments.meter.held
            moments.backward()
            loss.backward()
            del loss
    return after


def _loss(built: Any, tokens: Tensor, positions: Tensor) -> Tensor:
    """The loss, taken outside the root unit: inside, FSDP2 would gather it again before the loss's own backward."""
    logits = built(tokens, position_ids=positions, use_cache=False).logits
    return built.loss_function(logits=logits, labels=tokens, vocab_size=logits.shape[-1])


def _local(tensor: Any) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _parallelize(built: Any, work: Workload, sharding: Sharding, mesh: RankMesh) -> None:
    """Tensor parallelism with a split sequence, then, where there are shards, one FSDP unit per layer and one more."""
    layers = attrgetter(family(work.model).layers)(built)
    if sharding.tensor > 1:
        if family(work.model).layers != "model.layers" or work.model.groups[0].norms != "pre":
            raise NoReferenceError(f"{work.model.title}: the judge splits Llama's, Mistral's and Qwen2's layers only")
        if mlp_of(work.model).experts:
            raise NoReferenceError(f"{work.model.title}: the judge splits no experts")
        _split_tensors(built, layers, mesh.whole["tensor"])
    if not sharding.shards:
        return
    policy = MixedPrecisionPolicy(torch_dtype(work.precision.compute), torch_dtype(work.precision.reduction))
    held = CPUOffloadPolicy(pin_memory=False) if sharding.offload else OffloadPolicy()  # only CUDA pins
    shard = partial(fully_shard, mp_policy=policy, offload_policy=held)
    group = mesh.shards
    cut = partial(_cut, ranks=sharding.data)
    if sharding.expert > 1:
        unasked = replace(policy, cast_forward_inputs=False)  # scores multiply outside of torchtitan's experts
        _shard_experts(layers, sharding, partial(shard, mesh=mesh.copies, mp_policy=unasked))
    for module in _sets(layers, sharding.wrap):
        again = sharding.reshard != "none"
        shard(module, mesh=group, reshard_after_forward=again, shard_placement_fn=cut)
    if sharding.ends == "apart" and sharding.wrap and not work.model.tied:
        _wrap_ends(built, partial(shard, mesh=group), sharding)
    shard(built, mesh=group, reshard_after_forward=RESHARD[sharding.reshard])
    if sharding.expert > 1:
        for layer, after, before in dispatched_experts.prefetched(layers):
            layer.set_modules_to_forward_prefetch(after)
            layer.set_modules_to_backward_prefetch(before)


def _shard_experts(layers: nn.ModuleList, sharding: Sharding, shard: Any) -> None:
    """Routed experts by themselves, over the ranks that have the same ones; each layer holds the rest (torchtitan)."""
    cut = partial(_cut, ranks=sharding.data // sharding.expert)
    for layer in layers:
        if (experts := dispatched_experts.experts_of(layer)) is not None:
            shard(experts, reshard_after_forward=sharding.reshard != "none", shard_placement_fn=cut)


def _wrap_ends(built: Any, shard: Any, sharding: Sharding) -> None:
    """The embedding by itself, and the last norm with the head, which stay gathered (torchtitan, `apply_fsdp`)."""
    shard(built.get_input_embeddings(), reshard_after_forward=sharding.reshard != "none")
    shard([built.model.norm, built.get_output_embeddings()], reshard_after_forward=False)


def _cut(parameter: nn.Parameter, ranks: int) -> Shard:
    """Rows; of experts that do not divide, rows of each of them, as torchtitan cuts them (parallelize_llama4.py)."""
    return Shard(1 if parameter.ndim == 3 and parameter.shape[0] % ranks else 0)


def _sets(layers: nn.ModuleList, size: int) -> Iterator[nn.Module | list[nn.Module]]:
    """Layers that move as one; none where all of them move with the root."""
    if size == 1:
        yield from layers
    elif size:
        yield from (list(layers[first : first + size]) for first in range(0, len(layers), size))


def _split_tensors(built: Any, layers: nn.ModuleList, mesh: DeviceMesh) -> None:
    """Heads, hidden units and vocabulary split; the sequence split between, gathered where a layer part reads it."""
    parallelize_module(
        built,
        mesh,
        {
            "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "model.norm": SequenceParallel(),
            "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
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


@contextmanager
def _isolated_propagation() -> Iterator[None]:
    """Within, DTensor works out shapes unseen: it runs operators at global shape, which would be counted as real."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    name = "_propagate_tensor_meta_non_cached"
    original = getattr(ShardingPropagator, name)

    def unseen(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return original(*args, **kwargs)

    with mock.patch.object(ShardingPropagator, name, unseen):
        yield
