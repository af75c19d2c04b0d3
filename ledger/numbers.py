"""Quantities as text for people: the one place where numbers become text.

Three significant figures, a thin no-break space before the unit and between groups of three digits, and a true minus.
`GB` is 10**9 bytes, `GiB` is 2**30; nothing here calls one by the other's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

THIN = "\u202f"
MINUS = "\u2212"
PREFIXES = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"), (1, ""))
SHORT_SCALE = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
BRIEF_MONEY = ((10**9, "B"), (10**6, "M"), (10**3, "k"), (1, ""))
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SCIENTIFIC_FROM = 10**15  # a count of operations is written with its power of ten from here on
ALL_DIGITS = Context(prec=1000)  # of the largest number that a plan may state
QUOTIENT = Context(prec=40)
WRITTEN_OUT = 10**30  # from here on a number has its power of ten
COMMAS = re.compile(r"\b\d{1,3}(?:,\d{3})+\b")
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 31_557_600
LONGEST_DAYS = 10**6  # that are written out
BELOW_SECONDS = ((1, "s"), (Decimal("1e-3"), "ms"), (Decimal("1e-6"), "µs"), (Decimal("1e-9"), "ns"))

Number = int | Fraction | float


def exact(value: Number) -> Decimal:
    """The value, every digit of an integer or a float; of fractions without an end 40 digits."""
    if isinstance(value, Fraction):
        return QUOTIENT.divide(Decimal(value.numerator), Decimal(value.denominator))
    return Decimal(value)


def magnitude(value: Number) -> Decimal:
    """The value without its sign."""
    return abs(exact(value))


def plain(value: Number | Decimal, digits: int = 3) -> str:
    """`digits` significant figures, digits before the point grouped by three; a power of ten from WRITTEN_OUT on."""
    number = value if isinstance(value, Decimal) else exact(value)
    if number == 0:
        return "0"
    if abs(number) >= WRITTEN_OUT:
        return scientific(number, digits=digits)
    decimals = digits - 1 - rounded(number, digits).adjusted()
    return grouped(number.quantize(Decimal(1).scaleb(-max(decimals, 0)), ROUND_HALF_EVEN, ALL_DIGITS))


def rounded(value: Decimal, digits: int) -> Decimal:
    """The value to so many significant figures, ties to even."""
    step = Decimal(1).scaleb(value.adjusted() - digits + 1)
    return (value / step).quantize(Decimal(1), rounding=ROUND_HALF_EVEN) * step


def grouped(value: Decimal) -> str:
    """Digits before the point in threes, with a true minus."""
    return f"{value:,f}".replace(",", THIN).replace("-", MINUS)


def regrouped(text: str) -> str:
    """A text in which digits that stand in threes between commas have thin spaces there, as in all other numbers."""
    return COMMAS.sub(lambda match: match[0].replace(",", THIN), text)


def machine(value: Number) -> str:
    """The value for programs: every digit of an integer, the shortest float that is the same number."""
    is_whole = isinstance(value, int) or (isinstance(value, Fraction) and value.denominator == 1)
    return str(value) if is_whole else repr(float(value))


def integer(value: Number) -> str:
    """Every digit of a whole number: `70 553 706 496`."""
    return grouped(exact(value).quantize(Decimal(1), context=ALL_DIGITS))


def scaled(value: Number, steps: tuple[tuple[int | Decimal, str], ...], digits: int) -> tuple[str, str]:
    """The number over the largest step that leaves at least one before the point, and that step's name."""
    number = exact(value)
    size = abs(rounded(number, digits)) if number else number
    factor, name = next(((f, n) for f, n in steps if size >= f), steps[-1])
    return plain(number / Decimal(factor), digits), name


def si(value: Number, unit: str, digits: int = 3) -> str:
    """`3.35 TB/s`, `989 TFLOP/s`: decimal prefixes."""
    text, prefix = scaled(value, PREFIXES, digits)
    if not prefix and value == int(value):
        text = integer(value)
    return f"{text}{THIN}{prefix}{unit}"


def tick(value: Number, unit: str) -> str:
    """A round value at an axis: `20 GB`, `0.5 s`, `100 TFLOP/s`."""
    return trimmed(duration(value) if unit == "s" else si(value, unit)).rstrip(THIN)


def trimmed(text: str) -> str:
    """The text of a quantity without zeros at the end of its decimals: `50 GB/s` for `50.00 GB/s`."""
    number, space, unit = text.partition(THIN)
    while unit[:1].isdigit():  # a space between groups of digits
        group, space, unit = unit.partition(THIN)
        number += THIN + group
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + unit


def size(value: Number) -> str:
    """Bytes with decimal prefixes, to a tenth at least: `7.97 GB`, `61.3 GB`, `135.7 GB`."""
    return si(value, "B", 4 if ends_in_hundreds(value) else 3)


def ends_in_hundreds(value: Number) -> bool:
    """Whether three figures leave no decimal beside the prefix."""
    number = magnitude(value)
    return number >= 1000 and rounded(number, 4).adjusted() % 3 == 2


def scientific(value: Number | Decimal, unit: str = "", digits: int = 3) -> str:
    """`6.30×10²⁴ FLOP`."""
    number = value if isinstance(value, Decimal) else exact(value)
    power = rounded(number, digits).adjusted() if number else 0
    text = f"{plain(number.scaleb(-power), digits)}×10{str(power).translate(SUPERSCRIPTS)}"
    return f"{text}{THIN}{unit}" if unit else text


def power_of_ten(value: Number) -> str:
    """A value at a logarithmic axis: `10⁵`; what is no power of ten, and small ones, written out."""
    power = rounded(exact(value), 3).adjusted()
    if 1 <= value < 1e5 or round(value / 10.0**power) != 1:
        return trimmed(plain(value))
    return f"10{str(power).translate(SUPERSCRIPTS)}"


def operations(value: Number) -> str:
    """A count of floating-point operations, with its power of ten where it is large."""
    return scientific(value, "FLOP") if magnitude(value) >= SCIENTIFIC_FROM else si(value, "FLOP")


def count(value: Number) -> str:
    """A number of things: whole below a million, else `70.6 billion`."""
    if magnitude(value) < SHORT_SCALE[-1][0]:
        return integer(value) if value == int(value) else plain(value)
    text, name = scaled(value, SHORT_SCALE, 3)
    return f"{text}{THIN}{name}"


def duration(value: Number) -> str:
    """Seconds, in the unit a person would use: `38.4 µs`, `18.3 s`, `2.40 h`, `143.9 days`."""
    length = magnitude(value)
    if length >= 2 * DAY:
        return days(Fraction(value) / DAY)
    if length >= 2 * HOUR:
        return f"{plain(Fraction(value) / HOUR)}{THIN}h"
    if length >= 2 * MINUTE:
        return f"{plain(Fraction(value) / MINUTE)}{THIN}min"
    if length == 0:
        return f"0{THIN}s"
    text, unit = scaled(value, BELOW_SECONDS, 3)
    return f"{text}{THIN}{unit}"


def days(value: Number) -> str:
    """Days to a tenth: `143.9 days`; what nobody waits for in powers of ten."""
    if magnitude(value) >= LONGEST_DAYS:
        return scientific(value, "days")
    return f"{grouped(exact(value).quantize(Decimal('0.1'), context=ALL_DIGITS))}{THIN}days"


def percent(value: Number) -> str:
    """A share, to a tenth of a per cent: `41.2 %`."""
    return f"{grouped((exact(value) * 100).quantize(Decimal('0.1'), context=ALL_DIGITS))}{THIN}%"


def tick_percent(value: Number) -> str:
    """A round share at an axis: `20 %`."""
    return f"{trimmed(plain(value * 100))}{THIN}%"


def shift(value: Number) -> str:
    """A small relative change, to a hundredth of a per cent: `−0.31 %`."""
    return signed(f"{grouped((exact(value) * 100).quantize(Decimal('0.01'), context=ALL_DIGITS))}{THIN}%")


def change(value: Number) -> str:
    """A relative change or error, with its sign: `+5.4 %`."""
    return signed(percent(value))


def money(value: Number) -> str:
    """US dollars: `$9.8 M` to a tenth, thousands and dollars whole, prices below 100 to the cent."""
    for factor, name, half in ((10**9, "B", 50_000), (10**6, "M", Decimal("0.5"))):
        if magnitude(value) >= factor - half:  # what else would be rounded up to a thousand of the step before
            return f"${grouped((exact(value) / factor).quantize(Decimal('0.1'), context=ALL_DIGITS))}{THIN}{name}"
    cents = Decimal(1) if magnitude(value) >= 100 else Decimal("0.01")
    return f"${grouped(exact(value).quantize(cents, context=ALL_DIGITS))}"


def brief_money(value: Number) -> str:
    """US dollars to three figures, for sums that a reader compares: `$298 k`, `$1.20 M`."""
    text, name = scaled(value, BRIEF_MONEY, 3)
    return f"${text}{THIN}{name}" if name else f"${text}"


def offer(price: Number, device: str, date: str) -> str:
    """The price of an hour of a device, and its date: `$2.50 per h100-sxm and hour, 2026-05`."""
    return f"{money(price)} per {device} and hour, {date}"


def signed(text: str) -> str:
    """A change as it is written, with a plus where there is no minus; what rounds to nothing has no sign."""
    if not set(text) & set("123456789"):
        return text.removeprefix(MINUS)
    return text if text.startswith(MINUS) else f"+{text}"


def _unsigned(value: Number) -> Number:
    """The size of a change; a zero of either sign is plain zero."""
    return -value if value < 0 else value + 0


def signed_duration(value: Number) -> str:
    """A change in seconds, in the unit a person would use; nothing has no sign."""
    return signed(f"{MINUS if value < 0 else ''}{duration(_unsigned(value))}")


def signed_money(value: Number) -> str:
    """A change in dollars."""
    return signed(f"{MINUS if value < 0 else ''}{money(_unsigned(value))}")


def signed_brief_money(value: Number) -> str:
    """A change in dollars, to three figures."""
    return signed(f"{MINUS if value < 0 else ''}{brief_money(_unsigned(value))}")


def signed_size(value: Number) -> str:
    """A change in bytes."""
    return signed(f"{MINUS if value < 0 else ''}{size(_unsigned(value))}")


def rate(value: Number) -> str:
    """Tokens per second."""
    return f"{plain(value)}{THIN}tokens/s"


def intensity(value: Number) -> str:
    """Operations per byte."""
    return f"{plain(value)}{THIN}FLOP/B"


def energy(value: Number) -> str:
    """Joules, as the watt-hours of a bill: `2.41 GWh`."""
    return si(Fraction(value) / HOUR, "Wh")


def frequency(value: Number) -> str:
    """Events a second, as a person counts them: `0.474 a day`, `3.2 a year`."""
    steps = ((1, "second"), (HOUR, "hour"), (DAY, "day"), (YEAR, "year"))
    length, name = next(((length, name) for length, name in steps if value * length >= Fraction(1, 10)), steps[-1])
    return f"{plain(value * length)} a {name}"


def mass(value: Number) -> str:
    """Kilograms, as tonnes where there are many: `1.02 kt`."""
    return si(value / 1000, "t") if value >= 1000 else f"{plain(value)}{THIN}kg"


def carbon_intensity(value: Number) -> str:
    """Kilograms a joule, as grids state it: `380 g/kWh`."""
    return f"{trimmed(plain(value * 1000 * 1000 * HOUR))}{THIN}g/kWh"


FORMATS: Mapping[str, Callable[[Number], str]] = {
    "B": size,
    "FLOP": operations,
    "s": duration,
    "s/s": percent,
    "FLOP/s": lambda value: si(value, "FLOP/s"),
    "B/s": lambda value: si(value, "B/s"),
    "FLOP/B": intensity,
    "W": lambda value: si(value, "W"),
    "J": energy,
    "USD": money,
    "/s": frequency,
    "kg": mass,
    "kg/J": carbon_intensity,
    "day": days,
    "token/s": rate,
    "1": count,
    "%": percent,
}


def amount_text(value: Number, unit: str) -> str:
    """The value in its unit, for people; a unit without a format of its own is written as it is."""
    formatted = FORMATS.get(unit)
    return formatted(value) if formatted else f"{plain(value)}{THIN}{unit}"


def with_unit(value: Number, unit: str) -> str:
    """The value in its unit, with plain spaces, so that it can be searched for and cut in a terminal."""
    return amount_text(value, unit).replace(THIN, " ")
