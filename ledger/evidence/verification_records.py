"""Verdicts as evidence: a file for each verified plan, written by `ledger verify --record`, read by the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ledger.evidence.verdicts import TOLERANCES, Cause, Verdict
from ledger.evidence.verification import JudgeOrigin, Verification
from ledger.spec.library import default_library
from ledger.spec.plan import Plan

KIND = "derivation"
SOURCE = "PyTorch's own training step on fake tensors (torch {torch}, transformers {transformers}), by `ledger verify`"
METHOD = "meta and fake tensors, a fake process group; every storage rounded up to 512 B as the CUDA allocator does"
WIDTH = 10_000  # no line is folded


def folder() -> Path:
    """Where the library keeps records."""
    return default_library().folder("evidence") / "derivations"


def write(found: Verification, where: Path) -> Path:
    """The record of a verification, named after it; what was not checked is kept with its reason."""
    where.mkdir(parents=True, exist_ok=True)
    path = where / f"{found.name}.yaml"
    path.write_text(_text(found), encoding="utf-8")
    return path


def _text(found: Verification) -> str:
    head = {
        "spec": "ledger/1",
        "evidence": f"{found.name}: {found.title}",
        "source": SOURCE.format(torch=found.origin.torch, transformers=found.origin.transformers),
        "origin": {"method": METHOD, **vars(found.origin), "layers": found.layers},
        "subject": {"name": found.name, "model": found.model, "digest": found.digest},
        "judged_as": list(found.judged_as),
    }
    lines = [yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=WIDTH), "records:\n"]
    lines += [f"  - {_flow(_record(verdict))}\n" for verdict in found.verdicts]
    return "".join(lines)


def _flow(record: Mapping[str, Any]) -> str:
    """One mapping on one line."""
    text: str = yaml.safe_dump(record, sort_keys=False, default_flow_style=True, allow_unicode=True, width=WIDTH)
    return text.strip()


def _record(verdict: Verdict) -> dict[str, Any]:
    record: dict[str, Any] = {"what": KIND, "account": verdict.account}
    if verdict.skipped:
        return {**record, "reason": verdict.skipped}
    record |= {"unit": verdict.unit, "predicted": verdict.predicted, "found": verdict.found}
    record |= {"tolerance": verdict.tolerance.title, "status": verdict.status}
    if verdict.where:
        record["moment"] = verdict.where
    if verdict.causes:
        record["causes"] = {cause.name: cause.amount for cause in verdict.causes}
    return record


def read(path: Path) -> Verification:
    """A record as the verification it was."""
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    origin, subject = document["origin"], document["subject"]
    return Verification(
        name=str(subject["name"]),
        title=str(document["evidence"]).partition(": ")[2],
        model=str(subject["model"]),
        digest=str(subject["digest"]),
        layers=str(origin["layers"]),
        verdicts=tuple(_verdict(record) for record in document["records"]),
        origin=JudgeOrigin(*(str(origin[name]) for name in ("torch", "transformers", "date", "command"))),
        judged_as=tuple(document["judged_as"]),
    )


def _verdict(record: Mapping[str, Any]) -> Verdict:
    causes = tuple(Cause(name, amount) for name, amount in record.get("causes", {}).items())
    tolerance = TOLERANCES[record.get("tolerance", "exact")]
    return Verdict(
        account=record["account"],
        unit=record.get("unit", ""),
        predicted=record.get("predicted"),
        found=record.get("found"),
        tolerance=tolerance,
        causes=causes,
        where=record.get("moment", ""),
        skipped=record.get("reason", ""),
    )


def nearest(plan: Plan, where: Path) -> Verification | None:
    """The record of this very plan, else one of its model; None where there is neither."""
    same_model = None
    for path in sorted(where.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if plan.digest and plan.digest in text:
            return read(path)
        if same_model is None and f"\n  model: {plan.model.title}\n" in text:
            same_model = path
    return read(same_model) if same_model else None


def every(where: Path) -> Iterator[Verification]:
    """Every record, by name."""
    return (read(path) for path in sorted(where.glob("*.yaml")))
