"""What fits reach, class by class, beside what a fit over a whole publication reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ledger.evidence.microbenchmarks.samples import form_of
from ledger.evidence.microbenchmarks.sets import Whole
from ledger.lab.calibration.calibrate import Fitted
from ledger.lab.calibration.curves import Calibration
from ledger.lab.calibration.fitting import relative_errors
from ledger.lab.verification.accuracy import table
from ledger.spec.plan import Accelerator

SCHEMA = "ledger-calibration/1"
BEGIN = "<!-- calibration: made by `make calibration` from specs/evidence -->"
END = "<!-- end of calibration -->"
HEAD = ("kernel class", "points", "error", "bias", "in sample", "over the whole publication", "")
EQUAL = 5e-4  # half of the last digit that is printed
AT_OR_UNDER = "at or under"
ALONE = "one group of sizes: no fit"
NO_PRICE = "no price: the measurements scatter too far"
PRICED = "that fit is the price"


@dataclass(frozen=True)
class Row:
    """One set: held-out error and bias, and the error in sample; `error` is None where nothing could be held out.

    `bias` is then that of the price list's own curve, where it has one. `here` is the error of a fit over the whole
    publication on these points; `wider` whether that fit is the price.
    """

    device: str
    what: str
    case: str
    regime: str
    points: int
    error: float | None
    bias: float | None
    seen: float | None
    whole: Whole | None
    here: float = 0.0
    wider: bool = False
    usable: bool = True

    @property
    def verdict(self) -> str:
        """How the error compares with that of the fit over the whole publication, and why it is larger."""
        if self.error is None or self.seen is None:
            return ALONE if self.bias is None else f"{ALONE}, the bias is of the price list's own curve"
        if not self.usable:
            return NO_PRICE
        if self.whole is None:
            return ""
        if self.wider:
            return f"{PRICED}: {self.here:.1%} on these points"
        if (self.seen if self.whole.in_sample else self.error) <= self.whole.error + EQUAL:
            return AT_OR_UNDER
        if self.seen <= self.here + EQUAL:
            return f"over: that fit has {self.here:.1%} on these points, this one {self.seen:.1%} in sample"
        return "over"


def rows(fitted: Iterable[Fitted]) -> tuple[Row, ...]:
    """A row for each set, by device."""
    return tuple(_row(one, device.device.accelerator) for device in fitted for one in device.found)


def _row(one: Calibration, accelerator: Accelerator) -> Row:
    series, kind, fit = one.series, one.series.kind, one.fit
    cases = [f"{kind.ranks} ranks"] if kind.ranks else []
    cases += [f"head_dim {kind.head_dim}"] if kind.head_dim else []
    cases += [] if kind.causal else ["no mask"]
    cases += ["with other kernels"] if kind.module else []
    cases += [kind.kernel] if kind.kernel else []
    case = ", ".join(cases)
    whole = series.whole
    if fit is None:
        bias = _against(one, accelerator)
        return Row(series.device, kind.what, case, kind.regime, len(one.samples), None, bias, None, whole)
    here = one.whole[0] if one.whole else whole.here if whole else 0.0
    measured = (series.device, kind.what, case, kind.regime, fit.samples)
    return Row(*measured, fit.error, fit.bias, fit.seen, whole, here, one.wider, one.usable)


def _against(one: Calibration, accelerator: Accelerator) -> float | None:
    """How far the price list's own curve is from the mean of a set that has no fit."""
    own = [curve for curve in accelerator.calibration if curve.what == one.series.kind.what]
    if not own:
        return None
    errors = relative_errors(form_of(one.series.kind.what), own[0].parameters, one.samples, one.roof)
    return float(np.mean(errors))


def published(found: Sequence[Row]) -> dict[str, Any]:
    """The table for programs."""
    return {"schema": SCHEMA, "rows": [_object(row) for row in found]}


def _object(row: Row) -> dict[str, Any]:
    whole = row.whole
    return {
        "device": row.device,
        "what": row.what,
        "case": row.case,
        "regime": row.regime,
        "points": row.points,
        "held_out_error": row.error,
        "bias": row.bias,
        "in_sample_error": row.seen,
        "whole": whole and {"points": whole.points, "error": whole.error, "held_out": whole.held_out},
        "verdict": row.verdict,
    }


def cells(row: Row) -> tuple[str, ...]:
    """The cells of HEAD."""
    name = " ".join(part for part in (row.what, row.case, row.regime if row.regime == "burst" else "") if part)
    whole = f"{row.whole.error:.1%} of {row.whole.points}" if row.whole else ""
    return name, str(row.points), _share(row.error), _share(row.bias, signed=True), _share(row.seen), whole, row.verdict


def _share(value: float | None, *, signed: bool = False) -> str:
    return "–" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def rewritten(document: str, found: Sequence[Row]) -> str:
    """The document with its table made anew; ValueError where it has no place for it."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the document has no lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n\n" + "\n".join(section(found)) + f"\n{end}{after}"


def section(found: Sequence[Row]) -> Iterator[str]:
    """A sentence and a table for each device."""
    compared = [row for row in found if row.whole and row.error is not None]
    under = sum(row.verdict == AT_OR_UNDER for row in compared)
    wider = sum(row.wider for row in compared)
    yield (
        f"{len(found)} sets of measurements, {sum(row.points for row in found)} points; of {len(compared)} that are a "
        f"part of a larger publication, {wider} are priced by a fit over all of it, which errs no more on these points "
        f"than a fit on them errs on points it has not seen; {under} of the others are at or under that fit's error.\n"
    )
    for device in dict.fromkeys(row.device for row in found):
        yield f"**{device}**\n"
        yield from table(HEAD, (cells(row) for row in found if row.device == device))
