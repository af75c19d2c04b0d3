"""The microbenchmarks nearest to the kernels of a plan, each beside what the plan's price list says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from pathlib import Path

from ledger.books import prices
from ledger.books.results import Compiled, KernelTime
from ledger.evidence import citations
from ledger.evidence.basis import slowest_role
from ledger.evidence.documents import read_evidence
from ledger.evidence.microbenchmarks.samples import TimedSample, pass_shares, samples
from ledger.evidence.microbenchmarks.sets import MeasurementSet, measurement_sets, record_name
from ledger.evidence.near_measurements import NearMeasurement
from ledger.model.causes import HostTransfer, HostWork, Transfer
from ledger.price_forms import PRICE_FORMS, seconds
from ledger.spec.kernel_classes import KernelClass
from ledger.spec.kernel_families import SCALEOUT, form_of, passes_of
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Accelerator, Curve, Plan
from ledger.spec.problems import SpecError

MOST_MICROBENCHMARKS = 16
NEAREST_RATIO = log(2.0)  # within a factor of two of the plan's kernel in everything that prices it
SAME_SIZE = 0.1  # a size that differs less is not worth a word


@dataclass(frozen=True)
class SampledSet:
    """A set with what each of its records gives a fit."""

    set: MeasurementSet
    samples: tuple[TimedSample, ...]

    @property
    def is_scaleout(self) -> bool:
        """Whether transfers between nodes were measured."""
        return self.set.kind.what.variant == SCALEOUT


@dataclass(frozen=True)
class Match:
    """A measurement near a kernel: how many times as much it does as the kernel, in its first size."""

    kernel: KernelTime
    sampled: SampledSet
    index: int
    times: float
    distance: float

    @property
    def sample(self) -> TimedSample:
        """The measured point that is nearest to the kernel's own size."""
        return self.sampled.samples[self.index]


def nearest_microbenchmarks(compiled: Compiled) -> tuple[NearMeasurement, ...]:
    """Measurements that the plan's prices rest on near its kernels, of the kernels that take most of the step first."""
    plan = compiled.plan
    if plan.model.bare or not (sampled := _sampled_sets(plan)):
        return ()
    step = float(compiled.totals["time.step"])
    nearby: dict[tuple[str, str, int], NearMeasurement] = {}
    for kernel, exposed in _distinct_kernels(slowest_role(compiled).kernels):
        match = min(_matches(kernel, plan, sampled), key=lambda one: one.distance, default=None)
        if match is None or match.distance > NEAREST_RATIO:
            continue
        measured = match.sampled.set
        key = (measured.file, f"{measured.kind}", match.index)
        if key in nearby:
            nearby[key] = replace(nearby[key], share=nearby[key].share + exposed / step)
        elif len(nearby) < MOST_MICROBENCHMARKS and (row := _nearby(match, plan)):
            nearby[key] = replace(row, share=exposed / step)
    return tuple(nearby.values())


def _distinct_kernels(kernels: Iterable[KernelTime]) -> list[tuple[KernelTime, float]]:
    """The first of the kernels of each class and size, with what all of them take of a step; those of most first."""
    firsts: dict[tuple[object, ...], KernelTime] = {}
    exposed: dict[tuple[object, ...], float] = {}
    total: dict[tuple[object, ...], float] = {}
    for kernel in kernels:
        size = (kernel.kind, kernel.flops, kernel.bytes, kernel.payload)
        firsts.setdefault(size, kernel)
        exposed[size] = exposed.get(size, 0.0) + kernel.open
        total[size] = total.get(size, 0.0) + kernel.seconds * kernel.times
    return [(firsts[size], exposed[size]) for size in sorted(firsts, key=lambda size: (-exposed[size], -total[size]))]


def _sampled_sets(plan: Plan) -> tuple[SampledSet, ...]:
    """Every set behind the plan's prices, kernels timed with others left out."""
    stamped = ((path, path.stat().st_mtime_ns) for path in citations.evidence_files(plan))
    return tuple(one for path, stamp in stamped for one in _sets_of_file(path, stamp))


@cache
def _sets_of_file(path: Path, _stamp: int) -> tuple[SampledSet, ...]:
    """The sets of a file, read once per state of it; none of one that is no evidence."""
    try:
        sets = measurement_sets(read_evidence(path))
    except SpecError:
        return ()
    return tuple(SampledSet(one, samples(one.records)) for one in sets if not one.kind.with_others and one.kind.causal)


def _matches(kernel: KernelTime, plan: Plan, sampled: Iterable[SampledSet]) -> Iterator[Match]:
    """Every measurement of the kernel's class, with its distance in what prices the class."""
    what, ranks, nodes = _price_class(kernel, plan)
    widths = {0, *(group.attention.head_dim for group in plan.model.groups)}
    for one in sampled:
        kind = one.set.kind
        shares = pass_shares(kind.what)
        if what in shares and kind.ranks in (0, ranks) and kind.head_dim in widths:
            for index, sample in enumerate(one.samples):
                if one.is_scaleout and one.set.records[index].get("nodes", nodes) != nodes:
                    continue  # as many ranks on fewer nodes share more adapters
                ratios = list(_size_ratios(kernel, sample, shares[what]))
                yield Match(kernel, one, index, exp(ratios[0]), max(map(abs, ratios)))


def _price_class(kernel: KernelTime, plan: Plan) -> tuple[KernelClass, int, int]:
    """The price class of a kernel and, of a transfer, its ranks and nodes; one beyond a node has its own class."""
    kind = kernel.kind
    if isinstance(kind, Transfer):
        mesh = prices.mesh(kind.axis, plan.parallelism, plan.accelerator, plan.cluster)
        return KernelClass(kind.collective, SCALEOUT if mesh.domains > 1 else ""), int(mesh.size), int(mesh.domains)
    what = kind.price_class if isinstance(kind, HostTransfer | HostWork) else kind
    curve = prices.curve(plan.accelerator, what)
    return curve.what if curve else what, 0, 0


def _size_ratios(kernel: KernelTime, sample: TimedSample, share: float) -> Iterator[float]:
    """Logarithms of the measurement's FLOPs and bytes over the kernel's; `share` of what was timed is the kernel."""
    several = sample.sizes.get("kernels", 1.0)
    for name, amount in (("flops", kernel.flops), ("bytes", kernel.payload or kernel.bytes)):
        if name in sample.sizes:
            yield log(sample.sizes[name] * share / several / max(amount, 1.0))


def _nearby(match: Match, plan: Plan) -> NearMeasurement | None:
    """The measurement beside its price; None where the price list of what was measured has no curve of its class."""
    measured = match.sampled.set
    own = citations.is_about(measured.device, plan.accelerator)
    device = plan.accelerator if own else _library_device(measured.device) or plan.accelerator
    curve = _curve(measured, device)
    if curve is None:
        return None
    scaleout = match.sampled.is_scaleout  # the plan's network prices it, not a curve
    seen = citations.is_same_file(citations.cited_file(curve), measured.file, plan)
    return NearMeasurement(
        what=str(measured.kind.what),
        name=record_name(measured.records[match.index]),
        predicted=_network_seconds(match, plan) if scaleout else _curve_seconds(match, curve, device),
        measured=match.sample.seconds,
        unit="s",
        origin=measured.citation,
        differs=_differences(match, prices.curve(device, curve.what, ranks=curve.ranks, head_dim=curve.head_dim)),
        unseen=curve.error if seen and not scaleout else None,
        device="" if own else measured.device,
    )


def _library_device(name: str) -> Accelerator | None:
    """The price list of another device, whose measurements price the plan's; None where the library has none."""
    path = default_library().path("accelerator", name)
    return _price_list(path, path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _price_list(path: Path, _stamp: int) -> Accelerator:
    return load_accelerator(path.stem)


def _curve_seconds(match: Match, curve: Curve, device: Accelerator) -> float:
    """Seconds of the measurement by the price of its class."""
    kind = match.sampled.set.kind
    return float(seconds(form_of(kind.what), curve.parameters, match.sample.sizes, kind.data_sheet(device)))


def _network_seconds(match: Match, plan: Plan) -> float:
    """Seconds of the measured transfer over the plan's own network."""
    kind = match.kernel.kind
    if not isinstance(kind, Transfer):
        raise TypeError(f"{kind} is sent over no network")
    mesh = prices.mesh(kind.axis, plan.parallelism, plan.accelerator, plan.cluster)
    payload = match.sample.sizes["bytes"]
    return float(prices.transfer(plan.accelerator, plan.cluster, kind.collective, mesh, payload).seconds)


def _curve(measured: MeasurementSet, accelerator: Accelerator) -> Curve | None:
    """The price of such measurements, in their own regime where there is one."""
    kind = measured.kind
    key = (passes_of(kind.what)[0], kind.ranks, kind.head_dim)
    curves = [one for one in accelerator.calibration if (one.what, one.ranks, one.head_dim) == key]
    return next((one for one in curves if one.regime == kind.regime), curves[0] if curves else None)


def _differences(match: Match, price: Curve | None) -> str:
    """In what the measurement is unlike the plan's kernel, which has this price."""
    kind = match.sampled.set.kind
    sustained = price is not None and price.regime == "sustained"
    parts = [] if abs(match.times - 1) < SAME_SIZE else [f"{match.times:.2g} times the size"]
    if PRICE_FORMS[form_of(kind.what)].computes and kind.regime == "burst":
        parts.append("a burst, " + ("where the plan is priced sustained" if sustained else "as the plan is priced too"))
    if match.sampled.is_scaleout:
        parts.append("over another network than the plan's, whose own figures price it")
    return "; ".join(parts)
