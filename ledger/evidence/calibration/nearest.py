"""The microbenchmarks nearest to the kernels of a plan, each beside what the plan's price list says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import exp, log
from pathlib import Path

from ledger.books import prices
from ledger.books.results import Compiled, KernelTime
from ledger.evidence.calibration.forms import Sample, predicted, roof
from ledger.evidence.calibration.measured import read_evidence
from ledger.evidence.calibration.samples import COLLECTIVES, PASSES, form_of, samples
from ledger.evidence.calibration.sets import Series, named, sets
from ledger.evidence.nearby import Nearby
from ledger.spec.library import default_library
from ledger.spec.plan import Accelerator, Curve, Plan
from ledger.spec.problems import SpecError

MOST = 16
NEAR = log(2.0)  # within a factor of two of the plan's kernel in everything that prices it
SAME = 0.1  # a size that differs less is not worth a word
SHARE = {"forward": 2 / 7, "backward": 5 / 7}  # of FLOPs, where both passes were timed together
DEVICE = re.compile(r"^device: *(\S+)", re.MULTILINE)
TOP = 2000  # characters in which a file says its device


@dataclass(frozen=True)
class Measured:
    """A set with what each of its records gives a fit."""

    series: Series
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Match:
    """A measurement near a kernel: how many times as much it does as the kernel, in its first size."""

    measured: Measured
    index: int
    times: float
    distance: float


def nearest(compiled: Compiled) -> tuple[Nearby, ...]:
    """Measurements of the plan's device near its kernels, of the kernels that take most of the step first."""
    plan = compiled.plan
    measured = _measured(plan.accelerator.name)
    if not compiled.roles or not measured:
        return ()
    found: dict[tuple[str, str, int], Nearby] = {}
    slowest = max(compiled.roles, key=lambda role: sum(one.seconds * one.times for one in role.kernels))
    for kernel in _alike(sorted(slowest.kernels, key=lambda one: -one.seconds * one.times)):
        match = min(_matches(kernel, plan, measured), key=lambda one: one.distance, default=None)
        if match is None or match.distance > NEAR:
            continue
        series = match.measured.series
        key = (series.file, f"{series.kind}", match.index)
        if key not in found and (told := _told(match, plan.accelerator)):
            found[key] = told
        if len(found) == MOST:
            break
    return tuple(found.values())


def _alike(kernels: Iterable[KernelTime]) -> Iterator[KernelTime]:
    """The first of the kernels that are of one class and size."""
    seen = set()
    for kernel in kernels:
        size = (kernel.kind, kernel.flops, kernel.bytes, kernel.payload)
        if size not in seen:
            seen.add(size)
            yield kernel


def _measured(device: str) -> tuple[Measured, ...]:
    """Every set of the library that was measured on this device alone, kernels timed with others left out."""
    folder = default_library().folder("evidence")
    stamped = ((path, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.yaml")))
    return tuple(one for path, stamp in stamped if _device(path, stamp) == device for one in _of_file(path, stamp))


@cache
def _device(path: Path, _stamp: int) -> str:
    """The device that a file says it is about; a file of another is not read."""
    said = DEVICE.search(path.read_text(encoding="utf-8")[:TOP])
    return said[1] if said else ""


@cache
def _of_file(path: Path, _stamp: int) -> tuple[Measured, ...]:
    """The sets of a file, read once per state of it; none of one that is no evidence."""
    try:
        alone = [one for one in sets(read_evidence(path)) if not one.kind.module and one.kind.causal]
    except SpecError:
        return ()
    return tuple(Measured(one, samples(one.records)) for one in alone)


def _matches(kernel: KernelTime, plan: Plan, measured: Iterable[Measured]) -> Iterator[Match]:
    """Every measurement of the kernel's class, with its distance in what prices the class."""
    what, ranks = _class(kernel, plan)
    widths = {0, *(group.attention.head_dim for group in plan.model.groups)}
    for one in measured:
        kind = one.series.kind
        share = SHARE[what.rpartition(".")[2]] if what.startswith(f"{kind.what}.") and what.endswith(PASSES) else 1.0
        if (kind.what == what or share != 1.0) and kind.ranks in (0, ranks) and kind.head_dim in widths:
            for index, sample in enumerate(one.samples):
                ratios = list(_ratios(kernel, sample, form_of(what), share))
                yield Match(one, index, exp(ratios[0]), max(map(abs, ratios)))


def _class(kernel: KernelTime, plan: Plan) -> tuple[str, int]:
    """The price class of a kernel and, of a transfer, its ranks; one beyond a node has a class of its own."""
    collective, _, axis = kernel.kind.partition(".")
    if collective in (*COLLECTIVES, "send") and axis:
        where = prices.mesh(axis, plan.parallelism, plan.accelerator, plan.cluster)
        return (f"{collective}.scaleout", where.size) if where.domains > 1 else (collective, where.size)
    found = prices.curve(plan.accelerator, kernel.kind)
    return (found.what if found else kernel.kind), 0


def _ratios(kernel: KernelTime, sample: Sample, form: str, share: float) -> Iterator[float]:
    """Logarithms of the measurement's sizes over the kernel's."""
    sizes: Mapping[str, float] = sample.variables
    several = sizes.get("kernels", 1.0)
    if form in ("matmul", "grouped", "attention"):
        yield log(sizes["flops"] * share / several / max(kernel.flops, 1.0))
    if form in ("matmul", "grouped", "bandwidth"):
        yield log(sizes["bytes"] / several / max(kernel.bytes, 1.0))
    if form in ("collective", "send"):
        yield log(sizes["bytes"] / max(kernel.payload, 1.0))


def _told(match: Match, accelerator: Accelerator) -> Nearby | None:
    """The measurement beside its price; None where the price list has no curve of its class."""
    series = match.measured.series
    kind = series.kind
    curve = _curve(series, accelerator)
    if curve is None:
        return None
    sample, record = match.measured.samples[match.index], series.records[match.index]
    under = roof(accelerator, kind.what, kind.dtype)
    return Nearby(
        what=kind.what,
        name=named(record),
        predicted=predicted(form_of(kind.what), curve.parameters, sample, under),
        measured=sample.seconds,
        unit="s",
        origin=f"{series.source} ({series.file})",
        differs=_differs(match, prices.curve(accelerator, curve.what, ranks=curve.ranks, head_dim=curve.head_dim)),
    )


def _curve(series: Series, accelerator: Accelerator) -> Curve | None:
    """The price of such measurements, in their own regime where there is one."""
    kind = series.kind
    together = form_of(kind.what) == "attention" and not kind.what.endswith(PASSES)
    key = (f"{kind.what}.forward" if together else kind.what, kind.ranks, kind.head_dim)
    curves = [one for one in accelerator.calibration if (one.what, one.ranks, one.head_dim) == key]
    return next((one for one in curves if one.regime == kind.regime), curves[0] if curves else None)


def _differs(match: Match, price: Curve | None) -> str:
    """In what the measurement is unlike the plan's kernel, which has this price."""
    burst = match.measured.series.kind.regime == "burst" and price is not None and price.regime == "sustained"
    parts = [] if abs(match.times - 1) < SAME else [f"{match.times:.2g} times the size"]
    parts += ["a burst, where the plan is priced sustained"] if burst else []
    return "; ".join(parts)
