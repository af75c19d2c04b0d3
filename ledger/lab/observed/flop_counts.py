"""FLOPs and parameters as PyTorch itself counts them, on meta tensors at full size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ledger.lab.reference.images import micro_batch
from ledger.lab.reference.model import (
    Workload,
    checkpoint_layers,
    experts_kernel,
    freeze,
    reference_model,
    training_loss,
)
from ledger.spec.plan import Kernels, Precision, Train
from ledger.spec.precision import WeightFormats

if TYPE_CHECKING:
    from ledger.spec.plan import Model

# FLOPs are the same in every dtype, and meta tensors know no autocast.
WHOLE = Train()
PLAIN = Precision("bf16", WeightFormats.alike("bf16"), "bf16", None, "bf16", "bf16", "bf16", "bf16")


@dataclass(frozen=True)
class FlopCounts:
    """What FlopCounterMode reports for one micro-batch: matmuls and attention, causal masks without a discount.

    `backward` includes what checkpointed layers compute again. `kinds`: (pass, matmul | attention) -> FLOPs.
    """

    forward: int
    backward: int
    kinds: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Forward and backward together."""
        return self.forward + self.backward


def parameter_count(model: Model, train: Train = WHOLE) -> int:
    """Parameters of the transformers model, tied weights once; raises `NoReferenceError`."""
    return parameter_counts(model, train)[0]


def parameter_counts(model: Model, train: Train) -> tuple[int, int]:
    """The same, and how many of them are trained."""
    import torch

    kernels = Kernels(attention="eager", norm="eager", experts=experts_kernel(model), scan="eager")
    built = reference_model(model, kernels, "meta", torch.bfloat16)
    freeze(built, train)  # adapters are parameters, too
    weights = tuple(built.parameters())
    return sum(one.numel() for one in weights), sum(one.numel() for one in weights if one.requires_grad)


def flop_counts(work: Workload) -> FlopCounts:
    """FLOPs of one unsharded micro-batch, forward with the loss and backward; raises `NoReferenceError`."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ledger.lab.reference.modules import imaginary_gpu

    with imaginary_gpu():
        built = reference_model(work.model, work.kernels, "meta", torch.bfloat16)
        freeze(built, work.train)
        checkpoint_layers(built, work.recompute)
        batch = micro_batch(work, "meta")
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as forward:
            loss = training_loss(built, replace(work, precision=PLAIN), batch)
        with FlopCounterMode(display=False, custom_mapping=counter_formulas()) as backward:
            loss.backward()
    kinds = {**_kinds("forward", forward), **_kinds("backward", backward)}
    return FlopCounts(forward.get_total_flops(), backward.get_total_flops(), kinds)


def counter_formulas() -> dict[Any, Any]:
    """FLOPs of what the counter does not know: rows in groups, each with its matrix, or all rows for each matrix.

    Of a convolution in groups (one a channel where it is depthwise) it takes the gradient of the weight for that of a
    filter from every channel to every other one. Each of both gradients has the products of forward: a product of a
    weight and an input gives one term of an output, of the input's gradient, and of the weight's.
    """
    from math import prod

    import torch

    def grouped(left: tuple[int, ...], right: tuple[int, ...], *_: Any, **__: Any) -> int:
        return 2 * left[0] * left[1] * right[-1]  # rows x k x n; towards the weights m x rows x n

    def convolved_back(upstream: tuple[int, ...], _: Any, weight: tuple[int, ...], *others: Any, **__: Any) -> int:
        wanted = sum(others[7][:2])  # of the input, of the weight
        return int(2 * upstream[0] * prod(upstream[2:]) * prod(weight) * wanted)

    aten = torch.ops.aten
    return {aten._grouped_mm: grouped, aten.convolution_backward: convolved_back}  # noqa: SLF001  # the operator's own name


def _kinds(phase: str, counter: Any) -> dict[tuple[str, str], int]:
    """FLOPs of one pass in fused attention operators and in all others, which are matrix products."""
    found = {(phase, "matmul"): 0, (phase, "attention"): 0}
    for operator, count in counter.get_flop_counts().get("Global", {}).items():
        found[phase, "attention" if "attention" in str(operator) else "matmul"] += count
    return found
