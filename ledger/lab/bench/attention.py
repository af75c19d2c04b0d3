"""Attention by kernel, forward and backward, as `scaled_dot_product_attention` runs it.

Imports torch inside functions only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ledger.lab.bench.cases import Case, Kind, Limits
from ledger.lab.bench.rig import SIZES, Rig, each
from ledger.lab.bench.timing import Work

BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
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


def cases(limits: Limits) -> Iterator[Case]:
    """Kernels x head sizes x lengths, causal, both passes; one length without a mask, one with fewer key heads."""
    yield from _on_cuda(limits) if limits.sort == "cuda" else _on_cpu(limits)


def _on_cuda(limits: Limits) -> Iterator[Case]:
    """The kernels that training chooses at every length, the others at the one in the middle."""
    for kernel in BACKENDS:
        for head_dim in (128,) if limits.quick else (64, 128):
            heads = CUDA_WIDTH // head_dim
            for seq in CUDA_LENGTHS if kernel in CHOSEN and not limits.quick else CUDA_LENGTHS[1:2]:
                yield from _both(kernel, (TOKENS // seq, heads, heads, seq, head_dim), "bf16", limits)
    if not limits.quick:
        for kernel in CHOSEN:
            yield from _both(kernel, SHARED_KEYS, "bf16", limits)
            yield from _both(kernel, UNMASKED, "bf16", limits, causal=False)


def _on_cpu(limits: Limits) -> Iterator[Case]:
    shapes, lengths = (CPU_SHAPES[1:2], CPU_LENGTHS[1:3]) if limits.quick else (CPU_SHAPES, CPU_LENGTHS)
    for batch, heads, head_dim in shapes:
        for seq in lengths:
            yield from _both("flash", (batch, heads, heads, seq, head_dim), "fp32", limits)
    yield from _both("math", (2, 12, 12, 256, 64), "fp32", limits)


def _both(
    kernel: str, shape: tuple[int, int, int, int, int], dtype: str, limits: Limits, *, causal: bool = True
) -> Iterator[Case]:
    batch, heads, kv_heads, seq, head_dim = shape
    if kernel == "math" and SIZES[dtype] * batch * heads * seq * seq > MATH_SCORES * limits.memory:
        return
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "head_dim": head_dim}
    for name in PASSES:
        yield Case("attention", f"attention.{kernel}.{name}", {**sizes, "causal": causal, "dtype": dtype})


def build(case: Case, rig: Rig) -> Work:
    """One pass of a kernel over rotated queries, keys and values; backward runs on what forward has saved."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    _, kernel, name = case.what.split(".")
    batch, heads, kv_heads, seq, width = (
        int(case.keys[key]) for key in ("batch", "heads", "kv_heads", "seq", "head_dim")
    )
    dtype, backend = str(case.keys["dtype"]), getattr(SDPBackend, BACKENDS[kernel])
    grad = name == "backward"

    def attend(query: Any, key: Any, value: Any) -> Any:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(
                query, key, value, is_causal=bool(case.keys["causal"]), enable_gqa=kv_heads != heads
            )

    def made() -> tuple[Any, ...]:
        query = rig.random(batch, seq, heads, width, dtype=dtype, grad=grad)
        key, value = (rig.random(batch, seq, kv_heads, width, dtype=dtype, grad=grad) for _ in range(2))
        inputs = tuple(tensor.transpose(1, 2) for tensor in (query, key, value))
        out = attend(*inputs) if grad else None
        return inputs, out, torch.randn_like(out) if grad else None

    size = SIZES[dtype] * batch * seq * width * (2 * heads + 2 * kv_heads)
    sets = rig.rotated(made, size * (2 if grad else 1))
    if not grad:
        return Work(lambda index: attend(*sets[index][0]), len(sets))

    def backward(index: int) -> Any:
        inputs, out, upstream = sets[index]
        return torch.autograd.grad(out, inputs, upstream, retain_graph=True)

    return Work(backward, len(sets), capturable=False)  # autograd would record on the stream that ran forward


ATTENTION = Kind("attention", cases, each(build, power=True))
