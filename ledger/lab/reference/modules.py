"""What transformers lacks: fused norms, an unfused SiLU, and attention that names its kernel.

The only module that imports torch at its top; others import it inside functions.
"""
# Operators are called by the private names under which PyTorch's own front ends call them, and with the signatures
# that PyTorch and transformers give them, whether or not every argument matters here.
# ruff: noqa: SLF001, ARG001, PLR0913

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import FakeTensor

aten = torch.ops.aten


class FusedRMSNorm(nn.Module):  # type: ignore[misc]  # torch's types are not followed
    """`torch.nn.functional.rms_norm` with the weight of the norm it replaces; `offset` is Gemma's `1 + weight`.

    The epsilon changes neither bytes nor FLOPs.
    """

    def __init__(self, weight: nn.Parameter | None, offset: bool) -> None:
        super().__init__()
        self.weight = weight
        self.offset = offset

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension in one kernel, which reads rows in order: heads wait for their transposition."""
        if hidden.ndim == 4 and not hidden.is_contiguous() and hidden.transpose(1, 2).is_contiguous():
            return self.kernel(hidden.transpose(1, 2)).transpose(1, 2)
        return self.kernel(hidden)

    def kernel(self, hidden: Tensor) -> Tensor:
        """One kernel over rows as they lie; autocast knows it by its public name alone, and casts to fp32."""
        weight = self.weight if self.weight is None or not self.offset else 1.0 + self.weight
        device = hidden.device.type
        if device != "meta" and torch.is_autocast_enabled(device):
            return nn.functional.rms_norm(hidden, (hidden.shape[-1],), weight, 1e-6)
        return torch._fused_rms_norm(hidden, [hidden.shape[-1]], weight, 1e-6)[0]


class FusedLayerNorm(nn.Module):  # type: ignore[misc]  # as above
    """`torch.nn.functional.layer_norm` without a bias, in place of one written in Python (Cohere)."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension in one kernel; weights of each head multiply after it."""
        width = (hidden.shape[-1],)
        if self.weight.ndim == 1:
            return nn.functional.layer_norm(hidden, width, self.weight)
        return nn.functional.layer_norm(hidden, width) * self.weight


class UnfusedLayerNorm(nn.Module):  # type: ignore[misc]  # as above
    """The LayerNorm that it replaces written in Python, as transformers writes Cohere's; a bias is added last."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension in fp32, operator by operator."""
        wide = hidden.to(torch.float32)
        mean = wide.mean(-1, keepdim=True)
        variance = (wide - mean).pow(2).mean(-1, keepdim=True)
        wide = self.weight.to(torch.float32) * ((wide - mean) * torch.rsqrt(variance + 1e-5))
        wide = wide if self.bias is None else wide + self.bias.to(torch.float32)
        return wide.to(hidden.dtype)


class UnfusedSiLU(nn.Module):  # type: ignore[misc]  # as above
    """x * sigmoid(x) as two kernels."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Both operands of the product are saved."""
        return hidden * torch.sigmoid(hidden)


# --- attention ---


def _flash(query: Tensor, key: Tensor, value: Tensor, dropout: float, scale: float | None) -> Tensor:
    """Values as wide as queries: narrower ones are padded and the result cropped, as transformers does for it."""
    if query.device.type == "cpu" and not isinstance(query, FakeTensor):  # fake ones stand for a GPU's
        return aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, True, scale=scale)[0]
    width = value.shape[-1]
    if width != query.shape[-1]:
        value = nn.functional.pad(value, [0, query.shape[-1] - width])
    return aten._scaled_dot_product_flash_attention(query, key, value, dropout, True, scale=scale)[0][..., :width]


def _with_repeated_heads(operator: Any) -> Any:
    """A kernel without grouped-query support, on keys and values that are written out once per query head."""

    def attend(query: Tensor, key: Tensor, value: Tensor, dropout: float, scale: float | None) -> Tensor:
        times = query.shape[1] // key.shape[1]
        if times != 1:
            key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
        return operator(query, key, value, None, True, dropout, True, scale=scale)[0]

    return attend


def _math(query: Tensor, key: Tensor, value: Tensor, dropout: float, scale: float | None) -> Tensor:
    grouped = query.shape[1] != key.shape[1]
    outputs = aten._scaled_dot_product_attention_math(
        query, key, value, None, dropout, True, None, scale=scale, enable_gqa=grouped
    )
    return outputs[0]


KERNELS = {
    "flash": _flash,
    "efficient": _with_repeated_heads(aten._scaled_dot_product_efficient_attention),
    "cudnn": _with_repeated_heads(aten._scaled_dot_product_cudnn_attention),
    "math": _math,
}


def attention_backend(kernel: str) -> Any:
    """An attention function for transformers that calls the CUDA operator of `kernel` by name, causal.

    `scaled_dot_product_attention` itself cannot be used: it chooses by what the build supports. Its autocast rule is
    repeated here: operands are cast to the autocast dtype, and inside nothing more is cast. Windows and soft caps
    are left out, as they change neither what is saved nor what FlopCounterMode counts.
    """

    def forward(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **unused: Any,
    ) -> tuple[Tensor, None]:
        device = query.device.type
        if device != "meta" and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
            with torch.autocast(device, enabled=False):
                output = KERNELS[kernel](query, key, value, dropout, scaling)
        else:
            output = KERNELS[kernel](query, key, value, dropout, scaling)
        return output.transpose(1, 2).contiguous(), None

    return forward


# --- operators that a CPU build takes apart ---


def _rms_norm(hidden: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """Shapes of the CUDA kernel: the output and one reciprocal root mean square per row, in fp32."""
    rows = [*hidden.shape[: hidden.ndim - len(shape)], *([1] * len(shape))]
    return (
        torch.empty_like(hidden, memory_format=torch.contiguous_format),
        hidden.new_empty(rows, dtype=torch.float32),
    )


def _rms_norm_backward(
    gradient: Tensor, hidden: Tensor, shape: list[int], rstd: Tensor, weight: Tensor | None, mask: list[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Shapes of the CUDA kernel: the gradients of input and weight."""
    return (
        torch.empty_like(hidden) if mask[0] else None,
        torch.empty_like(weight) if weight is not None and mask[1] else None,
    )


def _activation_backward(gradient: Tensor, hidden: Tensor) -> Tensor:
    """Shape of the CUDA kernel: the gradient of the input."""
    return torch.empty_like(hidden)


WHOLE = {
    "_fused_rms_norm": _rms_norm,
    "_fused_rms_norm_backward": _rms_norm_backward,
    "silu_backward": _activation_backward,
    "mish_backward": _activation_backward,
}


def _layer_norm(
    mode: Any, func: Any, hidden: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Shapes of the CUDA kernel, whose means and reciprocal deviations are fp32 whatever the input is."""
    rows = [*hidden.shape[: hidden.ndim - len(shape)], *([1] * len(shape))]
    mean, rstd = (hidden.new_empty(rows, dtype=torch.float32) for _ in range(2))
    return torch.empty_like(hidden, memory_format=torch.contiguous_format), mean, rstd


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: A002
    """`torch.nn.functional.dropout` as a GPU runs it: the mask is of one byte, not of the input's dtype."""
    return torch.native_dropout(input, p, True)[0] if training and 0 < p < 1 else torch.dropout(input, p, training)


@contextmanager
def imaginary_gpu(*devices: str) -> Iterator[None]:
    """Within, meta and fake cuda tensors are treated as a CUDA build treats them; nothing changes where there is one.

    `devices`: more dispatch keys whose fake tensors stand for a GPU's; real ones compute nonsense meanwhile.

    A CPU build has no kernels of some operators for these devices, and falls back to composites that save and hold
    more; and `torch.autocast("cuda")` turns itself off where it finds no GPU, in checkpointed layers too.
    """
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in WHOLE.items():
        for key in ("Meta", "CUDA", *devices):
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
                library.m.impl(name, key, kernel, False)  # Library.impl refuses operators with a composite
    with (
        mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False),
        mock.patch("torch.cuda.is_bf16_supported", return_value=True),
        mock.patch("torch.cuda.get_device_capability", return_value=(9, 0)),  # grouped_mm asks for it
        mock.patch("torch.nn.functional.dropout", _dropout) if devices else nullcontext(),
        mock.patch.dict(op_implementations_dict, {aten.native_layer_norm.default: _layer_norm} if devices else {}),
    ):
        try:
            yield
        finally:
            library._destroy()
