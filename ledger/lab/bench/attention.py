"""Attention by kernel, forward and backward, as `scaled_dot_product_attention` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.rig import BenchKind, Rig, bytes_of, fits, timed_builds
from ledger.lab.bench.timing import TimedWork

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
CHOSEN = ("flash", "cudnn")
SHARED_KEYS, UNMASKED = (2, 32, 8, 8192, 128), (4, 16, 16, 4096, 128)  # batch, heads, key heads, length, head_dim
PASSES = ("forward", "backward")
TOKENS = 16384  # in all on a GPU, as publications of attention kernels have it
CUDA_LENGTHS, CUDA_WIDTH = (1024, 4096, 16384), 2048
# (batch, heads, head_dim) x lengths of small GPTs
CPU_SHAPES = ((4, 4, 64), (2, 12, 64), (4, 8, 32))
CPU_LENGTHS = (128, 256, 512, 1024)
MATH_SCORES = 0.1  # of memory that the whole square of scores may take, which `math` holds several times


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Kernels x head sizes x lengths, causal, both passes; one length without a mask, one with fewer key heads."""
    yield from _cuda_cases(limits) if limits.type == "cuda" else _cpu_cases(limits)


def _cuda_cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """The kernels that training chooses at every length, the others at the one in the middle."""
    for kernel in BACKENDS:
        for head_dim in (128,) if limits.quick else (64, 128):
            heads = CUDA_WIDTH // head_dim
            for seq in CUDA_LENGTHS if kernel in CHOSEN and not limits.quick else CUDA_LENGTHS[1:2]:
                yield from _both_passes(kernel, (TOKENS // seq, heads, heads, seq, head_dim), "bf16", limits)
    if not limits.quick:
        for kernel in CHOSEN:
            yield from _both_passes(kernel, SHARED_KEYS, "bf16", limits)
            yield from _both_passes(kernel, UNMASKED, "bf16", limits, causal=False)


def _cpu_cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    shapes, lengths = (CPU_SHAPES[1:2], CPU_LENGTHS[1:3]) if limits.quick else (CPU_SHAPES, CPU_LENGTHS)
    for batch, heads, head_dim in shapes:
        for seq in lengths:
            yield from _both_passes("flash", (batch, heads, heads, seq, head_dim), "fp32", limits)
    yield from _both_passes("math", (2, 12, 12, 256, 64), "fp32", limits)


def _both_passes(
    kernel: str, shape: tuple[int, int, int, int, int], dtype: str, limits: DeviceLimits, *, causal: bool = True
) -> Iterator[BenchCase]:
    batch, heads, kv_heads, seq, head_dim = shape
    if kernel == "math" and not fits(bytes_of(dtype, (batch, heads, seq, seq)), MATH_SCORES, limits):
        return
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
    for name in PASSES:
        yield BenchCase("attention", f"attention.{kernel}.{name}", {**sizes, "causal": causal, "dtype": dtype})


def build(case: BenchCase, rig: Rig) -> TimedWork:
    """One pass of a kernel over rotated queries, keys and values; backward runs on what forward has saved."""
    _, kernel, name = case.what.split(".")
    batch, heads, kv_heads, seq, width = case.sizes("batch", "heads", "kv_heads", "seq", "head_dim")
    dtype, grad = str(case.keys["dtype"]), name == "backward"

    def attend(query: Any, key: Any, value: Any) -> Any:
        with sdpa_kernel(BACKENDS[kernel]):
            return scaled_dot_product_attention(
                query, key, value, is_causal=bool(case.keys["causal"]), enable_gqa=kv_heads != heads
            )

    def make() -> tuple[Any, ...]:
        query = rig.random_tensor(batch, seq, heads, width, dtype=dtype, grad=grad)
        key, value = (rig.random_tensor(batch, seq, kv_heads, width, dtype=dtype, grad=grad) for _ in range(2))
        inputs = tuple(tensor.transpose(1, 2) for tensor in (query, key, value))
        out = attend(*inputs) if grad else None
        return inputs, out, torch.randn_like(out) if grad else None

    size = bytes_of(dtype, (batch, seq, width, 2 * heads + 2 * kv_heads))
    sets = rig.rotated_buffers(make, size * (2 if grad else 1))
    if not grad:
        return TimedWork(lambda index: attend(*sets[index][0]), len(sets))

    def backward(index: int) -> Any:
        inputs, out, upstream = sets[index]
        return torch.autograd.grad(out, inputs, upstream, retain_graph=True)

    return TimedWork(backward, len(sets), capturable=False)  # autograd would record on the stream that ran forward


ATTENTION = BenchKind("attention", cases, timed_builds(build, power=True))
