"""Sets of measurements -> curves of a price list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ledger.evidence.microbenchmarks.forms import Roof, Sample, roof
from ledger.evidence.microbenchmarks.samples import PASSES, form_of, samples
from ledger.evidence.microbenchmarks.sets import Kind, Series, Whole
from ledger.lab.calibration.fitting import Fit, fit, relative_errors
from ledger.spec.plan import Accelerator, Curve

DIGITS = 4  # of a parameter
ORDER: Mapping[str, tuple[str, ...]] = {
    "matmul": ("e", "t0", "b", "k0", "c"),
    "grouped": ("e", "t0", "b", "m0"),
    "attention": ("e", "s0", "t0"),
    "casting": ("e", "t0", "b", "k0", "c"),  # what is beside a kernel is no part of its price
    "module": ("e", "s0", "t0"),
    "bandwidth": ("b", "t0"),
    "collective": ("a", "B"),
    "send": ("a", "B"),
}
SHARES = ("e", "b")  # of a data sheet, so no more than 1
SCATTERED = 1.0  # a fit that errs by more on what it has not seen says less than the library's typical share does
EXTENTS = ("m", "n", "k", "rows", "tokens", "seq", "bytes")  # of records, in the order a region names them


@dataclass(frozen=True)
class Calibration:
    """A set with its fit; `fit` is None where only one group of sizes was measured, so that none can be held out."""

    series: Series
    roof: Roof
    samples: tuple[Sample, ...]
    fit: Fit | None

    @property
    def usable(self) -> bool:
        """Whether a price can be made of it: measurements of a busy machine may scatter too far for one."""
        return self.fit is not None and self.fit.error <= SCATTERED

    @property
    def predicted(self) -> tuple[float, ...]:
        """Seconds of each sample by the fit that is the price; none where there is no fit."""
        if self.fit is None:
            return ()
        published = self.series.whole
        parameters = published.parameters if self.wider and published else self.fit.parameters
        errors = relative_errors(self.series.kind.form, parameters, self.samples, self.roof)
        return tuple(sample.seconds * (1 + error) for sample, error in zip(self.samples, errors.tolist(), strict=True))

    @property
    def whole(self) -> tuple[float, float] | None:
        """Error and bias, on these samples, of a fit over the whole publication; None where its form is another."""
        published = self.series.whole
        if published is None or not published.parameters:
            return None
        errors = relative_errors(self.series.kind.form, published.parameters, self.samples, self.roof)
        return float(np.abs(errors).mean()), float(errors.mean())

    @property
    def wider(self) -> bool:
        """Whether a fit over the whole publication is the better price.

        It is where it errs no more on these samples than a fit on them errs on samples it has not seen.
        """
        return self.fit is not None and self.whole is not None and self.whole[0] <= self.fit.error


def calibrated(series: Series, accelerator: Accelerator) -> Calibration:
    """The fit of one set, judged on groups of sizes that it had not seen."""
    under, measured = roof(accelerator, series.kind.what, series.kind.dtype), samples(series.records)
    if len({sample.group for sample in measured}) < 2:
        return Calibration(series, under, measured, None)
    found = fit(series.kind.form, measured, under, _fixed(series.kind, measured))
    return Calibration(series, under, measured, found)


def _fixed(kind: Kind, measured: Sequence[Sample]) -> dict[str, float]:
    """At a constant number of tokens t0 and s0 of attention act alike, so one of them is fixed."""
    if kind.form != "attention":
        return {}
    work = np.array([sample.variables["flops"] / sample.variables["seq"] for sample in measured])
    return {"t0": 0.0} if np.ptp(work) <= 1e-6 * work.max() else {}


def chosen(found: Iterable[Calibration]) -> tuple[Calibration, ...]:
    """For each price the set it rests on: the kernel alone, fused, under a causal mask, then that of most samples.

    A class whose measurements scatter too far has no price.
    """
    best: dict[tuple[str, str, int, int], Calibration] = {}
    for one in found:
        kind = one.series.kind
        key = (kind.what, kind.regime, kind.ranks, kind.head_dim)
        if one.usable and (key not in best or _rank(one) > _rank(best[key])):
            best[key] = one
    return tuple(best.values())


def _rank(one: Calibration) -> tuple[bool, bool, bool, int]:
    kind = one.series.kind
    return not kind.module, kind.kernel in ("", "fused"), kind.causal, len(one.samples)


def curves(found: Iterable[Calibration]) -> tuple[Curve, ...]:
    """The prices of chosen sets, one of a kind, each from a kernel timed alone where there is one."""
    made: dict[tuple[str, str, int, int], Curve] = {}
    for one in sorted(found, key=lambda one: one.series.kind.module):
        for curve in _passes(_curve(one), one.series.kind):
            made.setdefault((curve.what, curve.regime, curve.ranks, curve.head_dim), curve)
    return tuple(made.values())


def _passes(curve: Curve, kind: Kind) -> Iterator[Curve]:
    """The price of each pass; passes of attention that were timed together have their common rate."""
    if form_of(kind.what) != "attention" or kind.what.endswith(PASSES):
        yield curve
        return
    region = f"{curve.region}; forward and backward were timed together, so both have their common rate"
    yield from (replace(curve, what=f"{kind.what}.{name}", region=region) for name in PASSES)


def _curve(one: Calibration) -> Curve:
    if one.fit is None:
        raise ValueError(f"{one.series.kind.what} has no fit")
    kind, published = one.series.kind, one.series.whole
    if one.wider and one.whole and published:
        return _wide(kind, published, one)
    return Curve(
        what=kind.what,
        form=form_of(kind.what),
        parameters={name: rounded(one.fit.parameters[name]) for name in ORDER[kind.form]},
        error=round(one.fit.error, DIGITS),
        regime=kind.regime,
        source=f"{one.series.source} ({one.series.file})",
        bias=round(one.fit.bias, DIGITS),
        held_out=f"{one.fit.held_out}, {one.fit.samples} measurements",
        region=_region(one),
        ranks=kind.ranks,
        head_dim=kind.head_dim,
    )


def _wide(kind: Kind, published: Whole, one: Calibration) -> Curve:
    """The price by a fit over the whole publication, with its own error."""
    here, bias = one.whole or (0.0, 0.0)
    return Curve(
        what=kind.what,
        form=form_of(kind.what),
        parameters={key: min(value, 1.0) if key in SHARES else value for key, value in published.parameters.items()},
        error=round(max(published.error, here), DIGITS),
        regime=kind.regime,
        source=f"{one.series.source}: a fit over {published.points} measurements, of which {len(one.samples)} are"
        f" carried, {here:.1%} on these ({one.series.file})",
        bias=round(bias, DIGITS),
        held_out=published.held_out,
        region=_region(one),
        ranks=kind.ranks,
        head_dim=kind.head_dim,
    )


def rounded(value: float) -> float:
    """A parameter to the digits that are written."""
    return float(f"{value:.{DIGITS}g}")


def _region(one: Calibration) -> str:
    """The sizes that were measured."""
    records, parts = one.series.records, []
    for name in EXTENTS:
        sizes = [value for record in records if isinstance(value := record.get(name), int | float)]
        if sizes:
            parts.append(f"{name} {min(sizes):,.0f} to {max(sizes):,.0f}")
    if not one.series.kind.causal:
        parts.append("no mask")
    if one.series.kind.module:
        parts.append("kernels beside it taken out at the rate that fits")
    return ", ".join(parts)
