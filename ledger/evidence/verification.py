"""Everything one verification found, and the published form of it: `ledger-verify/1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.evidence.verdicts import DIFFERS, STATUSES, UNCHECKED, ComparedFigure, worst

VERIFY_SCHEMA = "ledger-verify/1"


@dataclass(frozen=True)
class JudgeOrigin:
    """What found the figures: versions of the libraries, the day, and the command that repeats it.

    `framework`: packages of the training framework that judged, with their versions; empty where PyTorch did.
    """

    torch: str
    transformers: str
    date: str
    command: str
    framework: str = ""

    @property
    def judge(self) -> str:
        """What judged, in words."""
        return self.framework or f"PyTorch {self.torch}"

    @property
    def versions(self) -> str:
        """The packages that judged, with their versions."""
        own = self.framework or f"transformers {self.transformers}"
        return f"torch {self.torch}, {own}"


@dataclass(frozen=True)
class Verification:
    """The verdicts on one plan. `judged_as`: what PyTorch was asked instead of what the plan says, in sentences."""

    name: str
    title: str
    model: str
    digest: str
    layers: str
    verdicts: tuple[ComparedFigure, ...]
    origin: JudgeOrigin
    judged_as: tuple[str, ...] = ()
    layout: str = ""
    counts: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", Counter(verdict.status for verdict in self.verdicts))

    @property
    def agrees(self) -> bool:
        """Whether nothing that was checked is left unexplained, and something was checked."""
        return not self.counts[DIFFERS] and self.counts[UNCHECKED] < len(self.verdicts)

    @property
    def sentence(self) -> str:
        """The outcome in a line."""
        told = ", ".join(f"{self.counts[status]} {status}" for status in STATUSES if self.counts[status])
        furthest = worst(self.verdicts)
        by = f"; furthest: {furthest.account}, {furthest.error:+.1e}" if furthest and furthest.difference else ""
        return f"{len(self.verdicts)} figures against {self.origin.judge}: {told}{by}"


def published(found: Verification, spec: str) -> dict[str, Any]:
    """The object that `verify --json` prints; `spec` is the plan as the user named it."""
    return {
        "schema": VERIFY_SCHEMA,
        "spec": spec,
        "plan": found.title,
        "digest": found.digest,
        "judge": vars(found.origin),
        "layers": found.layers,
        "judged_as": list(found.judged_as),
        "agrees": found.agrees,
        "summary": {status.replace(" ", "_"): found.counts[status] for status in STATUSES},
        "checks": list(checks(found.verdicts)),
    }


def checks(verdicts: Sequence[ComparedFigure]) -> Iterator[dict[str, Any]]:
    """Each verdict as a JSON object."""
    for verdict in verdicts:
        yield {
            "account": verdict.account,
            "unit": verdict.unit,
            "predicted": verdict.predicted,
            "found": verdict.found,
            "difference": verdict.difference,
            "tolerance": verdict.tolerance.title,
            "status": verdict.status,
            "causes": [{"cause": cause.name, "amount": cause.amount} for cause in verdict.causes],
            "moment": verdict.where,
            "origin": verdict.origin,
            "reason": verdict.skipped,
        }
