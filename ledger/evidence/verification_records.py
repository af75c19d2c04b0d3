"""Verifications on file: one for each verified plan, written by `ledger verify --record`, read by the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from ledger.evidence.documents import Evidence, read_evidence
from ledger.evidence.verdict_records import verdict_record
from ledger.evidence.verification import JudgeOrigin, Verification
from ledger.evidence.writing import head_text, record_line
from ledger.spec.bounded_files import read_bounded
from ledger.spec.library import default_library
from ledger.spec.plan import Plan
from ledger.spec.reader import LARGEST_TEXT
from ledger.whole_files import replace_file

FOLDER, PATTERN = "derivations", "*.yaml"  # within the library's evidence
JUDGING_SOURCE = (
    "PyTorch's own training step on fake tensors (torch {torch}, transformers {transformers}), by `ledger verify`"
)
FRAMEWORK_SOURCE = "the framework's own training step on fake tensors ({framework}, torch {torch}), by `ledger verify`"
JUDGING_METHOD = (
    "meta and fake tensors, a fake process group; every storage rounded up to 512 B as the CUDA allocator does"
)


def folder() -> Path:
    """Where records are kept."""
    return default_library().writable("evidence") / FOLDER


def write(verification: Verification, where: Path) -> Path:
    """The record of a verification, named after it; what was not checked is kept with its reason."""
    path = where / f"{verification.name}.yaml"
    replace_file(path, _text(verification).encode())
    return path


def _text(verification: Verification) -> str:
    origin = verification.origin
    head = {
        "spec": "ledger/1",
        "evidence": f"{verification.name}: {verification.title}",
        "source": _source(origin),
        "origin": {"method": JUDGING_METHOD, **_versions(origin), "layers": verification.layers},
        "subject": {"name": verification.name, "model": verification.model, "digest": verification.digest},
        "judged_as": list(verification.judged_as),
    }
    return head_text(head) + "".join(record_line(verdict_record(verdict)) for verdict in verification.verdicts)


def _source(origin: JudgeOrigin) -> str:
    """What judged, in a sentence."""
    if origin.framework:
        return FRAMEWORK_SOURCE.format(framework=origin.framework, torch=origin.torch)
    return JUDGING_SOURCE.format(torch=origin.torch, transformers=origin.transformers)


def _versions(origin: JudgeOrigin) -> dict[str, str]:
    """What is known of the judge."""
    return {name: value for name, value in vars(origin).items() if value}


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
