"""Numbers of a lecture as people write them, exact where the notes are."""

from __future__ import annotations

from fractions import Fraction

from ledger import numbers
from ledger.course.answers import Amount
from ledger.spec.quantity_expressions import Value

DIGITS = 6
SPELT_OUT = 1e-3, 1e6  # numbers between these are written without a power of ten
ROUNDED_FROM = 10**9
SAME = 0.0005  # a smaller relative change is called none


def written(value: Value | Amount, unit: str) -> str:
    """A value in its unit, for people."""
    if isinstance(value, Amount):
        return written(value.value, value.unit)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    form = FORMS.get(unit)
    return form(value) if form else numbers.written(value, unit)


def several(value: numbers.Number) -> str:
    """Up to six figures, without zeros at the end."""
    return numbers.trimmed(numbers.plain(value, DIGITS))


def range_end(value: numbers.Number) -> str:
    """A number of any size."""
    low, high = SPELT_OUT
    if low <= abs(float(value)) < high or value == 0:
        return several(value)
    mantissa, _, power = numbers.scientific(value, digits=4).partition("×")
    return f"{numbers.trimmed(mantissa)}×{power}"


FORMS = {
    "B each": lambda value: f"{several(value) if value > Fraction(1, 100) else numbers.plain(value)}{numbers.THIN}B",
    "GiB": lambda value: f"{several(value)}{numbers.THIN}GiB",
    "FLOP/s": lambda value: numbers.si(value, "FLOP/s", 4),
    "FLOP/B": lambda value: f"{numbers.trimmed(numbers.plain(value, 5))}{numbers.THIN}FLOP/B",
    "FLOP/day": lambda value: numbers.scientific(value, "FLOP a day"),
    "parameters": numbers.count,
    "tokens": numbers.count,
    "tokens/s": numbers.rate,
    "x": lambda value: f"{numbers.plain(value)} times",
    "plain": range_end,
}


def spoken(value: str) -> str:
    """A number of a formula as people write it; one with a unit stays as it is."""
    try:
        number = Fraction(value)
    except ValueError:
        return value
    whole = number.denominator == 1 and abs(number) < ROUNDED_FROM
    return numbers.integer(number) if whole else range_end(number)


def difference(change: numbers.Number) -> str:
    """A relative change in words."""
    return numbers.change(change) if abs(float(change)) >= SAME else "the same"
