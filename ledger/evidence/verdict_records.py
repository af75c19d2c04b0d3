"""Verdicts as records of an evidence file (`what: derivation`): what each must say, and the record of a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ledger.evidence.verdicts import EXACT, TOLERANCES, ComparedFigure, KnownDifference
from ledger.spec.faults import Faults, Written
from ledger.spec.problems import Problem
from ledger.spec.reader import Node
from ledger.spec.structures import NEEDED, Fields, KeyStated, MappingOf, Needed, Row
from ledger.spec.values import Integer, KeyOf, String

DERIVATION = "derivation"
LARGEST = 10**36  # of a figure: FLOPs of a step
COMPARED = Needed(unless=KeyStated("reason"))
RECORD = Fields(
    (
        Row("what", String(), "The kind of record.", needed=NEEDED),
        Row("account", String(least=1), "the figure that was compared", needed=NEEDED),
        Row("unit", String(), "Of the figure."),
        Row("predicted", Integer(0, LARGEST), "the figure in the books, or `reason:` why nothing was", needed=COMPARED),
        Row("found", Integer(0, LARGEST), "the figure that the judge has, or `reason:`", needed=COMPARED),
        Row("tolerance", KeyOf(TOLERANCES), "How far the two may be apart."),
        Row("status", String(), "What came of it."),
        Row("moment", String(), "When in a step."),
        Row("causes", MappingOf(Integer(-LARGEST, LARGEST)), "Named parts of the difference, in its unit."),
        Row("reason", String(), "Why nothing was compared."),
    )
)


def verdict_problems(records: Iterable[Node]) -> Iterator[Problem]:
    """What the records lack, or say that cannot be, each with its place."""
    for record in records:
        found: Faults = []
        RECORD.read(Written(record, ("record",)), found)
        yield from (fault.problem for fault in found)


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
