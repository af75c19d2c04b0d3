"""What fits reach, class by class, beside what a fit over a whole publication reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ledger.evidence.microbenchmarks.sets import MeasurementKind
from ledger.lab.calibration.calibrate import FittedDevice
from ledger.lab.calibration.curves import SetFit
from ledger.lab.markdown import MadeSection, bold, table

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


def set_fits(fitted: Iterable[FittedDevice]) -> tuple[SetFit, ...]:
    """Every set with its fit, by device."""
    return tuple(one for device in fitted for one in device.sets)


def verdict(one: SetFit) -> str:
    """How the error compares with that of the fit over the whole publication, and why it is larger."""
    published, here = one.measured.published, one.published_error
    if one.fit is None:
        return ALONE if one.own_bias is None else f"{ALONE}, the bias is of the price list's own curve"
    if not one.is_usable:
        return NO_PRICE
    if published is None:
        return ""
    if one.prefers_published:
        return f"{PRICED}: {here:.1%} on these points"
    if (one.fit.seen if published.in_sample else one.fit.error) <= published.error + EQUAL:
        return AT_OR_UNDER
    if one.fit.seen <= here + EQUAL:
        return f"over: that fit has {here:.1%} on these points, this one {one.fit.seen:.1%} in sample"
    return "over"


def case_names(kind: MeasurementKind, head: str = "head_dim") -> list[str]:
    """What tells a kind from others of its kernel class, in words."""
    cases = [f"{kind.ranks} ranks"] if kind.ranks else []
    cases += [f"{head} {kind.head_dim}"] if kind.head_dim else []
    cases += [] if kind.causal else ["no mask"]
    cases += ["with other kernels"] if kind.with_others else []
    return cases + ([kind.kernel] if kind.kernel else [])


def table_json(sets: Iterable[SetFit]) -> dict[str, Any]:
    """The table for programs."""
    return {"schema": SCHEMA, "rows": list(map(_set_json, sets))}


def _set_json(one: SetFit) -> dict[str, Any]:
    kind, fit, published = one.kind, one.fit, one.measured.published
    return {
        "device": one.measured.device,
        "what": str(kind.what),
        "case": ", ".join(case_names(kind)),
        "regime": kind.regime,
        "points": len(one.samples),
        "held_out_error": fit and fit.error,
        "bias": fit.bias if fit else one.own_bias,
        "in_sample_error": fit and fit.seen,
        "whole": published and {"points": published.points, "error": published.error, "held_out": published.held_out},
        "verdict": verdict(one),
    }


def cells(one: SetFit) -> tuple[str, ...]:
    """The cells of HEAD."""
    row = _set_json(one)
    name = " ".join(part for part in (row["what"], row["case"], "burst" if row["regime"] == "burst" else "") if part)
    shares = (_share(row["held_out_error"]), _share(row["bias"], signed=True), _share(row["in_sample_error"]))
    published = one.measured.published
    whole = f"{published.error:.1%} of {published.points}" if published else ""
    return name, str(row["points"]), *shares, whole, row["verdict"]


def _share(value: float | None, *, signed: bool = False) -> str:
    return "–" if value is None else f"{value:+.1%}" if signed else f"{value:.1%}"


def section(sets: Sequence[SetFit]) -> Iterator[str]:
    """A sentence and a table for each device."""
    compared = [one for one in sets if one.measured.published and one.fit]
    under = sum(verdict(one) == AT_OR_UNDER for one in compared)
    wider = sum(one.prefers_published for one in compared)
    points = sum(len(one.samples) for one in sets)
    yield (
        f"{len(sets)} sets of measurements, {points} points; of {len(compared)} that are a "
        f"part of a larger publication, {wider} are priced by a fit over all of it, which errs no more on these points "
        f"than a fit on them errs on points it has not seen; {under} of the others are at or under that fit's error.\n"
    )
    for device in dict.fromkeys(one.measured.device for one in sets):
        yield f"{bold(device)}\n"
        yield from table(HEAD, (cells(one) for one in sets if one.measured.device == device))
