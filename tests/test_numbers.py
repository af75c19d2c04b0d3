from __future__ import annotations

from fractions import Fraction

import pytest

from ledger import numbers
from ledger.units import unit_of

T = "\u202f"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (61_300_000_000, "B", f"61.3{T}GB"),
        (135_703_269_875, "B", f"135.7{T}GB"),
        (999_960_000, "B", f"1.00{T}GB"),
        (512, "B", f"512{T}B"),
        (0, "B", f"0{T}B"),
        (3.35e12, "B/s", f"3.35{T}TB/s"),
        (989.5e12, "FLOP/s", f"990{T}TFLOP/s"),
        (6.3e24, "FLOP", f"6.30×10²⁴{T}FLOP"),
        (9.996e24, "FLOP", f"1.00×10²⁵{T}FLOP"),
        (1.7976931348623157e308, "furlong", f"1.80×10³⁰⁸{T}furlong"),
        (24, "FLOP", f"24{T}FLOP"),
        (143.927 * 86400, "s", f"143.9{T}days"),
        (18.34, "s", f"18.3{T}s"),
        (7200, "s", f"2.00{T}h"),
        (150, "s", f"2.50{T}min"),
        (38.4e-6, "s", f"38.4{T}µs"),
        (0.0, "s", f"0{T}s"),
        (143.927, "day", f"143.9{T}days"),
        (0.41234, "%", f"41.2{T}%"),
        (9_840_000, "USD", f"$9.8{T}M"),
        (842_123.4, "USD", f"$842{T}123"),
        (999_990_000, "USD", f"$1.0{T}B"),
        (999_940_000, "USD", f"$999.9{T}M"),
        (999_999.7, "USD", f"$1.0{T}M"),
        (2.5, "USD", "$2.50"),
        (70_553_706_496, "1", f"70.6{T}billion"),
        (1024, "1", f"1{T}024"),
        (Fraction(1, 3), "1", "0.333"),
        (3600 * 2.41e9, "J", f"2.41{T}GWh"),
        (777_826.4, "token/s", f"777{T}826{T}tokens/s"),
        (295.37, "FLOP/B", f"295{T}FLOP/B"),
        (7, "furlong", f"7.00{T}furlong"),
    ],
)
def test_a_quantity_is_written_in_the_unit_a_person_would_use(value: float, unit: str, text: str) -> None:
    """Three significant figures, thin spaces, and the prefix or the power of ten that fits."""
    assert numbers.amount_text(value, unit) == text


def test_every_digit_of_a_large_integer_survives() -> None:
    """Totals pass 2**53, where floating point drops digits."""
    assert numbers.integer(2**60 + 1).replace(T, "") == str(2**60 + 1)
    assert numbers.integer(16**30 - 1).replace(T, "") == str(16**30 - 1)
    assert numbers.machine(2**60 + 1) == str(2**60 + 1)
    assert numbers.machine(Fraction(2**61, 2)) == str(2**60)


def test_a_number_of_any_size_is_written() -> None:
    """Digits beyond those that decimal arithmetic keeps by itself (28) are digits too."""
    assert numbers.plain(3 * 10**28) == f"30{T}000{T}000{T}000{T}000{T}000{T}000{T}000{T}000{T}000"
    assert numbers.plain(3 * 10**30) == "3.00×10³⁰"
    assert str(numbers.exact(Fraction(2, 3))) == f"0.{'6' * 39}7"


def test_signs_are_true_minuses_and_pluses() -> None:
    """A change always carries its sign, and no hyphen stands for a minus."""
    assert numbers.change(-0.054) == f"−5.4{T}%"
    assert numbers.change(0.054) == f"+5.4{T}%"
    assert numbers.shift(-0.0031) == f"−0.31{T}%"
    assert numbers.signed_money(-42_000) == f"−$42{T}000"
    assert numbers.signed_duration(2.25 * 86400) == f"+2.2{T}days"
    assert numbers.signed_duration(-90) == f"−90.0{T}s"
    assert numbers.signed_money(-0.0) == numbers.signed_money(0.001) == "$0.00"
    assert numbers.shift(-0.00001) == f"0.00{T}%"


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("parameters", "1"),
        ("flops.run", "FLOP"),
        ("memory.static.weights", "B"),
        ("comm.all_gather.data.bytes", "B"),
        ("comm.all_gather.data.count", "1"),
        ("napkin.days", "day"),
        ("napkin.time.run", "s"),
        ("napkin.max_parameters", "1"),
        ("time.step.low", "s"),
        ("tokens_per_second_per_device", "token/s"),
        ("mfu.causal", "%"),
        ("cost.run", "USD"),
        ("energy.run", "J"),
    ],
)
def test_a_key_of_the_contract_knows_its_unit(key: str, unit: str) -> None:
    """The published keys are SI base units, except days and shares."""
    assert unit_of(key) == unit


@pytest.mark.parametrize(
    ("text", "short"), [(f"50.00{T}GB/s", f"50{T}GB/s"), (f"1{T}024", f"1{T}024"), ("2.50", "2.5")]
)
def test_what_was_typed_is_shown_without_zeros_nobody_typed(text: str, short: str) -> None:
    """`50 GB/s` in a spec is not `50.00 GB/s` in the report."""
    assert numbers.trimmed(text) == short


def test_numbers_in_a_text_are_grouped_as_all_others() -> None:
    """Commas between threes go; lists of numbers keep theirs."""
    assert (
        numbers.regrouped("m 512 to 32,768, n 1,024,000; 1, 2 or 16,38")
        == f"m 512 to 32{T}768, n 1{T}024{T}000; 1, 2 or 16,38"
    )
