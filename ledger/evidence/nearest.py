"""The microbenchmarks and published runs nearest to a plan, and the measurements that its prices rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, log2
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.books import prices
from ledger.books.compiled import Compiled
from ledger.books.results import KernelTime
from ledger.evidence import citations
from ledger.evidence.documents import read_evidence
from ledger.evidence.microbenchmarks.samples import TimedSample, pass_shares, samples
from ledger.evidence.microbenchmarks.sets import MeasurementSet, measurement_sets, record_name
from ledger.evidence.published_runs import PublishedRun, experts_per_layer, own_steps, published_runs
from ledger.model.causes import HostTransfer, HostWork, Transfer
from ledger.price_forms import PRICE_FORMS, seconds
from ledger.spec.kernel_classes import ATTENTION, SCALEOUT, KernelClass, form_of, passes_of
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Accelerator, Curve, Plan
from ledger.spec.problems import SpecError

if TYPE_CHECKING:
    from ledger.books.results import RoleResult


MOST_MICROBENCHMARKS = 16
NEAREST_RATIO = log(2.0)  # within a factor of two of the plan's kernel in everything that prices it
SAME_SIZE = 0.1  # a size that differs less is not worth a word


@dataclass(frozen=True)
class SampledSet:
    """A set of measurements, with the sample that each of its records is to a fit."""

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
    files = () if plan.model.bare else citations.evidence_files(plan)
    sampled = [sampled_set for path in files for sampled_set in _sets_of_file(path, path.stat().st_mtime_ns)]
    if not sampled:
        return ()
    step = float(compiled.totals["time.step"])
    nearby: dict[tuple[str, str, int], NearMeasurement] = {}
    for kernel, exposed in _distinct_kernels(slowest_role(compiled).kernels):
        match = min(_matches(kernel, plan, sampled), key=lambda near: near.distance, default=None)
        if match is None or match.distance > NEAREST_RATIO:
            continue
        measured = match.sampled.set
        key = (measured.file, f"{measured.kind}", match.index)
        if key in nearby:
            nearby[key] = replace(nearby[key], share=nearby[key].share + exposed / step)
        elif len(nearby) < MOST_MICROBENCHMARKS and (row := _near_measurement(match, plan)):
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


@cache
def _sets_of_file(path: Path, _stamp: int) -> tuple[SampledSet, ...]:
    """The sets of a file but kernels timed with others, read once per state of it; none of one that is no evidence."""
    try:
        sets = measurement_sets(read_evidence(path))
    except SpecError:
        return ()
    timed_alone = (measured for measured in sets if not measured.kind.with_others and measured.kind.causal)
    return tuple(SampledSet(measured, samples(measured.records)) for measured in timed_alone)


def _matches(kernel: KernelTime, plan: Plan, sampled: Iterable[SampledSet]) -> Iterator[Match]:
    """Every measurement of the kernel's class, with its distance in what prices the class."""
    price_class, ranks, nodes = _price_class(kernel, plan)
    widths = {0, *(group.attention.head_dim for group in plan.model.groups)}
    for sampled_set in sampled:
        kind = sampled_set.set.kind
        shares = pass_shares(kind.what)
        if price_class in shares and kind.ranks in (0, ranks) and kind.head_dim in widths:
            for index, sample in enumerate(sampled_set.samples):
                if sampled_set.is_scaleout and sampled_set.set.records[index].get("nodes", nodes) != nodes:
                    continue  # as many ranks on fewer nodes share more adapters
                ratios = list(_size_ratios(kernel, sample, shares[price_class]))
                yield Match(kernel, sampled_set, index, exp(ratios[0]), max(map(abs, ratios)))


def _price_class(kernel: KernelTime, plan: Plan) -> tuple[KernelClass, int, int]:
    """The price class of a kernel and, of a transfer, its ranks and nodes; one beyond a node has its own class."""
    kind = kernel.kind
    if isinstance(kind, Transfer):
        mesh = prices.mesh(kind.axis, plan.parallelism, plan.accelerator, plan.cluster)
        return KernelClass(kind.collective, SCALEOUT if mesh.domains > 1 else ""), int(mesh.size), int(mesh.domains)
    price_class = kind.price_class if isinstance(kind, HostTransfer | HostWork) else kind
    curve = prices.curve(plan.accelerator, price_class)
    return curve.what if curve else price_class, 0, 0


def _size_ratios(kernel: KernelTime, sample: TimedSample, share: float) -> Iterator[float]:
    """Logarithms of the measurement's FLOPs and bytes over the kernel's; `share` of what was timed is the kernel."""
    kernels_timed = sample.sizes.get("kernels", 1.0)
    for name, amount in (("flops", kernel.flops), ("bytes", kernel.payload or kernel.bytes)):
        if name in sample.sizes:
            yield log(sample.sizes[name] * share / kernels_timed / max(amount, 1.0))


def _near_measurement(match: Match, plan: Plan) -> NearMeasurement | None:
    """The measurement beside its price; None where the price list of what was measured has no curve of its class."""
    measured = match.sampled.set
    is_own_device = citations.is_about(measured.device, plan.accelerator)
    device = plan.accelerator if is_own_device else _library_device(measured.device) or plan.accelerator
    curve = _price_of_set(measured, device)
    if curve is None:
        return None
    scaleout = match.sampled.is_scaleout  # the plan's network prices it, not a curve
    is_fitted_on = citations.is_same_file(citations.cited_file(curve), measured.file, plan)
    return NearMeasurement(
        what=str(measured.kind.what),
        name=record_name(measured.records[match.index]),
        predicted=_network_seconds(match, plan) if scaleout else _curve_seconds(match, curve, device),
        measured=match.sample.seconds,
        unit="s",
        origin=measured.citation,
        differs=_differences(match, prices.curve(device, curve.what, ranks=curve.ranks, head_dim=curve.head_dim)),
        unseen=curve.error if is_fitted_on and not scaleout else None,
        device="" if is_own_device else measured.device,
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


def _price_of_set(measured: MeasurementSet, accelerator: Accelerator) -> Curve | None:
    """The price of such measurements, in their own regime where there is one."""
    kind = measured.kind
    key = (passes_of(kind.what)[0], kind.ranks, kind.head_dim)
    curves = [curve for curve in accelerator.calibration if (curve.what, curve.ranks, curve.head_dim) == key]
    return next((curve for curve in curves if curve.regime == kind.regime), curves[0] if curves else None)


def _differences(match: Match, price: Curve | None) -> str:
    """The differences of the measurement from the plan's kernel, which has this price, in words."""
    kind = match.sampled.set.kind
    sustained = price is not None and price.regime == "sustained"
    parts = [] if abs(match.times - 1) < SAME_SIZE else [f"{match.times:.2g} times the size"]
    if PRICE_FORMS[form_of(kind.what)].computes and kind.regime == "burst":
        parts.append("a burst, " + ("where the plan is priced sustained" if sustained else "as the plan is priced too"))
    if match.sampled.is_scaleout:
        parts.append("over another network than the plan's, whose own figures price it")
    return "; ".join(parts)


# --- the published runs nearest to a plan ---

MOST_RUNS = 5  # runs
WIDEST = 2.0  # doublings of the model's width: a run beyond it is of another kind of model
FARTHEST = 7.0  # distance, in doublings of the sizes below as they weigh, from which on a run is no neighbour
OTHER_KIND = 1.0  # what another number format, recomputation, software or way of sharding counts for
# How much a doubling of each size counts: what changes kernels most first.
WEIGHTS = {
    "d_model": 2.0,
    "layers": 0.5,
    "seq_len": 0.75,
    "micro_batch": 0.25,
    "devices": 0.25,
    "tensor": 0.75,
    "pipeline": 0.5,
    "context": 0.75,
}
SIZE_WORDS = {
    "d_model": "width",
    "seq_len": "tokens a sequence",
    "micro_batch": "sequences a micro-batch",
    "tensor": "tensor-parallel",
    "pipeline": "stages",
    "context": "context-parallel",
}


def nearest_runs(compiled: Compiled) -> tuple[NearMeasurement, ...]:
    """Steps and peaks of the nearest runs, the nearest run first; none where there is no run like the plan.

    Predictions of runs that the library carries are read; steps of a device of one's own are compiled.
    """
    plan = compiled.plan
    if plan.model.bare:
        return ()
    step_by_run = {step.run.id: step for step in own_steps(plan, {run.id for run in published_runs()})}
    runs = neighbours(plan, (*(step.run for step in step_by_run.values()), *published_runs()))
    predicted = (step_by_run[run.id].predicted() if run.id in step_by_run else run for run in runs)
    return tuple(measurement for run in predicted for measurement in _measurements(run, plan))


def neighbours(plan: Plan, runs: Iterable[PublishedRun]) -> list[PublishedRun]:
    """The nearest of the runs on the plan's device."""
    distances = [(distance(run, plan), run) for run in runs if run.accelerator == plan.accelerator.name]
    near = [
        (far, run)
        for far, run in distances
        if far <= FARTHEST and abs(log2(run.d_model / plan.model.d_model)) <= WIDEST
    ]
    kinds: dict[tuple[object, ...], PublishedRun] = {}
    for _, run in sorted(near, key=lambda pair: (pair[0], pair[1].id)):
        kind = (run.model, run.stack, run.dtype, run.recompute, run.zero, *(getattr(run, size) for size in WEIGHTS))
        kinds.setdefault(kind, run)  # the same run of several releases says the same
    return list(kinds.values())[:MOST_RUNS]


def distance(run: PublishedRun, plan: Plan) -> float:
    """Doublings between the sizes of a run and the plan, weighed, and OTHER_KIND for each difference in kind."""
    of_plan = sizes(plan)
    doublings = sum(weight * abs(log2(getattr(run, name) / of_plan[name])) for name, weight in WEIGHTS.items())
    return doublings + OTHER_KIND * sum(1 for _ in differences_in_kind(run, plan))


def sizes(plan: Plan) -> dict[str, int]:
    """The sizes of a plan that a distance is made of."""
    mesh = plan.parallelism
    return {
        "d_model": plan.model.d_model,
        "layers": sum(group.repeat for group in plan.model.groups),
        "seq_len": plan.run.seq_len,
        "micro_batch": plan.run.micro_batch,
        "devices": plan.cluster.devices,
        "tensor": mesh.tensor,
        "pipeline": mesh.pipeline,
        "context": mesh.context,
    }


def differences_in_kind(run: PublishedRun, plan: Plan) -> Iterator[str]:
    """Each kind of difference of a run from the plan, in words."""
    if run.dtype != plan.precision.multiplies:
        yield f"{run.dtype} matmuls"
    if run.recompute != plan.recompute.policy:
        yield f"recompute {run.recompute}"
    if run.stack != plan.stack.name:
        yield run.stack
    if (run.zero == 3) != (plan.parallelism.zero == 3):
        yield f"ZeRO {run.zero}"
    if (run.experts > 0) != (experts_per_layer(plan) > 0):
        yield f"{run.experts} experts a layer" if run.experts else "no experts"


def mechanisms_not_run(run: PublishedRun, plan: Plan) -> Iterator[str]:
    """Mechanisms that the plan uses and the run did not, so that the run says nothing of their cost."""
    mesh = plan.parallelism
    if experts_per_layer(plan) and not run.experts:
        yield "routes tokens to experts"
    if mesh.tensor > 1 and run.tensor == 1:
        yield "splits tensors over devices"
    if mesh.context > 1 and run.context == 1:
        yield "splits sequences over devices"
    if mesh.pipeline > 1 and run.pipeline == 1:
        yield "runs as a pipeline"
    if mesh.zero == 3 and run.zero != 3:
        yield "shards its weights"
    if run.dtype != plan.precision.multiplies:
        yield f"multiplies in {plan.precision.multiplies}"


def _measurements(run: PublishedRun, plan: Plan) -> Iterator[NearMeasurement]:
    """The measurements of a run, each beside its prediction."""
    of_plan = sizes(plan)
    other_sizes = [
        f"{SIZE_WORDS[name]} {getattr(run, name)}" for name in SIZE_WORDS if getattr(run, name) != of_plan[name]
    ]
    differs = ", ".join((*other_sizes, *differences_in_kind(run, plan)))
    name = f"{run.model}, {run.devices} device{'' if run.devices == 1 else 's'} ({run.id})"
    if run.step and run.measured_step:
        lacking = tuple(mechanisms_not_run(run, plan))
        yield NearMeasurement("time.step", name, run.step, run.measured_step, "s", run.source, differs, lacks=lacking)
    if run.memory and run.measured_memory:
        yield NearMeasurement(run.memory_total, name, run.memory, run.measured_memory, "B", run.source, differs)


# --- a measurement beside its prediction ---


@dataclass(frozen=True)
class NearMeasurement:
    """One measurement with its prediction, both in `unit`: of `what`, made of `name`, published by `origin`.

    `what` is a price class (`matmul.bf16`) or a key of `totals` (`time.step`); `name` says which case in words (a
    shape, a run). `differs` says how the case differs from the plan's own; it is empty where it is the same.
    Of a kernel: `share` is what the plan's kernels like it take of the step, `unseen` the error of its price on
    measurements that the fit had not seen, where it was fitted on this one among others; None where it was not.
    `device` is what was measured, where that is not the plan's own device. Of a run: `lacks` says what the plan does
    and this run did not.
    """

    what: str
    name: str
    predicted: float
    measured: float
    unit: str
    origin: str
    differs: str = ""
    share: float = 0.0
    unseen: float | None = None
    device: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The error of the prediction, relative to the measurement."""
        return self.predicted / self.measured - 1


# --- the basis of a step's prices ---

FIGURES, SHEETS = "figures", "sheets"


@dataclass(frozen=True)
class PriceBasis:
    """Shares of what kernels and open transfers take of a step; they sum to 1 where there are any.

    `devices`: by the device whose measurements are carried, the plan's own under the empty name, the largest first.
    `figures`: priced by what a publication prints, of which no file is at hand. `sheets`: by data sheets alone.
    """

    devices: Mapping[str, float]
    figures: float
    sheets: float

    @property
    def measured_share(self) -> float:
        """The share that rests on measurements of the plan's own device."""
        return self.devices.get("", 0.0)


def basis(compiled: Compiled) -> PriceBasis:
    """The basis of the step of the slowest kind of device; 0 of everything where nothing is priced."""
    seconds: dict[str, float] = {}
    origins: dict[str, str] = {}  # by the source of a price
    for kernel in slowest_role(compiled).kernels:
        if kernel.open:
            curve = kernel_price(kernel, compiled.plan)
            source = curve.source if curve else ""
            if source not in origins:
                origins[source] = _origin_of_price(curve, compiled.plan)
            seconds[origins[source]] = seconds.get(origins[source], 0.0) + kernel.open
    priced = sum(seconds.values())
    shares = {origin: part / priced for origin, part in sorted(seconds.items(), key=lambda pair: -pair[1])}
    figures, sheets = shares.pop(FIGURES, 0.0), shares.pop(SHEETS, 0.0)
    return PriceBasis(shares, figures, sheets)


def slowest_role(compiled: Compiled) -> RoleResult:
    """The role whose kernels and transfers take longest, overlapped ones included."""
    return max(compiled.roles, key=lambda role: sum(kernel.seconds * kernel.times for kernel in role.kernels))


def kernel_price(kernel: KernelTime, plan: Plan) -> Curve | None:
    """The curve that a kernel or a transfer is priced by; None where a data sheet is all there is."""
    if not kernel.calibrated:
        return None
    device = plan.accelerator
    kind = kernel.kind
    if isinstance(kind, Transfer):
        mesh = prices.mesh(kind.axis, plan.parallelism, device, plan.cluster)
        ranks = mesh.local if mesh.local > 1 else mesh.size
        return prices.curve(device, KernelClass(kind.collective), ranks=ranks)
    if isinstance(kind, HostTransfer | HostWork):
        return prices.curve(device, kind.price_class)
    width = plan.model.group_of(kernel.cause.unit).attention.head_dim if kind.family == ATTENTION else 0
    return prices.curve(device, kind, head_dim=width)


def _origin_of_price(curve: Curve | None, plan: Plan) -> str:
    """The device behind a price, empty for the plan's own; or that no measurement of it is at hand."""
    if curve is None:
        return SHEETS
    path = citations.find_cited(citations.cited_file(curve), plan)
    device = citations.device_of(path) if path else ""
    if not device:
        return FIGURES
    return "" if citations.is_about(device, plan.accelerator) else device
