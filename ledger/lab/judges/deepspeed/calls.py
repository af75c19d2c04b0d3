"""How many collectives DeepSpeed makes of what the ledger counts layer by layer: the same bytes in other pieces."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.spec.plan import Plan


def calls(plan: Plan, book: CompiledRole, mine: Mapping[str, int]) -> Mapping[str, KnownDifference]:
    """By figure, what DeepSpeed makes of the ledger's number of calls, `mine`."""
    return {}
