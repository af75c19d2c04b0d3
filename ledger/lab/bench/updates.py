"""The optimizer's update by implementation, over tensors as a transformer has them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.rig import BenchKind, Rig, bytes_of, fits, timed_builds
from ledger.lab.bench.timing import TimedWork
from ledger.spec.load import load_optimizer

KERNELS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False, "fused": False}}
OPERANDS = 7  # AdamW in one pass reads gradient, weight and two moments, and writes all but the gradient
SHARE = 0.5  # of memory that weights, gradients, states and what an update allocates may take
CUDA_WIDTHS, CPU_WIDTHS = ((2048, 8), (4096, 4)), ((256, 4), (512, 6), (768, 4))  # width and layers of a transformer


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """AdamW's implementations x sizes, fp32."""
    widths = CUDA_WIDTHS if limits.type == "cuda" else CPU_WIDTHS
    for kernel in KERNELS:
        passes = load_optimizer("adamw").update[kernel].passes or OPERANDS
        for width, layers in widths[-1:] if limits.quick else widths:
            shapes = _shapes(width, layers)
            size = bytes_of("fp32", *shapes)
            if fits(6 * size, SHARE, limits):
                sizes = {"elements": size // 4, "tensors": len(shapes), "bytes": passes * size}
                keys = {"operation": "adamw", "kernel": kernel, "width": width, "layers": layers, **sizes}
                yield BenchCase("optimizer", "optimizer", {**keys, "dtype": "fp32"})


def _shapes(width: int, layers: int) -> list[tuple[int, int]]:
    """The weights of a GPT: four matrices a layer, and their biases and norms."""
    matrices = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    vectors = [(rows, 1) for rows in (3 * width, width, 4 * width, width, width, width, width, width)]
    return [*matrices, *vectors] * layers


def build(case: BenchCase, rig: Rig) -> TimedWork:
    """One update of all weights by gradients of their own."""
    shapes = _shapes(*case.sizes("width", "layers"))
    weights = [torch.nn.Parameter(rig.random_tensor(*shape)) for shape in shapes]
    for weight in weights:
        weight.grad = rig.random_tensor(*weight.shape)
    optimizer = torch.optim.AdamW(weights, lr=1e-6, **KERNELS[str(case.keys["kernel"])])
    return TimedWork(lambda _: optimizer.step(), capturable=False)


OPTIMIZER = BenchKind("optimizer", cases, timed_builds(build))
