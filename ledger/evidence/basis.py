"""What the seconds of a step rest on: measurements of its device, those of others, single figures, data sheets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.books import prices
from ledger.evidence import citations
from ledger.model.causes import HostTransfer, HostWork, Transfer
from ledger.spec.kernel_classes import ATTENTION, KernelClass

if TYPE_CHECKING:
    from ledger.books.results import Compiled, KernelTime, RoleResult
    from ledger.spec.plan import Curve, Plan

FIGURES, SHEETS = "figures", "sheets"


@dataclass(frozen=True)
class Basis:
    """Shares of what kernels and open transfers take of a step; they sum to 1 where there are any.

    `devices`: by the device whose measurements are carried, the plan's own under the empty name, the largest first.
    `figures`: priced by what a publication prints, of which no file is at hand. `sheets`: by data sheets alone.
    """

    devices: Mapping[str, float]
    figures: float
    sheets: float

    @property
    def own(self) -> float:
        """The share that rests on measurements of the plan's own device."""
        return self.devices.get("", 0.0)


def basis(compiled: Compiled) -> Basis:
    """What the step of the slowest kind of device rests on; nought of everything where nothing is priced."""
    seconds: dict[str, float] = {}
    origins: dict[str, str] = {}  # by the source of a price
    for kernel in slowest_role(compiled).kernels:
        if kernel.open:
            curve = kernel_price(kernel, compiled.plan)
            source = curve.source if curve else ""
            if source not in origins:
                origins[source] = _origin(curve, compiled.plan)
            seconds[origins[source]] = seconds.get(origins[source], 0.0) + kernel.open
    priced = sum(seconds.values())
    shares = {origin: part / priced for origin, part in sorted(seconds.items(), key=lambda pair: -pair[1])}
    figures, sheets = shares.pop(FIGURES, 0.0), shares.pop(SHEETS, 0.0)
    return Basis(shares, figures, sheets)


def slowest_role(compiled: Compiled) -> RoleResult:
    """The role whose kernels and transfers take longest, hidden ones too."""
    return max(compiled.roles, key=lambda role: sum(kernel.seconds * kernel.times for kernel in role.kernels))


def kernel_price(kernel: KernelTime, plan: Plan) -> Curve | None:
    """The curve that a kernel or a transfer is priced by; None where a data sheet is all there is."""
    if not kernel.calibrated:
        return None
    device = plan.accelerator
    kind = kernel.kind
    if isinstance(kind, Transfer):
        mesh = prices.mesh(kind.axis, plan.parallelism, device, plan.cluster)
        ranks = mesh.local if mesh.local > 1 else mesh.size
        return prices.curve(device, KernelClass(kind.collective), ranks=ranks)
    if isinstance(kind, HostTransfer | HostWork):
        return prices.curve(device, kind.price_class)
    width = plan.model.group_of(kernel.cause.unit).attention.head_dim if kind.family == ATTENTION else 0
    return prices.curve(device, kind, head_dim=width)


def _origin(curve: Curve | None, plan: Plan) -> str:
    """The device behind a price, empty for the plan's own; or that no measurement of it is at hand."""
    if curve is None:
        return SHEETS
    path = citations.find_cited(citations.cited_file(curve), plan)
    device = citations.device_of(path) if path else ""
    if not device:
        return FIGURES
    return "" if citations.is_about(device, plan.accelerator) else device
