"""Verdicts as records of an evidence file (`what: derivation`): what each must say, and the record of a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ledger.evidence.verdicts import EXACT, TOLERANCES, ComparedFigure, KnownDifference
from ledger.spec.near import nearest
from ledger.spec.problems import Problem
from ledger.spec.reader import Node

DERIVATION = "derivation"
FIGURES_COMPARED = ("predicted", "found")


def verdict_problems(records: Iterable[Node]) -> Iterator[Problem]:
    """What the records lack, or say that cannot be, each with its place."""
    for record in records:
        fields = record.fields
        if "account" not in fields:
            yield Problem(record.where, "a derivation has no `account`", "write the figure that was compared")
        if "reason" in fields:
            continue
        for name in FIGURES_COMPARED:
            if name not in fields:
                yield Problem(record.where, f"a derivation has no `{name}`", "or say its `reason`: why nothing was")
            elif not _is_count(fields[name]):
                yield Problem(fields[name].where, f"`{name}` is `{fields[name].value}`", "a whole number")
        tolerance = fields.get("tolerance")
        if tolerance is not None and tolerance.value not in TOLERANCES:
            help_text = nearest(str(tolerance.value), list(TOLERANCES))
            yield Problem(tolerance.where, f"no tolerance is named `{tolerance.value}`", help_text)
        causes = fields["causes"].fields if "causes" in fields else {}
        for name, node in causes.items():
            if not _is_count(node):
                yield Problem(node.where, f"the cause `{name}` is `{node.value}`", "a whole number of bytes")


def _is_count(node: Node) -> bool:
    return isinstance(node.value, int) and not isinstance(node.value, bool)


def verdict(record: Node) -> ComparedFigure:
    """The verdict of a record that has no problems."""
    plain: Any = record.plain()
    return ComparedFigure(
        account=str(plain["account"]),
        unit=str(plain.get("unit", "")),
        predicted=plain.get("predicted"),
        found=plain.get("found"),
        tolerance=TOLERANCES[plain.get("tolerance", EXACT.title)],
        causes=tuple(KnownDifference(name, amount) for name, amount in plain.get("causes", {}).items()),
        where=str(plain.get("moment", "")),
        skipped=str(plain.get("reason", "")),
    )


def verdict_record(verdict: ComparedFigure) -> Mapping[str, Any]:
    """A verdict as the record that it is read from; of one that was not checked, its reason."""
    record: dict[str, Any] = {"what": DERIVATION, "account": verdict.account}
    if verdict.skipped:
        return {**record, "reason": verdict.skipped}
    record |= {"unit": verdict.unit, "predicted": verdict.predicted, "found": verdict.found}
    record |= {"tolerance": verdict.tolerance.title, "status": verdict.status}
    if verdict.where:
        record["moment"] = verdict.where
    if verdict.causes:
        record["causes"] = {cause.name: cause.amount for cause in verdict.causes}
    return record
