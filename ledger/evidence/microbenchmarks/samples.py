"""Records of evidence as samples of a fit: seconds, and the sizes that the form of their kernel class reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ledger.price_forms import PRICE_FORMS
from ledger.spec.kernel_families import NUMBER_FORMATS, form_of, passes_of

Record = Mapping[str, object]

RESULT = 2.0  # bytes of a matmul's result; fp32 where the operands are, or the record says so
# Products of seq x seq x the width of keys, and of values, per head and pass; backward computes the scores again.
ATTENTION_MATMULS = {"forward": (1, 1), "backward": (3, 2)}
RATES = {"TFLOP/s": ("flops", 1e12), "GB/s": ("bytes", 1e9)}
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
    """How the sizes of a form are found in a record, and the numbers that a record needs for them."""

    needs: tuple[str, ...]
    read: Callable[[Record], SizesAndGroup]


def samples(records: Iterable[Record]) -> tuple[TimedSample, ...]:
    """One sample per record; raises KeyError where a record lacks a size that its kernel class needs."""
    return tuple(_sample(record) for record in records)


def needed_sizes(what: str) -> tuple[str, ...]:
    """The numbers beside its value that a record of a kernel class needs."""
    form = form_of(what)
    return reader(form).needs if form else ()


def fitted_form(what: str, *, with_others: bool) -> str:
    """The form that is fitted to timings of a kernel class, where other kernels are timed with it and where none is."""
    form = form_of(what)
    return (with_others and PRICE_FORMS[form].timed_with_others) or form


def is_with_others(record: Record) -> bool:
    """Whether a timing has other kernels inside."""
    return bool(record.get("module") or record.get("casts"))


def reader(form: str) -> RecordReader:
    """How records give the sizes of a form: by its row in READERS, else they state these sizes as they are."""
    stated = tuple(PRICE_FORMS[form].sizes)
    return READERS.get(form) or RecordReader(stated, lambda record: _stated(record, stated))


def pass_shares(what: str) -> dict[str, float]:
    """The share of the FLOPs of a measurement that each class has which it gives a price to."""
    if form_of(what) != "attention":
        return {what: 1.0}
    products = {name: sum(of_pass) for name, of_pass in _attention_products(what).items()}
    return {name: count / sum(products.values()) for name, count in products.items()}


def _sample(record: Record) -> TimedSample:
    sizes, group = reader(form_of(str(record["what"]))).read(record)
    unit, value = str(record["unit"]), _number(record, "value")
    if unit in TIMES:
        return TimedSample(value * TIMES[unit], sizes, group)
    amount, scale = RATES[unit]
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
    operand = NUMBER_FORMATS[str(record["what"]).partition(".")[2]]
    result = NUMBER_FORMATS[str(record["result"])] if "result" in record else max(RESULT, operand)
    return operand, result * (2 if record.get("accumulate") else 1)


def _grouped(record: Record) -> SizesAndGroup:
    """One product a group; of a whole gated feed-forward layer of experts, three, with every expert's weights."""
    operand, result = _widths(record)
    if "groups" in record:
        groups, rows, n, k = (_number(record, name) for name in ("groups", "rows", "n", "k"))
        moved = groups * (operand * (rows * k + k * n) + result * rows * n)
        sizes = {"group": rows, "flops": 2 * groups * rows * n * k, "bytes": moved, "kernels": 1.0}
        return sizes, f"{groups:.0f} x {n:.0f} x {k:.0f}"
    names = ("tokens", "top_k", "experts", "width", "d_ff")
    tokens, top_k, experts, width, d_ff = (_number(record, name) for name in names)
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
    products = _attention_products(str(record["what"])).values()
    flops = 2 * sum(of_keys * width + of_values * values for of_keys, of_values in products) * batch * heads * seq * seq
    beside = batch * seq * width * (2 * heads + 4 * keys) * RESULT if record.get("module") else 0.0
    sizes = {"seq": seq, "flops": flops / 2 if record["causal"] else flops, "beside": beside}
    return sizes, f"{batch:.0f} x {seq:.0f}"


def _attention_products(what: str) -> dict[str, tuple[int, int]]:
    """Products of each pass that a class of attention measures."""
    return {name: ATTENTION_MATMULS[name.rpartition(".")[2]] for name in passes_of(what)}


def _collective(record: Record) -> SizesAndGroup:
    """The payload is the output of an all-gather and the input of the others; a ring sends it (n-1)/n times a pass."""
    payload, ranks = _number(record, "bytes"), _number(record, "ranks")
    passes = 2 if str(record["what"]).partition(".")[0] == "all_reduce" else 1
    return {"bytes": payload, "bus_bytes": passes * (ranks - 1) / ranks * payload}, f"{payload:.0f}"


def _stated(record: Record, names: Iterable[str]) -> SizesAndGroup:
    sizes = {name: _number(record, name) for name in names}
    return sizes, " x ".join(f"{size:.0f}" for size in sizes.values())


def _number(record: Record, name: str) -> float:
    value = record.get(name, 1) if name == "batch" else record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"`{name}` of a record must be a number, not {value!r}")
    return float(value)


# Records of a form that is not here state the form's sizes themselves.
READERS: Mapping[str, RecordReader] = {
    "matmul": RecordReader(("m", "n", "k"), _matmul),
    "grouped": RecordReader((), _grouped),  # of a product, or of a whole layer
    "attention": RecordReader(("batch", "heads", "seq", "head_dim"), _attention),
    "collective": RecordReader(("ranks", "bytes"), _collective),
}
