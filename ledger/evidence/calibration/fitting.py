"""Fits the price forms to measured times: robust, non-negative, on relative error, judged on samples held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Variables = Mapping[str, Array]
Parameters = Mapping[str, float]

TILE = 128 * 256  # output elements one multiprocessor works on in the large kernels of cuBLAS
ROBUST = 0.02  # a relative error beyond this counts linearly (Huber), so one bad sample cannot bend a fit
FOLDS = 20  # at most; each group alone is held out where there are no more
STEPS = 80
ENOUGH = 1e-9  # a step that lowers the loss by less than this share of it is the last
# How far a parameter that samples hardly show strays from what is typical, as a natural logarithm: starts and shares of
# a bandwidth are alike on devices of one kind, what small shapes lose is not.
NEAR, FAR = 0.5, 1.0
EXACT = 1e-3  # measurements never scatter less
DEVIATION = 1.2533  # standard deviation of a normal distribution over its mean absolute deviation


@dataclass(frozen=True)
class Roof:
    """What a device's datasheet promises: dense FLOP/s of the dtype, B/s of its memory, how many multiprocessors."""

    peak: float = 1.0
    bandwidth: float = 1.0
    multiprocessors: int = 1


@dataclass(frozen=True)
class Sample:
    """A measured time in seconds, what it depends on, and the group that is held out together with it."""

    seconds: float
    variables: Mapping[str, float]
    group: str


@dataclass(frozen=True)
class Form:
    """A price formula: start values of its parameters (none is ever negative) and seconds, for arrays of variables.

    `loose`: parameters that samples may show hardly or not at all, and how far they stray; they are drawn to their
    start values, the more so the more the samples scatter.
    """

    start: Parameters
    seconds: Callable[[Parameters, Variables, Roof], Array]
    loose: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Fit:
    """Parameters fitted on all samples; `error` (mean absolute) and `bias` are relative and of held-out samples.

    `seen` is the mean absolute error on the samples that the parameters were fitted on.
    """

    parameters: Parameters
    error: float
    bias: float
    samples: int
    held_out: str
    seen: float = 0.0


def _matmul(p: Parameters, v: Variables, roof: Roof) -> Array:
    shape = (1 + p["k0"] / v["k"]) * (1 + p["c"] * roof.multiprocessors * TILE / (v["m"] * v["n"]))
    work = v["flops"] / (p["e"] * roof.peak) * shape
    return p["t0"] + np.maximum(work, v["bytes"] / (p["b"] * roof.bandwidth))


def _grouped(p: Parameters, v: Variables, roof: Roof) -> Array:
    """One grouped matmul, or several of a layer that were timed as one."""
    work = v["flops"] / (p["e"] * roof.peak) * (1 + p["m0"] / v["group"])
    return p["t0"] * v["kernels"] + np.maximum(work, v["bytes"] / (p["b"] * roof.bandwidth))


def _casting(p: Parameters, v: Variables, roof: Roof) -> Array:
    """A matmul with the casts of its operand, whose bytes take `d` times as long as at full bandwidth."""
    return _matmul(p, v, roof) + p["d"] * v["beside"] / roof.bandwidth


def _module(p: Parameters, v: Variables, roof: Roof) -> Array:
    """Attention with memory-bound kernels beside it, whose bytes are moved `c` times as long as at full bandwidth."""
    return _attention(p, v, roof) + p["c"] * v["beside"] / roof.bandwidth


def _attention(p: Parameters, v: Variables, roof: Roof) -> Array:
    return p["t0"] + v["flops"] * (1 + p["s0"] / v["seq"]) / (p["e"] * roof.peak)


def _bandwidth(p: Parameters, v: Variables, roof: Roof) -> Array:
    return p["t0"] + v["bytes"] / (p["b"] * roof.bandwidth)


def _collective(p: Parameters, v: Variables, _: Roof) -> Array:
    """`bus_bytes` is the payload times 2(n-1)/n for an all-reduce and (n-1)/n for the other collectives."""
    transfer = v["bus_bytes"] / p["B"]
    return p["a"] + transfer + np.sqrt(p["a"] * transfer)


def _send(p: Parameters, v: Variables, _: Roof) -> Array:
    return p["a"] + v["bytes"] / p["B"]


# `b` of matmuls that memory limits: 0.69 to 0.80 on A100, H100, H200, B200 and GB200, by shapes of fewer than 512 rows.
MATMUL: Parameters = {"e": 0.8, "t0": 3e-6, "b": 0.75, "k0": 100.0, "c": 0.03}
SHAPES: Parameters = {"t0": NEAR, "b": NEAR, "k0": FAR, "c": FAR}
FORMS: Mapping[str, Form] = {
    "matmul": Form(MATMUL, _matmul, SHAPES),
    "casting": Form({**MATMUL, "d": 1.5}, _casting, {**SHAPES, "d": FAR}),
    "grouped": Form({"e": 0.65, "t0": 1e-5, "b": 0.75, "m0": 200.0}, _grouped, {"t0": NEAR, "b": NEAR, "m0": FAR}),
    "attention": Form({"e": 0.5, "s0": 500.0, "t0": 5e-6}, _attention, {"s0": FAR, "t0": NEAR}),
    "module": Form({"e": 0.5, "s0": 500.0, "t0": 5e-6, "c": 1.0}, _module, {"s0": FAR, "t0": NEAR, "c": FAR}),
    "bandwidth": Form({"b": 0.7, "t0": 3e-6}, _bandwidth, {"t0": NEAR}),
    "collective": Form({"a": 1e-5, "B": 2e11}, _collective),
    "send": Form({"a": 1e-5, "B": 5e10}, _send),
}


def fit(name: str, samples: Sequence[Sample], roof: Roof = Roof(), fixed: Parameters | None = None) -> Fit:
    """The form's parameters, those in `fixed` kept; every error comes from a fit that had not seen the sample's group.

    Raises ValueError where fewer than two groups are left to hold out.
    """
    groups = sorted({sample.group for sample in samples})
    if len(groups) < 2:
        raise ValueError(f"a fit of {name} needs samples of two groups at least, to hold one out; got {len(groups)}")
    form, kept = FORMS[name], dict(fixed or {})
    folds = min(FOLDS, len(groups))
    fold = {group: index % folds for index, group in enumerate(groups)}
    errors: list[Array] = []
    for index in range(folds):
        seen = [sample for sample in samples if fold[sample.group] != index]
        unseen = [sample for sample in samples if fold[sample.group] == index]
        errors.append(relative_errors(name, _solve(form, seen, roof, kept), unseen, roof))
    every = np.concatenate(errors)
    how = f"{folds} folds over {len(groups)} groups"
    found = _solve(form, samples, roof, kept)
    in_sample = float(np.abs(relative_errors(name, found, samples, roof)).mean())
    return Fit(found, float(np.abs(every).mean()), float(every.mean()), len(samples), how, in_sample)


def relative_errors(name: str, parameters: Parameters, samples: Sequence[Sample], roof: Roof = Roof()) -> Array:
    """Predicted over measured seconds, minus 1, per sample."""
    variables, measured = _columns(samples)
    return FORMS[name].seconds(parameters, variables, roof) / measured - 1


def _columns(samples: Sequence[Sample]) -> tuple[dict[str, Array], Array]:
    names = samples[0].variables
    variables = {name: np.array([sample.variables[name] for sample in samples], dtype=float) for name in names}
    return variables, np.array([sample.seconds for sample in samples])


def _solve(form: Form, samples: Sequence[Sample], roof: Roof, fixed: Parameters) -> dict[str, float]:
    """The free parameters, first by the samples alone, then with what is loose drawn to what is typical."""
    variables, measured = _columns(samples)
    free = [name for name in form.start if name not in fixed]
    typical = np.log([form.start[name] for name in free])
    pulled = np.array([1 / form.loose[name] if name in form.loose else 0.0 for name in free])

    def named(logs: Array) -> dict[str, float]:
        return {**fixed, **dict(zip(free, np.exp(logs).tolist(), strict=True))}

    def alone(logs: Array) -> Array:
        return form.seconds(named(logs), variables, roof) / measured - 1

    robust = np.full(len(measured), ROBUST)
    logs = _descended(alone, typical, robust)
    scatter = max(DEVIATION * float(np.abs(alone(logs)).mean()), EXACT)
    weight = np.sqrt(scatter * min(scatter, ROBUST)) * pulled  # what a measurement weighs that scatters like the others
    limits = np.concatenate([robust, np.full(len(free), np.inf)])
    return named(_descended(lambda at: np.concatenate([alone(at), weight * (at - typical)]), logs, limits))


def _descended(residuals: Callable[[Array], Array], logs: Array, limits: Array) -> Array:
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
    return np.clip(np.linalg.solve(damped, -slopes.T @ (weights[:, 0] * now)), -1.0, 1.0)


def _loss(residual: Array, limits: Array) -> float:
    """Quadratic up to each residual's limit, linear beyond."""
    size = np.abs(residual)
    inside = np.minimum(size, limits)
    return float((inside * size - inside**2 / 2).sum())
