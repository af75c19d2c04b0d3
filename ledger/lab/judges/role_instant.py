"""A moment of the step of one role, as causes of differences are worked out for it."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.lab.verification.causes import INDEX, OPTIMIZER, Instant
from ledger.model.schedule import Role

BETWEEN = ("static", OPTIMIZER)  # moments at which no micro-batch is there


@dataclass(frozen=True)
class RoleInstant(Instant):
    """A moment of the step of one role."""

    role: Role

    @property
    def first(self) -> bool:
        """Whether the role has the embedding."""
        return self.role.first

    @property
    def rotated(self) -> int:
        """Width of what attention rotates of a head."""
        attention = self.plan.model.groups[0].attention
        return attention.rope_head_dim or attention.rotary_dim


def token_ids(at: RoleInstant) -> int:
    """The ledger has them all the time; each micro-batch brings its own."""
    return -INDEX * at.tokens if at.first and at.moment in BETWEEN else 0
