"""Number formats and tensors: bytes, range, bits, and which of a row of operations share memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import accumulate, pairwise

from ledger.books.notation import text
from ledger.course.answers import Figure, Found, Grid
from ledger.course.asks import DtypeAsk, TensorAsk
from ledger.model import dtypes, strides
from ledger.model.dims import Dim
from ledger.model.einsum_kernels import letter
from ledger.model.number_bits import CODES, UNSIGNED, bits
from ledger.model.tensors import Tensor

SAID_IN_GIBIBYTES = 2**26  # bytes; below, GiB say nothing
POWERS = "e8m0"  # powers of two alone, none of them normal or not; the last code is no number (OCP MX 1.0, table 7)
TINY = 1e-8  # the epsilon of Adam, and the small number of the notes


def dtype(ask: DtypeAsk) -> Found:
    """Bytes with scales, range, whether 1e-8 survives, and its bits."""
    row, whole = dtypes.DTYPES[ask.name], ask.name.startswith(("int", "bool"))
    figures = [
        Figure("bytes", "bytes a value, scales included", row.average if ask.name in CODES else row.size, "B each")
    ]
    if whole:
        figures.append(Figure("largest", "largest value", 2**row.mantissa_bits - 1, "plain"))
        figures.append(
            Figure("smallest", "smallest value", 0 if ask.name in UNSIGNED else -(2**row.mantissa_bits), "plain")
        )
    elif ask.name == POWERS:
        bias = 2 ** (row.exponent_bits - 1) - 1
        figures += (
            Figure("largest", "largest finite value", 2.0**bias, "plain"),
            Figure("smallest", "smallest positive value", 2.0**-bias, "plain"),
        )
    elif ask.name not in CODES:
        figures += (
            Figure("largest", "largest finite value", row.largest, "plain"),
            Figure("smallest_normal", "smallest normal value", row.smallest_normal, "plain"),
            Figure("smallest", "smallest positive value", row.smallest_subnormal, "plain"),
        )
    if ask.name not in CODES:  # whose values are as small as their scale makes them
        figures.append(Figure("holds_1e_8", "1e-8 survives", not whole and row.holds(TINY)))
    return Found(tuple(figures), bits=bits(ask.name))


# --- tensors ------------------------------------------------------------------------------------


def tensor(ask: TensorAsk) -> Found:
    """Elements times bytes of so many; the place of an element; what each move shares, and what it copies."""
    dims = tuple(Dim(name, letter(name)) for name in ask.shape)
    amount = ask.copies * Tensor("x", dims, ask.dtype).bytes()
    start = strides.fresh(ask.shape, ask.dtype)
    size = ask.copies * start.bytes
    binary = "in units of 2³⁰ B" if size >= SAID_IN_GIBIBYTES else ""
    figures = [Figure("bytes", "bytes", size, "B", text(amount)), Figure("gibibytes", binary, size / 2**30, "GiB")]
    figures += fitting(size, ask.memory)
    states = [*accumulate(ask.moves, moved, initial=start)]
    last = states[-1]
    if ask.moves:
        copies = sum(_new(*pair) for pair in pairwise(states))
        figures.append(Figure("new_bytes", "bytes of copies", copies, "B"))
        figures.append(Figure("contiguous", "in order in the end", last.contiguous))
        figures.append(Figure("strides", "strides in the end", ", ".join(map(str, last.strides))))
    if ask.element:
        place = last.place(ask.element)
        form = " + ".join(f"{at}*{last.strides[last.at(name)]}" for name, at in ask.element.items())
        figures.append(Figure("offset", "place of the element, in elements", place, "1", form))
        figures.append(Figure("address", "bytes from the start of the storage", place * dtypes.size(last.dtype), "B"))
    figures.append(Figure("flops", "", 0, "FLOP"))
    return Found(tuple(figures), _table(ask, states) if ask.moves else None)


def moved(x: strides.Strided, move: Mapping[str, object]) -> strides.Strided:
    """The tensor after one move; raises MoveError."""
    ((name, given),) = move.items()
    return strides.MOVES[name](x, given)


def _new(before: strides.Strided, after: strides.Strided) -> Fraction:
    return after.bytes if after.storage != before.storage else Fraction(0)


def _table(ask: TensorAsk, states: list[strides.Strided]) -> Grid:
    columns = (
        ("tensor", ""),
        ("sizes", ""),
        ("strides", ""),
        ("first element", ""),
        ("in order", "yes"),
        ("new memory", "B"),
    )
    names = ["new", *(_said(move) for move in ask.moves)]
    rows = []
    for name, before, x in zip(names, [None, *states], states, strict=False):
        sizes = ", ".join(f"{dim} {size}" for dim, size in zip(x.dims, x.sizes, strict=True))
        new = x.bytes if before is None else _new(before, x)
        rows.append((name, sizes, ", ".join(map(str, x.strides)), str(x.offset), x.contiguous, new))
    return Grid("What shares memory, and what copies it", columns, tuple(rows))


def _said(move: Mapping[str, object]) -> str:
    """A move in a few words: `transpose rows, columns`."""
    ((name, given),) = move.items()
    if given is True:
        return name
    if isinstance(given, Mapping):
        return f"{name} {', '.join(f'{key} {value}' for key, value in given.items())}"
    return f"{name} {given if isinstance(given, str) else ', '.join(map(str, given))}"  # type: ignore[call-overload]


def fitting(size: Fraction, memory: int | None) -> Iterator[Figure]:
    """Whether so many bytes fit a memory, and what is missing."""
    if memory is not None:
        yield Figure("memory", "memory of the device", memory, "B")
        yield Figure("fits", "fits", size <= memory)
        yield Figure("missing", "missing", max(Fraction(0), size - memory), "B")
