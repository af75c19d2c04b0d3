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
        """The states of all."""
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
    _judged(rule, kernel, precision)
    weights = [weight for weight in built.parameters() if weight.requires_grad]
    if precision.master is None:
        found: ReferenceOptimizer = _over(weights, weights, layers, rule, kernel)
    else:
        wide = getattr(torch, {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision.master])
        masters = [nn.Parameter(weight.detach().to(wide)) for weight in weights]
        found = MasterWeightOptimizer(weights, masters, _over(weights, masters, layers, rule, kernel))
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    found.step()  # states are made by the first step
    for weight in weights:
        weight.grad = None
    return found


def _judged(rule: Optimizer, kernel: str, precision: Precision) -> None:
    updated = precision.master or precision.weights.base
    each: Optimizer | None = rule
    while each is not None:
        if each.name not in CLASSES:
            raise NoReferenceError(f"{each.title or each.name}: torch.optim has {', '.join(sorted(CLASSES))}")
        kept = {precision.states if s.dtype == DEFAULT else s.dtype for s in each.states.values()}
        if kept - {updated} or any(s.scales for s in each.states.values()):
            raise NoReferenceError(f"states in {', '.join(sorted(kept))}: torch.optim keeps them in {updated}")
        each = each.otherwise
    if precision.master is None and precision.gradients != precision.weights.base:
        raise NoReferenceError(f"gradients in {precision.gradients}: autograd gives them in {precision.weights.base}")
    if precision.master not in (None, precision.gradients) and kernel == "fused":
        raise NoReferenceError("fused: torch's fused kernels read gradients in the dtype of the weights they update")


def _over(
    weights: Sequence[nn.Parameter],
    updated: Sequence[nn.Parameter],
    layers: Sequence[nn.Module],
    rule: Optimizer,
    kernel: str,
) -> OptimizerSequence:
    """torch's optimizers of a rule and of the rules behind it, each over its weights."""
    inside = {id(weight) for layer in layers for weight in layer.parameters()}
    left = list(zip(weights, updated, strict=True))
    found = []
    each: Optimizer | None = rule
    while each is not None:
        mine = [pair for pair in left if each.otherwise is None or _kind(pair[0], inside) in each.weights]
        left = [pair for pair in left if not any(pair[0] is one[0] for one in mine)]
        name = kernel if kernel in each.update else next(iter(each.update))
        if mine:
            found.append(CLASSES[each.name]([pair[1] for pair in mine], **KERNELS[name]))
        each = each.otherwise
    return OptimizerSequence(found)


def _kind(weight: nn.Parameter, inside: set[int]) -> str:
    if weight.ndim < 2:
        return "vectors"
    return "matrices" if id(weight) in inside else "ends"
