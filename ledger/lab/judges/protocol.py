"""What a framework that judges plans is asked, and where its answers come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ledger.books.compiled_roles import CompiledRole
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.verification.causes import INT64_BYTES, OPTIMIZER, StepMoment
from ledger.model.schedule import Role
from ledger.spec.plan import Plan

REQUIREMENTS = "requirements/judges.txt"


def _nothing(_: Plan, __: CompiledRole) -> Mapping[str, KnownDifference]:
    """Nothing is held beyond what the ledger says."""
    return {}


@dataclass(frozen=True)
class FrameworkJudge:
    """A training framework: `refusal` says why it cannot be asked about a plan, `judge` runs the rank of a stage.

    `packages`: those whose versions are its origin. `notes`: what it was asked instead of what the plan says. `causes`:
    what it holds at a moment of a role's step and no plan states. `calls`: by figure, how many collectives it makes of
    those of the ledger. `byte_differences`: by figure, what it holds between steps, or saves, beyond the ledger's
    bytes.
    """

    title: str
    packages: tuple[str, ...]
    refusal: Callable[[Plan], str]
    judge: Callable[[Plan, int], RankFigures]
    notes: Callable[[Plan], tuple[str, ...]]
    causes: Callable[[Plan, Role, str], Iterator[KnownDifference]]
    calls: Callable[[Plan, CompiledRole, Mapping[str, int]], Mapping[str, KnownDifference]]
    byte_differences: Callable[[Plan, CompiledRole], Mapping[str, KnownDifference]] = _nothing

    @property
    def missing(self) -> tuple[str, ...]:
        """Its packages that are not installed."""
        return tuple(name for name in self.packages if not _version(name))

    @property
    def origin(self) -> str:
        """Its packages with their versions."""
        return ", ".join(f"{name} {_version(name)}" for name in self.packages)

    def unavailable(self) -> str:
        """Why nothing can be asked of it here, and what to type; empty where it is installed."""
        if not self.missing:
            return ""
        return f"{', '.join(self.missing)} not installed: `pip install --no-deps -r {REQUIREMENTS}`"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


# --- moments of a role's step ---

BETWEEN_PASSES = ("static", OPTIMIZER)  # moments at which no micro-batch is there


@dataclass(frozen=True)
class RoleInstant(StepMoment):
    """A moment of the step of one role."""

    role: Role

    @property
    def rotated(self) -> int:
        """Width of what attention rotates of a head."""
        attention = self.plan.model.groups[0].attention
        return attention.rope_head_dim or attention.rotary_dim


def token_ids(at: RoleInstant) -> int:
    """The ledger has them all the time; each micro-batch brings its own."""
    return -INT64_BYTES * at.tokens if at.role.first and at.moment in BETWEEN_PASSES else 0
