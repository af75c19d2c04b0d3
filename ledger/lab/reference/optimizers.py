"""The optimizer that a plan means, as torch.optim has it, with master weights around it where the plan keeps them.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.optimizer import DEFAULT, Optimizer
from ledger.spec.plan import Precision

KERNELS: Mapping[str, Mapping[str, bool]] = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "loop": {"foreach": False},
}
CLASSES: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda weights, **kernel: torch.optim.SGD(weights, momentum=0.9, **kernel),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adafactor": torch.optim.Adafactor,
    "muon": lambda weights, **_: torch.optim.Muon(weights),
}


class ReferenceOptimizer(Protocol):
    """What a training loop asks of an optimizer, and what it keeps."""

    def step(self) -> None:
        """Update the weights by their gradients."""

    def states(self) -> Iterator[Tensor]:
        """Every tensor that stays from step to step."""


class OptimizerSequence:
    """Optimizers that share the weights of a model, one after the other."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers

    def step(self) -> None:
        """Each updates its own weights."""
        for optimizer in self.optimizers:
            optimizer.step()

    def states(self) -> Iterator[Tensor]:
        """The states of every optimizer."""
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                yield from (tensor for tensor in state.values() if isinstance(tensor, Tensor))


class MasterWeightOptimizer:
    """Master weights: gradients are copied to their dtype, they are updated, and the weights are written from them."""

    def __init__(
        self, weights: Sequence[nn.Parameter], masters: Sequence[nn.Parameter], inner: OptimizerSequence
    ) -> None:
        self.weights = weights
        self.masters = masters
        self.inner = inner

    def step(self) -> None:
        """The copies of the gradients go when the update is done; the gradients themselves stay."""
        for weight, master in zip(self.weights, self.masters, strict=True):
            master.grad = None if weight.grad is None else weight.grad.to(master.dtype)
        self.inner.step()
        with torch.no_grad():
            for weight, master in zip(self.weights, self.masters, strict=True):
                weight.copy_(master)
                master.grad = None

    def states(self) -> Iterator[Tensor]:
        """Master weights and states."""
        yield from self.masters
        yield from self.inner.states()


class FakeScalars(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """Within, a fake tensor that is asked for its value says 1: step counts, and norms that scale an update.

    Fused updates without a meta kernel are let be: they write their operands in place and allocate nothing.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001  # what Tensor.item() dispatches to
            return 1.0
        if func.overloadpacket in (torch.ops.aten._fused_sgd_, torch.ops.aten._fused_adagrad_):
            return None
        return func(*args, **(kwargs or {}))


def reference_optimizer(
    built: nn.Module, layers: Sequence[nn.Module], rule: Optimizer, kernel: str, precision: Precision
) -> ReferenceOptimizer:
    """The optimizer of a plan over a model on fake tensors, its states in place; raises `NoReferenceError`.

    Call it, and its `step`, inside the fake mode and within `FakeScalars`. `layers` hold what counts as matrices.
    """
    _refuse_unjudged(rule, kernel, precision)
    weights = [weight for weight in built.parameters() if weight.requires_grad]
    if precision.master is None:
        optimizer: ReferenceOptimizer = _build_sequence(weights, weights, layers, rule, kernel)
    else:
        wide = getattr(torch, {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision.master])
        masters = [nn.Parameter(weight.detach().to(wide)) for weight in weights]
        optimizer = MasterWeightOptimizer(weights, masters, _build_sequence(weights, masters, layers, rule, kernel))
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()  # states are made by the first step
    for weight in weights:
        weight.grad = None
    return optimizer


def _refuse_unjudged(rule: Optimizer, kernel: str, precision: Precision) -> None:
    updated = precision.master or precision.weights.base
    current: Optimizer | None = rule
    while current is not None:
        if current.name not in CLASSES:
            raise NoReferenceError(f"{current.title or current.name}: torch.optim has {', '.join(sorted(CLASSES))}")
        dtypes = {precision.states if s.dtype == DEFAULT else s.dtype for s in current.states.values()}
        if dtypes - {updated} or any(s.scales for s in current.states.values()):
            raise NoReferenceError(f"states in {', '.join(sorted(dtypes))}: torch.optim keeps them in {updated}")
        current = current.otherwise
    if precision.master is None and precision.gradients != precision.weights.base:
        raise NoReferenceError(f"gradients in {precision.gradients}: autograd gives them in {precision.weights.base}")
    if precision.master not in (None, precision.gradients) and kernel == "fused":
        raise NoReferenceError("fused: torch's fused kernels read gradients in the dtype of the weights they update")


def _build_sequence(
    weights: Sequence[nn.Parameter],
    updated: Sequence[nn.Parameter],
    layers: Sequence[nn.Module],
    rule: Optimizer,
    kernel: str,
) -> OptimizerSequence:
    """torch's optimizers of a rule and of the rules behind it, each over its own weights."""
    inside = {id(weight) for layer in layers for weight in layer.parameters()}
    remaining = list(zip(weights, updated, strict=True))
    optimizers = []
    current: Optimizer | None = rule
    while current is not None:
        pairs = [
            pair for pair in remaining if current.otherwise is None or _weight_kind(pair[0], inside) in current.weights
        ]
        remaining = [pair for pair in remaining if not any(pair[0] is chosen[0] for chosen in pairs)]
        name = kernel if kernel in current.update else next(iter(current.update))
        if pairs:
            optimizers.append(CLASSES[current.name]([pair[1] for pair in pairs], **KERNELS[name]))
        current = current.otherwise
    return OptimizerSequence(optimizers)


def _weight_kind(weight: nn.Parameter, inside: set[int]) -> str:
    if weight.ndim < 2:
        return "vectors"
    return "matrices" if id(weight) in inside else "ends"
