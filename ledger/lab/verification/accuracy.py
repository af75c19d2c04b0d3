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


def rewritten(document: str, found: Sequence[Verification]) -> str:
    """The document with its section made anew; ValueError where it has no place for it."""
    return DERIVATIONS.put_into(document, section(found))


def section(found: Sequence[Verification]) -> Iterator[str]:
    """A line for each plan, then what differences are called and how large they get, then what was not checked."""
    yield from (*_summary(found), *_plans(found), *_causes(found), *_open(found))


def _summary(found: Sequence[Verification]) -> Iterator[str]:
    verdicts = [verdict for one in found for verdict in one.verdicts]
    checked = [verdict for verdict in verdicts if verdict.status != UNCHECKED]
    equal = sum(verdict.status in ("equal", "explained") for verdict in checked)
    judges = sorted({one.origin.versions for one in found})
    dates = sorted({one.origin.date for one in found})
    if not found:
        yield "Nothing is recorded.\n"
        return
    yield (
        f"{len(found)} plans, {len(checked)} figures, {equal} of them equal to the byte once named causes are taken "
        f"away; {sum(not verdict.agrees for verdict in checked)} disagree. Judged by {'; '.join(judges)}, "
        f"{' to '.join(dates[:: max(1, len(dates) - 1)])}. A cell of memory is what is left of predicted minus found, "
        "relative to found: 0 is equality to the byte. "
        "`counts` are parameters, FLOPs, saved bytes, bytes between steps and collectives.\n"
    )


def _plans(found: Sequence[Verification]) -> Iterator[str]:
    yield from table(HEAD, ([one.name, _counted(one), *_left(one)] for one in found))


def _counted(one: Verification) -> str:
    counts = [v for v in one.verdicts if v.account.startswith(COUNTS)]
    wrong = [v.account for v in counts if v.status != UNCHECKED and not v.agrees]
    return f"differ: {', '.join(wrong)}" if wrong else f"{sum(v.status != UNCHECKED for v in counts)} equal"


def _left(one: Verification) -> Iterator[str]:
    """Each peak's cell: of a pipeline, that of the role of which most is left."""
    for account in (*PEAKS, "memory.backward.layers"):
        mine = [verdict for verdict in one.verdicts if verdict.account.partition("/")[0] == account and verdict.found]
        yield _cell(max(mine, key=lambda verdict: abs(verdict.unexplained))) if mine else "–"


def _cell(verdict: ComparedFigure) -> str:
    if verdict.unexplained == 0:
        return "0"
    left = f"{verdict.unexplained / (verdict.found or 1):+.1e}"
    return left if verdict.agrees else bold(left)


def _causes(found: Sequence[Verification]) -> Iterator[str]:
    """Every named cause with the largest amount it had, and where."""
    largest: dict[str, tuple[int, str]] = {}
    for one in found:
        for verdict in one.verdicts:
            for cause in verdict.causes:
                place = f"{one.name}, {verdict.account}"
                largest[cause.name] = max(largest.get(cause.name, (0, "")), (abs(cause.amount), place))
    rows = ([name, f"{amount:,}", place] for name, (amount, place) in sorted(largest.items()))
    yield from table(("cause of a difference", "largest, bytes", "in"), rows)


def _open(found: Sequence[Verification]) -> Iterator[str]:
    """What was not checked, and why; what disagrees, and by how much."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        for verdict in one.verdicts:
            if verdict.status == UNCHECKED:
                reasons.setdefault(f"{verdict.account} | {verdict.skipped}", []).append(one.name)
    yield from table(("not checked", "why", "plans"), ([*key.split(" | "), ", ".join(n)] for key, n in reasons.items()))
    wrong = [(one.name, v) for one in found for v in one.verdicts if not v.agrees]
    yield from table(
        ("disagrees", "figure", "predicted", "found", "left over"),
        ([name, v.account, f"{v.predicted:,}", f"{v.found:,}", f"{-v.unexplained:+,}"] for name, v in wrong),
    )
