"""What torchtitan's rank holds, saves and sends in one step. Imports torch and torchtitan at its top."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import OptimizersContainer
from torchtitan.components.optimizer.optimizer import ParamGroupConfig
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as distributed_utils
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.distributed.utils import clip_grad_norm_, get_spmd_context
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import VarlenMetadata
from torchtitan.models.llama3 import Llama3Model, _build_llama3_layers, parallelize_llama, pipeline_llm
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.tools.utils import set_default_dtype
from torchtitan.trainer import Trainer

from ledger.lab.judges.fakes import FakeValues, real_meshes
from ledger.lab.judges.metered_rank import (
    LayerStorage,
    MeteredRank,
    RankCollectives,
    RankFigures,
    RankMeter,
    RankMoments,
    SavedStorages,
)
from ledger.lab.judges.torchtitan import configuration
from ledger.lab.observed.stand_ins import isolated_propagation
from ledger.model.schedule import micro_batches
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
        """The group of each layer."""
        return [self.plan.model.groups[0].name] * len(self.layers)

    @property
    def ends(self) -> list[Any]:
        """The modules that run before the first layer and after the last."""
        ends = (self.model.tok_embeddings, self.model.norm, self.model.lm_head)
        return [end for end in ends if end is not None]

    @property
    def parameters(self) -> list[Tensor]:
        """This rank's part of every parameter."""
        return [local(parameter) for parameter in self.model.parameters()]

    @property
    def buffers(self) -> list[Tensor]:
        """Tables of rotations, which layers have beside parameters."""
        return [local(buffer) for buffer in self.model.buffers()]

    def batch(self) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Tokens, labels, and what else goes to the model: one document a sequence."""
        rows, length = self.plan.run.micro_batch, self.plan.run.seq_len
        tokens, labels, positions = (torch.zeros(rows, length, dtype=torch.long, device="cuda") for _ in range(3))
        begins = torch.zeros(rows + 1, dtype=torch.int32, device="cuda")
        masks = VarlenMetadata(begins, begins, length, length)
        return tokens, labels, {"positions": positions, "attention_masks": masks}


def local(tensor: Any) -> Tensor:
    """This rank's part of a DTensor; any other tensor as it is."""
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
    with torch.device("meta"), set_default_dtype(getattr(torch, job.training.dtype)):
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
    checkpoints = {"none": lambda: None, "full": FullAC.Config, "keep": SelectiveAC.Config}
    return Trainer.Config(
        model_spec=spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=plan.model.vocab),
        parallelism=ParallelismConfig(**configuration.parallelism(plan)),
        training=TrainingConfig(**configuration.training(plan)),
        activation_checkpoint=checkpoints[plan.recompute.policy](),
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


def rank_states(optimizers: Any) -> Iterator[Tensor]:
    """The states that the optimizers keep of each parameter, without counts of steps."""
    for optimizer in optimizers:
        for state in optimizer.state.values():
            yield from (local(tensor) for tensor in state.values() if isinstance(tensor, Tensor) and tensor.ndim)


def judge_rank(plan: Plan) -> RankFigures:
    """The figures of the rank that this process is; its stand-ins are installed and its fake group is there."""
    dims, axes = meshes(plan)
    meter, fake = RankMeter("cuda"), FakeTensorMode(allow_non_fake_inputs=True)
    with isolated_propagation(), fake, meter.resizes_seen(), meter, FakeValues(), real_meshes():
        job, model, loss = build(plan, dims)
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

    def saved(self) -> list[LayerStorage]:
        """What autograd keeps of one micro-batch that runs forward and backward."""
        collector = SavedStorages(self.rank.layers, self.rank.ends)
        storages: list[LayerStorage] = []
        begun = self._before_backward(lambda: storages.extend(collector.storages()))
        with self.metered(), collector.observed(), begun:
            self._micro_batch()
        return storages

    def clear(self) -> None:
        """Drops the gradients of the step, as torchtitan does before the next one."""
        self.rank.optimizers.zero_grad()

    def run(self, micro_batches: int, moments: RankMoments, log: RankCollectives) -> None:
        """Every micro-batch, the norm of all gradients, and the update."""

        def begin_backward() -> None:
            self.after_forward = self.meter.allocated
            moments.begin_backward()

        with self._notice_end_of_layers():
            for _ in range(micro_batches):
                moments.begin_forward()
                with self._before_backward(begin_backward):
                    self._micro_batch()
            moments.begin_optimizer()
            with log.agreement():  # on the norm, by which gradients are scaled where it is too large
                parameters = list(self.rank.model.parameters())
                clip_grad_norm_(parameters, self.rank.job.training.max_norm, foreach=True)
            self.rank.optimizers.step()

    def _micro_batch(self) -> None:
        """Forward, loss and backward, as torchtitan's trainer runs them."""
        rank = self.rank
        tokens, labels, more = rank.batch()
        context = get_spmd_context(parallel_dims=rank.dims)
        trainer: Any = mock.Mock(train_context=context, model_parts=[rank.model], loss_fn=rank.loss)
        number = torch.zeros((), dtype=torch.long, device="cuda")
        Trainer._forward_backward_body(trainer, tokens, labels, number, more)  # noqa: SLF001  # a step of its own

    @contextmanager
    def _notice_end_of_layers(self) -> Iterator[None]:
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

    def lasting_tensors(self) -> Mapping[str, Iterable[Tensor]]:
        """Shares of weights, and states of the optimizer."""
        states = rank_states(self.rank.optimizers)
        return {"weights": self.rank.parameters, "gradients": (), "master": (), "optimizer": states}
