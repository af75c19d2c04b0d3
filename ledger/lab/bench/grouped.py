"""Products of experts, in the layouts of a linear layer: a matrix for each group of rows, all in one kernel."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ledger.lab.bench.cases import BenchCase, DeviceLimits
from ledger.lab.bench.matmuls import LAYOUTS
from ledger.lab.bench.rig import BenchKind, Rig, bytes_of, fits, timed_builds
from ledger.lab.bench.timing import TimedWork

# (experts of a device, inputs, outputs): Mixtral 8x7B; Qwen3 30B-A3B; DeepSeek-V3 over 8 devices
EXPERTS = ((8, 4096, 14336), (128, 2048, 768), (32, 7168, 2048))
ROWS = (256, 2048)  # tokens of an expert
DTYPE = "bf16"  # torch._grouped_mm takes nothing else
WEIGHT_GRADIENT = "weight_gradient"  # a kernel of its own: its groups are cut out of what it sums over
SHARE = 0.25  # of memory that one case may take


def cases(limits: DeviceLimits) -> Iterator[BenchCase]:
    """Experts x tokens of each x layouts; a GPU alone has the kernel, and a first look goes without."""
    if limits.type != "cuda" or DTYPE not in limits.dtypes or limits.quick:
        return
    for groups, wide, out in EXPERTS:
        for count in ROWS:
            for layout in LAYOUTS if count == ROWS[-1] else ("forward", "input_gradient"):
                rows, n, k = LAYOUTS[layout].of(count, wide, out)
                if fits(_bytes(groups, rows, n, k), SHARE, limits):
                    kernel_key = {"kernel": layout} if layout == WEIGHT_GRADIENT else {}
                    shape = {"groups": groups, "rows": rows, "n": n, "k": k, "dtype": DTYPE}
                    yield BenchCase("grouped", f"grouped.{DTYPE}", {"layout": layout, **shape, **kernel_key})


def _bytes(groups: int, rows: int, n: int, k: int) -> int:
    return bytes_of(DTYPE, (groups, rows, k), (groups, k, n), (groups, rows, n))


def build(case: BenchCase, rig: Rig) -> TimedWork:
    """The product of a case over rotated operands, every group as large as the next."""
    layout = str(case.keys["layout"])
    groups, rows, n, k = case.sizes("groups", "rows", "n", "k")
    summed = layout == WEIGHT_GRADIENT
    ends = torch.arange(1, groups + 1, device=rig.place, dtype=torch.int32) * (k if summed else rows)

    def make() -> tuple[torch.Tensor, torch.Tensor]:
        if summed:  # gradients and inputs of all tokens, as their layers leave them
            upstream, x = (
                rig.random_tensor(groups * k, rows, dtype=DTYPE),
                rig.random_tensor(groups * k, n, dtype=DTYPE),
            )
            return upstream.t(), x
        x = rig.random_tensor(groups * rows, k, dtype=DTYPE)
        if layout == "forward":  # weights of outputs x inputs, as torch.nn.Linear keeps them
            return x, rig.random_tensor(groups, n, k, dtype=DTYPE).transpose(-2, -1)
        return x, rig.random_tensor(groups, k, n, dtype=DTYPE)

    sets = rig.rotated_buffers(make, _bytes(groups, rows, n, k))
    return TimedWork(lambda index: torch._grouped_mm(*sets[index], offs=ends), len(sets))  # noqa: SLF001 - before 2.10


GROUPED = BenchKind("grouped", cases, timed_builds(build, power=True))
