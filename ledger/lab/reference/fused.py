"""Kernels that training libraries have and transformers has not, as autograd functions that save what those save.

Outputs are allocated as the kernels leave them, and nothing else: bytes are judged, not values. Imports torch at its
top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers.integrations import moe

from ledger.lab.reference.quantised import DTYPES
from ledger.lab.transformers.config import NoReferenceError, mlp_of
from ledger.spec.plan import Kernels, Model
from ledger.spec.recipe import WHOLE_TENSOR, Stored

WEIGHED = "ledger_weighed"  # the name under which transformers knows experts whose activation has their scores in it
FUSED_GATED, BEFORE_THE_PRODUCT = "fused_gated", "activation"


class GatedProduct(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """Activation of gate, times up, times the scores of rows: one kernel that saves what it reads.

    As Megatron-Core's `SwiGLUFunction` and `WeightedSwiGLUFunction` (fusions/fused_bias_swiglu.py), whose option
    `fp8_input_store` is a narrower `rule`. Gate and up are two tensors, or the halves of one.
    """

    @staticmethod
    def forward(ctx: Any, rule: Stored | None, scores: Tensor | None, *parts: Tensor) -> Tensor:
        """The product, as wide as gate."""
        ctx.scores, ctx.parts = scores is not None, tuple((part.shape, part.dtype) for part in parts)
        kept = parts if rule is None else tuple(tensor for part in parts for tensor in narrow(part, rule))
        ctx.save_for_backward(*kept, *([] if scores is None else [scores]))
        width = parts[0].shape[-1] // (3 - len(parts))
        return parts[0].new_empty(*parts[0].shape[:-1], width)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
        """Gradients of everything that was read."""
        kept = ctx.saved_tensors
        scores = torch.empty_like(kept[-1]) if ctx.scores else None
        return None, scores, *(upstream.new_empty(shape, dtype=dtype) for shape, dtype in ctx.parts)


class RouterProduct(torch.autograd.Function):  # type: ignore[misc]  # as above
    """fp32 logits of operands in their own dtype, which are saved (Megatron-Core, `RouterGatingLinearFunction`)."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        """One row of logits for each token."""
        ctx.save_for_backward(hidden, weight)
        return hidden.new_empty(hidden.shape[0], weight.shape[0], dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients in the dtypes of the operands."""
        hidden, weight = ctx.saved_tensors
        return torch.empty_like(hidden), torch.empty_like(weight)


def narrow(tensor: Tensor, rule: Stored) -> tuple[Tensor, ...]:
    """A copy in another format, and its scales where it has any."""
    if rule.format not in DTYPES:
        raise NoReferenceError(f"precision.stored: torch has no {rule.format}")
    copy = tensor.new_empty(tensor.shape, dtype=DTYPES[rule.format])
    if rule.block is None:
        return (copy,)
    if rule.block == WHOLE_TENSOR:
        return copy, tensor.new_empty((), dtype=torch.float32)
    rows = tensor.numel() // tensor.shape[-1]
    kept, along = (
        -(-size // length) if length else 1 for size, length in zip((rows, tensor.shape[-1]), rule.block, strict=True)
    )
    return copy, tensor.new_empty(kept, along, dtype=torch.float32)


def install(built: nn.Module, model: Model, kernels: Kernels, stored: Sequence[Stored]) -> None:
    """Put the kernels that a plan names in place; raises `NoReferenceError` for what no kernel here stores narrow."""
    rules = {rule.part: rule for rule in stored}
    fused = kernels.activation == FUSED_GATED
    if rules.keys() - ({BEFORE_THE_PRODUCT} if fused else set()):
        raise NoReferenceError("precision.stored: the judge stores what `activation: fused_gated` saves, nothing else")
    rule = rules.get("activation")
    for module in built.modules():
        if fused and hasattr(module, "down_proj") and hasattr(module, "gate_proj"):
            module.forward = MethodType(_gated(rule), module)
        if fused and hasattr(module, "down_proj") and isinstance(getattr(module, "gate_up_proj", None), nn.Linear):
            module.forward = MethodType(_joint(rule), module)
        if fused and hasattr(module, "gate_up_proj") and hasattr(module, "num_experts"):
            module._apply_gate = MethodType(_halves(rule), module)  # noqa: SLF001  # transformers' own hook for it
    router = mlp_of(model).router
    if kernels.router == "fused" and router.dtype == "fp32":
        for module in built.modules():
            if type(module).__name__.endswith("Router"):
                module.forward = _routed(module, module.forward)


def _gated(rule: Stored | None) -> Callable[[Any, Tensor], Tensor]:
    def forward(self: Any, hidden: Tensor) -> Tensor:
        product: Tensor = self.down_proj(GatedProduct.apply(rule, None, self.gate_proj(hidden), self.up_proj(hidden)))
        return product

    return forward


def _joint(rule: Stored | None) -> Callable[[Any, Tensor], Tensor]:
    def forward(self: Any, hidden: Tensor) -> Tensor:
        product: Tensor = self.down_proj(GatedProduct.apply(rule, None, self.gate_up_proj(hidden)))
        return product

    return forward


def _halves(rule: Stored | None) -> Callable[..., Tensor]:
    def apply(_: Any, joint: Tensor, scores: Tensor | None = None) -> Tensor:
        product: Tensor = GatedProduct.apply(rule, scores, joint)
        return product

    return apply


def _routed(module: Any, original: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """The same router, but for its product: what it casts before is let go."""

    def forward(hidden: Tensor) -> Any:
        def product(*_: Any) -> Any:
            return RouterProduct.apply(hidden.reshape(-1, hidden.shape[-1]), module.weight)

        with mock.patch("torch.nn.functional.linear", product):
            return original(hidden)

    return forward


def weighed_experts(self: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Experts over sorted rows as transformers runs them, with the scores in the activation."""
    chosen, count = index.shape[-1], self.num_experts
    owner, order = torch.sort(index.reshape(-1))
    rows, scores = hidden[order // chosen], weights.reshape(-1)[order]
    each = torch.histc(owner.int(), bins=count, min=0, max=count - 1)
    offsets = torch.cumsum(each, dim=0, dtype=torch.int32)
    transposed = {"is_transposed": self.is_transposed}
    joint = moe._grouped_linear(rows, self.gate_up_proj, offsets, **transposed)  # noqa: SLF001  # has no public name
    if self._apply_gate.__func__.__module__ == __name__:  # transformers' own
        active = self._apply_gate(joint, scores)
    else:
        active = (self._apply_gate(joint) * scores.unsqueeze(-1)).to(joint.dtype)
    out = moe._grouped_linear(active, self.down_proj, offsets, **transposed)  # noqa: SLF001
    back = torch.empty_like(order)
    back[order] = torch.arange(order.size(0), device=order.device)
    return out[back].view(hidden.shape[0], chosen, -1).sum(dim=1).to(hidden.dtype)
