"""Kernels that are bound by what they read and write: elementwise, norms, softmax, losses, lookups, copies, casts.

A row names the kernel class that the books price it by, and the bytes that they post for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.rig import SIZES, BenchKind, Rig, bytes_of, fits, timed_builds
from ledger.lab.bench.timing import TimedWork

ATEN = torch.ops.aten
Buffers = tuple[Any, ...]
# (rows, width) of activations, and (rows, vocabulary) of logits.
SHAPES: Mapping[tuple[str, bool], Sequence[tuple[int, int]]] = {
    ("cuda", False): ((2048, 2048), (8192, 4096), (16384, 8192)),
    ("cuda", True): ((4096, 50304), (4096, 128256)),
    ("cpu", False): ((256, 256), (512, 768), (512, 3072), (2048, 3072)),
    ("cpu", True): ((256, 16384), (256, 50257), (512, 50257)),
}
SHARE = 0.2  # of memory that one set of buffers may take, of which a kernel needs up to five


@dataclass(frozen=True)
class StreamKernel:
    """One kernel over `rows` of `width`: the buffers it is given, what runs, and what it moves.

    `buffers`: how many inputs of full size, or what makes them; `moves`: how many operands of full size it reads and
    writes, or their bytes. `wide`: its rows are as long as a vocabulary. `narrow`: also measured in 16 bits. `on`: the
    type of device, if one. `waits`: for a number from the device, so that no CUDA graph can hold it.
    """

    what: str
    operation: str
    buffers: int | Callable[[Rig, int, int, str], Buffers]
    run: Callable[..., object]
    moves: int | Callable[[int, int, int], int]
    wide: bool = False
    narrow: bool = True
    on: str = ""
    waits: bool = False

    def bytes(self, rows: int, width: int, size: int) -> int:
        """Bytes that the books post for it, with elements of `size` bytes."""
        return self.moves * rows * width * size if isinstance(self.moves, int) else self.moves(rows, width, size)

    def operands(self, rig: Rig, rows: int, width: int, dtype: str) -> Buffers:
        """One set of its buffers."""
        if isinstance(self.buffers, int):
            return tuple(rig.random_tensor(rows, width, dtype=dtype) for _ in range(self.buffers))
        return self.buffers(rig, rows, width, dtype)


def _inputs_and_weight(count: int, rig: Rig, rows: int, width: int, dtype: str) -> Buffers:
    """So many inputs, and a vector as long as a row."""
    inputs = (rig.random_tensor(rows, width, dtype=dtype) for _ in range(count))
    return (*inputs, rig.random_tensor(width, dtype=dtype))


def _backward_operands(norm: Callable[..., Any], rig: Rig, rows: int, width: int, dtype: str) -> Buffers:
    """Input, upstream gradient, weight, and the numbers of each row that this forward kernel saves."""
    x, upstream, weight = _inputs_and_weight(2, rig, rows, width, dtype)
    return (x, upstream, weight, *norm(x, weight)[1:])


def _labelled_logits(rig: Rig, rows: int, width: int, _: str) -> Buffers:
    """Log-probabilities in fp32, labels, and the gradient of the mean."""
    labels = torch.randint(width, (rows,), device=rig.place)
    return rig.random_tensor(rows, width), labels, torch.ones((), device=rig.place)


def _table_and_rows(rig: Rig, rows: int, width: int, dtype: str) -> Buffers:
    """A table of four times as many rows, and which of them are read."""
    return rig.random_tensor(4 * rows, width, dtype=dtype), torch.randint(4 * rows, (rows,), device=rig.place)


def _nll(logs: torch.Tensor, labels: torch.Tensor, upstream: torch.Tensor) -> object:
    """The loss of log-probabilities and its gradient, one after the other as the books post them."""
    loss, total = ATEN.nll_loss_forward(logs, labels, None, 1, -100)
    return loss, ATEN.nll_loss_backward(upstream, logs, labels, None, 1, -100, total)


def _layer_norm(x: Any, weight: Any) -> Any:
    return ATEN.native_layer_norm(x, [x.shape[-1]], weight, weight, 1e-5)


def _layer_norm_backward(x: Any, upstream: Any, weight: Any, mean: Any, deviation: Any) -> object:
    return ATEN.native_layer_norm_backward(upstream, x, [x.shape[-1]], mean, deviation, weight, weight, [True] * 3)


def _rms_norm(x: Any, weight: Any) -> Any:
    return ATEN._fused_rms_norm(x, [x.shape[-1]], weight, 1e-5)  # noqa: SLF001


def _rms_norm_backward(x: Any, upstream: Any, weight: Any, deviation: Any) -> object:
    return ATEN._fused_rms_norm_backward(upstream, x, [x.shape[-1]], deviation, weight, [True, True])  # noqa: SLF001


def _softmax_gradient(upstream: torch.Tensor, out: torch.Tensor) -> object:
    return ATEN._softmax_backward_data(upstream, out, -1, out.dtype)  # noqa: SLF001


def _log_softmax_gradient(upstream: torch.Tensor, out: torch.Tensor) -> object:
    return ATEN._log_softmax_backward_data(upstream, out, -1, out.dtype)  # noqa: SLF001


def _lookup_gradient(table: torch.Tensor, rows: torch.Tensor) -> object:
    return ATEN.embedding_dense_backward(table[: len(rows)], rows, len(table), -1, False)


def _norm(
    name: str, forward: Callable[..., Any], backward: Callable[..., object], per_row: int, on: str = ""
) -> tuple[StreamKernel, StreamKernel]:
    """Both passes of a norm, with the bytes of fp32 numbers that each row leaves."""
    inputs, saved = partial(_inputs_and_weight, 1), partial(_backward_operands, forward)
    return (
        StreamKernel("norm.forward", name, inputs, forward, lambda r, w, size: 2 * r * w * size + per_row * r, on=on),
        StreamKernel("norm.backward", name, saved, backward, lambda r, w, size: 3 * r * w * size + per_row * r, on=on),
    )


in_fp32 = partial(StreamKernel, narrow=False)
of_logits = partial(in_fp32, wide=True)
STREAMS = (
    StreamKernel("elementwise", "add", 2, torch.add, 3),
    StreamKernel("elementwise", "multiply", 2, torch.mul, 3),
    StreamKernel("activation.gelu_tanh", "forward", 1, partial(ATEN.gelu, approximate="tanh"), 2),
    StreamKernel("activation.gelu_tanh", "gradient", 2, partial(ATEN.gelu_backward, approximate="tanh"), 3),
    StreamKernel("activation.silu", "forward", 1, ATEN.silu, 2),
    StreamKernel("activation.silu", "gradient", 2, ATEN.silu_backward, 3),
    StreamKernel("copy", "clone", 1, torch.clone, 2),
    StreamKernel("reduction", "sum_rows", 1, lambda x: x.sum(0), lambda r, w, size: (r + 1) * w * size),
    *_norm("layer_norm", _layer_norm, _layer_norm_backward, 8),  # mean and deviation
    *_norm("rms_norm", _rms_norm, _rms_norm_backward, 4, on="cuda"),
    in_fp32("softmax", "softmax", 1, lambda x: x.softmax(-1), 2),
    in_fp32("softmax", "softmax.gradient", 2, _softmax_gradient, 3),
    of_logits("cross_entropy", "log_softmax", 1, lambda x: x.log_softmax(-1), 2),
    of_logits("cross_entropy", "log_softmax.gradient", 2, _log_softmax_gradient, 3),
    of_logits("loss", "nll", _labelled_logits, _nll, 3),
    in_fp32("cast", "fp32_to_bf16", 1, lambda x: x.to(torch.bfloat16), lambda r, w, _: r * w * 6),
    in_fp32("embedding", "lookup", _table_and_rows, lambda table, rows: table[rows], 2),
    # it waits to know how many different rows there are (pytorch/pytorch issue 82886)
    in_fp32("embedding", "lookup.gradient", _table_and_rows, _lookup_gradient, 5, waits=True),
    StreamKernel(
        "dropout", "dropout", 1, lambda x: ATEN.native_dropout(x, 0.1, True), lambda r, w, s: r * w * (2 * s + 1)
    ),
)
BY_NAME = {(kernel.what, kernel.operation): kernel for kernel in STREAMS}


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Kernels x sizes, in fp32 on a CPU; on a GPU in bf16, and in fp32 what runs so beside bf16 matmuls."""
    cuda = limits.type == "cuda"
    for kernel in STREAMS:
        if kernel.on not in ("", limits.type):
            continue
        shapes = SHAPES[limits.type, kernel.wide]
        dtype = "bf16" if cuda and kernel.narrow else "fp32"
        for rows, width in shapes[-2:] if limits.quick else shapes:
            if fits(bytes_of(dtype, (rows, width)), SHARE, limits):
                yield _case(kernel, rows, width, dtype)


def _case(kernel: StreamKernel, rows: int, width: int, dtype: str) -> BenchCase:
    sizes = {"rows": rows, "width": width, "bytes": kernel.bytes(rows, width, SIZES[dtype])}
    return BenchCase("stream", kernel.what, {"operation": kernel.operation, **sizes, "dtype": dtype})


def build(case: BenchCase, rig: Rig) -> TimedWork:
    """The kernel of a case over rotated buffers; results are allocated anew each time, as in training."""
    kernel = BY_NAME[case.what, str(case.keys["operation"])]
    rows, width, size = case.sizes("rows", "width", "bytes")
    sets = rig.rotated_buffers(lambda: kernel.operands(rig, rows, width, str(case.keys["dtype"])), size)
    return TimedWork(lambda index: kernel.run(*sets[index]), len(sets), capturable=not kernel.waits)


STREAM = BenchKind("stream", cases, timed_builds(build))
