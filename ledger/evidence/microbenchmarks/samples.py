"""Turns records of evidence into samples for a fit: seconds, and the variables that the kernel class is priced by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ledger.evidence.microbenchmarks.forms import Sample

Record = Mapping[str, object]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
OWN_FORM = {"matmul": "matmul", "grouped": "grouped", "attention": "attention", "send": "send", "host_link": "send"}
UNPRICED = ("launch", "step", "fit", "derivation")  # no form of a price list is about these
OPERAND = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}  # bytes
RESULT = 2.0  # bytes of a matmul's result; fp32 where the operands are, or the record says so
# Products of seq x seq x the width of keys, and of values, per head and pass; backward computes the scores again.
ATTENTION_MATMULS = {"forward": (1, 1), "backward": (3, 2)}
RATES = {"TFLOP/s": ("flops", 1e12), "GB/s": ("bytes", 1e9)}
PASSES = ("forward", "backward")
TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def form_of(what: str) -> str:
    """The form that prices a kernel class; classes without one of their own are priced by the bytes they move."""
    family = what.split(".", maxsplit=1)[0]
    return "collective" if family in COLLECTIVES else OWN_FORM.get(family, "bandwidth")


def priced(record: Record) -> bool:
    """Whether a form of a price list is about such a record."""
    return str(record["what"]).split(".", maxsplit=1)[0] not in UNPRICED


def samples(records: Iterable[Record]) -> tuple[Sample, ...]:
    """One sample per record; raises KeyError where a record lacks a size that its kernel class needs."""
    return tuple(_sample(record) for record in records)


def _sample(record: Record) -> Sample:
    variables, group = VARIABLES[form_of(str(record["what"]))](record)
    unit, value = str(record["unit"]), _number(record, "value")
    if unit in TIMES:
        return Sample(value * TIMES[unit], variables, group)
    amount, scale = RATES[unit]
    return Sample(variables[amount] / (value * scale), variables, group)


def _matmul(record: Record) -> tuple[dict[str, float], str]:
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
    dtype = str(record["what"]).split(".")[1]
    result = OPERAND[str(record["result"])] if "result" in record else max(RESULT, OPERAND[dtype])
    return OPERAND[dtype], result * (2 if record.get("accumulate") else 1)


def _grouped(record: Record) -> tuple[dict[str, float], str]:
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


def _attention(record: Record) -> tuple[dict[str, float], str]:
    """FLOPs really executed, in the publications' convention that a causal mask leaves exactly half.

    `beside` are bytes of the rotation and of the copy into a cache, where the timing has them inside.
    """
    passes = [name for name in ATTENTION_MATMULS if str(record["what"]).endswith(name)] or list(ATTENTION_MATMULS)
    seq, batch, heads, width = (_number(record, name) for name in ("seq", "batch", "heads", "head_dim"))
    keys = _number(record, "kv_heads") if "kv_heads" in record else heads
    values = _number(record, "v_head_dim") if "v_head_dim" in record else width
    products = [ATTENTION_MATMULS[name] for name in passes]
    flops = 2 * sum(of_keys * width + of_values * values for of_keys, of_values in products) * batch * heads * seq * seq
    beside = batch * seq * width * (2 * heads + 4 * keys) * RESULT if record.get("module") else 0.0
    sizes = {"seq": seq, "flops": flops / 2 if record["causal"] else flops, "beside": beside}
    return sizes, f"{batch:.0f} x {seq:.0f}"


def _bandwidth(record: Record) -> tuple[dict[str, float], str]:
    moved = _number(record, "bytes")
    return {"bytes": moved}, f"{moved:.0f}"


def _collective(record: Record) -> tuple[dict[str, float], str]:
    """The payload is the output of an all-gather and the input of the others; a ring sends it (n-1)/n times a pass."""
    payload, ranks = _number(record, "bytes"), _number(record, "ranks")
    passes = 2 if str(record["what"]).startswith("all_reduce") else 1
    return {"bytes": payload, "bus_bytes": passes * (ranks - 1) / ranks * payload}, f"{payload:.0f}"


def _number(record: Record, name: str) -> float:
    value = record.get(name, 1) if name == "batch" else record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"`{name}` of a record must be a number, not {value!r}")
    return float(value)


VARIABLES: Mapping[str, Callable[[Record], tuple[dict[str, float], str]]] = {
    "matmul": _matmul,
    "grouped": _grouped,
    "attention": _attention,
    "bandwidth": _bandwidth,
    "collective": _collective,
    "send": _bandwidth,
}
