"""Matrix products in the three layouts that a linear layer needs: forward, input gradient, weight gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.rig import SIZES, BenchKind, Rig, bytes_of, fits, timed_builds
from ledger.lab.bench.timing import TimedWork


@dataclass(frozen=True)
class OperandLayout:
    """How the operands of an m x n product over k lie: their shapes as stored, and what multiplies them.

    `of` gives m, n, k for a layer with so many inputs and outputs on so many tokens.
    """

    of: Callable[[int, int, int], tuple[int, int, int]]
    left: Callable[[int, int, int], tuple[int, int]]
    right: Callable[[int, int, int], tuple[int, int]]
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# y = x W^T; dx = dy W; dW = dy^T x, with W of outputs x inputs as torch.nn.Linear keeps it.
LAYOUTS: Mapping[str, OperandLayout] = {
    "forward": OperandLayout(
        lambda tokens, wide, out: (tokens, out, wide),
        lambda m, _, k: (m, k),
        lambda _, n, k: (n, k),
        lambda x, weight: x @ weight.t(),
    ),
    "input_gradient": OperandLayout(
        lambda tokens, wide, out: (tokens, wide, out),
        lambda m, _, k: (m, k),
        lambda _, n, k: (k, n),
        lambda upstream, weight: upstream @ weight,
    ),
    "weight_gradient": OperandLayout(
        lambda tokens, wide, out: (out, wide, tokens),
        lambda m, _, k: (k, m),
        lambda _, n, k: (k, n),
        lambda upstream, x: upstream.t() @ x,
    ),
}

# (inputs, outputs) of layers. GPUs: the projections of Llama 3 8B and 70B, GPT-2 XL and one head; CPUs: of small GPTs.
CUDA_LAYERS = (
    (1024, 1024),
    (2048, 2048),
    (4096, 4096),
    (4096, 14336),
    (14336, 4096),
    (8192, 8192),
    (8192, 28672),
    (1600, 6400),
    (4096, 32000),
)
CPU_LAYERS = (
    (128, 512),
    (256, 256),
    (256, 768),
    (256, 1024),
    (512, 1536),
    (512, 2048),
    (2048, 512),
    (768, 768),
    (768, 2304),
    (768, 3072),
    (3072, 768),
    (256, 16384),
    (512, 32768),
    (768, 50257),
)
DECODED = (1, 4, 16, 64)  # rows of a layer where each of so many sequences is given its next token
# GPT-2's vocabulary and longer ones: rows of the head that begin at multiples of 2, 4, 8, 16 and 128 bytes.
HEAD_WIDTH, VOCABULARIES, ALIGNED = 768, (50257, 50258, 50260, 50264, 50304), 16
QUICK = 3  # every third layer of the list
CUDA_TOKENS, CPU_TOKENS = (1024, 4096, 16384), (128, 256, 512, 1024)
SHARE = 0.5  # of memory that one case may take
# How torchao multiplies fp8 (torchao/float8/config.py): with one scale for each operand or one for each row; products
# of tensorwise gradients do not accumulate in the faster, shorter way. The first is the price, others stand apart.
SLOW, ROWS = "slow accumulation", "scaled by rows"


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Layers x tokens x layouts in the first dtype, fewest tokens forward only; at most tokens, others forward.

    Of every third layer: what it takes while a model writes, of a few rows; and fp8 as it trains, each layout with
    scales of whole operands and of rows. A head of odd vocabularies, whose rows begin where fast kernels cannot load.
    """
    cuda = limits.type == "cuda"
    layers: Sequence[tuple[int, int]] = CUDA_LAYERS if cuda else CPU_LAYERS
    tokens: Sequence[int] = CUDA_TOKENS if cuda else CPU_TOKENS
    few = layers[1::QUICK]
    if limits.quick:
        layers, tokens = few, tokens[1:3]
    main, *other_dtypes = limits.dtypes
    for wide, out in layers:
        for count in tokens:
            once = cuda and count == CUDA_TOKENS[0]
            for layout in list(LAYOUTS)[: 1 if once else None]:
                yield from _case(main, layout, (count, wide, out), limits)
        for dtype in other_dtypes:
            if dtype == "fp8" or (wide, out) in few:
                yield from _case(dtype, "forward", (tokens[-1], wide, out), limits)
    if cuda and not limits.quick:
        yield from _unpriced_cases(few, tokens[-1], limits)


def _unpriced_cases(layers: Sequence[tuple[int, int]], tokens: int, limits: DeviceLimits) -> Iterator[BenchCase]:
    """Cases beside the price: decoding, fp8 as it trains, and heads whose rows begin where fast kernels cannot load."""
    main = limits.dtypes[0]
    for layer in layers:
        for rows in DECODED:
            for case in _case(main, "forward", (rows, *layer), limits):
                yield replace(case, what=f"{case.what}.decode")
        for layout in LAYOUTS if "fp8" in limits.dtypes else ():
            for kernel in (ROWS,) if layout == "forward" else (SLOW, ROWS):
                yield from _case("fp8", layout, (tokens, *layer), limits, kernel)
    for vocabulary in VOCABULARIES:
        for layout in LAYOUTS:
            sizes = (tokens, HEAD_WIDTH, vocabulary)
            yield from _case(main, layout, sizes, limits, alignment(main, vocabulary))


def alignment(dtype: str, columns: int) -> str:
    """The multiple of bytes that rows begin at, where it is less than the 16 that faster kernels load at once."""
    size = columns * SIZES[dtype]
    multiple = size & -size  # the largest power of two in it
    return f"rows at multiples of {multiple} B" if multiple < ALIGNED else ""


def _case(
    dtype: str, layout: str, sizes: tuple[int, int, int], limits: DeviceLimits, kernel: str = ""
) -> Iterator[BenchCase]:
    m, n, k = LAYOUTS[layout].of(*sizes)
    if fits(bytes_of(dtype, (m, k), (k, n), (m, n)), SHARE, limits):
        keys = {"layout": layout, "m": m, "n": n, "k": k, "dtype": dtype, **({"kernel": kernel} if kernel else {})}
        yield BenchCase("matmul", f"matmul.{dtype}", keys)


def build(case: BenchCase, rig: Rig) -> TimedWork:
    """The product of a case over rotated operands."""
    dtype, layout = str(case.keys["dtype"]), LAYOUTS[str(case.keys["layout"])]
    m, n, k = case.sizes("m", "n", "k")
    size = bytes_of(dtype, (m, k), (k, n), (m, n))
    if dtype == "fp8":
        return _fp8_product(rig, (m, n, k), size, str(case.keys.get("kernel", "")))
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    sets = rig.rotated_buffers(
        lambda: (
            rig.random_tensor(*layout.left(m, n, k), dtype=dtype),
            rig.random_tensor(*layout.right(m, n, k), dtype=dtype),
        ),
        size,
    )
    return TimedWork(lambda index: layout.multiply(*sets[index]), len(sets))


def _fp8_product(rig: Rig, shape: tuple[int, int, int], size: int, kernel: str) -> TimedWork:
    """Rows of the left and columns of the right lie together, whatever the layout: cuBLAS has fp8 no other way."""
    m, n, k = shape
    scales = ((m, 1), (1, n)) if kernel == ROWS else ((), ())
    of_left, of_right = (torch.ones(sizes, device=rig.place) for sizes in scales)

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        left, right = rig.random_tensor(m, k, dtype="bf16"), rig.random_tensor(n, k, dtype="bf16")
        return left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).t()

    def multiply(index: int) -> torch.Tensor:
        left, right = sets[index]
        return torch._scaled_mm(  # noqa: SLF001 - its only name before PyTorch 2.10
            left, right, scale_a=of_left, scale_b=of_right, out_dtype=torch.bfloat16, use_fast_accum=kernel != SLOW
        )

    sets = rig.rotated_buffers(make, size)
    return TimedWork(multiply, len(sets))


MATMUL = BenchKind("matmul", cases, timed_builds(build, power=True))
