"""The optimizer's update by implementation, over tensors as a transformer has them.

Imports torch inside functions only.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.lab.bench.cases import Case, Kind, Limits
from ledger.lab.bench.rig import Rig, each
from ledger.lab.bench.timing import Work
from ledger.spec.load import load_optimizer

KERNELS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False, "fused": False}}
OPERANDS = 7  # AdamW in one pass reads gradient, weight and two moments, and writes all but the gradient
BYTES = 4
CUDA_WIDTHS, CPU_WIDTHS = ((2048, 8), (4096, 4)), ((256, 4), (512, 6), (768, 4))  # width and layers of a transformer


def cases(limits: Limits) -> Iterator[Case]:
    """AdamW's implementations x sizes, fp32."""
    widths = CUDA_WIDTHS if limits.sort == "cuda" else CPU_WIDTHS
    for kernel in KERNELS:
        passes = load_optimizer("adamw").update[kernel].passes or OPERANDS
        for width, layers in widths[-1:] if limits.quick else widths:
            shapes = _shapes(width, layers)
            elements = sum(rows * columns for rows, columns in shapes)
            if 6 * BYTES * elements <= limits.memory / 2:
                sizes = {"elements": elements, "tensors": len(shapes), "bytes": passes * BYTES * elements}
                keys = {"operation": "adamw", "kernel": kernel, "width": width, "layers": layers, **sizes}
                yield Case("optimizer", "optimizer", {**keys, "dtype": "fp32"})


def _shapes(width: int, layers: int) -> list[tuple[int, int]]:
    """The weights of a GPT: four matrices a layer, and their biases and norms."""
    matrices = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    vectors = [(rows, 1) for rows in (3 * width, width, 4 * width, width, width, width, width, width)]
    return [*matrices, *vectors] * layers


def build(case: Case, rig: Rig) -> Work:
    """One update of all weights by gradients of their own."""
    import torch

    weights = [
        torch.nn.Parameter(rig.random(*shape)) for shape in _shapes(int(case.keys["width"]), int(case.keys["layers"]))
    ]
    for weight in weights:
        weight.grad = rig.random(*weight.shape)
    optimizer = torch.optim.AdamW(weights, lr=1e-6, **KERNELS[str(case.keys["kernel"])])
    return Work(lambda _: optimizer.step(), capturable=False)


OPTIMIZER = Kind("optimizer", cases, each(build))
