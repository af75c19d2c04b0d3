from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, parse_any, units, write

WHOLE = [base for base, dimension in DIMENSIONS.items() if dimension.is_counted]
BROKEN = [base for base, dimension in DIMENSIONS.items() if not dimension.is_counted]


@pytest.mark.parametrize(
    ("text", "base", "value"),
    [
        ("80 GB", "B", 80 * 10**9),
        ("80 GiB", "B", 80 * 2**30),
        ("81559 MiB", "B", 81559 * 2**20),
        ("1_000 bytes", "B", 1000),
        ("3.35 TB/s", "B/s", 3_350_000_000_000),
        ("400 Gb/s", "B/s", 50 * 10**9),
        ("989.5 TFLOP/s", "FLOP/s", 989_500_000_000_000),
        ("700 W", "W", 700),
        ("2.9 us", "s", Fraction(29, 10**7)),
        ("2.9 µs", "s", Fraction(29, 10**7)),
        ("2 h", "s", 7200),
        ("3 days", "s", 3 * 86400),
        ("1 day", "s", 86400),
        ("2 hours", "s", 2 * 3600),
        ("90 minutes", "s", 90 * 60),
        ("1 second", "s", 1),
        ("2 weeks", "s", 2 * 7 * 86400),
        ("1 year", "s", 31_557_600),
        ("3 /week", "/s", Fraction(3, 7 * 86400)),
        ("0.5 /d", "/s", Fraction(1, 2 * 86400)),
        ("3 kWh", "J", 3 * 3_600_000),
        ("15T tokens", "tokens", 15 * 10**12),
        ("15 T tokens", "tokens", 15 * 10**12),
        ("15e12 tokens", "tokens", 15 * 10**12),
        ("70B parameters", "parameters", 70 * 10**9),
        ("2.50 USD", "USD", Fraction(5, 2)),
        ("10M USD", "USD", 10**7),
        ("13.7 M USD", "USD", 13_700_000),
        ("250K USD", "USD", 250_000),
        ("1.5B USD", "USD", 1_500_000_000),
        ("10 million USD", "USD", 10**7),
        ("2 billion USD", "USD", 2 * 10**9),
        ("-1.6 %", "1", Fraction(-16, 1000)),
        ("0.72", "1", Fraction(72, 100)),
    ],
)
def test_units_are_what_they_say(text: str, base: str, value: Fraction) -> None:
    """Each unit has its size by the SI brochure (9th edition, tables 7 and 8) and IEC 80000-13, without rounding."""
    assert parse(text, base) == value


@pytest.mark.parametrize(
    ("text", "base", "offered"),
    [
        ("80", "B", "80 GB"),
        ("80 gb", "B", "`80 GB` (80000000000 B) or `80 GiB` (85899345920 B)"),
        ("80 Gb", "B", "`80 GB` (80000000000 B) or `80 GiB` (85899345920 B)"),
        ("3.35 TB", "B/s", "`3.35 TB/s`"),
        ("400 Gbps", "B/s", "`400 Gb/s`"),
        ("989 TFLOPS", "FLOP/s", "`989 TFLOP/s`"),
        ("70B", "parameters", "`70B parameters`"),
        ("5 GB", "tokens", "`5B tokens`"),
        ("5 $", "USD", "`5 USD`"),
        ("10 MB USD", "USD", "USD`"),
        ("5 sec", "s", "`5 s`"),
        ("12 parsecs", "s", "18 us"),
        ("much", "B", "80 GB"),
        ("0.5 B", "B", "80 GB"),
        ("1e99 B", "B", "at most"),
        ("80 %", "B", "80 GB"),
        ("1_ B", "B", "80 GB"),
        ("- 5 B", "B", "80 GB"),
    ],
)
def test_a_slip_is_told_what_to_type(text: str, base: str, offered: str) -> None:
    """A unit that is missing, misspelt or of another dimension is refused, and the help shows what would do."""
    with pytest.raises(QuantityError) as caught:
        parse(text, base)
    assert offered in caught.value.help


def test_decimal_and_binary_prefixes_differ() -> None:
    """GB and GiB are 7.4 % apart, and no dimension's unit is spelt like another's."""
    assert Fraction(parse("1 GiB", "B"), parse("1 GB", "B")) == Fraction(2**30, 10**9)
    for name, (base, size) in units().items():
        assert parse_any(f"1 {name}") == (size, base)


def test_each_prefix_is_a_thousand_times_the_one_before() -> None:
    """Prefixes grow by 1000, or by 1024: a table once published elsewhere has tera = 1e13."""
    for ladder, step in ((("k", "M", "G", "T", "P", "E"), 1000), (("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1024)):
        sizes = [int(parse(f"1 {prefix}B", "B")) for prefix in ("", *ladder)]
        assert [above // below for below, above in pairwise(sizes)] == [step] * len(ladder)


@given(st.sampled_from(WHOLE), st.integers(-(10**18), 10**18))
def test_a_whole_number_survives_being_written(base: str, value: int) -> None:
    """parse(write(x)) == x for counts: nothing is rounded for the eye."""
    assert parse(write(value, base), base) == value


@given(st.sampled_from(BROKEN), st.just(0.0) | st.floats(1, 1e9) | st.floats(-1e9, -1))
def test_a_float_survives_being_written(base: str, value: float) -> None:
    """parse(write(x)) == x for measured amounts, to the last bit."""
    assert float(parse(write(value, base), base)) == value


@given(st.text(max_size=40), st.sampled_from(sorted(DIMENSIONS)))
def test_any_text_is_a_quantity_or_a_problem(text: str, base: str) -> None:
    """No text makes the parser fail in a way of its own, and what it accepts is finite."""
    with suppress(QuantityError):
        assert math.isfinite(parse(text, base))
