"""The feed-forward part of a layer, of the kinds a model can name, and its nonlinearities."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.plan import MLP


def mlp(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """The feed-forward layer: plain (up, activation, down) or gated (gate and up, product, down)."""
    return MLPS[spec.kind](tape, x, spec)


def _plain(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    up = _into(tape, x, "mlp/up", spec)
    return _out_of(tape, activation(tape.inside("activation"), "mlp/activation", up, spec.activation), spec)


def _gated(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    gate = _into(tape, x, "mlp/gate", spec)
    up = _into(tape, x, "mlp/up", spec)
    inner = tape.inside("activation")
    if tape.kernels.activation == "fused_gated":
        return _out_of(tape, inner.pointwise("mlp/product", gate, up, flops=9, saves=[gate, up]), spec)
    active = activation(inner, "mlp/activation", gate, spec.activation)
    return _out_of(tape, inner.pointwise("mlp/product", active, up, saves=[active, up]), spec)


def _into(tape: Tape, x: Tensor, name: str, spec: MLP) -> Tensor:
    weight = tape.weight(f"{name}.weight", "d_ff d_model")
    bias = tape.weight(f"{name}.bias", "d_ff") if spec.bias else None
    return tape.contract(name, "batch seq d_model, d_ff d_model -> batch seq d_ff", x, weight, bias=bias)


def _out_of(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    weight = tape.weight("mlp/down.weight", "d_model d_ff")
    bias = tape.weight("mlp/down.bias", "d_model") if spec.bias else None
    return tape.contract("mlp/down", "batch seq d_ff, d_model d_ff -> batch seq d_model", x, weight, bias=bias)


MLPS: Mapping[str, Callable[[Tape, Tensor, MLP], Tensor]] = {"plain": _plain, "gated": _gated}


def activation(tape: Tape, name: str, x: Tensor, kind: str) -> Tensor:
    """The nonlinearity: one kernel that saves its input, or its formula spelt out in Python, a kernel an operator."""
    if tape.kernels.activation == "eager" and kind in SPELT_OUT:
        return SPELT_OUT[kind](tape, name, x)
    return tape.pointwise(name, x, flops=8, saves=[x])


def _gelu_eager(tape: Tape, name: str, x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3))), one kernel for each operator."""
    half = tape.pointwise(f"{name}.half", x)
    cube = tape.pointwise(f"{name}.cube", _wide(tape, x), saves=[_wide(tape, x)])
    scaled = tape.pointwise(f"{name}.scale_cube", cube)
    inner = tape.pointwise(f"{name}.inner", x, scaled, add=True)
    scaled = tape.pointwise(f"{name}.scale_inner", inner)
    tanh = tape.pointwise(f"{name}.tanh", scaled, flops=6, saves=["out"])
    shifted = tape.pointwise(f"{name}.shift", tanh, add=True)
    return tape.pointwise(f"{name}.product", half, shifted, saves=[half, shifted])


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
