"""Turns records of evidence into samples for a fit: seconds, and the variables that the kernel class is priced by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ledger.evidence.fitting import Sample

Record = Mapping[str, object]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
ATTENTION_MATMULS = {"forward": 2, "backward": 5}  # of 2 * seq * seq * head_dim per head; backward redoes the scores
RATES = {"TFLOP/s": ("flops", 1e12), "GB/s": ("bytes", 1e9)}
TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def form_of(what: str) -> str:
    """The form that prices a kernel class; classes without one of their own are priced by the bytes they move."""
    family = what.split(".", maxsplit=1)[0]
    if family in COLLECTIVES:
        return "collective"
    return family if family in {"matmul", "attention", "send"} else "bandwidth"


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
    """Operands and result of two bytes each are moved once; shapes with the same n and k are held out together."""
    m, n, k = (_number(record, name) for name in ("m", "n", "k"))
    moved = 2 * (m * k + k * n + m * n)
    return {"m": m, "n": n, "k": k, "flops": 2 * m * n * k, "bytes": moved}, f"{n:.0f} x {k:.0f}"


def _attention(record: Record) -> tuple[dict[str, float], str]:
    """FLOPs really executed, in the publications' convention that a causal mask leaves exactly half."""
    passes = [name for name in ATTENTION_MATMULS if str(record["what"]).endswith(name)] or list(ATTENTION_MATMULS)
    seq = _number(record, "seq")
    width = _number(record, "batch") * _number(record, "heads") * _number(record, "head_dim")
    flops = sum(2 * ATTENTION_MATMULS[name] for name in passes) * width * seq * seq
    return {"seq": seq, "flops": flops / 2 if record["causal"] else flops}, f"{seq:.0f}"


def _bandwidth(record: Record) -> tuple[dict[str, float], str]:
    moved = _number(record, "bytes")
    return {"bytes": moved}, f"{moved:.0f}"


def _collective(record: Record) -> tuple[dict[str, float], str]:
    """The payload is the output of an all-gather and the input of the others; a ring sends it (n-1)/n times a pass."""
    payload, ranks = _number(record, "bytes"), _number(record, "ranks")
    passes = 2 if str(record["what"]).startswith("all_reduce") else 1
    return {"bytes": payload, "bus_bytes": passes * (ranks - 1) / ranks * payload}, f"{payload:.0f}"


def _number(record: Record, name: str) -> float:
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"`{name}` of a record must be a number, not {value!r}")
    return float(value)


VARIABLES: Mapping[str, Callable[[Record], tuple[dict[str, float], str]]] = {
    "matmul": _matmul,
    "attention": _attention,
    "bandwidth": _bandwidth,
    "collective": _collective,
    "send": _bandwidth,
}
