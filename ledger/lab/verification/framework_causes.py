"""Named causes for which a framework holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.spec.plan import Plan

INDEX = 8  # bytes of an int64


@dataclass(frozen=True)
class Instant:
    """A moment of the step of one role."""

    plan: Plan
    book: CompiledRole
    moment: str

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one rank."""
        return self.plan.run.micro_batch * self.length

    @property
    def length(self) -> int:
        """Tokens of a sequence on one rank."""
        return self.plan.run.seq_len // self.plan.parallelism.context


def causes(plan: Plan, book: CompiledRole, moment: str) -> Iterator[KnownDifference]:
    """What explains part of found minus predicted at one moment."""
    at = Instant(plan, book, moment)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _token_ids(at: Instant) -> int:
    """The ledger has them all the time; each micro-batch brings its own."""
    here = at.moment in ("static", "optimizer") and at.book.role.first
    return -INDEX * at.tokens if here else 0


CAUSES: Mapping[str, Callable[[Instant], int]] = {
    "token ids, which come with a micro-batch": _token_ids,
}
