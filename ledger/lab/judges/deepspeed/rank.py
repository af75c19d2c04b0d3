"""A rank of DeepSpeed: a transformers model in its engine. Imports torch and DeepSpeed at its top."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

from ledger.lab.judges.deepspeed import configuration
from ledger.lab.reference.model import layers_of, reference_model
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
        """What runs after the last layer."""
        return [self.engine.module.get_output_embeddings()]

    @property
    def parameters(self) -> list[Any]:
        """The parameters of the model, each once."""
        return list(self.engine.module.parameters())

    def loss(self) -> Tensor:
        """The loss of a micro-batch, whose tokens are made for it."""
        run = self.plan.run
        tokens = torch.zeros(run.micro_batch, run.seq_len, dtype=torch.long, device="cuda")
        found: Tensor = self.engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        return found


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


def _no(original: Callable[..., Any]) -> Callable[..., bool]:
    """The same, whose answer is no: it looks for what overflowed, and fake gradients say nothing."""

    def has_overflow(*given: Any, **named: Any) -> bool:
        original(*given, **named)
        return False

    return has_overflow


@contextmanager
def alike() -> Iterator[None]:
    """Within, ranks agree with each other without asking, and no gradient has overflowed."""
    checked = (
        (stage_1_and_2.DeepSpeedZeroOptimizer, "has_overflow"),
        (stage3.DeepSpeedZeroOptimizer_Stage3, "has_overflow"),
        (deepspeed_utils.CheckOverflow, "check"),
    )
    agreed: dict[str, Callable[..., Any]] = {
        "get_lst_from_rank0": list,
        "assert_lst_len_same_as_other_ranks": lambda _: None,
    }
    with ExitStack() as patched:
        for owner, name in checked:
            patched.enter_context(mock.patch.object(owner, name, _no(getattr(owner, name))))
        for name, answer in agreed.items():
            patched.enter_context(mock.patch.object(zero_utils, name, answer))
        yield
