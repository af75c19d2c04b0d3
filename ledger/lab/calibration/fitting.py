"""Fits the price forms to measured times: robust, non-negative, on relative error, judged on samples held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.books.prices import DEVIATION
from ledger.evidence.microbenchmarks.samples import TimedSample
from ledger.price_forms import PRICE_FORMS, DataSheet, PriceForm

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
    form, kept = PRICE_FORMS[name], dict(fixed or {})
    folds = min(FOLDS, len(groups))
    fold = {group: index % folds for index, group in enumerate(groups)}
    errors: list[Array] = []
    for index in range(folds):
        seen = [sample for sample in samples if fold[sample.group] != index]
        unseen = [sample for sample in samples if fold[sample.group] == index]
        errors.append(relative_errors(name, _solve(form, seen, sheet, kept), unseen, sheet))
    held_out = np.concatenate(errors)
    method = f"{folds} folds over {len(groups)} groups"
    parameters = _solve(form, samples, sheet, kept)
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
        return {**fixed, **dict(zip((one.name for one in free), np.exp(logs).tolist(), strict=True))}

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
        step = _step(residuals, logs, best, damping, limits)
        trial = residuals(logs + step)
        gain = _loss(best, limits) - _loss(trial, limits)
        if gain > 0:
            logs, best, damping = logs + step, trial, damping / 3
            if gain < ENOUGH * _loss(best, limits):
                break
        else:
            damping = min(damping * 4, 1e6)
    return logs


def _step(residuals: Callable[[Array], Array], logs: Array, now: Array, damping: float, limits: Array) -> Array:
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
