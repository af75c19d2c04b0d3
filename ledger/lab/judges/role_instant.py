"""A moment of the step of one role, as causes of differences are worked out for it."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.lab.verification.causes import Instant
from ledger.model.schedule import Role


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
