"""Views and copies of tensors, and products of several operands, as PyTorch itself has them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ledger.course.asks import AskedStep, OperationAsk
from ledger.course.subjects import operation
from ledger.model.dtypes import DTYPES, bits
from ledger.model.einsums import Einsum, Names, Order, orders, pairwise, parse
from ledger.model.strides import MOVES, MoveError, Strided, fresh

WALKS, STEPS = 400, 5
Drawn = tuple[Any, Callable[[torch.Tensor], torch.Tensor]]  # the argument of a move, and the same in PyTorch


def drawn(move: str, x: Strided, rng: random.Random) -> Drawn | None:
    """A move with an argument that the tensor may or may not allow; None where it has nothing to move."""
    names = list(x.dims)
    at = rng.randrange(len(names))
    if move in ("permute", "transpose"):
        order = rng.sample(range(len(names)), len(names) if move == "permute" else 2) if len(names) > 1 else []
        if not order:
            return None
        return [names[i] for i in order], lambda y: y.permute(order) if move == "permute" else y.transpose(*order)
    if move == "slice":
        start, step = rng.randrange(x.sizes[at]), rng.randint(1, 2)
        part = (*[slice(None)] * at, slice(start, None, step))
        return {names[at]: f"{start}::{step}"}, lambda y: y[part]
    if move == "select":
        index = rng.randrange(x.sizes[at])
        return ({names[at]: index}, lambda y: y.select(at, index)) if len(names) > 1 else None
    if move == "expand":
        return {f"new{len(names)}{rng.random()}": 3}, lambda y: y.expand(3, *y.shape)
    if move in ("view", "reshape"):
        sizes = split(x.elements, rng)
        return {f"v{i}": size for i, size in enumerate(sizes)}, lambda y: getattr(y, move)(sizes)
    if move == "to":
        name = rng.choice(["fp16", "fp32"])
        return name, lambda y: y.to({"fp16": torch.float16, "fp32": torch.float32}[name])
    return True, lambda y: getattr(y, move)()


def split(elements: int, rng: random.Random) -> list[int]:
    """Sizes whose product is so many, in any order."""
    sizes, left = [], elements
    for _ in range(rng.randint(0, 3)):
        size = rng.choice([one for one in range(1, left + 1) if left % one == 0])
        sizes.append(size)
        left //= size
    sizes.append(left)
    rng.shuffle(sizes)
    return sizes


def same(x: Strided, y: torch.Tensor) -> None:
    """Sizes, strides, offset, order and bytes of the storage are those of PyTorch."""
    assert x.sizes == tuple(y.shape)
    assert x.strides == y.stride()
    assert x.offset == y.storage_offset()
    assert x.contiguous == y.is_contiguous()
    assert x.bytes == y.untyped_storage().nbytes()


@pytest.mark.parametrize("seed", range(4))
def test_moves_of_tensors_are_those_of_pytorch(seed: int) -> None:
    """Random rows of moves: the same strides after each, the same storage or a new one, the same refusals of a view."""
    rng = random.Random(seed)  # noqa: S311 - draws cases, keeps no secret
    for _ in range(WALKS):
        shape = {f"d{at}": rng.choice([1, 2, 3, 4, 6]) for at in range(rng.randint(1, 4))}
        x, y = fresh(shape, "fp32"), torch.zeros(tuple(shape.values()))
        for _ in range(rng.randint(1, STEPS)):
            move = rng.choice(list(MOVES))
            given = drawn(move, x, rng)
            if given is None:
                continue
            try:
                after = given[1](y)
            except RuntimeError:
                with pytest.raises(MoveError):
                    MOVES[move](x, given[0])
                continue
            moved = MOVES[move](x, given[0])
            same(moved, after)
            shares = after.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
            assert (moved.storage == x.storage) == shares
            x, y = moved, after


def test_an_element_lies_where_its_strides_say() -> None:
    """The address of every element, of a transposed slice too, is the offset of the notes in bytes."""
    x = MOVES["transpose"](
        MOVES["slice"](fresh({"rows": 5, "columns": 7}, "fp32"), {"rows": "1:4"}), ["rows", "columns"]
    )
    whole = torch.zeros(5, 7)
    y = whole[1:4].T
    for column in range(7):
        for row in range(3):
            address = y[column, row].data_ptr() - whole.data_ptr()
            assert x.place({"rows": row, "columns": column}) * 4 == address


@pytest.mark.parametrize(
    ("einsum", "sizes"),
    [
        ("a b, b c -> a c", {"a": 3, "b": 5, "c": 7}),
        ("b s h d, b t h d -> b h s t", {"b": 2, "s": 3, "h": 5, "d": 7, "t": 11}),
        ("a b, b c, c d -> a d", {"a": 3, "b": 50, "c": 2, "d": 11}),
        ("s d, d r, r o -> s o", {"s": 31, "d": 29, "r": 2, "o": 23}),
        ("x a, a b, b y, y z -> x z", {"x": 31, "a": 2, "b": 29, "y": 3, "z": 23}),
    ],
)
def test_flops_of_an_einsum_are_the_fewest_that_pytorch_runs(einsum: str, sizes: dict[str, int]) -> None:
    """Of every order of products, run by PyTorch two at a time, none has fewer FLOPs than the answer."""
    parsed = parse(einsum)
    counted = [flops_in_pytorch(parsed, order, sizes) for order in orders(len(parsed.operands))]
    figures = {figure.name: figure.value for figure in operation(OperationAsk((AskedStep(einsum),), sizes)).figures}
    assert figures["forward"] == min(counted)


def flops_in_pytorch(einsum: Einsum, order: Order, sizes: dict[str, int]) -> int:
    """FLOPs that torch counts for the products of one order."""
    letter = {name: chr(97 + at) for at, name in enumerate(sizes)}

    def spelt(names: Names) -> str:
        return "".join(letter[name] for name in names)

    left = [torch.zeros([sizes[name] for name in term.names], device="meta") for term in einsum.operands]
    with FlopCounterMode(display=False) as counter:
        for pair, a, b, made in pairwise(einsum, order):
            product = torch.einsum(f"{spelt(a)},{spelt(b)}->{spelt(made)}", left[pair[0]], left[pair[1]])
            left = [*(one for at, one in enumerate(left) if at not in pair), product]
    return counter.get_total_flops()


FINFO = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FINFO |= {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
INTEGER = {64: torch.int64, 32: torch.int32, 16: torch.int16, 8: torch.int8}


@pytest.mark.parametrize("name", FINFO)
def test_the_bits_that_are_drawn_are_those_of_pytorch(name: str) -> None:
    """One with its sign set, a zero mantissa and the bias as its exponent is minus one, in every format."""
    parts = dict(bits(name).parts)
    assert parts["sign"] + parts["exponent"] + parts["mantissa"] == torch.finfo(FINFO[name]).bits
    pattern = (1 << (parts["exponent"] + parts["mantissa"])) | ((2 ** (parts["exponent"] - 1) - 1) << parts["mantissa"])
    width = sum(parts.values())
    signed = pattern - 2**width
    assert torch.tensor([signed], dtype=INTEGER[width]).view(FINFO[name]).to(torch.float64).item() == -1.0


@pytest.mark.parametrize(("name", "dtype"), [("int64", torch.int64), ("int32", torch.int32), ("int8", torch.int8)])
def test_whole_numbers_have_the_range_of_pytorchs(name: str, dtype: torch.dtype) -> None:
    """Two's complement: a sign and the rest."""
    assert 2 ** DTYPES[name].mantissa_bits - 1 == torch.iinfo(dtype).max
    assert DTYPES[name].size == dtype.itemsize
