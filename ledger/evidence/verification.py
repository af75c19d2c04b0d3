"""Verifications of plans against PyTorch: the verdicts, their published form `ledger-verify/1`, and their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ledger.evidence.documents import Evidence, read_evidence
from ledger.evidence.verdicts import DIFFERS, STATUSES, UNCHECKED, ComparedFigure, verdict_record, worst
from ledger.spec.library import default_library
from ledger.spec.plan import Plan
from ledger.spec.reader import LARGEST_TEXT
from ledger.spec.sources import read_bounded
from ledger.whole_files import replace_file

VERIFY_SCHEMA = "ledger-verify/1"


@dataclass(frozen=True)
class JudgeOrigin:
    """The origin of a verification: versions of the libraries, the day, and the command that repeats it.

    `framework`: packages of the training framework that judged, with their versions; empty where PyTorch did.
    """

    torch: str
    transformers: str
    date: str
    command: str
    framework: str = ""

    @property
    def judge(self) -> str:
        """The name of the judge: the framework, or PyTorch with its version."""
        return self.framework or f"PyTorch {self.torch}"

    @property
    def versions(self) -> str:
        """The packages that judged, with their versions."""
        judging_packages = self.framework or f"transformers {self.transformers}"
        return f"torch {self.torch}, {judging_packages}"


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
        counts = ", ".join(f"{self.counts[status]} {status}" for status in STATUSES if self.counts[status])
        furthest = worst(self.verdicts)
        tail = f"; furthest: {furthest.account}, {furthest.error:+.1e}" if furthest and furthest.difference else ""
        return f"{len(self.verdicts)} figures against {self.origin.judge}: {counts}{tail}"


def published(verification: Verification, spec: str) -> dict[str, Any]:
    """The object that `verify --json` prints; `spec` is the plan as the user named it."""
    return {
        "schema": VERIFY_SCHEMA,
        "spec": spec,
        "plan": verification.title,
        "digest": verification.digest,
        "judge": vars(verification.origin),
        "layers": verification.layers,
        "judged_as": list(verification.judged_as),
        "agrees": verification.agrees,
        "summary": {status.replace(" ", "_"): verification.counts[status] for status in STATUSES},
        "checks": list(verdict_records(verification.verdicts)),
    }


def verdict_records(verdicts: Sequence[ComparedFigure]) -> Iterator[dict[str, Any]]:
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


# --- verifications on file ---

FOLDER, PATTERN = "derivations", "*.yaml"  # within the library's evidence
JUDGING_SOURCE = (
    "PyTorch's own training step on fake tensors (torch {torch}, transformers {transformers}), by `ledger verify`"
)
FRAMEWORK_SOURCE = "the framework's own training step on fake tensors ({framework}, torch {torch}), by `ledger verify`"
JUDGING_METHOD = (
    "meta and fake tensors, a fake process group; every storage rounded up to 512 B as the CUDA allocator does"
)


def folder() -> Path:
    """The library's folder of verifications."""
    return default_library().writable("evidence") / FOLDER


def write(verification: Verification, where: Path) -> Path:
    """The record of a verification, named after it; what was not checked is kept with its reason."""
    path = where / f"{verification.name}.yaml"
    replace_file(path, _file_text(verification).encode())
    return path


def _file_text(verification: Verification) -> str:
    origin = verification.origin
    stated = {name: value for name, value in vars(origin).items() if value}
    head = {
        "spec": "ledger/1",
        "evidence": f"{verification.name}: {verification.title}",
        "source": (FRAMEWORK_SOURCE if origin.framework else JUDGING_SOURCE).format(**vars(origin)),
        "origin": {"method": JUDGING_METHOD, **stated, "layers": verification.layers},
        "subject": {"name": verification.name, "model": verification.model, "digest": verification.digest},
        "judged_as": list(verification.judged_as),
    }
    return head_text(head) + "".join(record_line(verdict_record(verdict)) for verdict in verification.verdicts)


def read(path: Path) -> Verification:
    """A record as the verification it was; raises SpecError with everything that is wrong with the file."""
    return _verification(read_evidence(path))


def _verification(evidence: Evidence) -> Verification:
    origin, subject = evidence.origin, evidence.header["subject"]
    return Verification(
        name=str(subject["name"]),
        title=evidence.title.partition(": ")[2],
        model=str(subject["model"]),
        digest=str(subject["digest"]),
        layers=str(origin["layers"]),
        verdicts=evidence.verdicts,
        origin=JudgeOrigin(**{field.name: str(origin.get(field.name, "")) for field in fields(JudgeOrigin)}),
        judged_as=tuple(evidence.header["judged_as"]),
    )


def nearest(plan: Plan, where: Path | None = None) -> Verification | None:
    """The record of this very plan, else the first of its model; None where there is neither.

    It is looked for in a folder, or in those of the library.
    """
    path = nearest_file(plan, where)
    return read(path) if path else None


def nearest_file(plan: Plan, where: Path | None = None) -> Path | None:
    """The file of the nearest record."""
    same_model = None
    for path in sorted(where.glob(PATTERN)) if where else default_library().files("evidence", f"{FOLDER}/{PATTERN}"):
        # Most files name neither, and need not be read as YAML.
        text = read_bounded(path, LARGEST_TEXT).decode(errors="replace")
        if plan.judged_digest and plan.judged_digest in text:
            return path
        if same_model is None and plan.model.title in text and read(path).model == plan.model.title:
            same_model = path
    return same_model


def every(where: Path) -> Iterator[Verification]:
    """Every record, by name."""
    return (read(path) for path in sorted(where.glob(PATTERN)))


# --- the text of an evidence file ---

RECORDS = "records:\n"
LINE_WIDTH = 10_000  # characters; no line is folded


def head_text(fields: Mapping[str, Any]) -> str:
    """The text above the records of an evidence file."""
    return yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=LINE_WIDTH) + RECORDS


def record_line(record: Mapping[str, Any]) -> str:
    """One record on one line."""
    text = yaml.safe_dump(dict(record), sort_keys=False, default_flow_style=True, allow_unicode=True, width=LINE_WIDTH)
    return f"  - {text.strip()}\n"
