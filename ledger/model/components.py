"""Components of a decoder as functions that write operations: norms, attention, feed-forward, embedding, head, loss.

Each kernel choice (`fused`, `eager`, ...) writes the operations that the real code runs, so that what is saved, moved
and launched follows from the operations and is stated nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import sympy

from ledger.model.attention import attention
from ledger.model.dims import Dim
from ledger.model.elementwise import DroppedAddition, Lookup
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.plan import MLP, Group, Model, Norm

# --- norms --------------------------------------------------------------------------------------


def norm(tape: Tape, name: str, x: Tensor, spec: Norm) -> Tensor:
    """RMSNorm or LayerNorm of the residual stream (batch seq d_model); LayerNorm is one kernel in every stack."""
    weight = tape.weight(f"{name}.weight", "d_model")
    if spec.kind == "rms" and tape.kernels.norm == "eager":
        return _rms_eager(tape, name, x, weight, spec)
    source = tape.cast(x, "fp32") if tape.precision.autocast else x
    offset = [_offset(tape, name, weight)] if spec.unit_offset else []
    weights = [*(offset or [weight]), *([tape.weight(f"{name}.bias", "d_model")] if spec.bias else [])]
    statistics = ("rstd",) if spec.kind == "rms" else ("mean", "rstd")
    extras = [Tensor(f"{name}.{s}", x.dims[:2], "fp32", "statistic", x.split) for s in statistics]
    flops = 4 if spec.kind == "rms" else 7
    return tape.pointwise(
        name,
        source,
        *weights,
        dtype=source.dtype,
        kernel="norm.forward",
        backward_kernel="norm.backward",
        flops=flops,
        saves=[source, *offset],
        extras=extras,
    )


def _offset(tape: Tape, name: str, weight: Tensor) -> Tensor:
    """1 + weight: a tensor of its own, which stands for the weight as a cast does."""
    return replace(tape.pointwise(f"{name}.offset", weight, add=True), role="cast")


def _rms_eager(tape: Tape, name: str, x: Tensor, weight: Tensor, spec: Norm) -> Tensor:
    """RMSNorm written in Python, in fp32, as transformers ships it."""
    wide = tape.cast(x, "fp32")
    square = tape.pointwise(f"{name}.square", wide, saves=[wide])
    mean = tape.pointwise(f"{name}.mean", square, dims=x.dims[:2], kernel="reduction")
    rstd = tape.pointwise(f"{name}.rsqrt", mean, saves=["out"])
    normed = tape.pointwise(f"{name}.scale", wide, rstd, saves=[wide, rstd])
    if spec.unit_offset:
        offset = _offset(tape, name, tape.cast(weight, "fp32"))
        scaled = tape.pointwise(f"{name}.weigh", normed, offset, saves=[normed, offset])
        return tape.cast(scaled, x.dtype)
    narrow = tape.cast(normed, x.dtype)
    return tape.pointwise(f"{name}.weigh", narrow, weight, saves=[narrow])


# --- feed-forward -------------------------------------------------------------------------------


def mlp(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """The feed-forward layer: plain (up, activation, down) or gated (gate and up, product, down)."""
    return MLPS[spec.kind](tape, x, spec)


def _plain(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    up = _into(tape, x, "mlp/up", spec)
    return _out_of(tape, activation(tape, "mlp/activation", up, spec.activation), spec)


def _gated(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    gate = _into(tape, x, "mlp/gate", spec)
    up = _into(tape, x, "mlp/up", spec)
    if tape.kernels.activation == "fused_gated":
        return _out_of(tape, tape.pointwise("mlp/product", gate, up, flops=9, saves=[gate, up]), spec)
    active = activation(tape, "mlp/activation", gate, spec.activation)
    return _out_of(tape, tape.pointwise("mlp/product", active, up, saves=[active, up]), spec)


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


# --- the layer ----------------------------------------------------------------------------------


def layer(tape: Tape, x: Tensor, group: Group, model: Model) -> Tensor:
    """One decoder layer: attention and feed-forward, each normed before, and after where norms are a sandwich."""
    if group.residual == "parallel":
        inner = attention(tape, norm(tape, "attention_norm/norm", x, model.norm), group.attention)
        outer = mlp(tape, norm(tape, "mlp_norm/norm", x, model.norm), group.mlp)
        dropped = [
            _dropped(tape, f"{part}_residual/dropout", y, model) for part, y in (("mlp", outer), ("attention", inner))
        ]
        both = _add(tape, "residual/both", *dropped)
        return _add(tape, "residual/add", both, x)
    inner = attention(tape, norm(tape, "attention_norm/norm", x, model.norm), group.attention)
    x = _joined(tape, "attention", (x, inner), group, model)
    outer = mlp(tape, norm(tape, "mlp_norm/norm", x, model.norm), group.mlp)
    return _joined(tape, "mlp", (x, outer), group, model)


def _joined(tape: Tape, part: str, parts: tuple[Tensor, Tensor], group: Group, model: Model) -> Tensor:
    x, update = parts
    if group.norms == "sandwich":
        update = norm(tape, f"{part}_post_norm/norm", update, model.norm)
    if model.residual_dropout and tape.kernels.residual == "fused":
        return _fused_residual(tape, f"{part}_residual/add", x, update)
    return _add(tape, f"{part}_residual/add", x, _dropped(tape, f"{part}_residual/dropout", update, model))


def _fused_residual(tape: Tape, name: str, x: Tensor, update: Tensor) -> Tensor:
    """Dropout of the update and its addition in one kernel, which saves the mask."""
    mask = Tensor(f"{name}.mask", update.dims, "bool", "mask", update.split)
    result = tape.activation(name, x.dims, x.dtype, x.split)
    return tape.record(DroppedAddition(name, "dropout", (x, update), (result, mask), (mask,), flops=3))


def _add(tape: Tape, name: str, x: Tensor, y: Tensor) -> Tensor:
    return tape.pointwise(name, x, y, add=True)


def _dropped(tape: Tape, name: str, x: Tensor, model: Model) -> Tensor:
    return dropout(tape, name, x) if model.residual_dropout else x


def dropout(tape: Tape, name: str, x: Tensor) -> Tensor:
    """Dropout saves its mask, a byte an element."""
    mask = Tensor(f"{name}.mask", x.dims, "bool", "mask", x.split)
    return tape.pointwise(name, x, kernel="dropout", flops=2, extras=[mask])


# --- both ends ----------------------------------------------------------------------------------


def embedding(tape: Tape, model: Model) -> Tensor:
    """Token rows, plus learned position rows, scaled and dropped out where the model does so."""
    tokens = Tensor("embedding/tokens.index", tape.dims("batch seq"), "int64", "index", tape.layout.inputs)
    x = _looked_up(tape, "embedding/tokens", tokens, tape.weight("embedding/tokens.weight", "vocab d_model"))
    if model.scale_embedding:
        factor = Tensor("embedding/scale.factor", (Dim("one", sympy.Integer(1)),), x.dtype, "statistic")
        x = tape.pointwise("embedding/scale", x, factor, saves=[factor])
    if model.learned_positions:
        places = Tensor("embedding/positions.index", tape.dims("seq"), "int64", "index", tape.layout.inputs)
        table = tape.weight("embedding/positions.weight", "positions d_model")
        x = _add(tape, "embedding/add", x, _looked_up(tape, "embedding/positions", places, table))
    return dropout(tape, "embedding/dropout", x) if model.embedding_dropout else x


def _looked_up(tape: Tape, name: str, index: Tensor, table: Tensor) -> Tensor:
    """One-hot times table: where the vocabulary is split, each device holds a partial sum."""
    rows, width = table.dims
    result = tape.activation(name, (*index.dims, width), table.dtype, index.split)
    result = tape.record(Lookup(name, "embedding", (index, table), (result,), (index,)))
    for axis in [axis for dim, axis in table.split if dim == rows.name]:
        result = tape.reduced(result, axis)
    if not table.split and len(result.dims) == 3:
        result = result.on(tape.layout.stream)
    return result


def head(tape: Tape, x: Tensor, model: Model) -> Tensor:
    """The final norm and the output head: logits (batch seq vocab)."""
    x = norm(tape, "final_norm/norm", x, model.norm)
    table = "embedding/tokens.weight" if model.tied else "head/logits.weight"
    weight = tape.weight(table, "vocab d_model")
    bias = tape.weight("head/logits.bias", "vocab") if model.head_bias else None
    logits = tape.contract("head/logits", "batch seq d_model, vocab d_model -> batch seq vocab", x, weight, bias=bias)
    if model.head_softcap:
        scaled = tape.pointwise("head/softcap.divide", logits)
        tanh = tape.pointwise("head/softcap.tanh", scaled, flops=6, saves=["out"])
        logits = tape.pointwise("head/softcap.multiply", tanh)
    return logits
