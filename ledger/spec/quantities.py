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
    """What a quantity measures: `base` is its SI base unit; above `greatest` a value is beyond reason."""

    base: str
    noun: str
    example: str
    greatest: Fraction
    whole: bool = False


class QuantityError(ValueError):
    """A text is no quantity of the dimension asked for; `help` says what to type instead."""

    def __init__(self, message: str, help_text: str) -> None:
        super().__init__(message)
        self.message = message
        self.help = help_text


# Greatest: about a million times what the largest machine of 2026 has.
DIMENSIONS: Mapping[str, Dimension] = {
    row.base: row
    for row in (
        Dimension("B", "a size", "80 GB", Fraction(10**21), whole=True),
        Dimension("B/s", "a bandwidth", "3.35 TB/s", Fraction(10**21)),
        Dimension("FLOP", "an amount of arithmetic", "2 PFLOP", Fraction(10**36)),
        Dimension("FLOP/s", "an arithmetic rate", "989.5 TFLOP/s", Fraction(10**24)),
        Dimension("W", "a power", "700 W", Fraction(10**9)),
        Dimension("J", "an energy", "3 MWh", Fraction(10**24)),
        Dimension("s", "a time", "18 us", Fraction(10**12)),
        Dimension("/s", "a frequency", "0.01 /d", Fraction(10**9)),
        Dimension("tokens", "a number of tokens", "15T tokens", Fraction(10**20), whole=True),
        Dimension("tokens/s", "a token rate", "400 tokens/s", Fraction(10**15)),
        Dimension("parameters", "a number of parameters", "70B parameters", Fraction(10**18), whole=True),
        Dimension("USD", "an amount of money", "2.50 USD", Fraction(10**15)),
        Dimension("1", "a ratio", "0.5 or 50 %", Fraction(10**12)),
    )
}
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Z": 10**21}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
COUNTED = {"K": 10**3, "k": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}  # as tokens and parameters are counted
SMALL = {"m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "µ": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
SHORTEST = 30  # digits before a number is written with an exponent
TIMES = {"min": 60, "h": 3600, "d": 86400, "y": 31_557_600}  # a Julian year
NUMBER = re.compile(r"\s*([-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)\s*(.*?)\s*")
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
    "seconds": "s",
    "hours": "h",
    "days": "d",
    "watts": "W",
    "percent": "%",
}


@cache
def units() -> Mapping[str, tuple[str, Fraction]]:
    """Every unit that may be written: its dimension, and its size in the dimension's base unit."""
    table: dict[str, tuple[str, Fraction]] = {}
    for prefix, size in {"": 1, **DECIMAL}.items():
        for base in ("B", "B/s", "FLOP", "FLOP/s"):
            table[prefix + base] = (base, Fraction(size))
        table[f"{prefix}b/s"] = table[f"{prefix}bit/s"] = ("B/s", Fraction(size, 8))
        table[f"{prefix}W"] = ("W", Fraction(size))
        table[f"{prefix}J"] = ("J", Fraction(size))
        table[f"{prefix}Wh"] = ("J", Fraction(3600 * size))
    for prefix, size in BINARY.items():
        table[f"{prefix}B"] = ("B", Fraction(size))
        table[f"{prefix}B/s"] = ("B/s", Fraction(size))
    for prefix, size in {"": 1, **COUNTED}.items():
        for base in ("tokens", "tokens/s", "parameters"):
            table[f"{prefix} {base}".strip()] = (base, Fraction(size))
    for prefix, part in {"": Fraction(1), **SMALL}.items():
        table[f"{prefix}s"] = ("s", part)
    for name, size in TIMES.items():
        table[name] = ("s", Fraction(size))
    for name, size in {"s": 1, **TIMES}.items():
        table[f"/{name}"] = ("/s", Fraction(1, size))
    table |= {"byte": ("B", Fraction(1)), "bytes": ("B", Fraction(1)), "token": ("tokens", Fraction(1))}
    return table | {"USD": ("USD", Fraction(1)), "%": ("1", Fraction(1, 100)), "": ("1", Fraction(1))}


def parse(text: str, base: str) -> Number:
    """The exact value of `80 GB` in the base unit of its dimension (`B`); raises QuantityError."""
    value, found = parse_any(text)
    dimension = DIMENSIONS[base]
    if found != base:
        raise _wrong_dimension(text, found, dimension)
    if dimension.whole and value.denominator != 1:
        raise QuantityError(f"`{text}` is no whole number of {_plural(base)}", f"for example {dimension.example}")
    if abs(value) > dimension.greatest:
        raise QuantityError(f"`{text}` is beyond reason", f"at most {write(int(dimension.greatest), base)}")
    return int(value) if dimension.whole else value


def parse_any(text: str) -> tuple[Fraction, str]:
    """The exact value of a quantity of any dimension, and the base unit of that dimension; raises QuantityError."""
    match = NUMBER.fullmatch(text)
    if match is None:
        raise QuantityError(f"`{text}` is no quantity", "write a number and a unit, for example 80 GB")
    number, unit = match.groups()
    unit = re.sub(r"^([KkMBT])\s*(?=tokens|parameters)", r"\1 ", unit)
    if unit not in units():
        raise _unknown_unit(number, unit)
    base, size = units()[unit]
    return Fraction(number) * size, base


def write(value: float, base: str) -> str:
    """The value as a text that parses to the same value, with the largest decimal prefix that leaves 1 or more."""
    counted = base.partition("/")[0] in {"tokens", "parameters"}
    steps = {size: prefix for prefix, size in (COUNTED if counted else DECIMAL).items() if prefix != "k" or not counted}
    steps = {} if base in {"s", "/s", "USD", "1"} else steps
    size = max((size for size in steps if size <= abs(value)), default=1)
    with localcontext(prec=1200):
        digits = (Decimal(str(value)) / size).normalize()
    number = f"{digits:f}" if -SHORTEST < digits.adjusted() < SHORTEST else str(digits)
    prefix = steps.get(size, "")
    if base == "1":
        return number
    return f"{number}{prefix} {base}" if counted else f"{number} {prefix}{base}"


def _plural(base: str) -> str:
    return {"B": "bytes"}.get(base, base)


def _wrong_dimension(text: str, found: str, dimension: Dimension) -> QuantityError:
    number = NUMBER.fullmatch(text)
    figure = number.group(1) if number else text
    if found == "1" and not text.strip().endswith("%"):
        return QuantityError(f"`{text}` has no unit", f"{dimension.noun} has one, for example {dimension.example}")
    if found == "B" and dimension.base in {"tokens", "parameters"}:
        prefix = text.strip().removesuffix("B").rstrip()
        return QuantityError(f"`{text}` is a size in bytes", f"did you mean `{prefix}B {dimension.base}`?")
    help_text = f"{dimension.noun} is due, for example {dimension.example}"
    if found == "B" and dimension.base == "B/s":
        help_text = f"a bandwidth is due: did you mean `{text.strip()}/s`?"
    if found == "FLOP" and dimension.base == "FLOP/s":
        help_text = f"a rate is due: did you mean `{text.strip()}/s`?"
    return QuantityError(f"`{text}` is {DIMENSIONS[found].noun}, {figure and 'not '}{dimension.noun}", help_text)


def _unknown_unit(number: str, unit: str) -> QuantityError:
    if re.fullmatch(r"[kKmMgGtTpP]?i?b", unit) and unit.lower().removesuffix("b") not in {"", "i"}:
        prefix = unit[0].upper()
        decimal, binary = f"{number} {prefix}B", f"{number} {prefix}iB"
        return QuantityError(
            f"`{unit}` is no unit of bytes",
            f"did you mean `{decimal}` ({int(parse_any(decimal)[0])} B) or `{binary}` ({int(parse_any(binary)[0])} B)?",
        )
    near = near_units(unit)
    message = f"`{unit}` is no unit"
    if not near:
        return QuantityError(
            message, "units are B, B/s, b/s, FLOP/s, W, s, h, d, tokens, parameters, USD, %, with prefixes"
        )
    return QuantityError(message, "did you mean " + " or ".join(f"`{number} {name}`" for name in near) + "?")


def near_units(unit: str) -> tuple[str, ...]:
    """Units that are written almost like this one, nearest first."""
    compact = unit.replace(" ", "").lower()
    if compact in SPELLINGS:
        return (SPELLINGS[compact],)
    folded = [name for name in units() if name and name.lower() == compact]
    return tuple(folded[:2] or difflib.get_close_matches(unit, [name for name in units() if name], n=2, cutoff=0.6))
