"""A number format in figures, and a value in it bit by bit: what it is stored as, and by how much that is off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from ledger.course.answers import AnswerContent, Figure, Grid
from ledger.course.asks import DtypeAsk
from ledger.model.dtypes import BLOCKS, CODE_BITS, DTYPES, UNSIGNED, Dtype, bits
from ledger.model.encodings import NF4, SCALES, Encoding, MinusZero, encoded

TINY = 1e-8  # the epsilon of Adam, and the small number of the notes
TITLES = {"mantissa": "mantissa bits, of the fraction", "value": "bits of the number", "code": "bits of the code"}


def dtype(ask: DtypeAsk) -> AnswerContent:
    """A format: bytes with scales, what its bits are, range, whether 1e-8 survives; and a value in it, bit by bit."""
    row, form = DTYPES[ask.name], bits(ask.name)
    size = row.average if ask.name in CODE_BITS else row.size
    figures = [Figure("bytes", "bytes a value, scales included", size, "B each"), *format_figures(row)]
    if ask.value is None:
        return AnswerContent(tuple(figures), bits=form)
    encoding = encoded(ask.name, ask.value, ask.largest, ask.tensor_largest)
    meaning = meaning_of(encoding)
    rows = [(part, text, said) for (part, text), said in zip(encoding.parts, meaning.parts, strict=True)]
    grid = Grid("Bit by bit", (("part", ""), ("bits", ""), ("stands for", "")), tuple(rows))
    drawn = replace(form, digits=encoding.bits, worked=meaning.worked)
    return AnswerContent((*encoding_figures(encoding, ask), *figures), grid, bits=drawn)


def format_figures(row: Dtype) -> Iterator[Figure]:
    """What the bits of a format are, its range, and the values of a block."""
    is_whole, is_code = row.name.startswith(("int", "bool")), row.name in CODE_BITS
    for part, count in bits(row.name).parts:
        yield Figure(f"{part}_bits", TITLES.get(part, f"{part} bits"), count)
    if is_whole:
        yield Figure("largest", "largest value", 2**row.mantissa_bits - 1, "plain")
        least = 0 if row.name in UNSIGNED else -(2**row.mantissa_bits)
        yield Figure("smallest", "smallest value", least, "plain")
    elif is_code:
        yield Figure("largest", "largest value, over the scale", NF4[-1], "plain")
        yield Figure("smallest", "smallest positive value, over the scale", min(x for x in NF4 if x > 0), "plain")
    else:
        yield Figure("bias", "bias of the exponent", row.bias)
        yield Figure("largest", "largest finite value", row.largest, "plain")
        yield Figure("smallest_normal", "smallest normal value", row.smallest_normal, "plain")
        subnormal = ", subnormal" if row.mantissa_bits else ""
        yield Figure("smallest", f"smallest positive value{subnormal}", row.smallest_subnormal, "plain")
        yield Figure("epsilon", "epsilon, from 1 to the next value", row.epsilon, "plain")
    if row.name not in SCALES:  # whose values are as small as their scale makes them
        yield Figure("holds_1e_8", "1e-8 survives", not is_whole and row.holds(TINY))
    blocks = [scales.block for scales in row.scales if scales.block > 0]
    block = BLOCKS[row.name][0] if row.name in BLOCKS else min(blocks, default=0)
    if block:
        yield Figure("block", "values a block", block)


def encoding_figures(encoding: Encoding, ask: DtypeAsk) -> Iterator[Figure]:
    """The bits of a value, what they stand for, and how far that is from it."""
    yield Figure("encoding", "bits, from the left", " ".join(text for _, text in encoding.parts))
    if encoding.name in SCALES:
        largest = "" if ask.largest is not None or not encoding.value else ", whose largest is the value"
        yield Figure("scale", f"scale {scale_words(encoding.name)}{largest}", encoding.block_scale, "plain")
    if encoding.name == "nvfp4":
        assumed = "" if ask.tensor_largest is not None else ", taken as 1"
        yield Figure("tensor_scale", f"scale of the tensor, in fp32{assumed}", encoding.tensor_scale, "plain")
    if encoding.stored is None:
        yield Figure("stored", "stored value", "inf" if encoding.value > 0 else "-inf")
        return
    yield Figure("stored", "stored value", encoding.stored, "plain")
    yield Figure("error", "stored less value", encoding.stored - encoding.value, "plain")
    if encoding.value:
        yield Figure("relative_error", "error over value", abs(encoding.stored / encoding.value - 1), "plain")
    yield Figure("spacing", "from there to the next value", encoding.spacing, "plain")


def scale_words(name: str) -> str:
    """What shares the scale that a format's values are times, and what that is stored as."""
    scales = DTYPES[name].scales
    block, form = BLOCKS[name] if name in BLOCKS else (scales[0].block, scales[0].dtype)
    shared = f"of a block of {block}" if block > 0 else "of a row"
    return f"{shared}, in fp32 before it is {form} itself" if name == "nf4_double" else f"{shared}, in {form}"


@dataclass(frozen=True)
class BitMeaning:
    """What each part of a stored value stands for, in order, and the value worked out of them."""

    parts: tuple[str, ...]
    worked: str


def meaning_of(encoding: Encoding) -> BitMeaning:
    """The parts of a stored value in words: `2^(12 - 15)`, `1 + 256/1024`."""
    row, numbers = DTYPES[encoding.name], {part: int(text, 2) for part, text in encoding.parts}
    sign = "-" if numbers.get("sign") else ""
    if "code" in numbers:
        product = written(NF4[numbers["code"]])
        meanings = {"code": f"value {numbers['code'] + 1} of 16: {product}"}
    elif "value" in numbers:
        product = str(numbers["value"] - (numbers.get("sign", 0) << row.mantissa_bits))
        less = f" - {2**row.mantissa_bits}" if sign else ""
        meanings = {"sign": f"- {2**row.mantissa_bits}" if sign else "+", "value": f"{numbers['value']}{less}"}
    elif encoding.stored is None:
        product = f"{sign}infinity"
        meanings = {"sign": sign or "+", "exponent": "all ones: an infinity", "mantissa": "0"}
    else:
        exponent, leading = numbers["exponent"], 1
        power = f"2^({exponent} - {row.bias})"
        if row.mantissa_bits and not exponent:
            power, leading = f"2^(1 - {row.bias})", 0
        significand = f"{leading} + {numbers.get('mantissa', 0)}/{2**row.mantissa_bits}"
        product = f"{sign}{power} × ({significand})" if row.mantissa_bits else power
        meanings = {
            "sign": sign or "+",
            "exponent": power if leading else f"{power}, subnormal: all are 0",
            "mantissa": significand,
        }
    parts = tuple(meanings[part] for part, _ in encoding.parts)
    return BitMeaning(parts, f"{written(encoding.value)} is stored as {product}{_end(encoding)}")


def _end(encoding: Encoding) -> str:
    """The scale, the value that is stored, and by how much that is off."""
    if encoding.stored is None:
        return f": the largest value is {written(DTYPES[encoding.name].largest)}"
    scale = f" × {written(encoding.scale)}" if encoding.scale != 1 else ""
    error = abs(encoding.stored - encoding.value)
    return f"{scale} = {written(encoding.stored)}, {f'{written(error)} off' if error else 'exactly'}"


def written(number: Fraction | float) -> str:
    """A number of any size with six figures at most."""
    return "-0" if isinstance(number, MinusZero) else f"{float(number):.6g}"
