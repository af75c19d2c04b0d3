"""Values in number formats: every code of the small ones, blocks with their scales, and updates that are lost."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import pytest

from ledger.model.dtypes import BLOCKS, DTYPES, code_bits, stored_bytes
from ledger.model.encodings import NF4, SCALES, encoded, half_spacing, relative_half_spacing
from ledger.model.strides import clone, contiguous, fresh, transpose


def values_by_code(exponent: int, mantissa: int, bias: int, last: int) -> list[Fraction]:
    """What codes 0 to `last` of a format without its sign stand for, from the definition of IEEE 754."""
    values = []
    for code in range(last + 1):
        power, fraction = divmod(code, 2**mantissa)
        leading = 1 if power else 0
        values.append(Fraction(2) ** (max(power, 1) - bias) * (leading + Fraction(fraction, 2**mantissa)))
    assert len(values) <= 2 ** (exponent + mantissa)
    return values


# Widths, bias and the last finite code, as the formats' own tables print them (OCP 8-bit Floating Point 1.0, table 1;
# OCP Microscaling 1.0, tables 3 to 5; DeepSeek-V3, section 3.3.3).
CODES = {
    "fp8_e4m3": (4, 3, 7, 0b1111110),
    "fp8_e5m2": (5, 2, 15, 0b1111011),
    "e2m1": (2, 1, 1, 0b111),
    "e5m6": (5, 6, 15, 0b11110111111),
}


@pytest.mark.parametrize("name", CODES)
def test_every_code_is_what_its_value_is_stored_as(name: str) -> None:
    """Each value has its own code, of both signs; between two it is the nearer one, and half-way the even one."""
    exponent, mantissa, bias, last = CODES[name]
    values = values_by_code(exponent, mantissa, bias, last)
    width = 1 + exponent + mantissa
    for code, value in enumerate(values):
        found = encoded(name, value)
        assert (int(found.bits, 2), found.stored) == (code, value)
        if value:
            negative = encoded(name, -value)
            assert (int(negative.bits, 2), negative.stored) == (code | 1 << (width - 1), -value)
    for code, (below, above) in enumerate(pairwise(values)):
        middle, little = (below + above) / 2, (above - below) / 1000
        assert encoded(name, below).spacing == above - below == 2 * half_spacing(name, below)
        assert encoded(name, middle).stored == (below if code % 2 == 0 else above)
        assert encoded(name, middle - little).stored == below
        assert encoded(name, middle + little).stored == above
    row = DTYPES[name]
    assert (row.bias, row.largest) == (bias, values[-1])
    assert (row.smallest_subnormal, row.smallest_normal) == (values[1], values[2**mantissa])
    assert row.epsilon == min(value for value in values if value > 1) - 1


def test_the_value_of_the_textbook_is_written_as_the_textbook_has_it() -> None:
    """0.15625 is 1.25 x 2^-3: 0 01111100 01000000000000000000000 in single precision."""
    found = encoded("fp32", Fraction("0.15625"))
    assert dict(found.parts) == {"sign": "0", "exponent": "01111100", "mantissa": "01" + 21 * "0"}
    assert encoded("fp16", Fraction("0.15625")).bits == "0011000100000000"
    assert encoded("bf16", Fraction(-257)).stored == -256  # 8 bits of precision
    assert encoded("fp16", Fraction(65520)).stored is None  # half-way to the next, which there is none of
    assert encoded("int32", Fraction(-3 * 2**31)).stored == -(2**31)
    assert encoded("int32", Fraction(-3)).bits == 30 * "1" + "01"
    assert encoded("int8", Fraction(-3), Fraction(127)).bits == "11111101"


def test_a_block_has_the_scale_of_its_largest() -> None:
    """MX: the power of two that brings the largest into the top binade of its format; NVFP4: the largest is 6."""
    rng = random.Random(5)  # noqa: S311 - test data
    for _ in range(300):
        largest = Fraction(rng.lognormvariate(-3, 2))
        value = Fraction(rng.uniform(-1, 1)) * largest
        for name, top in (("mxfp4", 4), ("mxfp8", 256)):
            scale = encoded(name, value, largest).scale
            assert scale * top <= largest < 2 * scale * top
            assert scale.numerator == 1 or scale.denominator == 1
        scale = encoded("nvfp4", value, largest).scale
        assert scale == encoded("fp8_e4m3", max(Fraction(1, 64), min(largest / 6, Fraction(448)))).stored
        for name in SCALES:
            found = encoded(name, value, largest)
            assert found.stored is not None
            beyond = max(Fraction(0), abs(value) - Fraction(DTYPES[name].largest) * found.scale)
            if name in BLOCKS and not beyond:
                assert abs(found.stored - value) <= found.spacing / 2 or abs(found.stored) < abs(value)
            assert encoded(name, found.stored, largest).stored == found.stored
    codes = [encoded("nf4", value, Fraction(1)).bits for value in NF4]
    assert codes == [f"{code:04b}" for code in range(16)]


@pytest.mark.parametrize("value", [Fraction(1, 10**12), Fraction(1, 10), Fraction(3, 10), Fraction(10**9)])
def test_the_scale_of_a_block_is_one_that_its_format_holds(value: Fraction) -> None:
    """NVFP4 has an e4m3 scale whatever the value is; with the tensor's in fp32 it is 448 and nothing is lost."""
    found = encoded("nvfp4", value)
    assert encoded("fp8_e4m3", found.block_scale).stored == found.block_scale
    assert found.tensor_scale == 1
    scaled = encoded("nvfp4", value, tensor_largest=value)
    assert scaled.block_scale == 448
    assert encoded("fp32", scaled.tensor_scale).stored == scaled.tensor_scale
    for name, stored in (("nvfp4", scaled.stored), ("int8", encoded("int8", value).stored)):
        assert stored is not None, name
        assert abs(stored / value - 1) < Fraction(1, 10**6)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_an_update_below_half_the_spacing_is_lost(name: str) -> None:
    """A weight plus a little less than that is the weight, plus a little more is the next one; relative bounds hold."""
    rng = random.Random(6)  # noqa: S311 - test data
    least, most = relative_half_spacing(name)
    for _ in range(500):
        weight = encoded(name, Fraction(rng.uniform(0.05, 4))).stored
        assert weight is not None
        step = half_spacing(name, weight)
        assert least * weight < step <= most * weight
        assert encoded(name, weight + step * Fraction(99, 100)).stored == weight
        assert encoded(name, weight + step * Fraction(101, 100)).stored == weight + 2 * step


@pytest.mark.parametrize(
    ("name", "elements", "stored"),
    [("nvfp4", 35, (18, 3)), ("mxfp4", 35, (18, 2)), ("mxfp8", 33, (33, 2)), ("int4", 35, (18, 0)), ("e5m6", 3, (5, 0)),
     ("fp32", 1, (4, 0)), ("bool", 3, (3, 0)), ("tf32", 1, (4, 0))],
)  # fmt: skip
def test_memory_is_whole_bytes_and_whole_blocks(name: str, elements: int, stored: tuple[int, int]) -> None:
    """Two values of 4 bits a byte, the last one alone; a scale for each block, of which the last is short."""
    assert stored_bytes(name, elements) == stored
    assert elements * code_bits(name) <= 8 * stored[0] < elements * code_bits(name) + 8


@pytest.mark.parametrize(
    ("name", "rows", "row", "scales"),
    [("nvfp4", 3, 17, 6), ("nvfp4", 3, 16, 3), ("mxfp4", 3, 17, 3), ("mxfp8", 2, 65, 6), ("nf4", 3, 17, 0)],
)
def test_no_block_crosses_rows(name: str, rows: int, row: int, scales: int) -> None:
    """Each row has its own blocks along the last dim, of which the last may be short."""
    assert stored_bytes(name, rows * row, row)[1] == scales
    tensor = fresh({"heads": 1, "r": rows, "c": row}, name)
    assert tensor.bytes == sum(stored_bytes(name, rows * row, row))
    turned = transpose(tensor, ["r", "c"])
    assert clone(turned, True).bytes == tensor.bytes  # in the order of the original
    assert contiguous(turned, True).bytes == sum(stored_bytes(name, rows * row, rows))
