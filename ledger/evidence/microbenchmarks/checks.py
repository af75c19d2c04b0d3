"""What a record of a microbenchmark must say, and once: its kernel class, unit and sizes, and a value above zero."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from ledger.evidence.microbenchmarks.records import REGIMES, PlacedRecord, identity
from ledger.evidence.microbenchmarks.samples import (
    RecordError,
    class_of,
    fitted_form,
    is_with_others,
    needed_sizes,
    sample,
)
from ledger.spec.kernel_families import form_of, measured_classes
from ledger.spec.near import nearest
from ledger.spec.price_lists import parameter_problems
from ledger.spec.problems import MOST_PROBLEMS, Location, Problem
from ledger.spec.reader import Node

TIMING_UNITS = ("TFLOP/s", "GB/s", "us", "ms", "s")
CREDIBLE = (1e-6, 1e12)  # of a value in its own unit: from a picosecond to eleven days, from a MFLOP/s on
OF_A_DIM = (1, 10**9)  # of a dim, or of what is counted
# The range of every number of a record whose name is not one of a dim; whole numbers but where it is of floats.
RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("value", "low", "high"), CREDIBLE),
    "bytes": (1, 10**15),  # a petabyte, far beyond any tensor
    "flops": (1, 10**21),  # of one kernel: an hour of a hundred devices
    "ranks": (2, 10**6),
    "casts": (0.0, 1e3),  # bytes an element
    "others": (0.0, 1.0),  # the share of a machine that others used
    **dict.fromkeys(("graphics_clock", "power"), (0.0, 1e6)),  # MHz, W
}
BEYOND = 10.0  # a parameter of a published fit may be so many times the greatest of its range
QUARTILES = ("low", "value", "high")  # about a median
NESTED = ("measured",)  # results of `ledger bench` that are mappings


def benchmark_problems(records: Sequence[PlacedRecord]) -> Iterator[Problem]:
    """What the records lack, say that cannot be, or say twice, each with its place."""
    known = measured_classes()
    found = (problem for record in records for problem in _record_problems(record, known))
    yield from islice(found, MOST_PROBLEMS)
    yield from islice(_repeated(records), MOST_PROBLEMS)


def published_fit_problems(document: Node) -> Iterator[Problem]:
    """What is wrong with the parameters that tables state of a fit over a whole publication.

    A share may be above 1 there: what a cache serves is faster than the memory (L40S). A price takes 1 then.
    """
    series = document.fields.get("series")
    for table in series.items if series else ():
        stated = table.fields["whole"].fields.get("parameters") if "whole" in table.fields else None
        shared = {key: node.value for key, node in table.fields.items()}
        what = class_of(shared)
        if stated and (form := fitted_form(what, with_others=is_with_others(shared))):
            yield from parameter_problems(str(what), form, stated, beyond=BEYOND)


def _record_problems(record: PlacedRecord, known: Sequence[str]) -> Iterator[Problem]:
    """What one record lacks, or says that cannot be; one that could not run says no more than its `error`."""
    what = record.fields.get("what")
    if not isinstance(what, str):
        yield Problem(record.where, "a record says no kernel class", "`what: matmul.bf16`, `what: norm.forward`, ...")
    elif "error" in record.fields:
        return
    elif what not in known:
        yield Problem(record.place("what"), f"no kernel class is named `{what}`", nearest(what, known))
    else:
        unit = record.fields.get("unit")
        regime = record.fields.get("regime", REGIMES[0])
        if regime not in REGIMES:
            yield Problem(record.place("regime"), f"{what}: no regime is `{regime}`", f"one of {', '.join(REGIMES)}")
        if unit not in TIMING_UNITS:
            message = f"{what}: the unit `{unit}` is unknown" if "unit" in record.fields else f"{what} has no unit"
            yield Problem(record.place("unit"), message, f"one of {', '.join(TIMING_UNITS)}")
        problems = (
            *_not_above_zero(record, ("value", *needed_sizes(record.fields))),
            *_incredible(record),
            *_outside_quartiles(record),
        )
        yield from problems if problems or unit not in TIMING_UNITS else _without_sample(record)


def _without_sample(record: PlacedRecord) -> Iterator[Problem]:
    """A record that gives no sample of its kernel class."""
    try:
        if form_of(class_of(record.fields)):
            sample(record.fields)
    except RecordError as error:
        yield Problem(record.place(error.key), f"{record.fields['what']}: {error}", error.help)


def _not_above_zero(record: PlacedRecord, needed: tuple[str, ...]) -> Iterator[Problem]:
    """What is no number above zero, and what is not there at all."""
    what = record.fields["what"]
    for name in needed:
        if name not in record.fields:
            yield Problem(record.place(name), f"{what} has no `{name}`", f"it needs {', '.join(needed)}")
    for name, value in record.fields.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            if name in needed:
                yield Problem(record.place(name), f"{what}: `{name}` is no number: {value!r}", "write 512 or 43.6")
            elif isinstance(value, Mapping | list) and name not in NESTED:
                message = f"{what}: `{name}` is no number and no word"
                yield Problem(record.place(name), message, "write 512, 43.6 or a name")
        elif RANGES.get(name, OF_A_DIM)[0] > 0 >= value:
            yield Problem(record.place(name), f"{what}: `{name}` is {value}", "a measurement is above zero")


def _incredible(record: PlacedRecord) -> Iterator[Problem]:
    """A value or a size that no device has."""
    what, unit = record.fields["what"], record.fields.get("unit", "")
    for name, value in record.fields.items():
        least, most = RANGES.get(name, OF_A_DIM)
        if isinstance(value, bool) or not isinstance(value, int | float) or (value <= 0 < least):
            continue
        if not least <= value <= most:
            message = f"{what}: `{name}` is {value:g}{f' {unit}' if name in QUARTILES else ''}, beyond reason"
            help_text = "was it written in another unit?" if name in QUARTILES else f"from {least:g} to {most:g}"
            yield Problem(record.place(name), message, help_text)
        elif isinstance(least, int) and value != int(value):
            yield Problem(record.place(name), f"{what}: `{name}` is {value:g}", "a whole number is due")


def _outside_quartiles(record: PlacedRecord) -> Iterator[Problem]:
    """A median that lies outside its own quartiles."""
    stated = [(name, value) for name in QUARTILES if isinstance(value := record.fields.get(name), int | float)]
    if [value for _, value in stated] != sorted(value for _, value in stated):
        message = f"{record.fields['what']}: the median is outside its quartiles"
        numbers = ", ".join(f"{name} {value}" for name, value in stated)
        yield Problem(record.place("low"), f"{message}: {numbers}", "low is the first quartile, high the third")


def _repeated(records: Iterable[PlacedRecord]) -> Iterator[Problem]:
    """A record that stands there twice would count twice in a fit; a case measured again has a value of its own."""
    seen: dict[tuple[object, ...], Location] = {}
    for record in records:
        case = identity(record.fields)
        key = (case, str(record.fields.get("regime")), record.fields.get("value"))
        if key in seen:
            sizes = ", ".join(f"{name} {value}" for name, value in json.loads(case).items() if name != "what")
            message = f"{record.fields.get('what')} ({sizes}) stands here twice"
            yield Problem(record.where, message, f"the other one is in line {seen[key].line}; remove one of them")
        seen.setdefault(key, record.where)
