"""A service at the data sheet: every kernel as fast as its FLOPs and bytes allow, and a host that takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledger.books.results import KernelTime
from ledger.books.serving.passes import Phase, ServedRole, Shape
from ledger.books.serving.steady import Service
from ledger.spec.engine import Engine


@dataclass(frozen=True)
class FlooredRole(ServedRole):
    """A role whose passes take what their kernels need by the data sheet, transfers nothing."""

    def rows(self, phase: Phase, shape: Shape) -> tuple[KernelTime, ...]:
        """The kernels of a pass at their floors."""
        return tuple(floored(super().rows(phase, shape)))

    def mixed_rows(self, prompt: Shape, decoding: Shape) -> tuple[KernelTime, ...]:
        """The same of a pass over a prompt's chunk and the next tokens of others."""
        return tuple(floored(super().mixed_rows(prompt, decoding)))


def floored(rows: Sequence[KernelTime]) -> list[KernelTime]:
    """Kernels that multiply, or read the cache, each at its floor; what others move may stay in caches."""
    return [replace(row, seconds=row.roofline if row.compute else 0.0) for row in rows]


def at_data_sheet(service: Service) -> Service:
    """The same service at the limits of its device's data sheet."""
    stack = replace(service.plan.stack, launch=0.0, engine=Engine())
    roles = tuple(FlooredRole(replace(one.plan, stack=stack), one.role) for one in service.roles)
    return Service(replace(service.plan, stack=stack), roles)
