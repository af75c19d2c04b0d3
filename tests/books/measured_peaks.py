"""Bytes of real training steps, phase by phase, and the plans they belong to.

Measured with torch 2.13.0 and transformers 5.23 on fake tensors, which equal a real step on the CPU byte for byte;
every storage is rounded up to 512 B there. One sequence in a micro-batch. Sharded steps: one rank of FSDP2 and DTensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.books.compiled import Compiled
from tests.model import plans

ONE_DEVICE = 1e-5  # 512-byte rounding of small storages, and scalars
SHARDED = 2e-4  # positions and scalars of the reference module
FORWARD = 1.1e-3  # never the peak of a step; transformers' frame holds the fp32 result of the final norm under autocast


@dataclass(frozen=True)
class Step:
    """One measured step: the plan, and bytes of `phase` (forward, backward, optimizer, or the whole step)."""

    name: str
    parts: Mapping[str, Any]
    peaks: Mapping[str, int]

    def compiled(self) -> Compiled:
        """The same plan, compiled."""
        return plans.compiled(**self.parts)

    def errors(self) -> dict[str, float]:
        """The ledger's peak of every phase that was measured, relative to it."""
        (role,) = self.compiled().roles
        found = {
            phase: max(m.total for m in role.moments if m.name.startswith(phase) or phase == "step")
            for phase in self.peaks
        }
        return {phase: found[phase] / size - 1 for phase, size in self.peaks.items()}


def one(name: str, model: str, peaks: tuple[int, int, int], seq_len: int = 8192, **parts: Any) -> Step:
    """A step on one device with the kernels that transformers ships and AdamW over one list; 0 was not measured."""
    kernels = {"norm": "eager", "activation": "eager" if model == "gpt2" else "fused", "optimizer": "foreach"}
    base: plans.Mapped = {
        "model": model,
        "precision": "bf16-true",
        "run": {"seq_len": seq_len, "micro_batch": 1, "global_batch": 1},
    }
    merged = {**base, **parts, "kernels": {**kernels, **parts.get("kernels", {})}}
    known = {phase: size for phase, size in zip(("forward", "backward", "optimizer"), peaks, strict=True) if size}
    return Step(name, merged, known)


def core(name: str) -> plans.Mapped:
    """The plan's attention."""
    return {"kernels": {"attention": name}}


AUTOCAST = {"precision": "bf16-autocast"}
KEEP = {"recompute": {"keep": ["matmul", "attention"]}}
FULL = {"recompute": "full"}

STEPS = (
    one("GPT-2", "gpt2", (1_813_392_384, 1_916_310_016, 1_244_406_784), 1024),
    one("GPT-2, autocast", "gpt2", (3_076_220_928, 3_175_826_944, 2_488_804_864), 1024, **AUTOCAST),
    one("GPT-2, eager attention", "gpt2", (0, 2_670_682_624, 0), 1024, **core("eager")),
    one("Llama 3 8B", "llama-3-8b", (111_610_128_896, 113_711_409_152, 80_302_679_552)),
    one("Llama 3 8B, efficient", "llama-3-8b", (0, 116_932_634_624, 0), **core("efficient")),
    one("Llama 3 8B, math", "llama-3-8b", (0, 402_751_301_632, 0), **core("math")),
    one("Llama 3 8B, eager attention", "llama-3-8b", (0, 529_452_836_864, 0), **core("eager")),
    one("Llama 3 8B, autocast", "llama-3-8b", (185_743_952_384, 187_711_014_912, 160_605_292_032), **AUTOCAST),
    one("Llama 3 8B, full recompute", "llama-3-8b", (61_108_644_352, 65_126_222_848, 80_302_679_552), **FULL),
    one("Llama 3 8B, matmuls and attention kept", "llama-3-8b", (0, 87_939_573_760, 0), **KEEP),
    one("Llama 3 70B", "llama-3-70b", (694_925_691_392, 697_026_971_648, 705_537_132_032)),
)


def sharded(
    name: str, model: str, degrees: Mapping[str, Any], recompute: str, peak: int, micro_batches: int = 1
) -> Step:
    """One rank of a step in FSDP2's mixed precision: fp32 weights, states and reduction, bf16 compute, fused norms.

    Bytes that tensors ask for, without rounding (`ledger.lab.verification.stages`).
    """
    devices = degrees["data"] * degrees.get("tensor", 1)
    parts = {
        "model": model,
        "precision": "bf16-autocast",
        "recompute": recompute,
        "cluster": {"base": "h100-400g", "devices": devices},
        "parallelism": {**degrees, "zero": 3},
        "run": {"seq_len": 8192, "micro_batch": 1, "global_batch": degrees["data"] * micro_batches},
    }
    return Step(name, parts, {"step": peak})


SPLIT = {"tensor": 8, "sequence": "save_gathered"}
FSDP8, FSDP64 = {"data": 8}, {"data": 64}
KEPT, ONCE = {"reshard": False}, {"reduce": "step"}
HSDP = {"data": 64, "replicate": 8}

SHARDED_STEPS = (
    sharded("8B, FSDP 8", "llama-3-8b", FSDP8, "none", 68_851_114_388),
    sharded("8B, FSDP 8, 4 micro-batches", "llama-3-8b", FSDP8, "none", 72_866_245_012, 4),
    sharded("8B, FSDP 8, 4, reduced once", "llama-3-8b", FSDP8 | ONCE, "none", 100_972_159_380, 4),
    sharded("8B, FSDP 8, kept", "llama-3-8b", FSDP8 | KEPT, "none", 84_911_636_884),
    sharded("8B, FSDP 8, kept, 4", "llama-3-8b", FSDP8 | KEPT, "none", 88_926_767_508, 4),
    sharded("8B, FSDP 8, kept, 4, once", "llama-3-8b", FSDP8 | KEPT | ONCE, "none", 117_032_681_876, 4),
    sharded("8B, FSDP 64, full", "llama-3-8b", FSDP64, "full", 16_399_813_012),
    sharded("8B, FSDP 64, full, 4", "llama-3-8b", FSDP64, "full", 16_901_704_340, 4),
    sharded("8B, FSDP 64, full, 4, once", "llama-3-8b", FSDP64 | ONCE, "full", 48_520_858_004, 4),
    sharded("8B, FSDP 64, full, kept", "llama-3-8b", FSDP64 | KEPT, "full", 32_460_335_508),
    sharded("8B, FSDP 64, full, kept, 4", "llama-3-8b", FSDP64 | KEPT, "full", 32_962_226_836, 4),
    sharded("8B, FSDP 64, full, root kept", "llama-3-8b", FSDP64 | {"reshard": "layers"}, "full", 18_501_167_508),
    sharded("8B, FSDP 64, full, wrap 4", "llama-3-8b", FSDP64 | {"wrap": {"every": 4}}, "full", 16_646_590_892),
    sharded("8B, FSDP 64, full, wrap model", "llama-3-8b", FSDP64 | {"wrap": "model"}, "full", 49_687_374_228),
    sharded("8B, HSDP 8 x 8", "llama-3-8b", HSDP, "none", 68_851_114_388),
    sharded("8B, HSDP 8 x 8, full", "llama-3-8b", HSDP, "full", 26_939_530_900),
    sharded("8B, HSDP 8 x 8, full, 4", "llama-3-8b", HSDP, "full", 30_954_661_524, 4),
    sharded("8B, tensor 8 x FSDP 16", "llama-3-8b", {"data": 16, **SPLIT}, "none", 12_200_002_976),
    sharded("8B, tensor 8 x FSDP 16, full", "llama-3-8b", {"data": 16, **SPLIT}, "full", 3_202_957_984),
    sharded("70B, FSDP 1024, full", "llama-3-70b", {"data": 1024}, "full", 28_741_650_956),
    sharded("70B, tensor 8 x FSDP 128, full", "llama-3-70b", {"data": 128, **SPLIT}, "full", 4_677_701_716),
)
