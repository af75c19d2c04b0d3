"""Values in number formats: the bits that a value is stored as, what it becomes, and how far apart values are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ledger.model.dtypes import CODE_BITS, DTYPES, UNSIGNED, Dtype, bits

# The 16 values of nf4 over its scale (bitsandbytes 0.50, csrc/kernels.cu, nf4_dequantization_lut; Dettmers et al. 2023,
# arXiv 2305.14314, appendix E).
NF4 = tuple(
    map(
        Fraction,
        (-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
         -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
         0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Encoding:
    """A value as a number format stores it: `parts` are its bits from the left, as text of 0 and 1 by part.

    `stored` is what they stand for, scales included; None of an infinity. `spacing`: from there to the next value.
    `block_scale` is of the values that share one, `tensor_scale` of all in nvfp4.
    """

    name: str
    value: Fraction
    parts: tuple[tuple[str, str], ...]
    stored: Fraction | None
    spacing: Fraction
    block_scale: Fraction = Fraction(1)
    tensor_scale: Fraction = Fraction(1)

    @property
    def scale(self) -> Fraction:
        """What the bits stand for is times this."""
        return self.block_scale * self.tensor_scale

    @property
    def bits(self) -> str:
        """All bits from the left."""
        return "".join(text for _, text in self.parts)


class MinusZero(Fraction):
    """The type of zero with its sign bit set (IEEE 754-2019, section 3.3); what is computed with it is a Fraction."""


MINUS_ZERO = MinusZero(0)


def is_negative(value: Fraction) -> bool:
    """Whether the sign bit of a value is set."""
    return value < 0 or (not value and isinstance(value, MinusZero))


# --- floating point ---


def power_of(magnitude: Fraction) -> int:
    """The largest e with 2^e <= magnitude, which is above zero."""
    power = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return power if Fraction(2) ** power <= magnitude else power - 1


def float_spacing(row: Dtype, magnitude: Fraction) -> Fraction:
    """The distance of neighbours where `magnitude` lies, in a format with exponent bits: that of subnormals near 0."""
    least = power_of(Fraction(row.smallest_normal))
    power = max(power_of(magnitude), least) if magnitude else least
    return Fraction(2) ** (power - row.mantissa_bits)


def rounded_float(row: Dtype, value: Fraction) -> Fraction | None:
    """The nearest value of a format with exponent bits, of two the one whose last bit is 0 (IEEE 754, ties to even).

    What is beyond the largest becomes an infinity, None; in formats without one, the largest (OCP 8-bit Floating Point
    Specification 1.0, section 4, saturating conversion).
    """
    magnitude = abs(value)
    step = float_spacing(row, magnitude)
    nearest = round(magnitude / step) * step
    if not row.mantissa_bits:  # powers of two alone have no zero
        nearest = max(nearest, Fraction(row.smallest_normal))
    if nearest > (largest := Fraction(row.largest)):
        if not row.finite_only:
            return None
        nearest = largest
    if not is_negative(value):
        return nearest
    return -nearest if nearest else MINUS_ZERO


def float_bits(row: Dtype, value: Fraction, stored: Fraction | None) -> int:
    """The bits of a stored value of a format with exponent bits, as a whole number; of an infinity where it is None."""
    fraction_codes = 1 << row.mantissa_bits
    if stored is None:
        code = ((1 << row.exponent_bits) - 1) * fraction_codes
    else:
        least = Fraction(row.smallest_normal)
        magnitude = abs(stored)
        code = int(magnitude / float_spacing(row, magnitude))  # the leading 1 of a normal value counts as an exponent
        if magnitude >= least:
            code += (power_of(magnitude) + row.bias - 1) * fraction_codes
    sign = row.name not in UNSIGNED and is_negative(value)
    return code | (sign << (row.exponent_bits + row.mantissa_bits))


# --- blocks, whole numbers and codes ---


def power_scale(row: Dtype, largest: Fraction) -> Fraction:
    """The scale of a block whose largest magnitude is this (OCP Microscaling Formats 1.0, section 6.3)."""
    power = power_of(largest) - power_of(Fraction(row.largest))
    return Fraction(2) ** max(-DTYPES["e8m0"].bias, min(power, DTYPES["e8m0"].bias))


def _stored_scale(name: str, scale: Fraction) -> Fraction:
    stored = rounded_float(DTYPES[name], scale)
    return Fraction(DTYPES[name].largest) if stored is None else stored


def _block_scale_of_nvfp4(largest: Fraction) -> Fraction:
    """The e4m3 scale of a block in nvfp4, by which its largest value becomes 6, within the normal values of e4m3.

    As torchao has it (pytorch/ao, torchao/prototype/mx_formats/nvfp4_tensor.py, nvfp4_quantize). What is beyond them
    is for the scale of the tensor.
    """
    row = DTYPES["fp8_e4m3"]
    within = max(Fraction(row.smallest_normal), min(largest / 6, Fraction(row.largest)))
    return _stored_scale(row.name, within)


def _tensor_scale(name: str, largest: Fraction | None) -> Fraction:
    """The fp32 scale of a tensor in nvfp4 whose largest magnitude is this: its block's scale is 448; 1 of none."""
    if largest is None or name != "nvfp4":
        return Fraction(1)
    return _stored_scale("fp32", largest / 6 / Fraction(DTYPES["fp8_e4m3"].largest)) or Fraction(1)


# By format: the scale of a block whose largest magnitude is given.
SCALES: Mapping[str, Callable[[Fraction], Fraction]] = {
    "mxfp8": lambda largest: power_scale(DTYPES["mxfp8"], largest),
    "mxfp4": lambda largest: power_scale(DTYPES["mxfp4"], largest),
    "nvfp4": _block_scale_of_nvfp4,
    "int8": lambda largest: _stored_scale("fp32", largest / 127),  # LLM.int8, a row
    "int4": lambda largest: _stored_scale("fp16", 2 * largest / 15),  # AWQ, from -largest to largest
    "nf4": lambda largest: _stored_scale("fp32", largest),
    "nf4_double": lambda largest: _stored_scale("fp32", largest),  # before it is quantised itself
}


def _whole_number(row: Dtype, value: Fraction) -> tuple[int, Fraction]:
    """Bits and value of a whole number in two's complement; of a truth value 0 or 1."""
    if row.name in UNSIGNED:
        return (number := int(value != 0)), Fraction(number)
    number = max(-(2**row.mantissa_bits), min(round(value), 2**row.mantissa_bits - 1))
    return number % 2 ** (row.mantissa_bits + 1), Fraction(number)


def _code(value: Fraction) -> tuple[int, Fraction, Fraction]:
    """The nearest code of nf4, what it stands for, and how far its nearest neighbour is."""
    code = min(range(len(NF4)), key=lambda at: abs(NF4[at] - value))
    gaps = [after - before for before, after in pairwise(NF4)]
    return code, NF4[code], min(gaps[max(code - 1, 0) : code + 1])


def encoded(
    name: str, value: Fraction, largest: Fraction | None = None, tensor_largest: Fraction | None = None
) -> Encoding:
    """A value in a number format; `largest`: the largest magnitude of its block, which sets the scale.

    Without it, that is the value's own. `tensor_largest` sets the tensor's scale in nvfp4, which is 1 without it.
    """
    row = DTYPES[name]
    largest = abs(value) if largest is None else largest
    tensor_scale = _tensor_scale(name, tensor_largest)
    block_scale = SCALES[name](largest / tensor_scale) if largest and name in SCALES else Fraction(1)
    scale = block_scale * tensor_scale
    over_scale = value and (value / scale if scale else Fraction(0))
    stored: Fraction | None
    if name in CODE_BITS:
        number, stored, spacing = _code(over_scale)
    elif not row.exponent_bits:
        (number, stored), spacing = _whole_number(row, over_scale), Fraction(1)
    else:
        stored = rounded_float(row, abs(over_scale) if name in UNSIGNED else over_scale)
        spacing = float_spacing(row, abs(over_scale if stored is None else stored))
        number = float_bits(row, over_scale, stored)
    width = sum(count for _, count in bits(name).parts)
    text, parts = f"{number:0{width}b}", []
    for part, count in bits(name).parts:
        parts.append((part, text[:count]))
        text = text[count:]
    stored = stored * scale if stored else stored
    return Encoding(name, value, tuple(parts), stored, spacing * scale, block_scale, tensor_scale)


def half_spacing(name: str, magnitude: Fraction) -> Fraction:
    """Half the distance from a value to the next: a smaller change leaves it as it is (of a block, its largest).

    In nvfp4 the scale of the tensor brings that of the block into the range of e4m3.
    """
    return encoded(name, magnitude, tensor_largest=magnitude).spacing / 2


def relative_half_spacing(name: str) -> tuple[Fraction, Fraction]:
    """The least and the largest of `half_spacing` over the value, among normal values."""
    epsilon = Fraction(DTYPES[name].epsilon)
    return epsilon / 4, epsilon / 2
