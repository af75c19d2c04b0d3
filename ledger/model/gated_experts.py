"""Inside an expert: gate and up as one tensor, their activation with the scores of its rows, and shared experts."""

from __future__ import annotations

import sympy

from ledger.model import dtypes, moves
from ledger.model.activations import activation
from ledger.model.dims import Dim
from ledger.model.elementwise import Weighed
from ledger.model.modules import Module
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import ELEMENTWISE
from ledger.spec.plan import MLP

TWO = Dim("two", sympy.Integer(2))  # gate and up
ONE = Dim("one", sympy.Integer(1))
SHARED = "shared_experts"  # the region of the experts that every token uses


def weighed(tape: Tape, rows: Tensor, weights: Tensor, name: str = "mlp/weigh") -> Tensor:
    """Every row times its weight; both are saved."""
    result = tape.activation(name, rows.dims, dtypes.promote(rows.dtype, weights.dtype), rows.split)
    return tape.record(Weighed(name, ELEMENTWISE, (rows, weights), (result,), (rows, weights)))


def activated(tape: Tape, joint: Tensor, spec: MLP, scores: Tensor | None = None) -> Tensor:
    """The product of activated gate and up, which are two views of one tensor, and of `scores` of its rows.

    One kernel for all of it saves what it reads (Megatron-Core, fused_bias_swiglu.py, `WeightedSwiGLUFunction`).
    """
    dims, inner = tuple(dim for dim in joint.dims if dim != TWO), tape.inside("activation")
    if tape.kernels.activation == "fused_gated":
        read = [joint, *([scores] if scores else [])]
        return inner.pointwise("mlp/product", *read, dims=dims, dtype=joint.dtype, flops=4 + len(read), saves=read)
    gate, up = tape.taken(joint, {"mlp/gate": dims, "mlp/up": dims})
    active = _gated(inner, gate, up, spec)
    return inner.cast(weighed(inner, active, scores), active.dtype) if scores else active


def _gated(tape: Tape, gate: Tensor, up: Tensor, spec: MLP) -> Tensor:
    """Activation and product, a kernel each."""
    if spec.activation == "clamped_swiglu":
        return _clamped_swiglu(tape, gate, up)
    active = activation(tape, "mlp/activation", gate, spec.activation)
    return tape.pointwise("mlp/product", active, up, saves=[active, up])


def _clamped_swiglu(tape: Tape, gate: Tensor, up: Tensor) -> Tensor:
    """(up + 1) gate sigmoid(alpha gate), both clamped, a kernel an operator (transformers, modeling_gpt_oss.py)."""
    gate = tape.pointwise("mlp/gate.clamp", gate, saves=[gate])
    up = tape.pointwise("mlp/up.clamp", up, saves=[up])
    sigmoid = tape.pointwise("mlp/sigmoid", tape.pointwise("mlp/scaled", gate), flops=4, saves=["out"])
    active = tape.pointwise("mlp/activation", gate, sigmoid, saves=[gate, sigmoid])
    shifted = tape.pointwise("mlp/up.shift", up, add=True)
    return tape.pointwise("mlp/product", shifted, active, saves=[shifted, active])


def _shared_product(tape: Tape, gate: Tensor, up: Tensor, spec: MLP) -> Tensor:
    if tape.kernels.activation == "fused_gated":
        return tape.pointwise("mlp/shared_product", gate, up, flops=9, saves=[gate, up])
    active = activation(tape, "mlp/shared_activation", gate, spec.activation)
    return tape.pointwise("mlp/shared_product", active, up, saves=[active, up])


def shared(tape: Tape, x: Tensor, spec: MLP, *, partial: bool = True) -> Tensor:
    """The experts that every token uses: one gated MLP, and its learned gate where there is one.

    `partial`: who calls shares `x` and sums the result.
    """
    tape = tape.inside(SHARED)

    def into(name: str) -> Tensor:
        einsum = "batch seq d_model, shared_d_ff d_model -> batch seq shared_d_ff"
        return tape.linear(Module("mlp", f"shared_{name}"), einsum, x, partial=partial)

    gate, up = into("gate"), into("up")
    product = _shared_product(tape.inside("activation"), gate, up, spec)
    einsum = "batch seq shared_d_ff, d_model shared_d_ff -> batch seq d_model"
    out = tape.linear(Module("mlp", "shared_down"), einsum, product, partial=partial)
    if not (spec.shared and spec.shared.gated):
        return out
    axis = tape.layout.splits.get("d_ff")
    module = Module("mlp", "shared_score")
    weight = tape.weight(module, (ONE, *tape.dims("d_model")))
    weight = moves.used_by_all(tape, weight, axis) if axis else weight
    score = tape.contract(module, "batch seq d_model, one d_model -> batch seq one", x, weight)
    share = tape.pointwise("mlp/shared_share", score, flops=4, saves=["out"])
    return weighed(tape, out, share, "mlp/shared_scaled")
