"""Kernels that are bound by what they read and write: elementwise, norms, softmax, losses, lookups, copies, casts.

A row names the kernel class that the books price it by, and the bytes that they post for it. Imports torch inside
functions only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.lab.bench.rig import Rig

if TYPE_CHECKING:
    import torch

Buffers = tuple[Any, ...]


@dataclass(frozen=True)
class Stream:
    """One kernel over `rows` of `width`: what it is given, what runs, and the bytes it moves for elements of `size`.

    `wide`: its rows are as long as a vocabulary. `narrow`: also measured in 16 bits. `on`: the sort of device, if one.
    `waits`: for a number from the device, so that no CUDA graph can hold it.
    """

    what: str
    operation: str
    given: Callable[[Rig, int, int, str], Buffers]
    run: Callable[..., object]
    bytes: Callable[[int, int, int], int]
    wide: bool = False
    narrow: bool = True
    on: str = ""
    waits: bool = False


def _passes(count: int) -> Callable[[int, int, int], int]:
    """So many operands of full size."""
    return lambda rows, width, size: count * rows * width * size


def _inputs(count: int) -> Callable[[Rig, int, int, str], Buffers]:
    return lambda rig, rows, width, dtype: tuple(rig.random(rows, width, dtype=dtype) for _ in range(count))


def _with_weights(count: int, weights: int) -> Callable[[Rig, int, int, str], Buffers]:
    """Inputs, and vectors as long as a row."""
    return lambda rig, rows, width, dtype: (
        *(rig.random(rows, width, dtype=dtype) for _ in range(count)),
        *(rig.random(width, dtype=dtype) for _ in range(weights)),
    )


def _saved_by(norm: Callable[..., Any]) -> Callable[[Rig, int, int, str], Buffers]:
    """Input, upstream gradient, weight, and the numbers of each row that this forward kernel saves."""

    def given(rig: Rig, rows: int, width: int, dtype: str) -> Buffers:
        x, upstream, weight = _with_weights(2, 1)(rig, rows, width, dtype)
        return (x, upstream, weight, *norm(x, weight)[1:])

    return given


def _labelled(rig: Rig, rows: int, width: int, _: str) -> Buffers:
    """Log-probabilities in fp32, labels, and the gradient of the mean."""
    import torch

    labels = torch.randint(width, (rows,), device=rig.place)
    return rig.random(rows, width), labels, torch.ones((), device=rig.place)


def _looked_up(rig: Rig, rows: int, width: int, dtype: str) -> Buffers:
    """A table of four times as many rows, and which of them are read."""
    import torch

    return rig.random(4 * rows, width, dtype=dtype), torch.randint(4 * rows, (rows,), device=rig.place)


def _aten() -> Any:
    import torch

    return torch.ops.aten


def _to_bf16(x: torch.Tensor) -> torch.Tensor:
    import torch

    return x.to(torch.bfloat16)


def _nll(logs: torch.Tensor, labels: torch.Tensor, upstream: torch.Tensor) -> object:
    """The loss of log-probabilities and its gradient, one after the other as the books post them."""
    loss, total = _aten().nll_loss_forward(logs, labels, None, 1, -100)
    return loss, _aten().nll_loss_backward(upstream, logs, labels, None, 1, -100, total)


def _layer_norm(x: Any, weight: Any) -> Any:
    return _aten().native_layer_norm(x, [x.shape[-1]], weight, weight, 1e-5)


def _layer_norm_backward(x: Any, upstream: Any, weight: Any, mean: Any, deviation: Any) -> object:
    return _aten().native_layer_norm_backward(
        upstream, x, [x.shape[-1]], mean, deviation, weight, weight, [True, True, True]
    )


def _rms_norm(x: Any, weight: Any) -> Any:
    return _aten()._fused_rms_norm(x, [x.shape[-1]], weight, 1e-5)  # noqa: SLF001


def _rms_norm_backward(x: Any, upstream: Any, weight: Any, deviation: Any) -> object:
    return _aten()._fused_rms_norm_backward(upstream, x, [x.shape[-1]], deviation, weight, [True, True])  # noqa: SLF001


STREAMS = (
    Stream("elementwise", "add", _inputs(2), lambda a, b: a + b, _passes(3)),
    Stream("elementwise", "multiply", _inputs(2), lambda a, b: a * b, _passes(3)),
    Stream("activation.gelu_tanh", "forward", _inputs(1), lambda x: _aten().gelu(x, approximate="tanh"), _passes(2)),
    Stream(
        "activation.gelu_tanh",
        "gradient",
        _inputs(2),
        lambda dy, x: _aten().gelu_backward(dy, x, approximate="tanh"),
        _passes(3),
    ),
    Stream("activation.silu", "forward", _inputs(1), lambda x: _aten().silu(x), _passes(2)),
    Stream("activation.silu", "gradient", _inputs(2), lambda dy, x: _aten().silu_backward(dy, x), _passes(3)),
    Stream("copy", "clone", _inputs(1), lambda x: x.clone(), _passes(2)),
    Stream("reduction", "sum_rows", _inputs(1), lambda x: x.sum(0), lambda r, w, size: (r + 1) * w * size),
    Stream(
        "norm.forward",
        "layer_norm",
        _with_weights(1, 1),
        _layer_norm,
        lambda r, w, size: 2 * r * w * size + 8 * r,
    ),
    Stream(
        "norm.backward",
        "layer_norm",
        _saved_by(_layer_norm),
        _layer_norm_backward,
        lambda r, w, size: 3 * r * w * size + 8 * r,
    ),
    Stream(
        "norm.forward",
        "rms_norm",
        _with_weights(1, 1),
        _rms_norm,
        lambda r, w, size: 2 * r * w * size + 4 * r,
        on="cuda",
    ),
    Stream(
        "norm.backward",
        "rms_norm",
        _saved_by(_rms_norm),
        _rms_norm_backward,
        lambda r, w, size: 3 * r * w * size + 4 * r,
        on="cuda",
    ),
    Stream("softmax", "softmax", _inputs(1), lambda x: x.softmax(-1), _passes(2), narrow=False),
    Stream(
        "softmax",
        "softmax.gradient",
        _inputs(2),
        lambda dy, out: _aten()._softmax_backward_data(dy, out, -1, out.dtype),  # noqa: SLF001
        _passes(3),
        narrow=False,
    ),
    Stream(
        "cross_entropy", "log_softmax", _inputs(1), lambda x: x.log_softmax(-1), _passes(2), wide=True, narrow=False
    ),
    Stream(
        "cross_entropy",
        "log_softmax.gradient",
        _inputs(2),
        lambda dy, out: _aten()._log_softmax_backward_data(dy, out, -1, out.dtype),  # noqa: SLF001
        _passes(3),
        wide=True,
        narrow=False,
    ),
    Stream("loss", "nll", _labelled, _nll, _passes(3), wide=True, narrow=False),
    Stream("cast", "fp32_to_bf16", _inputs(1), _to_bf16, lambda r, w, _: r * w * 6, narrow=False),
    Stream("embedding", "lookup", _looked_up, lambda table, rows: table[rows], _passes(2), narrow=False),
    Stream(
        "embedding",
        "lookup.gradient",
        _looked_up,
        lambda table, rows: _aten().embedding_dense_backward(table[: len(rows)], rows, len(table), -1, False),
        _passes(5),
        narrow=False,
        waits=True,  # how many different rows there are (pytorch/pytorch issue 82886)
    ),
    Stream(
        "dropout",
        "dropout",
        _inputs(1),
        lambda x: _aten().native_dropout(x, 0.1, True),
        lambda r, w, s: r * w * (2 * s + 1),
    ),
)
BY_NAME = {(stream.what, stream.operation): stream for stream in STREAMS}
