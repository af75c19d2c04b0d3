"""The price list that measurements are held against: the library's, or one made of what a device said of itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ledger.evidence.documents import Evidence
from ledger.evidence.microbenchmarks.records import Record
from ledger.evidence.microbenchmarks.samples import TimedSample, class_of, samples
from ledger.price_forms import PRICE_FORMS
from ledger.spec.kernel_classes import KernelClass, form_of, number_format
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator, read_accelerator
from ledger.spec.near import nearest
from ledger.spec.plan import Accelerator, Curve
from ledger.spec.price_lists import parameter_text
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.quantities import write

CPU = "cpu"
DESCRIBED = ("memory", "cache", "threads")  # what a spec needs of a processor's description
DIGITS = 4


@dataclass(frozen=True)
class CalibratedDevice:
    """An accelerator, and how a spec of it begins: what it is based on, or its data sheet."""

    accelerator: Accelerator
    head: str


def find_device(evidence: Evidence, named: str = "") -> CalibratedDevice:
    """The device of a file, or the named one of the library; raises SpecError where nothing is known of it."""
    name = named or evidence.device
    names = default_library().names("accelerator")
    if name in names:
        accelerator = load_accelerator(name)
        if (evidence.hardware.get("kind") == CPU) != (accelerator.kind == CPU) and evidence.hardware:
            raise SpecError([_wrong_kind(evidence, accelerator)])
        named_so = {"base": name, "accelerator": quoted(f"{accelerator.title}, calibrated"), "aliases": f"[{name}]"}
        return CalibratedDevice(accelerator, spec_head(named_so.items()))
    if named or evidence.hardware.get("kind") != CPU:
        raise SpecError([_unknown_device(evidence, name, names)])
    return device_without_sheet(evidence)


def _wrong_kind(evidence: Evidence, accelerator: Accelerator) -> Problem:
    """The problem that a CPU was measured and the named device is a GPU, or the reverse."""
    where = evidence.node.fields["hardware"].where
    names = {True: "a CPU", False: "a GPU"}
    was, asked = evidence.hardware.get("kind") == CPU, accelerator.kind == CPU
    message = f"{names[was]} was measured, and `{accelerator.name}` is {names[asked]}"
    return Problem(where, message, f"leave --accelerator out: the device is `{evidence.device}`")


def _unknown_device(evidence: Evidence, name: str, names: tuple[str, ...]) -> Problem:
    """The problem that no data sheet of the device is known."""
    place = evidence.node.fields.get("device", evidence.node).where
    where = Location("--accelerator") if name != evidence.device else place
    near = nearest(name, names)
    return Problem(where, f"no accelerator `{name}` is known, so there is no peak to hold it against", near)


def device_without_sheet(evidence: Evidence) -> CalibratedDevice:
    """A processor without a data sheet: what it computes and moves at best is what was measured, and says so.

    Raises SpecError where no matmul, or no kernel that memory limits, was measured, or the device is not described.
    """
    missing = [key for key in DESCRIBED if key not in evidence.hardware]
    if missing:
        where = evidence.node.fields["hardware"].where
        raise SpecError([Problem(where, f"hardware says no {', '.join(missing)}", "`ledger bench` writes all of them")])
    rates, best = peaks(evidence.microbenchmarks), fastest(evidence.microbenchmarks)
    if not rates or not best:
        lacking = "no matmul" if not rates else "no kernel that moves bytes"
        message = f"{lacking} is among its records, so the device has no measured peak"
        raise SpecError([Problem(evidence.node.where, message, "`ledger bench` measures both")])
    head = spec_head(_data_sheet(evidence, rates, best))
    accelerator = read_accelerator(head, evidence.device)
    return CalibratedDevice(replace(accelerator, name=evidence.device, title=evidence.title), head)


def _data_sheet(evidence: Evidence, rates: Mapping[str, float], best: float) -> Iterator[tuple[str, str]]:
    """The data sheet as it is written, each value with what it is."""
    hardware, name = evidence.hardware, evidence.path.name
    memory = f"{{value: {hardware['memory']}, source: {quoted('the operating system')}}}"
    moved = _value_with_source(
        write(best, "B/s"), f"measured: the fastest kernel that moves bytes, of {name}, caches included"
    )
    top = max(rates.values())
    yield "accelerator", quoted(evidence.title.partition(", measured")[0])
    yield "aliases", f"[{evidence.device}]"  # by which reports find its measurements
    yield "kind", CPU
    yield "source", quoted(f"{evidence.source}; peaks and bandwidth are the best that was measured, no data sheet")
    written = ", ".join(f"{dtype}: {write(rate, 'FLOP/s')}" for dtype, rate in rates.items())
    yield "peak", f"{{source: {quoted(f'measured: the fastest matmul of {name}')}, {written}}}"
    yield "vector", _value_with_source(write(top, "FLOP/s"), "assumed: as the fastest matmul")
    yield "bandwidth", moved
    yield "memory", f"{{driver: {memory}, labelled: {memory}}}"
    yield "l2", str(hardware["cache"])
    yield "multiprocessors", str(hardware["threads"])
    yield "scaleup", "{bandwidth: 0 GB/s, domain: 1}"  # one processor is joined to no other
    yield "host_link", moved


def _value_with_source(value: str, source: str) -> str:
    return f"{{value: {value}, source: {quoted(source)}}}"


def peaks(records: tuple[Record, ...]) -> dict[str, float]:
    """The fastest matmul of each number format, in FLOP/s."""
    rates: dict[str, float] = {}
    for kernel_class, sample in _samples_of(records, "matmul"):
        dtype = number_format(kernel_class, "")
        rates[dtype] = max(rates.get(dtype, 0.0), _round_up(sample.sizes["flops"] / sample.seconds))
    return rates


def fastest(records: tuple[Record, ...]) -> float:
    """The highest rate at which a kernel moved bytes, in B/s; 0 where none was measured."""
    rates = (_round_up(sample.sizes["bytes"] / sample.seconds) for _, sample in _samples_of(records, "bandwidth"))
    return max(rates, default=0.0)


def _samples_of(records: tuple[Record, ...], form: str) -> Iterator[tuple[KernelClass, TimedSample]]:
    """The samples that a form prices, each with its kernel class."""
    fitting = [record for record in records if form_of(class_of(record)) == form]
    return ((class_of(record), sample) for record, sample in zip(fitting, samples(fitting), strict=True))


def _round_up(rate: float) -> float:
    """A rate to the digits that are written, never below what was measured."""
    step = 10.0 ** (len(str(int(rate))) - DIGITS)
    return -(-rate // step) * step


# --- the text of a calibrated spec ---


def spec_head(parts: Iterable[tuple[str, str]]) -> str:
    """The first lines of an accelerator's spec, each part as it is written."""
    return "\n".join(["spec: ledger/1", *(f"{key}: {value}" for key, value in parts), ""])


def spec_text(head: str, curves: Iterable[Curve]) -> str:
    """The spec of an accelerator: its head, then its prices."""
    return head + "\n".join(["calibration:", *(line for curve in curves for line in _price_lines(curve)), ""])


def _price_lines(curve: Curve) -> Iterator[str]:
    """The lines of a price in a spec, one for each thing that it states."""
    units = {parameter.name: parameter.unit for parameter in PRICE_FORMS[curve.form].parameters}
    parameters = ", ".join(f"{name}: {parameter_text(curve.parameters[name], unit)}" for name, unit in units.items())
    stated = {
        "what": curve.what,
        "form": curve.form,
        "regime": curve.regime,
        "ranks": curve.ranks,
        "head_dim": curve.head_dim,
        "parameters": f"{{{parameters}}}",
        "error": percent(curve.error),
        "bias": curve.bias and percent(curve.bias),
        "held_out": curve.held_out and quoted(curve.held_out),
        "region": curve.region and quoted(curve.region),
        "source": quoted(curve.source),
    }
    lines = (f"{key}: {value}" for key, value in stated.items() if value)
    yield f"  - {next(lines)}"
    yield from (f"    {line}" for line in lines)


def percent(share: float) -> str:
    """A share to a tenth of a percent."""
    return f"{share * 100:.1f} %"


def quoted(text: str) -> str:
    """Text as YAML reads it back, whatever it holds."""
    return json.dumps(text, ensure_ascii=False)
