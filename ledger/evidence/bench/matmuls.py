"""Matrix products in the three layouts that a linear layer needs: forward, input gradient, weight gradient.

Imports torch inside functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.evidence.bench.cases import Case, Kind, Limits
from ledger.evidence.bench.rig import SIZES, Rig, each
from ledger.evidence.bench.timing import Work

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Layout:
    """How the operands of an m x n product over k lie: their shapes as stored, and what multiplies them.

    `of` gives m, n, k for a layer with so many inputs and outputs on so many tokens.
    """

    of: Callable[[int, int, int], tuple[int, int, int]]
    left: Callable[[int, int, int], tuple[int, int]]
    right: Callable[[int, int, int], tuple[int, int]]
    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# y = x W^T; dx = dy W; dW = dy^T x, with W of outputs x inputs as torch.nn.Linear keeps it.
LAYOUTS: Mapping[str, Layout] = {
    "forward": Layout(
        lambda tokens, wide, out: (tokens, out, wide),
        lambda m, _, k: (m, k),
        lambda _, n, k: (n, k),
        lambda x, weight: x @ weight.t(),
    ),
    "input_gradient": Layout(
        lambda tokens, wide, out: (tokens, wide, out),
        lambda m, _, k: (m, k),
        lambda _, n, k: (k, n),
        lambda upstream, weight: upstream @ weight,
    ),
    "weight_gradient": Layout(
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
QUICK = 3  # every third layer of the list
CUDA_TOKENS, CPU_TOKENS = (1024, 4096, 16384), (128, 256, 512, 1024)
SHARE = 0.5  # of memory that one case may take


def cases(limits: Limits) -> Iterator[Case]:
    """Layers x tokens x layouts in the first dtype; of other dtypes, forward at one number of tokens."""
    cuda = limits.sort == "cuda"
    layers: Sequence[tuple[int, int]] = CUDA_LAYERS if cuda else CPU_LAYERS
    tokens: Sequence[int] = CUDA_TOKENS if cuda else CPU_TOKENS
    if limits.quick:
        layers, tokens = layers[1::QUICK], tokens[1:3]
    main, *others = limits.dtypes
    for wide, out in layers:
        for count in tokens:
            for layout in LAYOUTS:
                yield from _case(main, layout, (count, wide, out), limits)
        for dtype in others:
            yield from _case(dtype, "forward", (tokens[-1], wide, out), limits)


def _case(dtype: str, layout: str, sizes: tuple[int, int, int], limits: Limits) -> Iterator[Case]:
    m, n, k = LAYOUTS[layout].of(*sizes)
    if SIZES[dtype] * (m * k + k * n + m * n) <= SHARE * limits.memory:
        keys = {"layout": layout, "m": m, "n": n, "k": k, "dtype": dtype}
        yield Case("matmul", f"matmul.{dtype}", keys)


def build(case: Case, rig: Rig) -> Work:
    """The product of a case over rotated operands."""
    import torch

    dtype, layout = str(case.keys["dtype"]), LAYOUTS[str(case.keys["layout"])]
    m, n, k = (int(case.keys[name]) for name in ("m", "n", "k"))
    size = SIZES[dtype] * (m * k + k * n + m * n)
    if dtype == "fp8":
        return _fp8(rig, (m, n, k), size)
    if rig.cuda:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    sets = rig.rotated(
        lambda: (rig.random(*layout.left(m, n, k), dtype=dtype), rig.random(*layout.right(m, n, k), dtype=dtype)), size
    )
    return Work(lambda index: layout.multiply(*sets[index]), len(sets))


def _fp8(rig: Rig, shape: tuple[int, int, int], size: int) -> Work:
    """One scale for each operand, bf16 results: what torchao's tensorwise recipe runs."""
    import torch

    m, n, k = shape
    one = torch.ones((), device=rig.place)

    def made() -> tuple[torch.Tensor, torch.Tensor]:
        left, right = rig.random(m, k, dtype="bf16"), rig.random(n, k, dtype="bf16")
        return left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn).t()

    def multiply(index: int) -> torch.Tensor:
        left, right = sets[index]
        return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)  # noqa: SLF001

    sets = rig.rotated(made, size)
    return Work(multiply, len(sets))


MATMUL = Kind("matmul", cases, each(build, power=True))
