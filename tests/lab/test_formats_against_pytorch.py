"""Number formats as PyTorch has them: limits, casts of drawn values, and updates that change nothing."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from ledger.course.asks import exact_number
from ledger.model.dtypes import DTYPES
from ledger.model.encodings import encoded, half_spacing, relative_half_spacing

FORMATS = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "e8m0": torch.float8_e8m0fnu,
}
WHOLE = {1: torch.uint8, 2: torch.uint16, 4: torch.int32}
DRAWN = 10_000


def drawn(name: str) -> torch.Tensor:
    """Numbers in fp32 of both signs, from below the smallest value of a format to beyond its largest."""
    row, generator = DTYPES[name], torch.Generator().manual_seed(30)
    low, high = math.log2(row.smallest_subnormal) - 2, math.log2(row.largest) + 0.5
    if name == "e8m0":  # no sign; below 2^-126 its cast reads subnormals of fp32 as if they were normal
        low, high = -126, 126
    powers = torch.empty(DRAWN, dtype=torch.float64).uniform_(max(low, -148), min(high, 127.9), generator=generator)
    sign = torch.randint(0, 1 if name == "e8m0" else 2, (DRAWN,), generator=generator) * -2 + 1
    return (torch.exp2(powers) * sign).to(torch.float32)


@pytest.mark.parametrize("name", FORMATS)
def test_limits_are_those_of_pytorch(name: str) -> None:
    """`torch.finfo`: the largest value, the smallest normal one, and the distance from 1 to the next."""
    row, limits = DTYPES[name], torch.finfo(FORMATS[name])
    assert (row.largest, row.smallest_normal, row.epsilon) == (limits.max, limits.smallest_normal, limits.eps)
    one = torch.tensor(1.0).to(FORMATS[name])
    assert encoded(name, Fraction(1)).stored == one.to(torch.float64).item()


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("fp64", "fp32")])
def test_casts_are_those_of_pytorch(name: str) -> None:
    """Ten thousand values, subnormal ones and ones beyond the largest among them: the same value and the same bits."""
    values = drawn(name)
    cast = values.to(FORMATS[name])
    patterns = cast.view(WHOLE[cast.element_size()]).to(torch.int64)
    for value, stored, pattern in zip(values.tolist(), cast.to(torch.float64).tolist(), patterns.tolist(), strict=True):
        found = encoded(name, Fraction(value))
        assert (math.inf if found.stored is None else abs(found.stored)) == abs(stored)
        assert int(found.bits, 2) == pattern


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("fp64", "e8m0")])
@pytest.mark.parametrize("text", ["-0.0", "-0", "0", "-1e-40", "1e-60", "-1e-60"])
def test_zeros_have_the_sign_of_pytorchs(name: str, text: str) -> None:
    """Minus zero, and what is too small for a format and becomes it."""
    value = exact_number(text)
    assert value is not None
    cast = torch.tensor(float(text), dtype=torch.float64).to(torch.float32).to(FORMATS[name])
    pattern = int(cast.view(WHOLE[cast.element_size()]).to(torch.int64)) % 2 ** (8 * cast.element_size())
    found = encoded(name, value)
    assert int(found.bits, 2) == pattern
    assert found.stored == cast.to(torch.float64).item()


def test_4_bit_casts_are_those_of_ml_dtypes() -> None:
    """PyTorch casts nothing to float4_e2m1fn_x2; JAX's dtypes do."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = drawn("e2m1")
    cast = values.numpy().astype(ml_dtypes.float4_e2m1fn)
    for value, stored, pattern in zip(values.tolist(), cast.astype("f8"), cast.view("u1"), strict=True):
        found = encoded("e2m1", Fraction(value))
        assert (found.stored, int(found.bits, 2)) == (stored, pattern)


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_updates_are_lost_where_that_is_predicted(name: str) -> None:
    """A thousand weights that a step below half the spacing leaves as they are, and a step beyond it changes."""
    weights = torch.empty(1000, dtype=torch.float64).uniform_(0.02, 1, generator=torch.Generator().manual_seed(3))
    kept = weights.to(FORMATS[name])
    wide = kept.to(torch.float64)
    steps = torch.tensor([float(half_spacing(name, Fraction(weight))) for weight in wide.tolist()], dtype=torch.float64)
    assert torch.equal((wide + 0.99 * steps).to(FORMATS[name]).to(torch.float64), wide)
    assert torch.equal((wide + 1.01 * steps).to(FORMATS[name]).to(torch.float64), wide + 2 * steps)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_adamw_trains_nothing_below_half_the_spacing(dtype: str) -> None:
    """Its step under an even gradient is the learning rate: weights of 1/64 move from the predicted one on."""
    weight = Fraction(1, 64)
    for share, moves in ((0.9, False), (1.1, True)):
        parameter = torch.nn.Parameter(torch.full((64,), float(weight), dtype=FORMATS[dtype]))
        optimizer = torch.optim.AdamW([parameter], lr=share * float(half_spacing(dtype, weight)), weight_decay=0)
        for _ in range(10):
            parameter.grad = torch.full_like(parameter, -1)
            optimizer.step()
        assert bool((parameter != float(weight)).all()) is moves
        assert bool((parameter != float(weight)).any()) is moves


@pytest.mark.parametrize(("dtype", "decay", "moves"), [
    ("bf16", 0.999, False), ("bf16", 0.95, True), ("fp32", 0.999, True), ("fp8_e4m3", 0.99, False),
])  # fmt: skip
def test_averages_stand_still_where_that_is_predicted(dtype: str, decay: float, moves: bool) -> None:
    """A second moment whose gradients have become 0 falls only if 1 - decay is above half the relative spacing."""
    states = torch.linspace(1, 2, 100).to(FORMATS[dtype])
    after = (states.to(torch.float32) * decay).to(FORMATS[dtype])
    least, most = relative_half_spacing(dtype)
    assert (1 - decay > most) is moves
    assert (1 - decay < least) is not moves
    assert bool((after.to(torch.float32) != states.to(torch.float32)).all()) is moves
