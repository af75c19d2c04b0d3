"""Where the parts of a plan were written, and what else a rule may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ledger.spec.plan import Accelerator, Origin
from ledger.spec.problems import FLAG, Location


@dataclass(frozen=True)
class Places:
    """Where each part of the plan was written, by dotted path; and the dense peaks that the library knows."""

    origins: Mapping[str, Origin]
    known: tuple[Accelerator, ...] = ()

    def __call__(self, path: str) -> Location:
        """The place of a path, or of the nearest path above it; kernels that the plan leaves open are its stack's."""
        if path.startswith("kernels.") and path not in self.origins and "stack" in self.origins:
            return self._of_stack(path)
        while path not in self.origins and "." in path:
            path = path.rpartition(".")[0]
        return self.origins[path].where if path in self.origins else next(iter(self.origins.values())).where

    def _of_stack(self, path: str) -> Location:
        """Where the plan says it of its stack, else the line that names the stack, else the stack's own line."""
        named = self.origins["stack"].where
        written = self.origins.get(f"stack.{path}", self.origins["stack"]).where
        if self._own(written):
            return written
        if self._own(named):
            return replace(named, because=f"`{path}` is that of the stack, {written}")
        return replace(written, because=f"`{path}` is that of the stack of plans that name none")

    def _own(self, place: Location) -> bool:
        """Whether a place is in the plan itself, or in an override."""
        return place.file.startswith(FLAG) or place.file == self.origins.get("spec", self.origins["stack"]).where.file

    def states(self, path: str) -> bool:
        """Whether the plan itself, not a part that it names, says something at this path."""
        return path in self.origins and self._own(self.origins[path].where)


def divisors(number: int) -> str:
    """A help line that lists what divides a number."""
    found = [str(divisor) for divisor in range(1, min(number, 4096) + 1) if number % divisor == 0]
    return f"divisors of {number}: {', '.join(found[:12])}"


def multiples(number: int, step: int) -> str:
    """A help line that names the multiples on both sides of a number."""
    below = number // step * step
    near = [str(multiple) for multiple in (below, below + step) if multiple > 0]
    return f"nearest multiples of {step}: {' and '.join(near)}"
