"""The feed-forward part of a layer, of the kinds a model can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.model.activations import activation
from ledger.model.custom import custom
from ledger.model.dropout import dropout
from ledger.model.experts import experts
from ledger.model.gated_experts import TWO, activated
from ledger.model.modules import Module
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.plan import MLP


def mlp(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """The feed-forward layer: plain (up, activation, down), gated (gate and up, product, down), experts, or its own."""
    return MLPS[spec.kind](tape, x, spec)


def _plain(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    up = _into(tape, x, "up", spec)
    inner = tape.inside("activation")
    return _out_of(tape, dropped(inner, activation(inner, "mlp/activation", up, spec.activation), spec), spec)


def _gated(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    if spec.fused_gate_up:
        einsum = "batch seq d_model, two d_ff d_model -> batch seq two d_ff"
        joint = tape.linear(Module("mlp", "gate_up"), einsum, x, bias=spec.bias, lead=2, sizes=(TWO,))
        return _out_of(tape, dropped(tape.inside("activation"), activated(tape, joint, spec), spec), spec)
    gate = _into(tape, x, "gate", spec)
    inner = tape.inside("activation")
    if tape.kernels.activation == "fused_gated":
        up = _into(tape, x, "up", spec)
        product = inner.pointwise("mlp/product", gate, up, flops=9, saves=[gate, up])
        return _out_of(tape, dropped(inner, product, spec), spec)
    active = activation(inner, "mlp/activation", gate, spec.activation)
    up = _into(tape, x, "up", spec)  # act_fn(gate_proj(x)) * up_proj(x): the left operand comes first
    product = inner.pointwise("mlp/product", active, up, saves=[active, up])
    return _out_of(tape, dropped(inner, product, spec), spec)


def dropped(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """What the last projection reads, dropped out where the model does so."""
    return dropout(tape, "mlp/dropout", x) if spec.dropout else x


def _into(tape: Tape, x: Tensor, name: str, spec: MLP) -> Tensor:
    einsum = "batch seq d_model, d_ff d_model -> batch seq d_ff"
    return tape.linear(Module("mlp", name), einsum, x, bias=spec.bias)


def _out_of(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    einsum = "batch seq d_ff, d_model d_ff -> batch seq d_model"
    return tape.linear(Module("mlp", "down"), einsum, x, bias=spec.bias)


MLPS: Mapping[str, Callable[[Tape, Tensor, MLP], Tensor]] = {
    "plain": _plain,
    "gated": _gated,
    "experts": experts,
    "custom": lambda tape, x, spec: custom(tape, x, spec.custom, "mlp"),
    "none": lambda _, x, __: x,  # and a layer neither norms nor adds it
}
