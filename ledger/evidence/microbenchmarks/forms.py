"""The forms of prices that measurements are fitted to: seconds of one sample, or of arrays of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.spec.plan import Accelerator

Value = Any  # a float, or an array of floats: a report prices single samples, for which numpy is not worth its import
Variables = Mapping[str, Value]
Parameters = Mapping[str, float]

TILE = 128 * 256  # output elements one multiprocessor works on in the large kernels of cuBLAS
# How far a parameter that samples hardly show strays from what is typical, as a natural logarithm: starts and shares of
# a bandwidth are alike on devices of one kind, what small shapes lose is not.
NEAR, FAR = 0.5, 1.0


@dataclass(frozen=True)
class Roof:
    """What a device's datasheet promises: dense FLOP/s of the dtype, B/s of its memory, how many multiprocessors."""

    peak: float = 1.0
    bandwidth: float = 1.0
    multiprocessors: int = 1


PLAIN = Roof()  # for forms that read nothing of a data sheet


@dataclass(frozen=True)
class Sample:
    """A measured time in seconds, what it depends on, and the group that is held out together with it."""

    seconds: float
    variables: Mapping[str, float]
    group: str


@dataclass(frozen=True)
class Form:
    """A price formula: start values of its parameters (none is ever negative) and seconds, for arrays of variables.

    `loose`: parameters that samples may show hardly or not at all, and how far they stray; they are drawn to their
    start values, the more so the more the samples scatter.
    """

    start: Parameters
    seconds: Callable[[Parameters, Variables, Roof], Value]
    loose: Mapping[str, float] = field(default_factory=dict)


def _larger(first: Value, second: Value) -> Value:
    return max(first, second) if isinstance(first, float) else first.clip(second)


def _matmul(p: Parameters, v: Variables, roof: Roof) -> Value:
    shape = (1 + p["k0"] / v["k"]) * (1 + p["c"] * roof.multiprocessors * TILE / (v["m"] * v["n"]))
    work = v["flops"] / (p["e"] * roof.peak) * shape
    return p["t0"] + _larger(work, v["bytes"] / (p["b"] * roof.bandwidth))


def _grouped(p: Parameters, v: Variables, roof: Roof) -> Value:
    """One grouped matmul, or several of a layer that were timed as one."""
    work = v["flops"] / (p["e"] * roof.peak) * (1 + p["m0"] / v["group"])
    return p["t0"] * v["kernels"] + _larger(work, v["bytes"] / (p["b"] * roof.bandwidth))


def _casting(p: Parameters, v: Variables, roof: Roof) -> Value:
    """A matmul with the casts of its operand, whose bytes take `d` times as long as at full bandwidth."""
    return _matmul(p, v, roof) + p["d"] * v["beside"] / roof.bandwidth


def _module(p: Parameters, v: Variables, roof: Roof) -> Value:
    """Attention with memory-bound kernels beside it, whose bytes are moved `c` times as long as at full bandwidth."""
    return _attention(p, v, roof) + p["c"] * v["beside"] / roof.bandwidth


def _attention(p: Parameters, v: Variables, roof: Roof) -> Value:
    return p["t0"] + v["flops"] * (1 + p["s0"] / v["seq"]) / (p["e"] * roof.peak)


def _bandwidth(p: Parameters, v: Variables, roof: Roof) -> Value:
    return p["t0"] + v["bytes"] / (p["b"] * roof.bandwidth)


def _collective(p: Parameters, v: Variables, _: Roof) -> Value:
    """`bus_bytes` is the payload times 2(n-1)/n for an all-reduce and (n-1)/n for the other collectives."""
    transfer = v["bus_bytes"] / p["B"]
    return p["a"] + transfer + (p["a"] * transfer) ** 0.5


def _send(p: Parameters, v: Variables, _: Roof) -> Value:
    return p["a"] + v["bytes"] / p["B"]


# `b` of matmuls that memory limits: 0.69 to 0.80 on A100, H100, H200, B200 and GB200, by shapes of fewer than 512 rows.
MATMUL: Parameters = {"e": 0.8, "t0": 3e-6, "b": 0.75, "k0": 100.0, "c": 0.03}
SHAPES: Parameters = {"t0": NEAR, "b": NEAR, "k0": FAR, "c": FAR}
FORMS: Mapping[str, Form] = {
    "matmul": Form(MATMUL, _matmul, SHAPES),
    "casting": Form({**MATMUL, "d": 1.5}, _casting, {**SHAPES, "d": FAR}),
    "grouped": Form({"e": 0.65, "t0": 1e-5, "b": 0.75, "m0": 200.0}, _grouped, {"t0": NEAR, "b": NEAR, "m0": FAR}),
    "attention": Form({"e": 0.5, "s0": 500.0, "t0": 5e-6}, _attention, {"s0": FAR, "t0": NEAR}),
    "module": Form({"e": 0.5, "s0": 500.0, "t0": 5e-6, "c": 1.0}, _module, {"s0": FAR, "t0": NEAR, "c": FAR}),
    "bandwidth": Form({"b": 0.7, "t0": 3e-6}, _bandwidth, {"t0": NEAR}),
    "collective": Form({"a": 1e-5, "B": 2e11}, _collective),
    "send": Form({"a": 1e-5, "B": 5e10}, _send),
}


def roof(accelerator: Accelerator, what: str, dtype: str) -> Roof:
    """The data sheet of a price class; raises KeyError where the sheet has no peak for its dtype."""
    family, _, rest = what.partition(".")
    peaked = {"matmul": rest, "grouped": rest, "attention": dtype or "bf16"}.get(family)
    peak = accelerator.peak[peaked] if peaked else 1.0
    return Roof(peak, accelerator.bandwidth, accelerator.multiprocessors)


def predicted(name: str, parameters: Parameters, sample: Sample, under: Roof) -> float:
    """Seconds of one sample by a form's parameters."""
    return float(FORMS[name].seconds(parameters, sample.variables, under))
