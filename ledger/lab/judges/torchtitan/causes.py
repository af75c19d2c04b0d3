"""Named causes for which torchtitan holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.evidence.verdicts import KnownDifference
from ledger.model.schedule import Role
from ledger.spec.plan import Plan


def causes(plan: Plan, role: Role, moment: str) -> Iterator[KnownDifference]:
    """What explains part of found minus predicted at one moment."""
    yield from ()
