"""Sets of measurements fitted to curves of a price list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ledger.books.prices import DEVIATION
from ledger.evidence.microbenchmarks.samples import TimedSample, samples
from ledger.evidence.microbenchmarks.sets import MeasurementKind, MeasurementSet, PublishedFit
from ledger.price_forms import PRICE_FORMS, DataSheet, PriceForm
from ledger.spec.kernel_classes import KernelClass, form_of, passes_of
from ledger.spec.plan import Accelerator, Curve
from ledger.spec.price_lists import DIGITS

Array = NDArray[np.float64]
Parameters = Mapping[str, float]

ROBUST = 0.02  # a relative error beyond this counts linearly (Huber), so one bad sample cannot bend a fit
FOLDS = 20  # at most; each group alone is held out where there are no more
STEPS = 80
ENOUGH = 1e-9  # a step that lowers the loss by less than this share of it is the last
EXACT = 1e-3  # measurements never scatter less
NO_SHEET = DataSheet()  # for forms that read nothing of a data sheet


@dataclass(frozen=True)
class FormFit:
    """Parameters fitted on all samples; `error` (mean absolute) and `bias` are relative and of held-out samples.

    `seen` is the mean absolute error on the samples that the parameters were fitted on.
    """

    parameters: Parameters
    error: float
    bias: float
    samples: int
    held_out: str
    seen: float = 0.0


def fit(
    name: str, samples: Sequence[TimedSample], sheet: DataSheet = NO_SHEET, fixed: Parameters | None = None
) -> FormFit:
    """The form's parameters, those in `fixed` kept; every error comes from a fit that had not seen the sample's group.

    Raises ValueError where fewer than two groups are left to hold out.
    """
    groups = sorted({sample.group for sample in samples})
    if len(groups) < 2:
        raise ValueError(f"a fit of {name} needs samples of two groups at least, to hold one out; got {len(groups)}")
    form, fixed_parameters = PRICE_FORMS[name], dict(fixed or {})
    folds = min(FOLDS, len(groups))
    fold = {group: index % folds for index, group in enumerate(groups)}
    errors: list[Array] = []
    for index in range(folds):
        seen = [sample for sample in samples if fold[sample.group] != index]
        unseen = [sample for sample in samples if fold[sample.group] == index]
        errors.append(relative_errors(name, _solve(form, seen, sheet, fixed_parameters), unseen, sheet))
    held_out = np.concatenate(errors)
    method = f"{folds} folds over {len(groups)} groups"
    parameters = _solve(form, samples, sheet, fixed_parameters)
    in_sample = float(np.abs(relative_errors(name, parameters, samples, sheet)).mean())
    return FormFit(parameters, float(np.abs(held_out).mean()), float(held_out.mean()), len(samples), method, in_sample)


def relative_errors(
    name: str, parameters: Parameters, samples: Sequence[TimedSample], sheet: DataSheet = NO_SHEET
) -> Array:
    """Predicted over measured seconds, minus 1, per sample."""
    sizes, measured = _columns(samples)
    errors: Array = PRICE_FORMS[name].seconds(parameters, sizes, sheet) / measured - 1
    return errors


def _columns(samples: Sequence[TimedSample]) -> tuple[dict[str, Array], Array]:
    """Each size of all samples, and their seconds."""
    sizes = {name: np.array([sample.sizes[name] for sample in samples], dtype=float) for name in samples[0].sizes}
    return sizes, np.array([sample.seconds for sample in samples])


def _solve(form: PriceForm, samples: Sequence[TimedSample], sheet: DataSheet, fixed: Parameters) -> dict[str, float]:
    """The free parameters, first by the samples alone, then with those that may stray drawn to what is typical."""
    sizes, measured = _columns(samples)
    free = [parameter for parameter in form.parameters if parameter.name not in fixed]
    typical = np.log([parameter.typical for parameter in free])
    pull = np.array([1 / parameter.strays if parameter.strays else 0.0 for parameter in free])

    def named(logs: Array) -> dict[str, float]:
        return {**fixed, **dict(zip((parameter.name for parameter in free), np.exp(logs).tolist(), strict=True))}

    def errors(logs: Array) -> Array:
        relative: Array = form.seconds(named(logs), sizes, sheet) / measured - 1
        return relative

    robust = np.full(len(samples), ROBUST)
    logs = _descend(errors, typical, robust)
    scatter = max(DEVIATION * float(np.abs(errors(logs)).mean()), EXACT)
    weight = np.sqrt(scatter * min(scatter, ROBUST)) * pull  # what a measurement weighs that scatters like the others
    limits = np.concatenate([robust, np.full(len(free), np.inf)])
    return named(_descend(lambda at: np.concatenate([errors(at), weight * (at - typical)]), logs, limits))


def _descend(residuals: Callable[[Array], Array], logs: Array, limits: Array) -> Array:
    """Damped Gauss-Newton on the logarithms of the parameters, which keeps them positive."""
    damping, best = 1e-2, residuals(logs)
    for _ in range(STEPS):
        step = _damped_step(residuals, logs, best, damping, limits)
        trial = residuals(logs + step)
        gain = _loss(best, limits) - _loss(trial, limits)
        if gain > 0:
            logs, best, damping = logs + step, trial, damping / 3
            if gain < ENOUGH * _loss(best, limits):
                break
        else:
            damping = min(damping * 4, 1e6)
    return logs


def _damped_step(residuals: Callable[[Array], Array], logs: Array, now: Array, damping: float, limits: Array) -> Array:
    """One damped step, limited to a factor e per parameter; errors beyond their limits weigh less."""
    width = 1e-6
    slopes = np.stack([(residuals(logs + width * unit) - now) / width for unit in np.eye(len(logs))], axis=1)
    weights = np.minimum(1.0, limits / np.maximum(np.abs(now), 1e-12))[:, None]
    normal = slopes.T @ (weights * slopes)
    damped = normal + damping * (np.diag(np.diag(normal)) + 1e-9 * np.eye(len(logs)))
    try:
        return np.clip(np.linalg.solve(damped, -slopes.T @ (weights[:, 0] * now)), -1.0, 1.0)
    except np.linalg.LinAlgError:  # samples so far apart that nothing is left of a slope: more damping
        return np.zeros_like(logs)


def _loss(residual: Array, limits: Array) -> float:
    """Quadratic up to each residual's limit, linear beyond."""
    size = np.abs(residual)
    inside = np.minimum(size, limits)
    return float((inside * size - inside**2 / 2).sum())


SCATTERED = 1.0  # a fit that errs by more on what it has not seen says less than the library's typical share does
EXTENTS = ("m", "n", "k", "rows", "tokens", "seq", "bytes")  # of records, in the order a region names them


@dataclass(frozen=True)
class SetFit:
    """A set with its fit; `fit` is None where only one group of sizes was measured, so that none can be held out.

    `own_bias` is then how far the price list's own curve is from the mean of the set, where it has one.
    """

    measured: MeasurementSet
    sheet: DataSheet
    samples: tuple[TimedSample, ...]
    fit: FormFit | None
    own_bias: float | None = None

    @property
    def kind(self) -> MeasurementKind:
        """The kernel class of the measurements that the curve is fitted to, with their regime and dtype."""
        return self.measured.kind

    @property
    def is_usable(self) -> bool:
        """Whether a price can be made of it: measurements of a busy machine may scatter too far for one."""
        return self.fit is not None and self.fit.error <= SCATTERED

    def errors(self, parameters: Mapping[str, float]) -> Array:
        """Predicted over measured seconds, minus 1, of each sample by these parameters."""
        return relative_errors(self.kind.form, parameters, self.samples, self.sheet)

    @property
    def predicted(self) -> tuple[float, ...]:
        """Seconds of each sample by the fit that is the price; none where there is no fit."""
        if self.fit is None:
            return ()
        published = self.measured.published
        errors = self.errors(published.parameters if published and self.prefers_published else self.fit.parameters)
        return tuple(sample.seconds * (1 + error) for sample, error in zip(self.samples, errors.tolist(), strict=True))

    @property
    def published_error(self) -> float:
        """Mean error on these samples of a fit over the whole publication; 0 where nobody knows it."""
        published = self.measured.published
        if published is None or not published.parameters:
            return published.here if published else 0.0
        return float(np.abs(self.errors(published.parameters)).mean())

    @property
    def prefers_published(self) -> bool:
        """Whether a fit over the whole publication is the better price.

        It is where it errs no more on these samples than a fit on them errs on samples it has not seen.
        """
        published = self.measured.published
        is_published = published is not None and bool(published.parameters)
        return is_published and self.fit is not None and self.published_error <= self.fit.error


def fit_set(measured: MeasurementSet, accelerator: Accelerator) -> SetFit:
    """The fit of one set, judged on groups of sizes that it had not seen."""
    kind, timed = measured.kind, samples(measured.records)
    sheet = kind.data_sheet(accelerator)
    if len({sample.group for sample in timed}) > 1:
        return SetFit(measured, sheet, timed, fit(kind.form, timed, sheet, _fixed_parameters(kind, timed)))
    listed = [curve.parameters for curve in accelerator.calibration if curve.what == kind.what]
    errors = [relative_errors(form_of(kind.what), parameters, timed, sheet) for parameters in listed[:1]]
    return SetFit(measured, sheet, timed, None, float(np.mean(errors)) if errors else None)


def _fixed_parameters(kind: MeasurementKind, timed: Sequence[TimedSample]) -> dict[str, float]:
    """At a constant number of tokens t0 and s0 of attention act alike, so one of them is fixed."""
    if kind.form != "attention":
        return {}
    work = np.array([sample.sizes["flops"] / sample.sizes["seq"] for sample in timed])
    return {"t0": 0.0} if np.ptp(work) <= 1e-6 * work.max() else {}


def choose(sets: Iterable[SetFit]) -> tuple[SetFit, ...]:
    """For each price the set it rests on: the kernel alone, fused, under a causal mask, then that of most samples.

    A class whose measurements scatter too far has no price.
    """
    best: dict[tuple[KernelClass, str, int, int], SetFit] = {}
    for set_fit in sets:
        key = set_fit.kind.price
        if set_fit.is_usable and (key not in best or _rank(set_fit) > _rank(best[key])):
            best[key] = set_fit
    return tuple(best.values())


def _rank(set_fit: SetFit) -> tuple[bool, bool, bool, int]:
    kind = set_fit.kind
    return not kind.with_others, kind.kernel in ("", "fused"), kind.causal, len(set_fit.samples)


def price_key(curve: Curve) -> tuple[KernelClass, str, int, int]:
    """The class, regime, ranks and head size, which tell a price from the others of a list."""
    return curve.what, curve.regime, curve.ranks, curve.head_dim


def curves(chosen: Iterable[SetFit]) -> tuple[Curve, ...]:
    """The prices of chosen sets, one of a kind, each from a kernel timed alone where there is one."""
    prices: dict[tuple[KernelClass, str, int, int], Curve] = {}
    for set_fit in sorted(chosen, key=lambda set_fit: set_fit.kind.with_others):
        for curve in _curves_of_passes(_curve(set_fit)):
            prices.setdefault(price_key(curve), curve)
    return tuple(prices.values())


def _curves_of_passes(curve: Curve) -> Iterator[Curve]:
    """The price of each pass; passes of attention that were timed together have their common rate."""
    passes = passes_of(curve.what)
    region = f"{curve.region}; forward and backward were timed together, so both have their common rate"
    yield from ((replace(curve, what=kernel, region=region) for kernel in passes) if len(passes) > 1 else (curve,))


def _curve(set_fit: SetFit) -> Curve:
    """The price by the fit on these samples, or by one over the whole publication where that is better."""
    if set_fit.fit is None:
        raise ValueError(f"{set_fit.kind.what} has no fit")
    kind, published = set_fit.kind, set_fit.measured.published
    form = form_of(kind.what)
    # what was timed beside a kernel is no part of its price
    parameters = PRICE_FORMS[form].within(set_fit.fit.parameters)
    curve = Curve(
        what=kind.what,
        form=form,
        parameters={name: rounded(value) for name, value in parameters.items()},
        error=round(set_fit.fit.error, DIGITS),
        regime=kind.regime,
        source=set_fit.measured.citation,
        bias=round(set_fit.fit.bias, DIGITS),
        held_out=f"{set_fit.fit.held_out}, {set_fit.fit.samples} measurements",
        region=_region(set_fit),
        ranks=kind.ranks,
        head_dim=kind.head_dim,
    )
    return _published_curve(curve, published, set_fit) if set_fit.prefers_published and published else curve


def _published_curve(curve: Curve, published: PublishedFit, set_fit: SetFit) -> Curve:
    """The price by a fit over the whole publication, with its own error."""
    here = set_fit.published_error
    return replace(
        curve,
        parameters=PRICE_FORMS[curve.form].within(published.parameters),
        error=round(max(published.error, here), DIGITS),
        source=f"{set_fit.measured.source}: a fit over {published.points} measurements, of which "
        f"{len(set_fit.samples)} are carried, {here:.1%} on these ({set_fit.measured.file})",
        bias=round(float(set_fit.errors(published.parameters).mean()), DIGITS),
        held_out=published.held_out,
    )


def rounded(value: float) -> float:
    """A parameter to the digits that are written."""
    return float(f"{value:.{DIGITS}g}")


def _region(set_fit: SetFit) -> str:
    """The sizes that were measured."""
    records, parts = set_fit.measured.records, []
    for name in EXTENTS:
        sizes = [value for record in records if isinstance(value := record.get(name), int | float)]
        if sizes:
            parts.append(f"{name} {min(sizes):,.0f} to {max(sizes):,.0f}")
    if not set_fit.kind.causal:
        parts.append("no mask")
    if set_fit.kind.with_others:
        parts.append("kernels beside it taken out at the rate that fits")
    return ", ".join(parts)
