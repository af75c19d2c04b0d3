"""Quantities with units: the one module that knows prefixes and units. Values are exact, in SI base units."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

Number = int | Fraction


@dataclass(frozen=True)
class Dimension:
    """The dimension of a quantity: `base` is its SI base unit.

    Every value is zero, or lies between `smallest` and `greatest` with either sign: beyond them it is beyond reason,
    and within them no sum, product or quotient of a plan leaves the range of a float.
    """

    base: str
    noun: str
    example: str
    greatest: Fraction
    smallest: Fraction = Fraction(1)
    is_counted: bool = False


class QuantityError(ValueError):
    """A text is no quantity of the dimension asked for; `help` says what to type instead.

    `near`: it is one of that dimension but for its unit, or of an amount that cannot be.
    """

    def __init__(self, message: str, help_text: str, *, near: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.help = help_text
        self.near = near


# Greatest: about a million times what the largest machine of 2026 has. Smallest: far below what anyone measures.
DIMENSIONS: Mapping[str, Dimension] = {
    row.base: row
    for row in (
        Dimension("B", "a size", "80 GB", Fraction(10**21), is_counted=True),
        Dimension("B/s", "a bandwidth", "3.35 TB/s", Fraction(10**21)),
        Dimension("FLOP", "an amount of arithmetic", "2 PFLOP", Fraction(10**36)),
        Dimension("FLOP/s", "an arithmetic rate", "989.5 TFLOP/s", Fraction(10**24)),
        Dimension("W", "a power", "700 W", Fraction(10**9), Fraction(1, 10**3)),
        Dimension("J", "an energy", "3 MWh", Fraction(10**24), Fraction(1, 10**9)),
        Dimension("kg", "a mass", "400 t", Fraction(10**15), Fraction(1, 10**12)),
        Dimension("kg/J", "a carbon intensity", "380 g/kWh", Fraction(10**12), Fraction(1, 10**15)),
        Dimension("s", "a time", "18 us", Fraction(10**12), Fraction(1, 10**15)),
        Dimension("/s", "a frequency", "0.01 /d", Fraction(10**9), Fraction(1, 10**15)),
        Dimension("tokens", "a number of tokens", "15T tokens", Fraction(10**20), is_counted=True),
        Dimension("images", "a number of images", "300M images", Fraction(10**18), is_counted=True),
        Dimension("tokens/s", "a token rate", "400 tokens/s", Fraction(10**15), Fraction(1, 10**9)),
        Dimension("images/s", "a rate of images", "400 images/s", Fraction(10**15), Fraction(1, 10**9)),
        Dimension("samples/s", "a rate of samples", "40 samples/s", Fraction(10**15), Fraction(1, 10**9)),
        Dimension("requests/s", "a rate of requests", "4 requests/s", Fraction(10**12), Fraction(1, 10**9)),
        Dimension("parameters", "a number of parameters", "70B parameters", Fraction(10**18), is_counted=True),
        Dimension("USD", "an amount of money", "2.50 USD", Fraction(10**15), Fraction(1, 10**9)),
        Dimension("1", "a ratio", "0.5 or 50 %", Fraction(10**12), Fraction(1, 10**12)),
    )
}
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Z": 10**21}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
COUNT_PREFIXES = {"K": 10**3, "k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}  # as tokens and parameters are counted
SPOKEN = {"thousand": 10**3, "million": 10**6, "billion": 10**9}  # before money alone
SMALL_PREFIXES = {"m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "µ": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
UNSCALED = ("kg", "kg/J", "s", "/s", "requests/s", "USD", "1")  # written without a prefix
SHORTEST = 30  # digits before a number is written with an exponent
TIME_UNITS = {"min": 60, "h": 3600, "d": 86400, "y": 31_557_600}  # a Julian year
TIME_WORDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400, "year": TIME_UNITS["y"]}
# Units that are written without a prefix: of what dimension, and how large.
OTHER_UNITS: tuple[tuple[str, str, int | Fraction], ...] = (
    ("B", "byte", 1),
    ("B", "bytes", 1),
    ("tokens", "token", 1),
    ("requests/s", "requests/s", 1),
    ("requests/s", "request/s", 1),
    ("requests/s", "requests/min", Fraction(1, 60)),
    ("requests/s", "requests/h", Fraction(1, 3600)),
    ("kg", "kg", 1),
    ("kg", "t", 1000),
    ("kg/J", "kg/J", 1),
    ("kg/J", "g/kWh", Fraction(1, 1000 * 3_600_000)),
    ("kg/J", "kg/kWh", Fraction(1, 3_600_000)),
    ("kg/J", "kg/MWh", Fraction(1, 3_600_000_000)),
    ("1", "", 1),
)
NUMBER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?(?![0-9])")
LARGEST = Fraction(10**60)  # amount of anything, in its base unit
LONGEST = 100  # characters of a quantity; a float written out to its last digit has 24
ALL_UNITS = "units are B, B/s, b/s, FLOP/s, W, s, h, d, tokens, images, parameters, USD, %, with prefixes"
SPELLINGS = {  # common ways to write a unit that this language writes in one way only
    "gbps": "Gb/s",
    "mbps": "Mb/s",
    "tbps": "Tb/s",
    "flops": "FLOP/s",
    "gflops": "GFLOP/s",
    "tflops": "TFLOP/s",
    "pflops": "PFLOP/s",
    "$": "USD",
    "usd": "USD",
    "dollars": "USD",
    "sec": "s",
    "secs": "s",
    "hr": "h",
    "hrs": "h",
    "mins": "min",
    "watts": "W",
    "percent": "%",
}


@cache
def units() -> Mapping[str, tuple[str, Fraction]]:
    """Every unit of which one is within reason: its dimension, and its size in the dimension's base unit."""
    table: dict[str, tuple[str, Fraction]] = {}

    def add(base: str, unit: str, prefixes: Mapping[str, int | Fraction], size: int | Fraction = 1) -> None:
        sizes = {prefix + unit: Fraction(step * size) for prefix, step in {"": 1, **prefixes}.items()}
        table.update({name: (base, worth) for name, worth in sizes.items() if worth <= DIMENSIONS[base].greatest})

    for base in ("B", "B/s"):
        add(base, base, {**DECIMAL, **BINARY})
    for base in ("FLOP", "FLOP/s", "W", "J"):
        add(base, base, DECIMAL)
    add("J", "Wh", DECIMAL, 3600)
    for bits in ("b/s", "bit/s"):
        add("B/s", bits, DECIMAL, Fraction(1, 8))
    for base in ("tokens", "tokens/s", "images", "images/s", "samples/s", "parameters"):
        add(base, base, {f"{prefix} ": size for prefix, size in COUNT_PREFIXES.items()})
    add("USD", "USD", {f"{prefix} ": size for prefix, size in {**COUNT_PREFIXES, **SPOKEN}.items()})
    add("s", "s", SMALL_PREFIXES)
    for name, size in TIME_UNITS.items():
        add("s", name, {}, size)
    for name, size in TIME_WORDS.items():
        add("s", name, {}, size)
        add("s", f"{name}s", {}, size)
    for name, size in {"s": 1, **TIME_UNITS, **TIME_WORDS}.items():
        add("/s", f"/{name}", {}, Fraction(1, size))
    for base, name, worth in OTHER_UNITS:
        add(base, name, {}, worth)
    add("1", "%", {}, Fraction(1, 100))
    return table


def parse(text: str, base: str, *, measured: bool = False) -> Number:
    """The exact value of `80 GB` in the base unit of its dimension (`B`); raises QuantityError.

    What is counted is a whole number of them, unless it was `measured`, and rounded.
    """
    value, stated_base = parse_any(text, base)
    dimension = DIMENSIONS[base]
    if stated_base != base:
        raise _wrong_dimension(text, stated_base, dimension)
    _refuse_beyond(text, value, dimension)
    if measured:
        return value
    if dimension.is_counted and value.denominator != 1:
        message = f"`{text}` is no whole number of {'bytes' if base == 'B' else base}"
        raise QuantityError(message, f"for example {dimension.example}", near=True)
    return int(value) if dimension.is_counted else value


def parse_any(text: str, expected: str = "") -> tuple[Fraction, str]:
    """The exact value of a quantity of any dimension, and that dimension's base unit; raises QuantityError.

    It is no larger than `LARGEST`, whatever it measures. Near misses are offered from the units of `expected`, if any.
    """
    number, unit = split_number_and_unit(text)
    if not number:
        raise QuantityError(f"`{text}` is no quantity", "write a number and a unit, for example 80 GB")
    unit = re.sub(r"^([KkMBT])\s*(?=tokens|images|samples|parameters|USD)", r"\1 ", unit)
    if unit not in units():
        raise _unknown_unit(number, unit, expected)
    base, size = units()[unit]
    value = Fraction(number) * size
    if not 1 / LARGEST < abs(value) < LARGEST:
        _refuse_beyond(text, value, DIMENSIONS[base])
    return value, base


def split_number_and_unit(text: str) -> tuple[str, str]:
    """The number and the unit of a quantity as written; no number where none is. QuantityError for what is too long."""
    if len(text) > LONGEST:
        raise QuantityError(f"a quantity of more than {LONGEST} characters", "a few digits and a unit are enough")
    stripped = text.strip()
    match = NUMBER.match(stripped)
    number = match.group() if match else ""
    return number, stripped[len(number) :].strip()


def _refuse_beyond(text: str, value: Fraction, dimension: Dimension) -> None:
    """Raises QuantityError for a value that no machine has."""
    if abs(value) > dimension.greatest:
        help_text = f"at most {write(int(dimension.greatest), dimension.base)}"
        raise QuantityError(f"`{text}` is beyond reason", help_text, near=True)
    if value and abs(value) < dimension.smallest and not dimension.is_counted:
        help_text = f"at least {write(float(dimension.smallest), dimension.base)} where it is not zero"
        raise QuantityError(f"`{text}` is too small to be meant", help_text, near=True)


def write(value: float, base: str, prefix: str = "") -> str:
    """The value as a text that parses to the same value; without `prefix`, with the largest that leaves 1 or more."""
    counted = base.partition("/")[0] in {"tokens", "images", "samples", "parameters"}
    steps = {} if base in UNSCALED else COUNT_PREFIXES if counted else DECIMAL
    fitting = [step for step in steps if (step == prefix if prefix else steps[step] <= abs(value))]
    chosen = max(fitting, key=lambda step: (steps[step], step == "K"), default="")
    with localcontext(prec=1200):
        digits = (Decimal(str(value)) / steps.get(chosen, 1)).normalize()
    number = f"{digits:f}" if -SHORTEST < digits.adjusted() < SHORTEST else str(digits)
    if base == "1":
        return number
    return f"{number}{chosen} {base}" if counted else f"{number} {chosen}{base}"


def _wrong_dimension(text: str, stated_base: str, dimension: Dimension) -> QuantityError:
    written = text.strip()
    if stated_base == "1" and not written.endswith("%"):
        help_text = f"{dimension.noun} has one, for example {dimension.example}"
        return QuantityError(f"`{text}` has no unit", help_text, near=True)
    help_text = f"{dimension.noun} is due, for example {dimension.example}"
    if dimension.base == f"{stated_base}/s":
        help_text = f"{dimension.noun} is due: did you mean `{written}/s`?"
    if stated_base == "B" and dimension.base in {"tokens", "images", "parameters"}:
        billions = re.fullmatch(r"[\d._]+ ?B", written)
        meant = f"{written} {dimension.base}" if billions else write(int(parse_any(text)[0]), dimension.base)
        help_text = f"{dimension.noun} is due: did you mean `{meant}`?"
    return QuantityError(f"`{text}` is {DIMENSIONS[stated_base].noun}, not {dimension.noun}", help_text)


def _unknown_unit(number: str, unit: str, expected: str) -> QuantityError:
    if expected in {"", "B"} and re.fullmatch(r"[kKmMgGtTpP]i?b", unit, re.IGNORECASE):
        prefix = "k" if unit[0] in "kK" else unit[0].upper()
        decimal, binary = f"{number} {prefix}B", f"{number} {prefix.upper()}iB"
        return QuantityError(
            f"`{unit}` is no unit of bytes",
            f"did you mean `{decimal}` ({int(parse_any(decimal)[0])} B) or `{binary}` ({int(parse_any(binary)[0])} B)?",
        )
    near = " or ".join(f"`{number} {name}`" for name in near_units(unit, expected))
    due = DIMENSIONS.get(expected)
    fallback = f"{due.noun} is due, for example {due.example}" if due else ALL_UNITS
    return QuantityError(f"`{unit}` is no unit", f"did you mean {near}?" if near else fallback)


def near_units(unit: str, expected: str = "") -> list[str]:
    """Units of the dimension `expected`, or of any, that are written almost like this one, nearest first."""
    names = [name for name, (base, _) in units().items() if name and expected in {"", base}]
    joined = unit.replace(" per ", "/").replace(" ", "")
    spelt = SPELLINGS.get(joined.lower(), joined)
    exact = [spelt] if spelt in names else [name for name in names if name.lower() == joined.lower()]
    return exact[:2] or difflib.get_close_matches(unit, names, n=2, cutoff=0.6)
