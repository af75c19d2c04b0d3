"""Number formats: bytes per element (scales included), range, and the parts that the bits of a value have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

ROW, WHOLE = 0, -1  # of a block: one row of a matrix, all of it


@dataclass(frozen=True)
class Scales:
    """Numbers beside quantised weights: one of `dtype` for each `block` elements of a weight.

    `ROW` is one for each row of the matrix, as torch has it; `WHOLE` one for each matrix, `count` of them.
    """

    dtype: str
    block: int
    count: int = 1


@dataclass(frozen=True)
class Dtype:
    """A number format: exponent and mantissa bits without the sign, bytes per element with its block scales.

    `scales`: of a format that weights are only stored in, what stands beside each matrix; `size` then leaves it out.
    `unpacking`: kernels that bring a matrix back to what is multiplied.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    size: Fraction
    finite_only: bool = False  # no infinity: the top exponent holds numbers (OCP FP8 e4m3, FP4)
    source: str = ""
    scales: tuple[Scales, ...] = ()
    unpacking: int = 1

    @property
    def average(self) -> Fraction:
        """Bytes of an element of a large matrix, with all that stands beside it but what each row or matrix has."""
        scale_bytes = (
            DTYPES[scales.dtype].size * scales.count / scales.block for scales in self.scales if scales.block > 0
        )
        return sum(scale_bytes, self.size)

    @property
    def bias(self) -> int:
        """What is added to the power of two of a normal value to make its exponent bits."""
        return (1 << self.exponent_bits) // 2 - 1

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next value."""
        return 2.0**-self.mantissa_bits

    @property
    def largest(self) -> float:
        """The largest finite value."""
        top = 2**self.exponent_bits - 1 - (0 if self.finite_only else 1)
        significand = 2.0 - self.epsilon
        if self.finite_only and self.mantissa_bits != 1:  # e4m3 and e8m0 keep their very last code for NaN
            significand -= self.epsilon
        return float(max(significand, 0.5) * 2.0 ** (top - self.bias))

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal value; of powers of two alone, which have no zero, that of exponent bits 0."""
        return float(2.0 ** ((1 if self.mantissa_bits else 0) - self.bias))

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value."""
        return self.smallest_normal * self.epsilon

    def holds(self, value: float) -> bool:
        """Whether a positive value neither rounds to zero nor overflows."""
        return self.smallest_subnormal / 2 < value <= self.largest


IEEE = "IEEE 754-2019, table 3.5"
OCP8 = "OCP 8-bit Floating Point Specification 1.0, table 1"
BNB = "bitsandbytes 0.50, functional.py (quantize_4bit, quantize_blockwise, QuantState)"
CODES = Scales("fp32", WHOLE, 16)  # the values of the format, which every QuantState keeps as a tensor
CODES_OF_SCALES = Scales("fp32", WHOLE, 256)  # of scales in 8 bits; in 0.45 and before, all matrices share one
OCPMX = "OCP Microscaling Formats 1.0, table 1"
DTYPES = {
    row.name: row
    for row in (
        Dtype("fp64", 11, 52, Fraction(8), source=IEEE),
        Dtype("fp32", 8, 23, Fraction(4), source=IEEE),
        Dtype("tf32", 8, 10, Fraction(4), source="NVIDIA A100 whitepaper, 2020"),
        Dtype("bf16", 8, 7, Fraction(2), source="Google Cloud TPU documentation, bfloat16"),
        Dtype("fp16", 5, 10, Fraction(2), source=IEEE),
        Dtype("fp8_e4m3", 4, 3, Fraction(1), finite_only=True, source=OCP8),
        Dtype("fp8_e5m2", 5, 2, Fraction(1), source=OCP8),
        Dtype("e5m6", 5, 6, Fraction(3, 2), source="DeepSeek-AI 2024, arXiv 2412.19437, section 3.3.3; packed"),
        Dtype("mxfp8", 4, 3, Fraction(33, 32), finite_only=True, source=OCPMX),
        Dtype("mxfp4", 2, 1, Fraction(17, 32), finite_only=True, source=OCPMX),
        Dtype("nvfp4", 2, 1, Fraction(9, 16), finite_only=True, source="NVIDIA cuDNN documentation, block scaling"),
        Dtype("int32", 0, 31, Fraction(4), source="two's complement"),
        Dtype("e8m0", 8, 0, Fraction(1), finite_only=True, source=OCPMX),
        Dtype("e2m1", 2, 1, Fraction(1, 2), finite_only=True, source=OCPMX),
        Dtype(
            "int8",
            0,
            7,
            Fraction(1),
            source="two's complement; scales of weights: bitsandbytes, LLM.int8, SCB",
            scales=(Scales("fp32", ROW),),
        ),
        Dtype(
            "nf4",
            0,
            3,
            Fraction(1, 2),
            finite_only=True,
            source=f"Dettmers et al. 2023, arXiv 2305.14314; {BNB}",
            scales=(Scales("fp32", 64), CODES),
        ),
        Dtype(
            "nf4_double",
            0,
            3,
            Fraction(1, 2),
            finite_only=True,
            source=f"Dettmers et al. 2023, section 3; {BNB}",
            scales=(Scales("int8", 64), Scales("fp32", 64 * 256), Scales("fp32", WHOLE), CODES, CODES_OF_SCALES),
            unpacking=3,
        ),
        Dtype(
            "int4",
            0,
            3,
            Fraction(1, 2),
            finite_only=True,
            source="Lin et al. 2023, arXiv 2306.00978 (AWQ): groups of 128, each with an fp16 scale and a 4-bit zero",
            scales=(Scales("fp16", 128), Scales("int4", 128)),
        ),
        Dtype("int64", 0, 63, Fraction(8), source="two's complement"),
        Dtype("bool", 0, 1, Fraction(1), source="torch.bool"),
    )
}
RATES = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "e2m1": "fp4"}
FLOATS = ("fp8_e5m2", "fp8_e4m3", "fp16", "bf16", "tf32", "fp32", "fp64")


def size(name: str) -> Fraction:
    """Bytes per element, block scales included."""
    return DTYPES[name].size


def code_bits(name: str) -> int:
    """The bits of memory that one value takes without the scales of its block: 32 for the 19 of tf32, 8 for a truth."""
    block, scale = BLOCKS.get(name, (1, ""))
    return int(8 * (size(name) - (size(scale) / block if scale else 0)))


def stored_bytes(name: str, elements: int, row: int = 0) -> tuple[int, int]:
    """Whole bytes of so many values, and of the scales of their blocks, which lie along rows of `row` values.

    All are one row where it is 0; the last block of a row may be short (pytorch/ao, torchao/prototype/mx_formats,
    mx_tensor.py and nvfp4_tensor.py: blocks along the last dimension). What stands beside matrices that are only
    stored in a format is not counted: see `Dtype.scales`.
    """
    block, scale = BLOCKS.get(name, (0, ""))
    row = row or max(elements, 1)
    scales = elements // row * -(-row // block) if block else 0
    return -(-elements * code_bits(name) // 8), scales * code_bits(scale) // 8 if block else 0


def is_stored_only(name: str) -> bool:
    """Whether weights are stored in this format and brought back to another one to be multiplied."""
    return bool(DTYPES[name].scales)


def promote(*names: str) -> str:
    """The dtype of a result of several operands: the widest (torch's type promotion among floats)."""
    floats = [name for name in names if name in FLOATS]
    return max(floats, key=FLOATS.index)


def rate(name: str) -> str:
    """The key of an accelerator's peak table for a matmul in this dtype."""
    return RATES.get(name, name)


# --- bits of a value, and scales of a block ---

# Formats whose bytes hold the scale of a block: values in a block, and the format of its scale.
BLOCKS: Mapping[str, tuple[int, str]] = {"mxfp8": (32, "e8m0"), "mxfp4": (32, "e8m0"), "nvfp4": (16, "fp8_e4m3")}
POWERS = "e8m0"  # powers of two alone: no sign, no zero; its last code is no number (OCP MX 1.0, table 7)
UNSIGNED = (POWERS, "bool", "nf4", "nf4_double")
CODE_BITS = {"nf4": 4, "nf4_double": 4}  # bits of an index into a table of values


@dataclass(frozen=True)
class Bits:
    """The bits of one value of a number format, by part from the left, and those that a block of values shares.

    `digits`: of one value, each bit from the left, and `worked` what they stand for; empty of a format by itself.
    """

    name: str
    parts: tuple[tuple[str, int], ...]
    block_scale: str = ""
    digits: str = ""
    worked: str = ""


def bits(name: str) -> Bits:
    """The bits of one value from the left, and what stands beside a block of values."""
    row = DTYPES[name]
    if name in CODE_BITS:
        parts = [("code", CODE_BITS[name])]
    else:
        sign = [] if name in UNSIGNED else [("sign", 1)]
        parts = [
            *sign,
            ("exponent", row.exponent_bits),
            ("mantissa" if row.exponent_bits else "value", row.mantissa_bits),
        ]
    return Bits(name, tuple((part, count) for part, count in parts if count), "; ".join(_scales(name)))


def _scales(name: str) -> Iterator[str]:
    """The scales beside the values of a block, a row or a matrix, in words."""
    if name in BLOCKS:
        block, scale = BLOCKS[name]
        yield f"and one scale ({scale}, {size(scale) * 8} bits) for each {block} values"
    for scales in DTYPES[name].scales:
        of = {ROW: "row of a matrix", WHOLE: "matrix"}.get(scales.block, f"{scales.block} values")
        yield f"and {scales.count if scales.count > 1 else 'one'} {scales.dtype} for each {of}"
