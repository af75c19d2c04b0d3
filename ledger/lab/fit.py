"""Plans that were seen to fit, or to run out of memory, beside what a replay of their step asks of the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ledger.books.closed import close
from ledger.evidence.runs import Run, read_runs
from ledger.lab.replay.step import replayed
from ledger.model.schedule import roles
from ledger.spec.load import load_plan

FIT = "fit"


@dataclass(frozen=True)
class Fit:
    """One plan: bytes that its fullest device and its first device ask for, and bytes there are.

    `seen` is whether it was seen to fit.
    """

    run: Run
    needed: int
    first: int
    capacity: int

    @property
    def seen(self) -> bool:
        """Whether the plan ran."""
        return bool(self.run.measured["fits"])

    @property
    def fits(self) -> bool:
        """Whether it should."""
        return self.needed <= self.capacity

    @property
    def error(self) -> float | None:
        """Reserved bytes of the first device, predicted over published, minus one; None where none are published."""
        published = self.run.measured.get("peak.reserved")
        return self.first / published - 1 if published else None


def read_fits(path: Path) -> tuple[Run, ...]:
    """The plans of an evidence file with records of `what: fit`; raises SpecError where it has none."""
    return read_runs(path, FIT)


def fitted(runs: Iterable[Run], overrides: tuple[str, ...] = ()) -> Iterator[Fit]:
    """Every plan with what it asks for."""
    for run in runs:
        plan = load_plan(run.plan, (*run.overrides, *overrides))
        found = [replayed(plan, book) for book in close(plan, roles(plan))]
        needed = max(one.asked for one in found) + plan.stack.context
        yield Fit(run, needed, found[0].reserved, plan.accelerator.memory)
