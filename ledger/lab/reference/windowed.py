"""Steps that read channels, in PyTorch: convolutions, batch norm, pooling and means.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ledger.spec.plan import ComponentStep, Custom
from ledger.spec.windows import Term, Window, roles, sides, terms, window

RUNNING = ("running_mean", "running_var", "batches")  # what a batch norm keeps beside its weights
CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
LARGEST = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
MEANS = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def convolution(component: Custom, step: ComponentStep, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """PyTorch's convolution of what is read, in its order of dims; zeros before a dim alone are put there first."""
    found = roles(step.einsum)
    if found is None:
        raise TypeError(f"{step.einsum} is no convolution")
    read, _, out = terms(step.einsum)
    x = x.permute([read.index(index) for index in (*found.operand, *filter(window, read))])
    pads = component.pads(step)
    x = functional.pad(x, [zeros for pair in reversed(pads) for zeros in pair]) if pads else x.contiguous()
    over, made = len(found.windows), (*found.groups, *found.filters)
    x = x.flatten(1, -over - 1) if found.operand[1:] else x.unsqueeze(1)
    groups = weight.shape[0] if found.groups else 1
    taps = weight.shape[weight.ndim - over :]
    result = CONVOLUTIONS[over - 1](
        x,
        weight.reshape(prod(weight.shape[: len(made)]), -1, *taps),
        bias,
        stride=[one.stride for one in found.windows],
        padding=[0 if pads else one.padding for one in found.windows],
        dilation=[one.dilation for one in found.windows],
        groups=groups,
    )
    result = result.unflatten(1, weight.shape[: len(made)]) if made else result.squeeze(1)
    return result.permute([found.result.index(name) for name in out])


def batch_norm(x: Tensor, factor: Tensor, addend: Tensor, running: Sequence[Tensor]) -> Tensor:
    """PyTorch's batch norm in training, as its module calls it."""
    average, variance, batches = running
    batches.add_(1)
    channels = factor.shape
    flat = x.flatten(1, len(channels))
    average, variance, factor, addend = (tensor.flatten() for tensor in (average, variance, factor, addend))
    normed = functional.batch_norm(flat, average, variance, factor, addend, training=True)
    return normed.unflatten(1, channels)


def largest(step: ComponentStep, sizes: dict[str, int], x: Tensor) -> Tensor:
    """The largest in each window."""
    return _pooled(LARGEST, x, _windows(sides(step.max)[0]), sizes, dilates=True)


def mean(step: ComponentStep, sizes: dict[str, int], x: Tensor) -> Tensor:
    """The mean in each window, or over dims that the result lacks."""
    read, out = sides(step.mean)
    through = _windows(read)
    if through:
        return _pooled(MEANS, x, through, sizes, dilates=False)
    return x.mean([place for place, name in enumerate(read) if name not in out])


def _windows(read: Term) -> list[Window]:
    return [over for index in read if (over := window(index))]


def _pooled(kinds: Sequence[Any], x: Tensor, through: list[Window], sizes: dict[str, int], *, dilates: bool) -> Tensor:
    dilation = {"dilation": [one.dilation for one in through]} if dilates else {}
    pooled: Tensor = kinds[len(through) - 1](
        x,
        [sizes[one.tap] for one in through],
        stride=[one.stride for one in through],
        padding=[one.padding for one in through],
        **dilation,
    )
    return pooled


def running_statistics(like: Tensor) -> dict[str, Tensor]:
    """What a batch norm keeps beside its weights: mean and variance of each channel, a count of batches."""
    return {
        "running_mean": torch.zeros_like(like, requires_grad=False),
        "running_var": torch.ones_like(like, requires_grad=False),
        "batches": torch.zeros((), dtype=torch.long, device=like.device),
    }
