"""Nonlinearities: one kernel, or the formula spelt out in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ACTIVATION, DROPOUT, KernelClass

Form = Callable[[Tape, str, Tensor], Tensor]


def activation(tape: Tape, name: str, x: Tensor, kind: str) -> Tensor:
    """The nonlinearity of this kind, as one kernel or spelt out in Python, a kernel an operator."""
    fused, eager = ACTIVATIONS[kind]
    return (eager if tape.kernels.activation == "eager" else fused)(tape, name, x)


def _one_kernel(kind: str) -> Form:
    """A kernel that saves its input alone. Each kind is a class of its own: on a CPU, tanh takes four times as long."""

    def form(tape: Tape, name: str, x: Tensor) -> Tensor:
        return tape.pointwise(name, x, kernel=KernelClass(ACTIVATION, kind), flops=8, saves=[x])

    return form


def _relu(tape: Tape, name: str, x: Tensor) -> Tensor:
    """max(x, 0), whose gradient reads its result, which the next contraction saves anyway."""
    return tape.pointwise(name, x, saves=["out"])


def _sigmoid(tape: Tape, name: str, x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), whose gradient reads its result."""
    return tape.pointwise(name, x, flops=4, saves=["out"])


def _squared_relu(tape: Tape, name: str, x: Tensor) -> Tensor:
    """max(x, 0)^2 (So et al. 2021, arXiv 2109.08668), two operators in every framework."""
    positive = _relu(tape, f"{name}.relu", x)
    return tape.pointwise(name, _widen(tape, positive), saves=[_widen(tape, positive)], scratch=2)


def _gelu_eager(tape: Tape, name: str, x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3))), one kernel for each operator."""
    half = tape.pointwise(f"{name}.half", x)
    # The scratch of the cube is x^2, and three times that.
    cube = tape.pointwise(f"{name}.cube", _widen(tape, x), saves=[_widen(tape, x)], scratch=2)
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
    """x sigmoid(x), in two kernels as Python spells it out: both factors are saved."""
    sigmoid = tape.pointwise(f"{name}.sigmoid", x, flops=4, saves=["out"])
    return tape.pointwise(f"{name}.product", x, sigmoid, saves=[x, sigmoid])


def _widen(tape: Tape, x: Tensor) -> Tensor:
    """A tensor as powers read it: in fp32 under autocast."""
    return tape.cast(x, "fp32", keep=True) if tape.precision.autocast else x


# How each kind runs where `kernels.activation` is fused, and where it is eager: transformers writes tanh-GELU in Python
# (gelu_new).
ACTIVATIONS: Mapping[str, tuple[Form, Form]] = {
    "gelu_tanh": (_one_kernel("gelu_tanh"), _gelu_eager),
    "gelu": (_one_kernel("gelu"), _erf_eager),
    "silu": (_one_kernel("silu"), _silu_eager),
    "relu": (_relu, _relu),
    "sigmoid": (_sigmoid, _sigmoid),
    "relu2": (_squared_relu, _squared_relu),
    "clamped_swiglu": (_one_kernel("clamped_swiglu"), _one_kernel("clamped_swiglu")),  # GPT-OSS, of experts
}


# --- dropout ---


def dropout(tape: Tape, name: str, x: Tensor) -> Tensor:
    """Dropout saves its mask, a byte an element."""
    mask = Tensor(f"{name}.mask", x.dims, "bool", "mask", x.split)
    return tape.pointwise(name, x, kernel=DROPOUT, flops=2, extras=[mask])
