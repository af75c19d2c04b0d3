"""The section of docs/accuracy.md on derivations, made from the records and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ledger.evidence.verdicts import UNCHECKED, ComparedFigure
from ledger.evidence.verification import Verification
from ledger.report.escape import MadeSection, bold, table

DERIVATIONS = MadeSection(
    "<!-- derivations: made by `make accuracy` from specs/evidence/derivations -->", "<!-- end of derivations -->"
)
COUNTS = ("parameters", "flops.", "saved.", "standing.", "comm.")
PEAKS = ("memory.static", "memory.after_forward", "memory.forward", "memory.backward", "memory.optimizer")
HEAD = ("plan", "counts", "static", "after forward", "forward peak", "backward peak", "optimizer peak", "in the layers")


def rewrite_section(document: str, verifications: Sequence[Verification]) -> str:
    """The document with its section made anew; ValueError where it has no place for it."""
    return DERIVATIONS.put_into(document, section(verifications))


def section(verifications: Sequence[Verification]) -> Iterator[str]:
    """A line for each plan, then what differences are called and how large they get, then what was not checked."""
    yield from _summary_lines(verifications)
    yield from table(HEAD, ([plan.name, _counts_cell(plan), *_peak_cells(plan)] for plan in verifications))
    yield from _cause_lines(verifications)
    yield from _open_lines(verifications)


def _summary_lines(verifications: Sequence[Verification]) -> Iterator[str]:
    verdicts = [verdict for verification in verifications for verdict in verification.verdicts]
    checked = [verdict for verdict in verdicts if verdict.status != UNCHECKED]
    equal = sum(verdict.status in ("equal", "explained") for verdict in checked)
    judges = sorted({verification.origin.versions for verification in verifications})
    dates = sorted({verification.origin.date for verification in verifications})
    if not verifications:
        yield "Nothing is recorded.\n"
        return
    yield (
        f"{len(verifications)} plans, {len(checked)} figures, {equal} of them equal to the byte once named causes are "
        f"taken away; {sum(not verdict.agrees for verdict in checked)} disagree. Judged by {'; '.join(judges)}, "
        f"{' to '.join(dates[:: max(1, len(dates) - 1)])}. A cell of memory is what is left of predicted minus found, "
        "relative to found: 0 is equality to the byte. "
        "`counts` are parameters, FLOPs, saved bytes, bytes between steps and collectives.\n"
    )


def _counts_cell(verification: Verification) -> str:
    counts = [v for v in verification.verdicts if v.account.startswith(COUNTS)]
    wrong = [v.account for v in counts if v.status != UNCHECKED and not v.agrees]
    return f"differ: {', '.join(wrong)}" if wrong else f"{sum(v.status != UNCHECKED for v in counts)} equal"


def _peak_cells(plan: Verification) -> Iterator[str]:
    """Each peak's cell: of a pipeline, that of the role of which most is left."""
    for account in (*PEAKS, "memory.backward.layers"):
        rows = [verdict for verdict in plan.verdicts if verdict.account.partition("/")[0] == account and verdict.found]
        yield _difference_cell(max(rows, key=lambda verdict: abs(verdict.unexplained))) if rows else "–"


def _difference_cell(verdict: ComparedFigure) -> str:
    if verdict.unexplained == 0:
        return "0"
    difference = f"{verdict.unexplained / (verdict.found or 1):+.1e}"
    return difference if verdict.agrees else bold(difference)


def _cause_lines(verifications: Sequence[Verification]) -> Iterator[str]:
    """Every named cause with the largest amount it had, and where."""
    largest: dict[str, tuple[int, str]] = {}
    for verification in verifications:
        for verdict in verification.verdicts:
            for cause in verdict.causes:
                place = f"{verification.name}, {verdict.account}"
                largest[cause.name] = max(largest.get(cause.name, (0, "")), (abs(cause.amount), place))
    rows = ([name, f"{amount:,}", place] for name, (amount, place) in sorted(largest.items()))
    yield from table(("cause of a difference", "largest, bytes", "in"), rows)


def _open_lines(verifications: Sequence[Verification]) -> Iterator[str]:
    """The figures that were not checked, and why; those that disagree, and by how much."""
    reasons: dict[str, list[str]] = {}
    for verification in verifications:
        for verdict in verification.verdicts:
            if verdict.status == UNCHECKED:
                reasons.setdefault(f"{verdict.account} | {verdict.skipped}", []).append(verification.name)
    yield from table(("not checked", "why", "plans"), ([*key.split(" | "), ", ".join(n)] for key, n in reasons.items()))
    wrong = [(verification.name, v) for verification in verifications for v in verification.verdicts if not v.agrees]
    yield from table(
        ("disagrees", "figure", "predicted", "found", "left over"),
        ([name, v.account, f"{v.predicted:,}", f"{v.found:,}", f"{-v.unexplained:+,}"] for name, v in wrong),
    )
