"""Products of experts: as many matrices as there are groups of rows, in one kernel, in the layouts of a linear layer.

Imports torch inside functions only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger.lab.bench.cases import Case, Kind, Limits
from ledger.lab.bench.rig import SIZES, Rig, each
from ledger.lab.bench.timing import Work

if TYPE_CHECKING:
    import torch

# (experts of a device, inputs, outputs): Mixtral 8x7B; Qwen3 30B-A3B; DeepSeek-V3 over 8 devices
EXPERTS = ((8, 4096, 14336), (128, 2048, 768), (32, 7168, 2048))
ROWS = (256, 2048)  # tokens of an expert
SINCE = "bf16"  # torch._grouped_mm takes nothing else
WEIGHT_GRADIENT = "weight_gradient"  # a kernel of its own: its groups are cut out of what it sums over
SHARE = 0.25  # of memory that one case may take


def cases(limits: Limits) -> Iterator[Case]:
    """Experts x tokens of each x layouts; a GPU alone has the kernel, and a first look goes without."""
    if limits.sort != "cuda" or SINCE not in limits.dtypes or limits.quick:
        return
    for groups, wide, out in EXPERTS:
        for count in ROWS:
            sizes = {"forward": (count, out, wide), "input_gradient": (count, wide, out)}
            if count == ROWS[-1]:
                sizes[WEIGHT_GRADIENT] = (out, wide, count)
            for layout, (rows, n, k) in sizes.items():
                if _bytes(groups, rows, n, k) <= SHARE * limits.memory:
                    apart = {"kernel": layout} if layout == WEIGHT_GRADIENT else {}
                    shape = {"groups": groups, "rows": rows, "n": n, "k": k, "dtype": SINCE}
                    yield Case("grouped", f"grouped.{SINCE}", {"layout": layout, **shape, **apart})


def _bytes(groups: int, rows: int, n: int, k: int) -> int:
    return SIZES[SINCE] * groups * (rows * k + k * n + rows * n)


def build(case: Case, rig: Rig) -> Work:
    """The product of a case over rotated operands, every group as large as the next."""
    import torch

    layout = str(case.keys["layout"])
    groups, rows, n, k = (int(case.keys[name]) for name in ("groups", "rows", "n", "k"))
    summed = layout == WEIGHT_GRADIENT
    ends = torch.arange(1, groups + 1, device=rig.place, dtype=torch.int32) * (k if summed else rows)

    def made() -> tuple[torch.Tensor, torch.Tensor]:
        if summed:  # gradients and inputs of all tokens, as their layers leave them
            upstream, x = rig.random(groups * k, rows, dtype=SINCE), rig.random(groups * k, n, dtype=SINCE)
            return upstream.t(), x
        x = rig.random(groups * rows, k, dtype=SINCE)
        if layout == "forward":  # weights of outputs x inputs, as torch.nn.Linear keeps them
            return x, rig.random(groups, n, k, dtype=SINCE).transpose(-2, -1)
        return x, rig.random(groups, k, n, dtype=SINCE)

    sets = rig.rotated(made, _bytes(groups, rows, n, k))
    return Work(lambda index: torch._grouped_mm(*sets[index], offs=ends), len(sets))  # noqa: SLF001 - before 2.10


GROUPED = Kind("grouped", cases, each(build, power=True))
