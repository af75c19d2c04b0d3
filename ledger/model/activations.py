"""Nonlinearities: one kernel, or the formula spelt out in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.model.tape import Tape
from ledger.model.tensors import Tensor


def activation(tape: Tape, name: str, x: Tensor, kind: str) -> Tensor:
    """The nonlinearity: one kernel that saves its input, or its formula spelt out in Python, a kernel an operator."""
    if tape.kernels.activation == "eager" and kind in SPELT_OUT:
        return SPELT_OUT[kind](tape, name, x)
    return tape.pointwise(name, x, flops=8, saves=[x])


def _gelu_eager(tape: Tape, name: str, x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3))), one kernel for each operator."""
    half = tape.pointwise(f"{name}.half", x)
    cube = tape.pointwise(
        f"{name}.cube", _wide(tape, x), saves=[_wide(tape, x)], scratch=2
    )  # x^2, and three times that
    scaled = tape.pointwise(f"{name}.scale_cube", cube)
    inner = tape.pointwise(f"{name}.inner", x, scaled, add=True)
    scaled = tape.pointwise(f"{name}.scale_inner", inner)
    tanh = tape.pointwise(f"{name}.tanh", scaled, flops=6, saves=["out"])
    shifted = tape.pointwise(f"{name}.shift", tanh, add=True)
    wide = 2 if half.dtype != shifted.dtype else 0  # the gradient of a narrow operand is a wide one before it is cast
    return tape.pointwise(f"{name}.product", half, shifted, saves=[half, shifted], scratch=wide)


def _erf_eager(tape: Tape, name: str, x: Tensor) -> Tensor:
    """0.5 x (1 + erf(x / sqrt 2)), one kernel for each operator."""
    half = tape.pointwise(f"{name}.half", x)
    scaled = tape.pointwise(f"{name}.divide", x)
    erf = tape.pointwise(f"{name}.erf", scaled, flops=6, saves=[scaled])
    shifted = tape.pointwise(f"{name}.shift", erf, add=True)
    return tape.pointwise(f"{name}.product", half, shifted, saves=[half, shifted])


def _silu_eager(tape: Tape, name: str, x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    sigmoid = tape.pointwise(f"{name}.sigmoid", x, flops=4, saves=["out"])
    return tape.pointwise(f"{name}.product", x, sigmoid, saves=[x, sigmoid])


# transformers writes tanh-GELU so (gelu_new); a fused kernel saves its input alone.
SPELT_OUT: Mapping[str, Callable[[Tape, str, Tensor], Tensor]] = {
    "gelu_tanh": _gelu_eager,
    "gelu": _erf_eager,
    "silu": _silu_eager,
}


def _wide(tape: Tape, x: Tensor) -> Tensor:
    """Under autocast, powers run in fp32."""
    return tape.cast(x, "fp32", keep=True) if tape.precision.autocast else x
