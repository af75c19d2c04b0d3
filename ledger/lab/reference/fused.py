"""Kernels that training libraries have and transformers has not, as autograd functions that save what those save.

Outputs are allocated as the kernels leave them, and nothing else: bytes are judged, not values. Imports torch at its
top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from types import MethodType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers.integrations import moe

from ledger.lab.transformers.config import NoReferenceError, mlp_of
from ledger.spec.plan import Kernels, Model
from ledger.spec.precision import WHOLE_ROW, WHOLE_TENSOR, Recipe, Stored

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
        saved = parts if rule is None else tuple(tensor for part in parts for tensor in narrow(part, rule))
        ctx.save_for_backward(*saved, *([] if scores is None else [scores]))
        width = parts[0].shape[-1] // (3 - len(parts))
        return parts[0].new_empty(*parts[0].shape[:-1], width)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
        """Gradients of everything that was read."""
        saved = ctx.saved_tensors
        scores = torch.empty_like(saved[-1]) if ctx.scores else None
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
    scale_rows, scale_columns = (
        -(-size // length) if length else 1 for size, length in zip((rows, tensor.shape[-1]), rule.block, strict=True)
    )
    return copy, tensor.new_empty(scale_rows, scale_columns, dtype=torch.float32)


def install(built: nn.Module, model: Model, kernels: Kernels, stored: Sequence[Stored]) -> None:
    """Put the kernels that a plan names in place; raises `NoReferenceError` for what no kernel here stores narrow."""
    rules = {rule.part: rule for rule in stored}
    fused = kernels.activation == FUSED_GATED
    if rules.keys() - ({BEFORE_THE_PRODUCT} if fused else set()):
        raise NoReferenceError("precision.stored: the judge stores what `activation: fused_gated` saves, nothing else")
    rule = rules.get("activation")
    for module in built.modules():
        if fused and hasattr(module, "down_proj") and hasattr(module, "gate_proj"):
            module.forward = MethodType(_gated_forward(rule), module)
        if fused and hasattr(module, "down_proj") and isinstance(getattr(module, "gate_up_proj", None), nn.Linear):
            module.forward = MethodType(_joint_forward(rule), module)
        if fused and hasattr(module, "gate_up_proj") and hasattr(module, "num_experts"):
            module._apply_gate = MethodType(_gate_of_halves(rule), module)
    router = mlp_of(model).router
    if kernels.router == "fused" and router.dtype == "fp32":
        for module in built.modules():
            if type(module).__name__.endswith("Router"):
                module.forward = _router_forward(module, module.forward)


def _gated_forward(rule: Stored | None) -> Callable[[Any, Tensor], Tensor]:
    def forward(self: Any, hidden: Tensor) -> Tensor:
        product: Tensor = self.down_proj(GatedProduct.apply(rule, None, self.gate_proj(hidden), self.up_proj(hidden)))
        return product

    return forward


def _joint_forward(rule: Stored | None) -> Callable[[Any, Tensor], Tensor]:
    def forward(self: Any, hidden: Tensor) -> Tensor:
        product: Tensor = self.down_proj(GatedProduct.apply(rule, None, self.gate_up_proj(hidden)))
        return product

    return forward


def _gate_of_halves(rule: Stored | None) -> Callable[..., Tensor]:
    def apply(_: Any, joint: Tensor, scores: Tensor | None = None) -> Tensor:
        product: Tensor = GatedProduct.apply(rule, scores, joint)
        return product

    return apply


def _router_forward(module: Any, original: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """The router's forward pass with another product: what it casts before is let go."""

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
    rows_per_expert = torch.histc(owner.int(), bins=count, min=0, max=count - 1)
    offsets = torch.cumsum(rows_per_expert, dim=0, dtype=torch.int32)
    transposed = {"is_transposed": self.is_transposed}
    joint = moe._grouped_linear(rows, self.gate_up_proj, offsets, **transposed)
    if self._apply_gate.__func__.__module__ == __name__:  # transformers' own
        active = self._apply_gate(joint, scores)
    else:
        active = (self._apply_gate(joint) * scores.unsqueeze(-1)).to(joint.dtype)
    out = moe._grouped_linear(active, self.down_proj, offsets, **transposed)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.size(0), device=order.device)
    return out[back].view(hidden.shape[0], chosen, -1).sum(dim=1).to(hidden.dtype)


# --- quantised linear layers, by torch._scaled_mm ---

# Operators and slots of torch are used by their private names, as its front ends do.
# ruff: noqa: SLF001


DTYPES = {
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "e2m1": torch.float4_e2m1fn_x2,
    "e8m0": torch.float8_e8m0fnu,
    "fp32": torch.float32,
}
PACKED = {"e2m1": 2}  # elements of a byte


@dataclass(frozen=True)
class NarrowMatrix:
    """A matrix (rows x contracted) in a narrow format, with its scales."""

    data: Tensor
    scales: Tensor
    further: tuple[Tensor, ...] = ()

    def all(self) -> tuple[Tensor, ...]:
        """The data and all scales, as autograd saves them."""
        return self.data, self.scales, *self.further


def _copy(like: Tensor, rows: int, contracted: int, recipe: Recipe, of: str) -> NarrowMatrix:
    """What a kernel writes for an operand; `of` is activation, weight or gradient."""
    dtype = recipe.gradient if of == "gradient" else recipe.format
    data = like.new_empty(rows, contracted // PACKED.get(dtype, 1), dtype=DTYPES[dtype])
    block = recipe.weight_block if of == "weight" else recipe.activation_block
    further = (like.new_empty((), dtype=DTYPES[recipe.tensor_scale]),) if recipe.tensor_scale else ()
    if block == WHOLE_TENSOR:
        return NarrowMatrix(data, like.new_empty((), dtype=torch.float32), further)
    if block == WHOLE_ROW:
        return NarrowMatrix(data, like.new_empty(rows, 1, dtype=torch.float32), further)
    block_rows, block_columns = (  # blocks of `length` that cover `size`, in multiples of `step`
        step * ceil(ceil(size / length) / step)
        for size, length, step in zip((rows, contracted), block, recipe.padded, strict=True)
    )
    return NarrowMatrix(data, like.new_empty(block_rows, block_columns, dtype=DTYPES[recipe.scale]), further)


def _multiply(left: NarrowMatrix, right: NarrowMatrix, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """left (m x k) times the transpose of right (n x k)."""
    scales = right.scales.t() if right.scales.dim() == 2 else right.scales
    if right.scales.dtype != torch.float32:
        scales = right.scales
    return torch._scaled_mm(left.data, right.data.t(), left.scales, scales, bias=bias, out_dtype=dtype)


def _scaled_product(left: NarrowMatrix, right: NarrowMatrix, dtype: torch.dtype) -> Tensor:
    """A product of backward, which has no bias."""
    return _multiply(left, right, None, dtype)


def _unscaled_product(left: NarrowMatrix, right: NarrowMatrix, dtype: torch.dtype) -> Tensor:
    """A product of backward without scales, which another kernel applies."""
    unit_scale = left.scales.new_ones(())
    return torch._scaled_mm(left.data, right.data.t(), unit_scale, unit_scale, out_dtype=dtype)


def _apply_scales(product: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Scales of rows and columns applied to a product, by one kernel."""
    scaled = torch.empty_like(product)
    torch.mul(product, left, out=scaled)
    return scaled.mul_(right.t())


class QuantisedProduct(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """x (tokens x in) times the transpose of weight (out x in)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, linear: QuantisedLinear) -> Tensor:
        """Saves the copies for backward, or the operands."""
        recipe, (out, inner) = linear.recipe, weight.shape
        forward, backward = linear.inputs(x)
        row, column = linear.copies or (_copy(weight, out, inner, recipe, "weight"), None)
        saved = (*(backward.all() if backward else (x,)), *(column.all() if column else (weight,)))
        ctx.save_for_backward(*saved)
        ctx.linear, ctx.inputs_kept, ctx.bias = linear, backward is not None, bias is not None
        return _multiply(forward, row, bias, x.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        """Two products of copies; those that forward did not leave are made of the operands."""
        (towards,), recipe, saved = upstream, ctx.linear.recipe, ctx.saved_tensors
        tokens, out = towards.shape
        inner = ctx.linear.weight.shape[1]
        parts = 3 if recipe.tensor_scale else 2
        column = NarrowMatrix(saved[0], saved[1], tuple(saved[2:parts])) if ctx.inputs_kept else None
        stored: Sequence[Tensor] = saved[parts if ctx.inputs_kept else 1 :]
        weight = NarrowMatrix(stored[0], stored[1], tuple(stored[2:])) if ctx.linear.copies else None
        row, turned = (
            _copy(towards, rows, columns, recipe, "gradient") for rows, columns in ((tokens, out), (out, tokens))
        )
        within = recipe.scaled == "matmul"
        times = _scaled_product if within else _unscaled_product
        weight = weight or _copy(towards, inner, out, recipe, "weight")
        of_input = times(row, weight, towards.dtype)
        scales = row.scales, weight.scales
        del row, weight
        of_input = of_input if within else _apply_scales(of_input, *scales)
        del scales
        column = column or _copy(towards, inner, tokens, recipe, "activation")
        of_weight = times(turned, column, ctx.linear.weight.dtype)
        scales = turned.scales, column.scales
        del turned, column
        of_weight = of_weight if within else _apply_scales(of_weight, *scales)
        del scales
        return of_input, of_weight, towards.sum(0) if ctx.bias else None, None


LAST_OF_ATTENTION = ("o_proj", "out_proj")  # as transformers names it


class QuantisedLinear(nn.Module):  # type: ignore[misc]  # torch's types are not followed
    """A linear layer under a recipe, with the weights of the one it replaces."""

    def __init__(self, plain: nn.Linear, recipe: Recipe) -> None:
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias
        self.recipe = recipe
        self.copies: tuple[NarrowMatrix, NarrowMatrix] | None = None
        if recipe.history:  # magnitudes, scales and their inverses of five tensors, as Transformer Engine keeps them
            self.register_buffer("amax", plain.weight.new_empty(5, recipe.history + 2, dtype=torch.float32))

    def forward(self, hidden: Tensor) -> Tensor:
        """Copies of the weight that stay are made by the first call."""
        if self.recipe.weights == "kept" and self.copies is None:
            out, inner = self.weight.shape
            sides = ((out, inner), (inner, out))
            row, column = (_copy(self.weight.detach(), rows, columns, self.recipe, "weight") for rows, columns in sides)
            self.copies = row, column
        device = hidden.device.type
        if device != "meta" and torch.is_autocast_enabled(device):
            hidden = hidden.to(torch.get_autocast_dtype(device))
        flat = hidden.reshape(-1, hidden.shape[-1])
        if self.recipe.saves == "quantised":
            flat._quantised = _shared_copies(hidden, flat, self.recipe)
        return QuantisedProduct.apply(flat, self.weight, self.bias, self).reshape(*hidden.shape[:-1], -1)

    def inputs(self, x: Tensor) -> tuple[NarrowMatrix, NarrowMatrix | None]:
        """Copies of the input: those that all layers share which read it, or one for this product alone."""
        copies: tuple[NarrowMatrix, NarrowMatrix] | None = getattr(x, "_quantised", None)
        return copies or (_copy(x, x.shape[0], x.shape[1], self.recipe, "activation"), None)


def _shared_copies(hidden: Tensor, flat: Tensor, recipe: Recipe) -> tuple[NarrowMatrix, NarrowMatrix]:
    """Copies of a value, made for the first layer that reads it."""
    if not hasattr(hidden, "_copies"):
        tokens, inner = flat.shape
        row, column = (
            _copy(flat.detach(), rows, columns, recipe, "activation")
            for rows, columns in ((tokens, inner), (inner, tokens))
        )
        hidden._copies = row, column
    copies: tuple[NarrowMatrix, NarrowMatrix] = hidden._copies
    return copies


def quantise_layers(built: nn.Module, layers: nn.Module, recipe: Recipe) -> None:
    """Replaces the linear layers that a recipe quantises; raises `NoReferenceError` for what it cannot tell apart."""
    unknown = set(recipe.keep) - {"head", "router"}
    if unknown or "head" not in recipe.keep:
        raise NoReferenceError("fp8 layers are built for recipes that keep the head, and nothing else but routers")
    if recipe.weights in ("only", "gathered") or recipe.turns:
        raise NoReferenceError("PyTorch's parameters are those that quantised copies are made of")
    if recipe.layouts == "one":
        raise NoReferenceError("torch._scaled_mm multiplies one layout only: a second copy is needed")
    if set(recipe.quantised_again) - {"attention/out"}:
        raise NoReferenceError("of fp8 layers only attention's last one quantises its input again in backward")
    again = replace(recipe, saves="original") if recipe.quantised_again else recipe
    replaced = 0
    for parent in layers.modules():
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, QuantisedLinear(child, again if name in LAST_OF_ATTENTION else recipe))
                replaced += 1
    if not replaced:
        raise NoReferenceError(f"{type(built).__name__} has no nn.Linear to quantise")
