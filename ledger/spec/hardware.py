"""What a plan runs on: an accelerator as a price list, and the cluster that joins many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ledger.spec.kernel_classes import KernelClass


@dataclass(frozen=True)
class Curve:
    """A fitted price: `form` names the formula, `parameters` its constants (seconds, B/s, ratios), `error` its MAPE.

    `what` is the kernel class it prices (`matmul.bf16`, `attention.flash.forward`, `norm`, `all_reduce`, ...);
    `ranks` the group size of a collective's fit (0: any), `head_dim` of an attention fit (0: any);
    `regime` is `burst` or `sustained`; `region` where the fit holds.
    """

    what: KernelClass
    form: str
    parameters: Mapping[str, float]
    error: float
    regime: str
    source: str
    bias: float = 0.0
    held_out: str = ""
    region: str = ""
    ranks: int = 0
    head_dim: int = 0


@dataclass(frozen=True)
class Accelerator:
    """A price list: dense peaks in FLOP/s per matmul dtype, bandwidths in B/s, sizes in B, power in W."""

    name: str
    title: str
    peak: Mapping[str, float]  # "bf16" -> dense FLOP/s; "fp32" is without tensor cores, "tf32" with
    vector: float  # FLOP/s of fp32 arithmetic outside the matrix units
    bandwidth: float
    memory: int  # as the driver reports it
    memory_labelled: int  # as the label says (80e9 for an 80 GB card)
    l2: int
    multiprocessors: int
    scaleup_bandwidth: float  # one way, per device; 0 where devices of a node share only PCIe
    scaleup_domain: int
    host_bandwidth: float  # one way
    power: float
    matmul_workspace: int = 0  # bytes that PyTorch gives each handle of the matmul library
    architecture: str = ""  # the generation: hopper, cdna3, ...; empty: not stated
    kind: str = "gpu"  # or "cpu": the processor that also runs the program
    aliases: tuple[str, ...] = ()
    calibration: tuple[Curve, ...] = ()

    @cached_property
    def curves(self) -> Mapping[KernelClass, tuple[Curve, ...]]:
        """The fitted prices of each class."""
        found: dict[KernelClass, list[Curve]] = {}
        for curve in self.calibration:
            found.setdefault(curve.what, []).append(curve)
        return {what: tuple(curves) for what, curves in found.items()}


@dataclass(frozen=True)
class Cluster:
    """How many devices there are and what joins them. `scaleout_bandwidth` is one way, per device, in B/s."""

    devices: int
    devices_per_node: int
    scaleout_bandwidth: float
    scaleout_latency: float = 0.0  # seconds per rank of a ring that crosses nodes
    scaleout_efficiency: float = 1.0
    failure_rate: float = 0.0  # failures per device and second; 0: not stated
    name: str = ""
