"""A rank of torchtitan: its Llama 3 under its own parallelize_fn, its loss and its optimizer.

Imports torch and torchtitan at its top, so it is imported where stand-ins are installed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import OptimizersContainer
from torchtitan.components.optimizer.optimizer import ParamGroupConfig
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as distributed_utils
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import VarlenMetadata
from torchtitan.models.llama3 import Llama3Model, _build_llama3_layers, parallelize_llama, pipeline_llm
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.tools.utils import set_default_dtype
from torchtitan.trainer import Trainer

from ledger.lab.judges.torchtitan import configuration
from ledger.spec.plan import Plan

# Axis of torchtitan's meshes -> axis in the ledger's words.
AXES = {"dp_replicate": "replicate", "fsdp": "data", "tp": "tensor"}


@dataclass(frozen=True)
class BuiltRank:
    """What a trainer of torchtitan has: its configuration, the parts of the model, the loss and the optimizers."""

    plan: Plan
    job: Any
    dims: Any
    model: Any
    loss: Any
    optimizers: Any

    @property
    def layers(self) -> list[Any]:
        """The layers of this rank."""
        return list(self.model.layers.values())

    @property
    def groups(self) -> list[str]:
        """The group of each of them."""
        return [self.plan.model.groups[0].name] * len(self.layers)

    @property
    def ends(self) -> list[Any]:
        """What runs before the first layer and after the last."""
        ends = (self.model.tok_embeddings, self.model.norm, self.model.lm_head)
        return [end for end in ends if end is not None]

    @property
    def parameters(self) -> list[Tensor]:
        """This rank's part of every parameter."""
        return [local(parameter) for parameter in self.model.parameters()]

    @property
    def buffers(self) -> list[Tensor]:
        """What layers have beside parameters: tables of rotations."""
        return [local(buffer) for buffer in self.model.buffers()]

    def batch(self) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Tokens, labels, and what else goes to the model: one document a sequence."""
        rows, length = self.plan.run.micro_batch, self.plan.run.seq_len
        tokens, labels, positions = (torch.zeros(rows, length, dtype=torch.long, device="cuda") for _ in range(3))
        begins = torch.zeros(rows + 1, dtype=torch.int32, device="cuda")
        masks = VarlenMetadata(begins, begins, length, length)
        return tokens, labels, {"positions": positions, "attention_masks": masks}


def local(tensor: Any) -> Tensor:
    """Of a DTensor, this rank's part."""
    part = getattr(tensor, "_local_tensor", tensor)  # `to_local` would be an operator
    return part.data if isinstance(part, torch.nn.Parameter) else part


def meshes(plan: Plan) -> tuple[Any, dict[str, str]]:
    """torchtitan's meshes, and the axis of each process group. Outside the fake mode: meshes read their tensors."""
    fields = ParallelismConfig(**configuration.parallelism(plan))
    dims = ParallelDims.from_config(fields, plan.cluster.devices)
    dims.build_mesh()
    axes: dict[str, str] = defaultdict(lambda: "other")
    for name, axis in AXES.items():
        mesh = dims.get_optional_mesh(name)
        if mesh is not None:
            axes[mesh.get_group().group_name] = axis
    return dims, axes


def build(plan: Plan, dims: Any) -> tuple[Any, Any, Any]:
    """The job, the model of this rank on the device, and its loss."""
    job = _job(plan)
    distributed_utils.set_spmd_backend(job.parallelism.spmd_backend)
    described = job.model_spec.model
    described.update_from_config(config=job)
    with torch.device("meta"), set_default_dtype(_dtype(job)):
        model = described.build()
    loss = job.loss.build(compile_config=job.compile)
    model = parallelize_llama(
        model,
        parallel_dims=dims,
        training=job.training,
        parallelism=job.parallelism,
        compile_config=job.compile,
        ac_config=job.activation_checkpoint,
        dump_folder=job.dump_folder,
    )
    model.to_empty(device="cuda")
    model.train()
    return job, model, loss


def _dtype(job: Any) -> torch.dtype:
    return getattr(torch, job.training.dtype)


def _job(plan: Plan) -> Any:
    """The configuration of torchtitan's trainer."""
    model = _model(plan)
    spec = ModelSpec(
        name="llama3",
        flavor=plan.model.title,
        model=model,
        parallelize_fn=parallelize_llama,
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn=None,
        state_dict_adapter=None,
    )
    return Trainer.Config(
        model_spec=spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=plan.model.vocab),
        parallelism=ParallelismConfig(**configuration.parallelism(plan)),
        training=TrainingConfig(**configuration.training(plan)),
        activation_checkpoint=_checkpoints(plan),
        optimizer=_optimizer(plan),
    )


def _model(plan: Plan) -> Any:
    """The configuration of its Llama 3, of the plan's sizes."""
    model, group = plan.model, plan.model.groups[0]
    width, heads = model.d_model, group.attention.heads
    return Llama3Model.Config(
        dim=width,
        vocab_size=model.vocab,
        tok_embeddings=Embedding.Config(num_embeddings=model.vocab, embedding_dim=width),
        norm=RMSNorm.Config(normalized_shape=width),
        lm_head=Linear.Config(in_features=width, out_features=model.vocab),
        layers=_build_llama3_layers(
            n_layers=len(model.layers),
            dim=width,
            n_heads=heads,
            n_kv_heads=group.attention.kv_heads,
            hidden_dim=group.mlp.d_ff,
            rope=ComplexRoPE.Config(dim=group.attention.head_dim, max_seq_len=plan.run.seq_len),
            fuse_qkv=plan.stack.projections != "apart",
            attn_backend=configuration.ATTENTION,
        ),
    )


def _checkpoints(plan: Plan) -> Any:
    kinds = {"none": lambda: None, "full": FullAC.Config, "keep": SelectiveAC.Config}
    return kinds[plan.recompute.policy]()


def _optimizer(plan: Plan) -> Any:
    return OptimizersContainer.Config(
        param_groups=[
            ParamGroupConfig(
                pattern=r".*",
                optimizer_name=configuration.OPTIMIZERS[plan.optimizer.name],
                optimizer_kwargs={"lr": 1e-4},
            )
        ],
        implementation=configuration.IMPLEMENTATIONS[plan.kernels.optimizer],
    )


def states(optimizers: Any) -> Iterator[Tensor]:
    """What the optimizers keep of each parameter, without counts of steps."""
    for optimizer in optimizers:
        for state in optimizer.state.values():
            yield from (local(tensor) for tensor in state.values() if isinstance(tensor, Tensor) and tensor.ndim)
