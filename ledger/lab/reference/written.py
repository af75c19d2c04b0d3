"""Parts of a layer that a plan writes out as steps, as PyTorch modules made of their einsums.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from string import ascii_letters
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN

from ledger.lab.reference.modules import UnfusedSiLU
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.plan import ComponentStep, CustomPart, Kernels, Model
from ledger.spec.windows import Term, Window, has_windows, roles, sides, terms, window

RUNNING = ("running_mean", "running_var", "batches")  # what a batch norm keeps beside its weights
CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
MAX_POOLS = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
MEANS = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def convolution(component: CustomPart, step: ComponentStep, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """PyTorch's convolution of what is read, in its order of dims; zeros before a dim alone are put there first."""
    einsum_roles = roles(step.einsum)
    if einsum_roles is None:
        raise TypeError(f"{step.einsum} is no convolution")
    read, _, out = terms(step.einsum)
    x = x.permute([read.index(index) for index in (*einsum_roles.operand, *filter(window, read))])
    pads = component.pads(step)
    x = functional.pad(x, [zeros for pair in reversed(pads) for zeros in pair]) if pads else x.contiguous()
    over, channels = len(einsum_roles.windows), (*einsum_roles.groups, *einsum_roles.filters)
    x = x.flatten(1, -over - 1) if einsum_roles.operand[1:] else x.unsqueeze(1)
    groups = weight.shape[0] if einsum_roles.groups else 1
    taps = weight.shape[weight.ndim - over :]
    result = CONVOLUTIONS[over - 1](
        x,
        weight.reshape(prod(weight.shape[: len(channels)]), -1, *taps),
        bias,
        stride=[over.stride for over in einsum_roles.windows],
        padding=[0 if pads else over.padding for over in einsum_roles.windows],
        dilation=[over.dilation for over in einsum_roles.windows],
        groups=groups,
    )
    result = result.unflatten(1, weight.shape[: len(channels)]) if channels else result.squeeze(1)
    return result.permute([einsum_roles.result.index(name) for name in out])


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
    return _pooled(MAX_POOLS, x, _windows(sides(step.max)[0]), sizes, dilates=True)


def mean(step: ComponentStep, sizes: dict[str, int], x: Tensor) -> Tensor:
    """The mean in each window, or over dims that the result lacks."""
    read, out = sides(step.mean)
    windows = _windows(read)
    if windows:
        return _pooled(MEANS, x, windows, sizes, dilates=False)
    return x.mean([place for place, name in enumerate(read) if name not in out])


def _windows(read: Term) -> list[Window]:
    return [over for index in read if (over := window(index))]


def _pooled(kinds: Sequence[Any], x: Tensor, windows: list[Window], sizes: dict[str, int], *, dilates: bool) -> Tensor:
    dilation = {"dilation": [over.dilation for over in windows]} if dilates else {}
    pooled: Tensor = kinds[len(windows) - 1](
        x,
        [sizes[over.tap] for over in windows],
        stride=[over.stride for over in windows],
        padding=[over.padding for over in windows],
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


ATTENTION, MLP = "self_attn", "mlp"  # of a layer of transformers, as most families name them
PLACES = {"attention": ATTENTION, "mlp": MLP}
# The names that transformers has for one kernel, and for operators written out.
FUSED = {"gelu_tanh": "gelu_pytorch_tanh"}
POOLED = {"max": largest, "mean": mean}
UNFUSED = {"gelu": "gelu_python", "gelu_tanh": "gelu_new"}


def put_in_place(layers: Iterable[Any], model: Model, kernels: Kernels) -> None:
    """Replaces what stands in for the parts that the model's author wrote; raises `NoReferenceError`."""
    for layer, group in zip(layers, model.layers, strict=True):
        for part, component in group.written.items():
            if not hasattr(layer, PLACES[part]):
                raise NoReferenceError(
                    f"{part} of `{group.name}`: the judge finds no such part to put its einsums into"
                )
            sizes = {**dict(component.dims), "d_model": model.d_model}
            setattr(layer, PLACES[part], StepsModule(component, sizes, kernels, paired=part == "attention"))


class StepsModule(nn.Module):  # type: ignore[misc]  # torch's types are not followed
    """The steps of a component in order, from hidden states (batch seq d_model) to their like.

    `paired`: transformers' attention returns its scores beside its result.
    """

    def __init__(self, component: CustomPart, sizes: Mapping[str, int], kernels: Kernels, *, paired: bool) -> None:
        super().__init__()
        self.component, self.sizes, self.paired = component, dict(sizes), paired
        eager = kernels.activation == "eager"
        kinds = {step.activation for step in component.steps if step.activation}
        self.activations = nn.ModuleDict({kind: _activation(kind, eager=eager) for kind in kinds})
        self.learned = nn.ParameterDict(
            {name: nn.Parameter(torch.empty([sizes[dim] for dim in dims])) for name, dims in component.weights}
        )
        for step in component.steps:
            statistics = running_statistics(self.learned[step.weight]) if step.kind == "norm" else {}
            for name, tensor in statistics.items():
                self.register_buffer(f"{step.name}_{name}", tensor)

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> Any:
        """The last step's result."""
        results, shapes = {"x": hidden_states}, self.component.shapes
        for index, step in enumerate(self.component.steps):
            operands = [results[name] for name in step.of]
            results[step.name] = self.run(step, operands, [shapes[name] for name in step.of], shapes[step.name])
            del operands
            needed = {name for later in self.component.steps[index + 1 :] for name in later.of}
            for name in [name for name in results if name not in (*needed, step.name)]:
                del results[name]  # as a local variable that is assigned anew
        last = results[self.component.steps[-1].name].contiguous()
        return (last, None) if self.paired else last

    def run(self, step: ComponentStep, operands: list[Tensor], dims: list[Term], out: Term) -> Tensor:
        """The result of a step in PyTorch, with the dims of its operands in the order of `out` where they broadcast."""
        if step.kind == "einsum":
            return self.product(step, operands)
        if step.kind == "activation":
            return self.activations[step.activation](operands[0])
        if step.kind == "softmax":
            return _softmax(operands[0], step.mask)
        if step.kind == "norm":
            running = [getattr(self, f"{step.name}_{name}") for name in RUNNING]
            return batch_norm(operands[0], self.learned[step.weight], self.learned[step.bias], running)
        if step.kind in POOLED:
            return POOLED[step.kind](step, self.sizes, operands[0])
        if step.kind == "scan":
            return _scan(_broadcast_dims(operands[0], dims[0], out), operands[1], step.dtype)
        first, second = (_broadcast_dims(x, term, out) for x, term in zip(operands, dims, strict=True))
        if step.in_place:
            return first.add_(second)
        return first * second if step.kind == "multiply" else first + second

    def product(self, step: ComponentStep, operands: list[Tensor]) -> Tensor:
        """The einsum; a batched product reads its operands in order, and weights as they lie."""
        if has_windows(step.einsum):
            return self.convolution(step, operands[0])
        first, second, out = terms(step.einsum)
        letters = dict(zip(dict.fromkeys((*first, *second)), ascii_letters, strict=False))
        shared = [name for name in out if name in first and name in second]
        summed = [name for name in first if name in second and name not in out]
        free = [[name for name in out if name in term and name not in shared] for term in (first, second)]
        left = _copy_into_order(operands[0], first, [[*shared, *free[0], *summed]])
        if step.weight:
            right = self.learned[step.weight]
        else:
            right = _copy_into_order(operands[1], second, [[*shared, *free[1], *summed], [*shared, *summed, *free[1]]])
        left, right = self.cast(left), self.cast(right)
        text = "{},{}->{}".format(*("".join(letters[name] for name in term) for term in (first, second, out)))
        result = torch.einsum(text, left, right)
        return result + self.learned[step.bias].to(result.dtype) if step.bias else result

    def convolution(self, step: ComponentStep, x: Tensor) -> Tensor:
        """The convolution that an einsum with windows is."""
        bias = self.learned[step.bias] if step.bias else None
        return convolution(self.component, step, self.cast(x), self.learned[step.weight], bias)

    def cast(self, x: Tensor) -> Tensor:
        """An operand in the dtype of the weights, unless autocast would cast it itself."""
        if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
            return x
        return x.to(next(self.parameters()).dtype)


def _activation(kind: str, *, eager: bool) -> nn.Module:
    if kind == "sigmoid":
        return nn.Sigmoid()
    if kind == "silu":
        return UnfusedSiLU() if eager else nn.SiLU()
    module: nn.Module = ACT2FN[(UNFUSED if eager else FUSED).get(kind, kind)]
    return module


def _copy_into_order(x: Tensor, term: Term, orders: list[list[str]]) -> Tensor:
    """The operand, copied into the first of these orders of its dims where it lies in none of them."""
    views = [x.permute([term.index(name) for name in order]) for order in orders]
    if any(view.is_contiguous() for view in views):
        return x
    return views[0].contiguous().permute([orders[0].index(name) for name in term])


def _broadcast_dims(x: Tensor, term: Term, out: Term) -> Tensor:
    """The tensor with a dim of one for each that it lacks."""
    for place, name in enumerate(out):
        if name not in term:
            x = x.unsqueeze(place)
    return x


def _softmax(scores: Tensor, mask: str) -> Tensor:
    """Shares over the last dim; what a causal mask hides is infinitely far below."""
    if mask == "causal":
        square = torch.full(scores.shape[-2:], float("-inf"), dtype=scores.dtype, device=scores.device)
        scores = scores + square.triu(1)
    return torch.softmax(scores, dim=-1)


def _scan(decay: Tensor, update: Tensor, dtype: str) -> Tensor:
    """The states along dim 1, one kernel a token."""
    if dtype == "fp32":
        decay, update = decay.float(), update.float()
    state, states = torch.zeros_like(update[:, 0]), []
    for rate, new in zip(decay.unbind(1), update.unbind(1), strict=True):
        state = torch.addcmul(new, rate, state)
        states.append(state)
    return torch.stack(states, 1)
