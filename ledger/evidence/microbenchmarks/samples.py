"""Records of evidence as samples of a fit: seconds, and the sizes that the form of their kernel class reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ledger.evidence.microbenchmarks.records import Record
from ledger.price_forms import PRICE_FORMS
from ledger.spec.kernel_classes import BACKWARD, FORWARD, KernelClass, kernel_class
from ledger.spec.kernel_families import NUMBER_FORMATS, form_of, number_format, passes_of
from ledger.spec.near import nearest

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
    if isinstance(value, bool) or not isinstance(value, int | float):
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
