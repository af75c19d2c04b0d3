"""The closed forms of prices, a row each: seconds of a kernel or a transfer, from fitted parameters and its sizes.

A form is written once, over the arithmetic of `ledger.arithmetic`. Prices of a plan, fits to measurements, what an
accelerator's spec may say, the live page and the documentation all read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.arithmetic.values import Amount, maximum, square_root

TILE = 128 * 256  # output elements that one multiprocessor works on in the large kernels of cuBLAS
# How far a parameter that measurements hardly show strays from what is typical, as a natural logarithm: starts and
# shares of a bandwidth are alike on devices of one kind, what small shapes lose is not.
NEAR, FAR = 0.5, 1.0
LARGEST_SIZE = 1e6  # at which half of a rate is reached
LARGEST_FACTOR = 1e3  # of bytes beside a kernel, or of waves
FASTEST_LINK = 1e15  # B/s
LONGEST_START = 1.0  # seconds; launches and the first bytes of transfers take microseconds


@dataclass(frozen=True)
class PriceParameter:
    """One constant of a form: its `unit` (s, B/s, or 1), its range, what is `typical` of it, where fits begin.

    `strays`: where measurements may show it hardly or not at all, how far it strays from the typical (see NEAR, FAR).
    """

    name: str
    unit: str
    meaning: str
    typical: float
    most: float
    least: float = 0.0
    positive: bool = False
    strays: float | None = None


@dataclass(frozen=True)
class DataSheet:
    """The figures of a data sheet for a kernel: FLOP/s of its dtype, B/s of the memory, number of multiprocessors.

    A device without multiprocessors has 0 of them, and its products lose nothing to waves of tiles.
    """

    peak: Amount = 1.0
    bandwidth: Amount = 1.0
    multiprocessors: int = 1


Parameters = Mapping[str, Amount]
Sizes = Mapping[str, Amount]
Seconds = Callable[[Parameters, Sizes, DataSheet], Amount]


@dataclass(frozen=True)
class PriceForm:
    """A formula of seconds. `sizes` are what it reads of a kernel; `formula` is the same for people.

    `priced` says whether a price list may have it, or fits alone: of kernels that were timed together with others.
    `timed_with_others` names the form that such timings of this kernel have.
    """

    parameters: tuple[PriceParameter, ...]
    sizes: Mapping[str, str]
    seconds: Seconds
    formula: str
    priced: bool = True
    timed_with_others: str = ""

    @property
    def computes(self) -> bool:
        """Whether FLOPs take its time, whose rate falls where a device reaches its power limit."""
        return "flops" in self.sizes

    def typical(self) -> dict[str, float]:
        """The typical value of each parameter, by name."""
        return {parameter.name: parameter.typical for parameter in self.parameters}

    def within(self, parameters: Mapping[str, float]) -> dict[str, float]:
        """The parameters, each no further than its range goes: a measured rate may pass what a data sheet says."""
        return {row.name: min(max(parameters[row.name], row.least), row.most) for row in self.parameters}


def _matmul(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    shape = (1 + p["k0"] / sizes["k"]) * (1 + p["c"] * sheet.multiprocessors * TILE / (sizes["m"] * sizes["n"]))
    compute = sizes["flops"] / (p["e"] * sheet.peak) * shape
    return p["t0"] + maximum(compute, sizes["bytes"] / (p["b"] * sheet.bandwidth))


def _casting(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    return _matmul(p, sizes, sheet) + p["d"] * sizes["beside"] / sheet.bandwidth


def _grouped(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    compute = sizes["flops"] / (p["e"] * sheet.peak) * (1 + p["m0"] / sizes["group"])
    return p["t0"] * sizes["kernels"] + maximum(compute, sizes["bytes"] / (p["b"] * sheet.bandwidth))


def _attention(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    return p["t0"] + sizes["flops"] * (1 + p["s0"] / sizes["seq"]) / (p["e"] * sheet.peak)


def _attention_module(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    return _attention(p, sizes, sheet) + p["c"] * sizes["beside"] / sheet.bandwidth


def _bandwidth(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    return p["t0"] + sizes["bytes"] / (p["b"] * sheet.bandwidth)


def _cached(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    moving = sizes["bytes"] / (p["b"] * sheet.bandwidth)
    return p["t0"] + moving + square_root(p["t0"] * moving)


def _data_sheet(p: Parameters, sizes: Sizes, sheet: DataSheet) -> Amount:
    return maximum(sizes["flops"] / (p["e"] * sheet.peak), sizes["bytes"] / (p["b"] * sheet.bandwidth))


def _collective(p: Parameters, sizes: Sizes, _: DataSheet) -> Amount:
    on_the_bus = sizes["bus_bytes"] / p["B"]
    return p["a"] + on_the_bus + square_root(p["a"] * on_the_bus)


def _send(p: Parameters, sizes: Sizes, _: DataSheet) -> Amount:
    return p["a"] + sizes["bytes"] / p["B"]


def _share(name: str, meaning: str, typical: float, strays: float | None = None) -> PriceParameter:
    """A share of a data sheet's figure."""
    return PriceParameter(name, "1", meaning, typical, most=1.0, positive=True, strays=strays)


def _start(typical: float) -> PriceParameter:
    return PriceParameter(
        "t0", "s", "seconds that it takes whatever its size", typical, most=LONGEST_START, strays=NEAR
    )


FLOPS = {"flops": "FLOPs that it runs"}
BYTES = {"bytes": "bytes that it moves"}
PEAK_SHARE = "share of the dense peak that the largest shapes reach"
# `b` of matmuls that memory limits: 0.69 to 0.80 on A100, H100, H200, B200 and GB200, by shapes of fewer than 512 rows.
_MATMUL_PARAMETERS = (
    _share("e", PEAK_SHARE, 0.8),
    _start(3e-6),
    _share("b", "share of the memory's bandwidth", 0.75, NEAR),
    PriceParameter(
        "k0",
        "1",
        "inner size at which half of the time goes into starting a tile",
        100.0,
        most=LARGEST_SIZE,
        strays=FAR,
    ),
    PriceParameter(
        "c",
        "1",
        "what a wave of tiles that does not fill the device costs, over a full one",
        0.03,
        most=LARGEST_FACTOR,
        strays=FAR,
    ),
)
_MATMUL_SIZES = {**FLOPS, **BYTES, "m": "rows, of all products of a batch", "n": "columns", "k": "inner size"}
_ATTENTION_PARAMETERS = (
    _share("e", PEAK_SHARE, 0.5),
    PriceParameter(
        "s0", "1", "tokens of a sequence at which half of the rate is reached", 500.0, most=LARGEST_SIZE, strays=FAR
    ),
    _start(5e-6),
)
_LATENCY = PriceParameter("a", "s", "seconds that it takes whatever its size", 1e-5, most=LONGEST_START)

PRICE_FORMS: Mapping[str, PriceForm] = {
    "matmul": PriceForm(
        _MATMUL_PARAMETERS,
        _MATMUL_SIZES,
        _matmul,
        "t0 + max(flops / (e * peak) * (1 + k0 / k) * (1 + c * multiprocessors * 128 * 256 / (m * n)),"
        " bytes / (b * bandwidth))",
        timed_with_others="casting",
    ),
    "casting": PriceForm(
        (
            *_MATMUL_PARAMETERS,
            PriceParameter(
                "d", "1", "times the bytes of casts over full bandwidth", 1.5, most=LARGEST_FACTOR, strays=FAR
            ),
        ),
        {**_MATMUL_SIZES, "beside": "bytes of the casts of its operands"},
        _casting,
        "matmul + d * beside / bandwidth",
        priced=False,
    ),
    "grouped": PriceForm(
        (
            _share("e", PEAK_SHARE, 0.65),
            _start(1e-5),
            _share("b", "share of the memory's bandwidth", 0.75, NEAR),
            PriceParameter(
                "m0", "1", "rows of a group at which half of the rate is reached", 200.0, most=LARGEST_SIZE, strays=FAR
            ),
        ),
        {**FLOPS, **BYTES, "group": "rows of one group", "kernels": "grouped products that are timed as one"},
        _grouped,
        "t0 * kernels + max(flops / (e * peak) * (1 + m0 / group), bytes / (b * bandwidth))",
    ),
    "attention": PriceForm(
        _ATTENTION_PARAMETERS,
        {**FLOPS, "seq": "tokens of a sequence"},
        _attention,
        "t0 + flops * (1 + s0 / seq) / (e * peak)",
        timed_with_others="module",
    ),
    "module": PriceForm(
        (
            *_ATTENTION_PARAMETERS,
            PriceParameter(
                "c", "1", "times the bytes beside it over full bandwidth", 1.0, most=LARGEST_FACTOR, strays=FAR
            ),
        ),
        {**FLOPS, "seq": "tokens of a sequence", "beside": "bytes of the memory-bound kernels beside it"},
        _attention_module,
        "attention + c * beside / bandwidth",
        priced=False,
    ),
    "bandwidth": PriceForm(
        (_share("b", "share of the memory's bandwidth", 0.7), _start(3e-6)),
        BYTES,
        _bandwidth,
        "t0 + bytes / (b * bandwidth)",
    ),
    "cached": PriceForm(
        (_share("b", "share of the memory's bandwidth that the largest caches reach", 0.9), _start(8e-6)),
        BYTES,
        _cached,
        "t0 + bytes / (b * bandwidth) + sqrt(t0 * bytes / (b * bandwidth))",
    ),
    "typical": PriceForm(
        (_share("e", "share of the peak", 0.65), _share("b", "share of the memory's bandwidth", 0.87)),
        {**FLOPS, **BYTES},
        _data_sheet,
        "max(flops / (e * peak), bytes / (b * bandwidth))",
        priced=False,
    ),
    "collective": PriceForm(
        (_LATENCY, PriceParameter("B", "B/s", "bandwidth of the bus", 2e11, most=FASTEST_LINK, positive=True)),
        {"bus_bytes": "bytes over a link: payload x 2(n-1)/n of an all-reduce, (n-1)/n of the others"},
        _collective,
        "a + bus_bytes / B + sqrt(a * bus_bytes / B)",
    ),
    "send": PriceForm(
        (_LATENCY, PriceParameter("B", "B/s", "bandwidth of the link", 5e10, most=FASTEST_LINK, positive=True)),
        BYTES,
        _send,
        "a + bytes / B",
    ),
}


def seconds(form: str, parameters: Mapping[str, Any], sizes: Sizes, sheet: DataSheet) -> Amount:
    """Seconds of a kernel or transfer of these sizes, by a form's parameters and the device's data sheet."""
    return PRICE_FORMS[form].seconds(parameters, sizes, sheet)
