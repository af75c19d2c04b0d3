"""Einsums with windows: convolutions as contractions, with their gradients."""

from __future__ import annotations

import pytest
import sympy

from ledger.books.evaluate import exact
from ledger.course.asks import AskedStep, OperationAsk
from ledger.course.subjects import operation
from ledger.model.contraction import Contraction
from ledger.model.einsum_kernels import SizedDims, convolution, letter
from ledger.spec.windows import Window, parse_einsum, terms, window

RESNET = {"n": 32, "h": 56, "w": 56, "c": 64, "k": 64, "r": 3, "s": 3}


def asked(einsum: str, sizes: dict[str, int]) -> OperationAsk:
    """One operation in bf16."""
    return OperationAsk((AskedStep(einsum),), sizes)


def product(einsum: str, sizes: dict[str, int]) -> Contraction:
    """A convolution of an activation with a weight, in bf16."""
    step = convolution(einsum, "asked", SizedDims(sizes, "bf16"), ("activation", "weight"))
    assert isinstance(step, Contraction)
    return step


def test_bytes_of_a_convolution_are_those_of_its_tensors() -> None:
    """ResNet's 3 x 3 convolution: 2 x 32 x 56 x 56 x 64 x 64 x 9 FLOPs over input, weight and result, each once."""
    figures = {f.name: f.value for f in operation(asked("n (h+r-1) (w+s-1) c, r s c k -> n h w k", RESNET)).figures}
    pixels = 32 * 56 * 56
    assert figures["forward"] == 2 * pixels * 64 * 64 * 9
    assert figures["backward"] == 2 * figures["forward"]
    assert figures["bytes"] == 2 * (2 * pixels * 64 + 9 * 64 * 64)
    assert round(float(figures["intensity"])) == 287


def test_without_padding_the_input_is_wider() -> None:
    """56 windows of 3 places read 58 of them."""
    figures = {f.name: f.value for f in operation(asked("n (h+r) (w+s) c, r s c k -> n h w k", RESNET)).figures}
    assert figures["bytes"] == 2 * 32 * 64 * (58 * 58 + 56 * 56) + 2 * 9 * 64 * 64


def test_gradients_are_the_other_contractions() -> None:
    """Both run as many products as forward, and give tensors as large as the operands."""
    step = product("n (2*h+r-3) (2*w+s-3) c, r s c k -> n h w k", {**RESNET, "h": 112, "w": 112, "r": 7, "s": 7})
    value = exact({letter(name): size for name, size in {**RESNET, "h": 112, "w": 112, "r": 7, "s": 7}.items()})
    for gradient, operand in zip(step.gradients(), step.inputs, strict=True):
        assert value(gradient.useful()) == value(step.useful())
        assert value(gradient.output.bytes()) == value(operand.bytes())


def test_a_convolution_is_the_product_of_its_windows() -> None:
    """As an implicit GEMM: rows are results, columns filters, and what is summed over is a window."""
    step = product("n (h+r-1) (w+s-1) c, r s c k -> n h w k", RESNET)
    shape, value = step.shape(), exact({letter(name): size for name, size in RESNET.items()})
    assert shape is not None
    assert [value(size) for size in (shape.batch, shape.m, shape.n, shape.k)] == [1, 32 * 56 * 56, 64, 9 * 64]
    assert shape.batch == sympy.Integer(1)


def test_channels_that_stay_apart_are_a_batch() -> None:
    """A depthwise convolution of 4 places multiplies each channel by 4 numbers."""
    sizes = {"batch": 2, "seq": 96, "channel": 5, "tap": 4}
    step = product("batch (seq+tap-3) channel, channel tap -> batch seq channel", sizes)
    value = exact({letter(name): size for name, size in sizes.items()})
    assert value(step.useful()) == 2 * 2 * 96 * 5 * 4
    shape = step.shape()
    assert shape is not None
    assert value(shape.batch) == 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(h+r)", Window("h", "r")),
        ("(2*h+r-3)", Window("h", "r", stride=2, padding=3)),
        ("(h+2*r-2)", Window("h", "r", dilation=2, padding=2)),
        ("h", None),
    ],
)
def test_windows_are_read_from_their_text(text: str, found: Window | None) -> None:
    """Stride, dilation and padding stand where they multiply and shift."""
    assert window(text) == found


def test_spaces_within_a_window_mean_nothing() -> None:
    """An index is one word however it is spaced."""
    assert terms("n (2 * h + r - 1) c, r c k -> n h k") == (("n", "(2*h+r-1)", "c"), ("r", "c", "k"), ("n", "h", "k"))


@pytest.mark.parametrize("text", ["a b -> b", "a b, b c", "a (b*c), c -> a", "a (b+), b -> a", "A b, b c -> A c"])
def test_what_is_no_einsum_is_told(text: str) -> None:
    """Two operands, an arrow, names in lower case, windows of two dims."""
    assert parse_einsum(text) is None
