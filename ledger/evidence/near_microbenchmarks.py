"""The microbenchmarks nearest to the kernels of a plan, each beside what the plan's price list says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from pathlib import Path

from ledger.books import prices
from ledger.books.results import Compiled, KernelTime
from ledger.evidence import citations
from ledger.evidence.microbenchmarks.forms import Sample, predicted, roof
from ledger.evidence.microbenchmarks.measured import read_evidence
from ledger.evidence.microbenchmarks.samples import COLLECTIVES, PASSES, form_of, samples
from ledger.evidence.microbenchmarks.sets import POWERED, Series, named, sets
from ledger.evidence.nearby import Nearby
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Accelerator, Curve, Plan
from ledger.spec.problems import SpecError

MOST = 16
NEAR = log(2.0)  # within a factor of two of the plan's kernel in everything that prices it
SAME = 0.1  # a size that differs less is not worth a word
SHARE = {"forward": 2 / 7, "backward": 5 / 7}  # of FLOPs, where both passes were timed together
SCALEOUT = ".scaleout"  # ends the class of a transfer between nodes


@dataclass(frozen=True)
class Measured:
    """A set with what each of its records gives a fit."""

    series: Series
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Match:
    """A measurement near a kernel: how many times as much it does as the kernel, in its first size."""

    kernel: KernelTime
    measured: Measured
    index: int
    times: float
    distance: float


def nearest(compiled: Compiled) -> tuple[Nearby, ...]:
    """Measurements that the plan's prices rest on near its kernels, of the kernels that take most of the step first."""
    plan = compiled.plan
    if plan.model.bare or not (measured := _measured(plan)):
        return ()
    step = float(compiled.totals["time.step"])
    slowest = max(compiled.roles, key=lambda role: sum(one.seconds * one.times for one in role.kernels))
    found: dict[tuple[str, str, int], Nearby] = {}
    for kernel, taken in _alike(slowest.kernels):
        match = min(_matches(kernel, plan, measured), key=lambda one: one.distance, default=None)
        if match is None or match.distance > NEAR:
            continue
        series = match.measured.series
        key = (series.file, f"{series.kind}", match.index)
        if key in found:
            found[key] = replace(found[key], share=found[key].share + taken / step)
        elif len(found) < MOST and (told := _told(match, plan)):
            found[key] = replace(told, share=taken / step)
    return tuple(found.values())


def _alike(kernels: Iterable[KernelTime]) -> list[tuple[KernelTime, float]]:
    """The first of the kernels of each class and size, with what all of them take of a step; those of most first."""
    firsts: dict[tuple[object, ...], KernelTime] = {}
    open_: dict[tuple[object, ...], float] = {}
    whole: dict[tuple[object, ...], float] = {}
    for kernel in kernels:
        size = (kernel.kind, kernel.flops, kernel.bytes, kernel.payload)
        firsts.setdefault(size, kernel)
        open_[size] = open_.get(size, 0.0) + kernel.open
        whole[size] = whole.get(size, 0.0) + kernel.seconds * kernel.times
    return [(firsts[size], open_[size]) for size in sorted(firsts, key=lambda size: (-open_[size], -whole[size]))]


def _measured(plan: Plan) -> tuple[Measured, ...]:
    """Every set behind the plan's prices, kernels timed with others left out."""
    stamped = ((path, path.stat().st_mtime_ns) for path in citations.files(plan))
    return tuple(one for path, stamp in stamped for one in _of_file(path, stamp))


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
                yield Match(kernel, one, index, exp(ratios[0]), max(map(abs, ratios)))


def _class(kernel: KernelTime, plan: Plan) -> tuple[str, int]:
    """The price class of a kernel and, of a transfer, its ranks; one beyond a node has a class of its own."""
    collective, _, axis = kernel.kind.partition(".")
    if collective in (*COLLECTIVES, "send") and axis:
        where = prices.mesh(axis, plan.parallelism, plan.accelerator, plan.cluster)
        return (f"{collective}{SCALEOUT}", where.size) if where.domains > 1 else (collective, where.size)
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


def _told(match: Match, plan: Plan) -> Nearby | None:
    """The measurement beside its price; None where the price list of what was measured has no curve of its class."""
    series = match.measured.series
    own = citations.own(series.device, plan.accelerator)
    device = plan.accelerator if own else _sister(series.device) or plan.accelerator
    curve = _curve(series, device)
    if curve is None:
        return None
    between = series.kind.what.endswith(SCALEOUT)  # the plan's network prices it, not a curve
    return Nearby(
        what=series.kind.what,
        name=named(series.records[match.index]),
        predicted=_sent(match, plan) if between else _predicted(match, curve, device),
        measured=match.measured.samples[match.index].seconds,
        unit="s",
        origin=f"{series.source} ({series.file})",
        differs=_differs(match, prices.curve(device, curve.what, ranks=curve.ranks, head_dim=curve.head_dim)),
        unseen=None if between or not citations.same(citations.cited(curve), series.file, plan) else curve.error,
        device="" if own else series.device,
    )


def _sister(name: str) -> Accelerator | None:
    """The price list of another device, whose measurements price the plan's; None where the library has none."""
    path = default_library().folder("accelerator") / f"{name}.yaml"
    return _price_list(path, path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _price_list(path: Path, _stamp: int) -> Accelerator:
    return load_accelerator(path.stem)


def _predicted(match: Match, curve: Curve, device: Accelerator) -> float:
    """Seconds of the measurement by the price of its class."""
    kind = match.measured.series.kind
    under = roof(device, kind.what, kind.dtype)
    return predicted(form_of(kind.what), curve.parameters, match.measured.samples[match.index], under)


def _sent(match: Match, plan: Plan) -> float:
    """Seconds of the measured transfer over the plan's own network."""
    collective, _, axis = match.kernel.kind.partition(".")
    where = prices.mesh(axis, plan.parallelism, plan.accelerator, plan.cluster)
    payload = match.measured.samples[match.index].variables["bytes"]
    return prices.transfer(plan.accelerator, plan.cluster, collective, where, payload).seconds


def _curve(series: Series, accelerator: Accelerator) -> Curve | None:
    """The price of such measurements, in their own regime where there is one."""
    kind = series.kind
    together = form_of(kind.what) == "attention" and not kind.what.endswith(PASSES)
    key = (f"{kind.what}.forward" if together else kind.what, kind.ranks, kind.head_dim)
    curves = [one for one in accelerator.calibration if (one.what, one.ranks, one.head_dim) == key]
    return next((one for one in curves if one.regime == kind.regime), curves[0] if curves else None)


def _differs(match: Match, price: Curve | None) -> str:
    """In what the measurement is unlike the plan's kernel, which has this price."""
    kind = match.measured.series.kind
    sustained = price is not None and price.regime == "sustained"
    parts = [] if abs(match.times - 1) < SAME else [f"{match.times:.2g} times the size"]
    if form_of(kind.what) in POWERED and kind.regime == "burst":
        parts.append("a burst, " + ("where the plan is priced sustained" if sustained else "as the plan is priced too"))
    if kind.what.endswith(SCALEOUT):
        parts.append("over another network than the plan's, whose own figures price it")
    return "; ".join(parts)
