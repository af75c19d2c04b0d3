"""Records of evidence as samples of a fit: seconds, and the sizes that the form of their kernel class reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby, islice
from typing import Any

from ledger.evidence.microbenchmarks.records import REGIMES, PlacedRecord, Record, identity
from ledger.price_forms import PRICE_FORMS
from ledger.spec.json_schemas import PublishedSchema, is_number
from ledger.spec.kernel_classes import (
    BACKWARD,
    FORWARD,
    NUMBER_FORMATS,
    KernelClass,
    form_of,
    kernel_class,
    measured_classes,
    number_format,
    passes_of,
)
from ledger.spec.kinds import DIALECT
from ledger.spec.near import nearest
from ledger.spec.price_lists import parameter_problems
from ledger.spec.problems import MOST_PROBLEMS, Location, Problem
from ledger.spec.reader import Node
from ledger.spec.values import Schema

RESULT = 2.0  # bytes of a matmul's result; fp32 where the operands are, or the record says so
# Products of seq x seq x the width of keys, and of values, per head and pass; backward computes the scores again.
ATTENTION_MATMULS = {FORWARD: (1, 1), BACKWARD: (3, 2)}
RATES = {"TFLOP/s": ("flops", 1e12), "GB/s": ("bytes", 1e9)}
GROUPS = ("groups", "rows", "n", "k")  # of grouped products, and of a whole layer of experts
EXPERTS = ("tokens", "top_k", "experts", "width", "d_ff")
TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class TimedSample:
    """A measured time in seconds, the sizes of what was timed, and the group that is held out together with it."""

    seconds: float
    sizes: Mapping[str, float]
    group: str


SizesAndGroup = tuple[dict[str, float], str]


@dataclass(frozen=True)
class RecordReader:
    """How the sizes of a form are found in a record, and the numbers that a record needs for them: one of `needs`."""

    read: Callable[[Record], SizesAndGroup]
    needs: tuple[tuple[str, ...], ...]


class RecordError(ValueError):
    """A record does not say what its kernel class needs, at `key`; `help` says what to write."""

    def __init__(self, key: str, message: str, help_text: str) -> None:
        super().__init__(message)
        self.key, self.help = key, help_text


def class_of(record: Record) -> KernelClass:
    """The kernel class that was measured."""
    return kernel_class(str(record["what"]))


def samples(records: Iterable[Record]) -> tuple[TimedSample, ...]:
    """One sample per record; raises RecordError where a record does not say what its kernel class needs."""
    return tuple(map(sample, records))


def needed_sizes(record: Record) -> tuple[str, ...]:
    """The numbers beside its value that a record needs: of the ways to state its sizes, that of which it has most."""
    form = form_of(class_of(record))
    return max(reader(form).needs, key=lambda names: sum(name in record for name in names)) if form else ()


def fitted_form(what: KernelClass, *, with_others: bool) -> str:
    """The form that is fitted to timings of a kernel class, where other kernels are timed with it and where none is."""
    form = form_of(what)
    return (with_others and PRICE_FORMS[form].timed_with_others) or form


def is_with_others(record: Record) -> bool:
    """Whether a timing has other kernels inside."""
    return bool(record.get("module") or record.get("casts"))


def reader(form: str) -> RecordReader:
    """How records give the sizes of a form: by its row in READERS, else they state these sizes as they are."""
    stated = tuple(PRICE_FORMS[form].sizes)
    return READERS.get(form) or RecordReader(lambda record: _stated(record, stated), (stated,))


def pass_shares(what: KernelClass) -> dict[KernelClass, float]:
    """The share of the FLOPs of a measurement that each class has which it gives a price to."""
    passes = passes_of(what)
    products = [sum(ATTENTION_MATMULS[one.pass_]) for one in passes] if len(passes) > 1 else [1]
    return {one: count / sum(products) for one, count in zip(passes, products, strict=True)}


def sample(record: Record) -> TimedSample:
    """What a record gives a fit; raises RecordError."""
    sizes, group = reader(form_of(class_of(record))).read(record)
    unit, value = str(record["unit"]), _number(record, "value")
    if unit in TIMES:
        return TimedSample(value * TIMES[unit], sizes, group)
    amount, scale = RATES[unit]
    if amount not in sizes:
        raise RecordError("unit", f"its form counts no {amount}, so it has no rate in {unit}", "us, ms or s")
    return TimedSample(sizes[amount] / (value * scale), sizes, group)


def _matmul(record: Record) -> SizesAndGroup:
    """Operands and result are moved once, a result that is added to twice; equal n and k are held out together.

    `casts`: bytes that kernels inside the timing move for each element of the first operand, to make it narrow.
    """
    m, n, k, batch = (_number(record, name) for name in ("m", "n", "k", "batch"))
    operand, result = _widths(record)
    moved = batch * (operand * (m * k + k * n) + result * m * n)
    beside = batch * m * k * _number(record, "casts") if "casts" in record else 0.0
    sizes = {"m": batch * m, "n": n, "k": k, "flops": 2 * batch * m * n * k, "bytes": moved, "beside": beside}
    return sizes, f"{n:.0f} x {k:.0f}"


def _widths(record: Record) -> tuple[float, float]:
    """Bytes of an element of the operands, and of the result, both ways where it is accumulated."""
    operand = NUMBER_FORMATS[number_format(class_of(record), "")]
    name = str(record.get("result", ""))
    if name and name not in NUMBER_FORMATS:
        raise RecordError("result", f"no number format is named `{name}`", nearest(name, list(NUMBER_FORMATS)))
    result = NUMBER_FORMATS[name] if name else max(RESULT, operand)
    return operand, result * (2 if record.get("accumulate") else 1)


def _grouped(record: Record) -> SizesAndGroup:
    """One product a group; of a whole gated feed-forward layer of experts, three, with every expert's weights."""
    operand, result = _widths(record)
    if "groups" in record:
        groups, rows, n, k = (_number(record, name) for name in GROUPS)
        moved = groups * (operand * (rows * k + k * n) + result * rows * n)
        sizes = {"group": rows, "flops": 2 * groups * rows * n * k, "bytes": moved, "kernels": 1.0}
        return sizes, f"{groups:.0f} x {n:.0f} x {k:.0f}"
    tokens, top_k, experts, width, d_ff = (_number(record, name) for name in EXPERTS)
    rows = tokens * top_k
    moved = 3 * operand * experts * width * d_ff + result * rows * (2 * width + 4 * d_ff)
    sizes = {"group": rows / experts, "flops": 6 * rows * width * d_ff, "bytes": moved, "kernels": 3.0}
    return sizes, f"{experts:.0f} x {width:.0f} x {d_ff:.0f}"


def _attention(record: Record) -> SizesAndGroup:
    """FLOPs really executed, in the publications' convention that a causal mask leaves exactly half.

    `beside` are bytes of the rotation and of the copy into a cache, where the timing has them inside.
    """
    seq, batch, heads, width = (_number(record, name) for name in ("seq", "batch", "heads", "head_dim"))
    keys = _number(record, "kv_heads") if "kv_heads" in record else heads
    values = _number(record, "v_head_dim") if "v_head_dim" in record else width
    products = [ATTENTION_MATMULS[one.pass_] for one in passes_of(class_of(record))]
    flops = 2 * sum(of_keys * width + of_values * values for of_keys, of_values in products) * batch * heads * seq * seq
    beside = batch * seq * width * (2 * heads + 4 * keys) * RESULT if record.get("module") else 0.0
    if not isinstance(causal := record.get("causal"), bool):
        raise RecordError("causal", "no `causal` says whether a mask leaves out half", "`causal: true` or `false`")
    sizes = {"seq": seq, "flops": flops / 2 if causal else flops, "beside": beside}
    return sizes, f"{batch:.0f} x {seq:.0f}"


def _collective(record: Record) -> SizesAndGroup:
    """The payload is the output of an all-gather and the input of the others; a ring sends it (n-1)/n times a pass."""
    payload, ranks = _number(record, "bytes"), _number(record, "ranks")
    passes = 2 if class_of(record).family == "all_reduce" else 1
    return {"bytes": payload, "bus_bytes": passes * (ranks - 1) / ranks * payload}, f"{payload:.0f}"


def _stated(record: Record, names: Iterable[str]) -> SizesAndGroup:
    sizes = {name: _number(record, name) for name in names}
    return sizes, " x ".join(f"{size:.0f}" for size in sizes.values())


def _number(record: Record, name: str) -> float:
    value = record.get(name, 1 if name == "batch" else None)
    if not is_number(value):
        message = f"`{name}` of a record must be a number, not {value!r}" if name in record else f"it has no `{name}`"
        raise RecordError(name, message, "write 512 or 43.6")
    return float(value)


# Records of a form that is not here state the form's sizes themselves.
READERS: Mapping[str, RecordReader] = {
    "matmul": RecordReader(_matmul, (("m", "n", "k"),)),
    "grouped": RecordReader(_grouped, (GROUPS, EXPERTS)),
    "attention": RecordReader(_attention, (("batch", "heads", "seq", "head_dim"),)),
    "collective": RecordReader(_collective, (("ranks", "bytes"),)),
}


# --- What a record of a microbenchmark must say, and once ---

TIMING_UNITS = ("TFLOP/s", "GB/s", "us", "ms", "s")
CREDIBLE = (1e-6, 1e12)  # of a value in its own unit: from a picosecond to eleven days, from a MFLOP/s on
OF_A_DIM = (1, 10**9)  # of a dim, or of what is counted
# The range of every number of a record whose name is not one of a dim; whole numbers but where it is of floats.
RANGES: Mapping[str, tuple[float, float]] = {
    "bytes": (1, 10**15),  # a petabyte, far beyond any tensor
    "flops": (1, 10**21),  # of one kernel: an hour of a hundred devices
    "ranks": (2, 10**6),
    "casts": (0.0, 1e3),  # bytes an element
    "others": (0.0, 1.0),  # the share of a machine that others used
    **dict.fromkeys(("graphics_clock", "power"), (0.0, 1e6)),  # MHz, W
}
BEYOND = 10.0  # a parameter of a published fit may be so many times the greatest of its range
QUARTILES = ("low", "value", "high")  # about a median
SCALARS = ["number", "string", "boolean", "null"]


@cache
def timing_schema() -> PublishedSchema:
    """The schema of a record of a microbenchmark; one that could not run says no more than its `error`."""
    properties = {
        "what": {"enum": list(measured_classes()), "description": "The kernel class."},
        "unit": {"enum": TIMING_UNITS, "description": "The unit of `value`, `low` and `high`."},
        "regime": {"enum": REGIMES},
        "measured": {"type": "object", "description": "Further results of `ledger bench`."},
        **{name: {"type": SCALARS, **_bounds(*bounds)} for name, bounds in RANGES.items()},
        **{name: {"type": "number", **_bounds(*CREDIBLE)} for name in QUARTILES},
    }
    head = {"$schema": DIALECT, "title": "A timing of a kernel or a transfer, a record of a file of evidence"}
    others = {"type": SCALARS, **_bounds(*OF_A_DIM)}
    due = {"required": ["what", "unit", "value"], "properties": properties, "additionalProperties": others}
    return PublishedSchema({**head, "type": "object", "if": {"required": ["error"]}, "else": due})


def _bounds(least: float, most: float) -> Schema:
    return {"minimum": least, "maximum": most} | ({"multipleOf": 1} if isinstance(least, int) else {})


def benchmark_problems(records: Sequence[PlacedRecord]) -> Iterator[Problem]:
    """What the records lack, say that cannot be, or say twice, each with its place."""
    tables = (list(rows) for _, rows in groupby(records, lambda record: record.columns))
    found = (problem for rows in tables for problem in _table_problems(rows))
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


def _table_problems(rows: Sequence[PlacedRecord]) -> Iterator[Problem]:
    """What rows of one table, or records of none, lack or say that cannot be; a table is sound where its bounds are."""
    is_sound = rows[0].columns is not None and not any(map(list, map(_misfits, _bounds_of_table(rows))))
    for row in rows:
        misfits = () if is_sound else tuple(_misfits(row))
        if misfits or "error" not in row.fields:
            yield from misfits or tuple(_outside_quartiles(row)) or _without_sample(row)


def _bounds_of_table(rows: Sequence[PlacedRecord]) -> Iterator[PlacedRecord]:
    """Rows with the least, the greatest and the least whole number of each column."""
    for choose in (min, max, partial(max, key=lambda value: value % 1)):
        numbers = {
            name: choose(row.fields[name] for row in rows) if isinstance(value, int | float) else value
            for name, value in rows[0].fields.items()
        }
        yield replace(rows[0], fields=numbers)


def _misfits(record: PlacedRecord) -> Iterator[Problem]:
    """What a record lacks, and what the schema of timings says against it."""
    what = record.fields.get("what")
    if not isinstance(what, str):
        yield Problem(record.where, "a record says no kernel class", "`what: matmul.bf16`, `what: norm.forward`, ...")
    elif "error" not in record.fields and what not in measured_classes():
        message = f"no kernel class is named `{what}`"
        yield Problem(record.place("what"), message, nearest(what, measured_classes()))
    elif "error" not in record.fields:
        if "unit" not in record.fields:
            yield Problem(record.place("unit"), f"{what} has no unit", f"one of {', '.join(TIMING_UNITS)}")
        needed = ("value", *needed_sizes(record.fields))
        for name in needed:
            if name not in record.fields:
                yield Problem(record.place(name), f"{what} has no `{name}`", f"it needs {', '.join(needed)}")
            elif not is_number(record.fields[name]):
                message = f"{what}: `{name}` is no number: {record.fields[name]!r}"
                yield Problem(record.place(name), message, "write 512 or 43.6")
        for error in timing_schema().errors(record.fields):
            name = error.absolute_path[0] if error.absolute_path else ""
            if name and not (name in needed and error.validator == "type"):
                message, help_text = _refusal(name, error, record.fields.get("unit", ""))
                yield Problem(record.place(name), f"{what}: {message}", help_text)


def _refusal(name: str, error: Any, unit: object) -> tuple[str, str]:
    """What is wrong with the value of a key, and what to write instead."""
    value, bounds = error.instance, error.schema
    if error.validator == "enum":
        return f"the {name} `{value}` is unknown", f"one of {', '.join(bounds['enum'])}"
    if error.validator == "type":
        return (
            f"`{name}` is no number{'' if bounds['type'] == 'number' else ' and no word'}",
            "write 512, 43.6 or a name",
        )
    if error.validator == "multipleOf":
        return f"`{name}` is {value:g}", "a whole number is due"
    if bounds["minimum"] > 0 >= value:
        return f"`{name}` is {value}", "a measurement is above zero"
    if name in QUARTILES:
        return f"`{name}` is {value:g} {unit}, beyond reason", "was it written in another unit?"
    return f"`{name}` is {value:g}, beyond reason", f"from {bounds['minimum']:g} to {bounds['maximum']:g}"


def _without_sample(record: PlacedRecord) -> Iterator[Problem]:
    """A record that gives no sample of its kernel class."""
    try:
        if form_of(class_of(record.fields)):
            sample(record.fields)
    except RecordError as error:
        yield Problem(record.place(error.key), f"{record.fields['what']}: {error}", error.help)


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
