"""The outcome of comparing one figure of the ledger with PyTorch's, as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.spec.faults import Faults, StatedValue
from ledger.spec.problems import Problem
from ledger.spec.reader import Node
from ledger.spec.structures import NEEDED, Fields, KeyStated, MappingOf, Needed, Row
from ledger.spec.values import Integer, KeyOf, String

EQUAL, EXPLAINED, WITHIN, DIFFERS, UNCHECKED = "equal", "explained", "within", "differs", "not checked"
STATUSES = (EQUAL, EXPLAINED, WITHIN, DIFFERS, UNCHECKED)


@dataclass(frozen=True)
class Tolerance:
    """The error that a figure may have once named causes are taken away: `relative` to what was found."""

    title: str
    relative: float = 0.0


EXACT = Tolerance("exact")
ROUNDING = Tolerance("512 B rounding")  # none: both count in the blocks of PyTorch's allocator, of 512 B
HALF_PERCENT = Tolerance("0.5 %", 0.005)
TOLERANCES = {tolerance.title: tolerance for tolerance in (EXACT, ROUNDING, HALF_PERCENT)}


@dataclass(frozen=True)
class KnownDifference:
    """A named part of found minus predicted, known to the byte."""

    name: str
    amount: int


def total(causes: Iterable[KnownDifference]) -> int:
    """The sum of all amounts."""
    return sum(cause.amount for cause in causes)


@dataclass(frozen=True)
class ComparedFigure:
    """One figure: predicted by the ledger, found by PyTorch. `skipped` says why nothing was found.

    `where`: the moment of the step at which PyTorch's figure is reached, for peaks.
    """

    account: str
    unit: str
    predicted: int | None
    found: int | None
    tolerance: Tolerance
    origin: str = ""
    causes: tuple[KnownDifference, ...] = ()
    where: str = ""
    skipped: str = ""

    @property
    def difference(self) -> int:
        """Predicted minus found; 0 where either is missing."""
        return 0 if self.predicted is None or self.found is None else self.predicted - self.found

    @property
    def unexplained(self) -> int:
        """The difference without its named causes."""
        return self.difference + total(self.causes)

    @property
    def error(self) -> float:
        """The difference relative to what was found."""
        if not self.found:
            return float(bool(self.difference))
        return self.difference / self.found

    @property
    def status(self) -> str:
        """The outcome of the comparison, one of STATUSES: equal, explained, within tolerance, different, unchecked."""
        if self.predicted is None or self.found is None:
            return UNCHECKED
        if self.difference == 0:
            return EQUAL
        if self.unexplained == 0:
            return EXPLAINED
        return WITHIN if abs(self.unexplained) <= self.tolerance.relative * self.found else DIFFERS

    @property
    def agrees(self) -> bool:
        """Whether nothing is left unexplained; what was not checked does not disagree."""
        return self.status != DIFFERS


def unchecked(account: str, reason: str) -> ComparedFigure:
    """A figure that the judge cannot find, and why."""
    return ComparedFigure(account, "", None, None, EXACT, skipped=reason)


def worst(verdicts: Sequence[ComparedFigure]) -> ComparedFigure | None:
    """The checked figure with the largest relative difference."""
    return max((v for v in verdicts if v.status != UNCHECKED), key=lambda v: abs(v.error), default=None)


# --- verdicts as records of an evidence file ---

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
    """Problems of the records, each with its place."""
    for record in records:
        faults: Faults = []
        RECORD.read(StatedValue(record, ("record",)), faults)
        yield from (fault.problem for fault in faults)


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
