"""What fits reach, class by class, beside what a fit over a whole publication reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ledger.evidence.microbenchmarks.sets import MeasurementKind, PublishedFit
from ledger.lab.calibration.calibrate import FittedDevice
from ledger.lab.calibration.curves import Calibration
from ledger.lab.calibration.fitting import relative_errors
from ledger.lab.markdown import MadeSection, table
from ledger.spec.kernel_families import form_of
from ledger.spec.plan import Accelerator

SCHEMA = "ledger-calibration/1"
FITS = MadeSection(
    "<!-- calibration: made by `make calibration` from specs/evidence -->", "<!-- end of calibration -->"
)
HEAD = ("kernel class", "points", "error", "bias", "in sample", "over the whole publication", "")
EQUAL = 5e-4  # half of the last digit that is printed
AT_OR_UNDER = "at or under"
ALONE = "one group of sizes: no fit"
NO_PRICE = "no price: the measurements scatter too far"
PRICED = "that fit is the price"


@dataclass(frozen=True)
class SetRow:
    """One set: held-out error and bias, and the error in sample; `error` is None where nothing could be held out.

    `bias` is then that of the price list's own curve, where it has one. `here` is the error of a fit over the whole
    publication on these points.
    """

    device: str
    what: str
    case: str
    regime: str
    points: int
    error: float | None
    bias: float | None
    seen: float | None
    published: PublishedFit | None
    here: float = 0.0
    prefers_published: bool = False
    is_usable: bool = True

    @property
    def verdict(self) -> str:
        """How the error compares with that of the fit over the whole publication, and why it is larger."""
        if self.error is None or self.seen is None:
            return ALONE if self.bias is None else f"{ALONE}, the bias is of the price list's own curve"
        if not self.is_usable:
            return NO_PRICE
        if self.published is None:
            return ""
        if self.prefers_published:
            return f"{PRICED}: {self.here:.1%} on these points"
        if (self.seen if self.published.in_sample else self.error) <= self.published.error + EQUAL:
            return AT_OR_UNDER
        if self.seen <= self.here + EQUAL:
            return f"over: that fit has {self.here:.1%} on these points, this one {self.seen:.1%} in sample"
        return "over"


def rows(fitted: Iterable[FittedDevice]) -> tuple[SetRow, ...]:
    """A row for each set, by device."""
    return tuple(_row(one, device.device.accelerator) for device in fitted for one in device.calibrations)


def case_names(kind: MeasurementKind, head: str = "head_dim") -> list[str]:
    """What tells a kind from others of its kernel class, in words."""
    cases = [f"{kind.ranks} ranks"] if kind.ranks else []
    cases += [f"{head} {kind.head_dim}"] if kind.head_dim else []
    cases += [] if kind.causal else ["no mask"]
    cases += ["with other kernels"] if kind.with_others else []
    return cases + ([kind.kernel] if kind.kernel else [])


def _row(one: Calibration, accelerator: Accelerator) -> SetRow:
    kind, fit, published = one.kind, one.fit, one.measured.published
    measured = (one.measured.device, kind.what, ", ".join(case_names(kind)), kind.regime, len(one.samples))
    if fit is None:
        return SetRow(*measured, None, _own_bias(one, accelerator), None, published)
    here = one.published_error[0] if one.published_error else published.here if published else 0.0
    return SetRow(*measured, fit.error, fit.bias, fit.seen, published, here, one.prefers_published, one.is_usable)


def _own_bias(one: Calibration, accelerator: Accelerator) -> float | None:
    """How far the price list's own curve is from the mean of a set that has no fit."""
    own = [curve for curve in accelerator.calibration if str(curve.what) == one.kind.what]
    if not own:
        return None
    return float(np.mean(relative_errors(form_of(one.kind.what), own[0].parameters, one.samples, one.sheet)))


def table_json(found: Sequence[SetRow]) -> dict[str, Any]:
    """The table for programs."""
    return {"schema": SCHEMA, "rows": [_row_json(row) for row in found]}


def _row_json(row: SetRow) -> dict[str, Any]:
    published = row.published
    return {
        "device": row.device,
        "what": row.what,
        "case": row.case,
        "regime": row.regime,
        "points": row.points,
        "held_out_error": row.error,
        "bias": row.bias,
        "in_sample_error": row.seen,
        "whole": published and {"points": published.points, "error": published.error, "held_out": published.held_out},
        "verdict": row.verdict,
    }


def cells(row: SetRow) -> tuple[str, ...]:
    """The cells of HEAD."""
    name = " ".join(part for part in (row.what, row.case, row.regime if row.regime == "burst" else "") if part)
    whole = f"{row.published.error:.1%} of {row.published.points}" if row.published else ""
    return name, str(row.points), _share(row.error), _share(row.bias, signed=True), _share(row.seen), whole, row.verdict


def _share(value: float | None, *, signed: bool = False) -> str:
    return "–" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def section(found: Sequence[SetRow]) -> Iterator[str]:
    """A sentence and a table for each device."""
    compared = [row for row in found if row.published and row.error is not None]
    under = sum(row.verdict == AT_OR_UNDER for row in compared)
    wider = sum(row.prefers_published for row in compared)
    yield (
        f"{len(found)} sets of measurements, {sum(row.points for row in found)} points; of {len(compared)} that are a "
        f"part of a larger publication, {wider} are priced by a fit over all of it, which errs no more on these points "
        f"than a fit on them errs on points it has not seen; {under} of the others are at or under that fit's error.\n"
    )
    for device in dict.fromkeys(row.device for row in found):
        yield f"**{device}**\n"
        yield from table(HEAD, (cells(row) for row in found if row.device == device))
