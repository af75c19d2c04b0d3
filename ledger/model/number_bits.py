"""The bits of one value of a number format, and the scales that stand beside a block of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledger.model import dtypes

# Formats whose bytes hold the scale of a block: values in a block, and the format of its scale.
BLOCKS: Mapping[str, tuple[int, str]] = {"mxfp8": (32, "e8m0"), "mxfp4": (32, "e8m0"), "nvfp4": (16, "fp8_e4m3")}
UNSIGNED = ("e8m0", "bool", "nf4", "nf4_double")
CODES = {"nf4": 4, "nf4_double": 4}  # bits of an index into a table of values


@dataclass(frozen=True)
class Bits:
    """The bits of one value of a number format, by part from the left, and what stands `beside` a block of values."""

    name: str
    parts: tuple[tuple[str, int], ...]
    beside: str = ""


def bits(name: str) -> Bits:
    """The bits of one value from the left, and what stands beside a block of values."""
    row = dtypes.DTYPES[name]
    if name in CODES:
        parts = [("code", CODES[name])]
    else:
        sign = [] if name in UNSIGNED else [("sign", 1)]
        parts = [
            *sign,
            ("exponent", row.exponent_bits),
            ("mantissa" if row.exponent_bits else "value", row.mantissa_bits),
        ]
    return Bits(name, tuple((part, count) for part, count in parts if count), "; ".join(_scales(name)))


def _scales(name: str) -> Iterator[str]:
    """What stands beside the values of a block, a row or a matrix."""
    if name in BLOCKS:
        block, scale = BLOCKS[name]
        yield f"and one scale ({scale}, {dtypes.size(scale) * 8} bits) for each {block} values"
    for each in dtypes.DTYPES[name].scales:
        of = {dtypes.ROW: "row of a matrix", dtypes.WHOLE: "matrix"}.get(each.block, f"{each.block} values")
        yield f"and {each.count if each.count > 1 else 'one'} {each.dtype} for each {of}"
