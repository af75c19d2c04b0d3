"""Where the parts of a plan were written, and what else a rule may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.spec.plan import Accelerator, Origin
from ledger.spec.problems import Location


@dataclass(frozen=True)
class Places:
    """Where each part of the plan was written, by dotted path; and the dense peaks that the library knows."""

    origins: Mapping[str, Origin]
    known: tuple[Accelerator, ...] = ()

    def __call__(self, path: str) -> Location:
        """The place of a path, or of the nearest path above it."""
        while path not in self.origins and "." in path:
            path = path.rpartition(".")[0]
        return self.origins[path].where if path in self.origins else next(iter(self.origins.values())).where


def divisors(number: int) -> str:
    """A help line that lists what divides a number."""
    found = [str(divisor) for divisor in range(1, min(number, 4096) + 1) if number % divisor == 0]
    return f"divisors of {number}: {', '.join(found[:12])}"


def multiples(number: int, step: int) -> str:
    """A help line that names the multiples on both sides of a number."""
    below = number // step * step
    near = [str(multiple) for multiple in (below, below + step) if multiple > 0]
    return f"nearest multiples of {step}: {' and '.join(near)}"
