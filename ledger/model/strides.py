"""A tensor with strides, as PyTorch holds it: which operations share its memory, and which copy it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger.model import dtypes

DEVICE = "device"  # where a copy goes that changes no dtype


class MoveError(ValueError):
    """An operation that the tensor does not allow; `help` says what to write instead."""

    def __init__(self, message: str, help_text: str = "") -> None:
        super().__init__(message)
        self.message, self.help = message, help_text


@dataclass(frozen=True)
class Strided:
    """Sizes and strides by dim, in elements, and the place of the first element in `storage`, a number per allocation.

    `extent` is how many elements the storage has, `row` how many lie along the dim of stride 1.
    """

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0
    storage: int = 0
    extent: int = 0
    row: int = 0

    @property
    def elements(self) -> int:
        """The number of elements: the product of the sizes."""
        return math.prod(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of its storage: whole ones, and scales of whole blocks."""
        return sum(dtypes.stored_bytes(self.dtype, self.extent, self.row))

    @property
    def contiguous(self) -> bool:
        """Whether its elements lie one behind the other, the last dim fastest; what has no size does not count."""
        due = row_major(self.sizes)
        return all(
            size == 1 or stride == ordered for size, stride, ordered in zip(self.sizes, self.strides, due, strict=True)
        )

    @property
    def dense(self) -> bool:
        """Whether its elements fill a stretch of memory, in whatever order of dims."""
        laid = sorted((stride, size) for size, stride in zip(self.sizes, self.strides, strict=True) if size != 1)
        return [stride for stride, _ in laid] == [math.prod(size for _, size in laid[:at]) for at in range(len(laid))]

    def place(self, index: Mapping[str, int]) -> int:
        """The place of an element in the storage, in elements."""
        return self.offset + sum(index.get(name, 0) * step for name, step in zip(self.dims, self.strides, strict=True))

    def at(self, name: str) -> int:
        """The position of a dim; raises MoveError."""
        if name not in self.dims:
            raise MoveError(f"the tensor has no dim `{name}`", f"it has {', '.join(self.dims)}")
        return self.dims.index(name)


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of sizes that lie one behind the other."""
    return tuple(math.prod(max(size, 1) for size in sizes[at + 1 :]) for at in range(len(sizes)))


def fresh(shape: Mapping[str, int], dtype: str) -> Strided:
    """A new tensor, its last dim fastest."""
    sizes = tuple(shape.values())
    strides = row_major(sizes)
    return Strided(tuple(shape), sizes, strides, dtype, extent=math.prod(sizes), row=row_of(sizes, strides))


def row_of(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements lie along the dim of stride 1, the last where several have it; 1 of a scalar."""
    return ([1] + [size for size, stride in zip(sizes, strides, strict=True) if stride == 1])[-1]


# --- views ---


def permute(x: Strided, names: Sequence[str]) -> Strided:
    """The tensor with its dims in another order."""
    if sorted(names) != sorted(x.dims):
        raise MoveError(f"`{' '.join(names)}` is no order of {', '.join(x.dims)}", "name each dim once")
    places = [x.at(name) for name in names]
    return replace(x, dims=tuple(names), sizes=_pick(x.sizes, places), strides=_pick(x.strides, places))


def transpose(x: Strided, names: Sequence[str]) -> Strided:
    """The tensor with two of its dims exchanged."""
    first, second = (x.dims[x.at(name)] for name in names)
    return permute(x, [{first: second, second: first}.get(name, name) for name in x.dims])


def cut(x: Strided, parts: Mapping[str, str]) -> Strided:
    """A part of some dims, each as `start:end` or `start:end:step`."""
    for name, text in parts.items():
        at = x.at(name)
        try:
            bounds = [int(part) if part.strip() else None for part in str(text).split(":")]
            start, end, step = slice(*bounds).indices(x.sizes[at])
        except (TypeError, ValueError):
            raise MoveError(f"`{text}` is no part of `{name}`", "write `0:2`, `1:` or `::2`") from None
        count = len(range(start, end, step))
        if step < 1 or not count or len(bounds) < 2:
            raise MoveError(f"`{text}` leaves nothing of the {x.sizes[at]} of `{name}`, or runs backwards", "`0:2`")
        x = replace(x, sizes=_put(x.sizes, at, count), strides=_put(x.strides, at, step * x.strides[at]),
                    offset=x.offset + start * x.strides[at])  # fmt: skip
    return x


def select(x: Strided, index: Mapping[str, int]) -> Strided:
    """One index of some dims, which are gone then."""
    for name, at in index.items():
        place = x.at(name)
        if not 0 <= at < x.sizes[place]:
            raise MoveError(f"`{name}` has no index {at}", f"0 to {x.sizes[place] - 1}")
        keep = [index_of_dim for index_of_dim in range(len(x.dims)) if index_of_dim != place]
        x = replace(x, dims=_pick(x.dims, keep), sizes=_pick(x.sizes, keep), strides=_pick(x.strides, keep),
                    offset=x.offset + at * x.strides[place])  # fmt: skip
    return x


def expand(x: Strided, sizes: Mapping[str, int]) -> Strided:
    """Dims of size 1, or new ones in front, as if they were larger: a stride of 0."""
    for name, size in sizes.items():
        if name in x.dims:
            at = x.at(name)
            if x.sizes[at] != 1:
                raise MoveError(f"`{name}` has {x.sizes[at]} elements", "only a dim of size 1 expands")
            x = replace(x, sizes=_put(x.sizes, at, size), strides=_put(x.strides, at, 0))
        else:
            x = replace(x, dims=(name, *x.dims), sizes=(size, *x.sizes), strides=(0, *x.strides))
    return x


def viewed(x: Strided, shape: Mapping[str, int]) -> Strided | None:
    """The elements in other sizes without a copy; None where the strides do not allow it.

    Dims that lie one behind the other are taken together, and each such run is cut anew (ATen, computeStride).
    """
    sizes = tuple(shape.values())
    if math.prod(sizes) != x.elements:
        said = " x ".join(map(str, sizes))
        raise MoveError(f"{said} are not the tensor's {x.elements} elements", "sizes whose product is the same")
    strides = [0 if x.sizes else 1] * len(sizes)
    at, run, base = len(sizes) - 1 if x.sizes else -1, 1, x.strides[-1] if x.strides else 1
    for old in range(len(x.sizes) - 1, -1, -1):
        run *= x.sizes[old]
        ends = old == 0 or (x.sizes[old - 1] != 1 and x.strides[old - 1] != run * base)
        if ends:
            covered = 1
            while at >= 0 and (covered < run or sizes[at] == 1):
                strides[at] = covered * base
                covered *= sizes[at]
                at -= 1
            if covered != run:
                return None
            if old:
                run, base = 1, x.strides[old - 1]
    return replace(x, dims=tuple(shape), sizes=sizes, strides=tuple(strides)) if at < 0 else None


def view(x: Strided, shape: Mapping[str, int]) -> Strided:
    """The elements in other sizes without a copy; raises MoveError where the strides do not allow it."""
    if result := viewed(x, shape):
        return result
    raise MoveError("these strides allow no view of that shape", "`contiguous` before it, or `reshape`, which copies")


# --- copies ---


def copied(x: Strided, strides: Sequence[int], dtype: str = "") -> Strided:
    """A copy of the elements, in storage of its own."""
    laid = replace(x, strides=tuple(strides), dtype=dtype or x.dtype, row=row_of(x.sizes, strides))
    return replace(laid, offset=0, storage=x.storage + 1, extent=x.elements)


def reshape(x: Strided, shape: Mapping[str, int]) -> Strided:
    """A view where the strides allow one, else a copy."""
    sizes = tuple(shape.values())
    return viewed(x, shape) or copied(replace(x, dims=tuple(shape), sizes=sizes), row_major(sizes))


def contiguous(x: Strided, _: object) -> Strided:
    """The tensor itself where its elements lie in order, else a copy in order."""
    return x if x.contiguous else copied(x, row_major(x.sizes))


def clone(x: Strided, _: object) -> Strided:
    """A copy whose dims lie in the order of the original's."""
    return copied(x, kept_order(x))


def to(x: Strided, target: str) -> Strided:
    """The tensor on another device or in another dtype: a copy, unless the dtype is the same."""
    if target not in dtypes.DTYPES and target != DEVICE:
        raise MoveError(f"`{target}` is neither a dtype nor `{DEVICE}`", f"`{DEVICE}` or {', '.join(dtypes.DTYPES)}")
    return x if target == x.dtype else copied(x, kept_order(x), "" if target == DEVICE else target)


def kept_order(x: Strided) -> tuple[int, ...]:
    """The strides of a copy: those of a tensor without gaps, else dims in the order of their strides, packed.

    Dims of stride 0 stay where they are (ATen, is_non_overlapping_and_dense and infer_dense_strides).
    """
    if x.dense:
        return x.strides
    order = list(range(len(x.dims)))[::-1]  # the fastest first
    for start in range(1, len(order)):
        slower = start
        for faster in range(start - 1, -1, -1):
            place_faster, place_slower = order[faster], order[slower]
            first, second = x.strides[place_faster], x.strides[place_slower]
            if (
                first
                and second
                and (first > second or (first == second and x.sizes[place_faster] > x.sizes[place_slower]))
            ):
                order[faster], order[slower] = place_slower, place_faster
                slower = faster
            elif first and second and first < second:
                break
    dense = row_major([x.sizes[at] for at in reversed(order)])[::-1]
    return tuple(dense[order.index(at)] for at in range(len(order)))


Move = Callable[[Strided, Any], Strided]
MOVES: Mapping[str, Move] = {
    "permute": permute,
    "transpose": transpose,
    "slice": cut,
    "select": select,
    "expand": expand,
    "view": view,
    "reshape": reshape,
    "contiguous": contiguous,
    "clone": clone,
    "to": to,
}


def _pick(values: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[at] for at in places)


def _put(values: Sequence[int], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
