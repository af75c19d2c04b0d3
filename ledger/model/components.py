"""Components of a model as functions that write operations: the layer, the embedding, the head.

Each kernel choice (`fused`, `eager`, ...) writes the operations that the real code runs, so that what is saved, moved
and launched follows from the operations and is stated nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy

from ledger.model import dtypes, images
from ledger.model import tape as moves
from ledger.model.activations import activation, dropout
from ledger.model.attention import attention, cross_attention
from ledger.model.attention_cores import share_result
from ledger.model.causes import BIAS, Module, Parameter
from ledger.model.custom import custom
from ledger.model.dims import Dim
from ledger.model.elementwise import DroppedAddition, Lookup, WholeLookup
from ledger.model.experts import TWO, activated_product, experts
from ledger.model.images import sound_stream
from ledger.model.norms import norm
from ledger.model.product_frames import UPDATE
from ledger.model.tape import Tape
from ledger.model.tensors import CROSS, Tensor
from ledger.spec.kernel_classes import DROPOUT, EMBEDDING
from ledger.spec.plan import MLP, Group, Model

TOKENS, POSITIONS, LOGITS = Module("embedding", "tokens"), Module("embedding", "positions"), Module("head", "logits")
TYPES = Module("embedding", "types")


def layer(tape: Tape, x: Tensor, group: Group, model: Model) -> Tensor:
    """One decoder layer: attention and feed-forward, one after or beside the other, normed before, after, or both.

    One without a feed-forward part mixes tokens, and no more; one that its author wrote whole has its own steps.
    """
    if group.block:
        return custom(tape, x, group.block, "block")
    mixing, feeding = tape.of_block("attention"), tape.of_block("mlp")
    if group.residual == "parallel":
        normed = _norm_stream(mixing, "attention_norm", x, model)
        inner = attention(mixing.inside("attention"), normed, group.attention, model.norm)
        normed = normed if group.norms == "shared" else _norm_stream(feeding, "mlp_norm", x, model)
        outer = mlp(feeding.inside("mlp"), normed, group.mlp)
        dropped = [_update(tape, part, y, model) for part, y in (("mlp", outer), ("attention", inner))]
        both = _add(tape.inside(UPDATE), "residual/both", *dropped)
        return _add(tape, "residual/add", both, x)
    before = group.norms not in ("post", "residual")
    normed = _norm_stream(mixing, "attention_norm", x, model) if before else x
    inner = attention(mixing.inside("attention"), normed, group.attention, model.norm)
    x = _add_part(mixing, "attention", (x, inner), group, model)
    if group.cross_attention:
        normed = _norm_stream(mixing, f"{CROSS}_norm", x, model)
        x = _add_part(
            mixing, CROSS, (x, cross_attention(mixing.inside("attention"), normed, group.crossing)), group, model
        )
    if group.mlp.kind == "none":
        return x
    inside = feeding.inside("mlp") if tape.stack.product_frames and not group.mlp.experts else feeding
    # The norm is in one function with the product that reads it.
    normed = _norm_stream(inside, "mlp_norm", x, model) if before else x
    outer = mlp(feeding.inside("mlp"), normed, group.mlp)
    return _add_part(feeding, "mlp", (x, outer), group, model)


def _norm_stream(tape: Tape, component: str, x: Tensor, model: Model) -> Tensor:
    """The stream, normed; one that is wider than the model is read in the dtype of the norm's weight."""
    inner, module = tape.inside("norm"), Module(component, "norm", of_layer=True)
    if model.residual_dtype == "fp32":
        x = inner.cast(x, inner.weight(Parameter(module, elementwise=True), "d_model").dtype)
    return norm(inner, module, x, model.norm)


def _add_part(tape: Tape, part: str, parts: tuple[Tensor, Tensor], group: Group, model: Model) -> Tensor:
    joined = _add_update(tape, part, parts, group, model)
    return _norm_stream(tape, f"{part}_norm", joined, model) if group.norms == "residual" else joined


def _add_update(tape: Tape, part: str, parts: tuple[Tensor, Tensor], group: Group, model: Model) -> Tensor:
    x, update = parts
    if group.norms in ("sandwich", "post"):
        update = _norm_stream(tape, f"{part}_post_norm", update, model)
    name = f"{part}_residual/add"
    if model.residual_dropout and tape.kernels.residual == "fused":  # one kernel, which saves the mask
        mask = Tensor(f"{name}.mask", update.dims, "bool", "mask", update.split)
        result = tape.activation(name, x.dims, x.dtype, x.split)
        return tape.record(DroppedAddition(name, DROPOUT, (x, update), (result, mask), (mask,), flops=3))
    return _add(tape, name, x, _update(tape, part, update, model))


def _add(tape: Tape, name: str, x: Tensor, y: Tensor) -> Tensor:
    return tape.pointwise(name, x, y, add=True)


def _update(tape: Tape, part: str, x: Tensor, model: Model) -> Tensor:
    """The result of a part of a layer, dropped out and multiplied where the model does so."""
    x = dropout(tape, f"{part}_residual/dropout", x) if model.residual_dropout else x
    return tape.inside(UPDATE).pointwise(f"{part}_residual/scale", x) if model.residual_scale else x


# --- both ends of a model ---


def token_rows(tape: Tape) -> Tensor:
    """The rows of the tokens (batch seq d_model)."""
    name = tape.side.named(str(TOKENS))
    tokens = Tensor(f"{name}.index", tape.dims("batch seq"), "int64", "index", tape.layout.inputs)
    return _rows_of_table(tape, name, tokens, tape.weight(TOKENS, "vocab d_model"))


def embedding(tape: Tape, model: Model) -> Tensor:
    """Token rows, plus learned rows of types and positions, scaled, normed and dropped out where the model does so.

    Of a model of images: patches behind a class token, with their positions, or what its stem makes of them; of an
    encoder of sound, its frames.
    """
    if model.stem:
        return images.stemmed(tape, model.stem)
    if model.sound and tape.side.is_source:
        x = sound_stream(tape)
    else:
        x = images.patch_stream(tape, model) if model.image else _token_stream(tape, model)
    x = norm(tape, Module("embedding_norm", "norm"), x, model.norm) if model.embedding_norm else x
    x = dropout(tape, f"{tape.side.named('embedding')}/dropout", x) if model.embedding_dropout else x
    return tape.cast(x, "fp32") if model.residual_dtype == "fp32" else x


def _token_stream(tape: Tape, model: Model) -> Tensor:
    x = token_rows(tape)
    if model.scale_embedding:
        name = f"{tape.side.named('embedding')}/scale"
        factor = Tensor(f"{name}.factor", (Dim("one", sympy.Integer(1)),), x.dtype, "statistic")
        x = tape.pointwise(name, x, factor, saves=[factor])
    if model.embedding_multiplier:
        x = tape.pointwise("embedding/multiplier", x)
    if model.token_types:
        kinds = Tensor("embedding/types.index", tape.dims("batch seq"), "int64", "index", tape.layout.inputs)
        table = tape.weight(TYPES, "token_types d_model")
        x = _add(tape, "embedding/add_types", x, _rows_of_table(tape, str(TYPES), kinds, table))
    if model.learned_positions:
        of = "batch seq" if model.positions_each else "seq"
        places = Tensor("embedding/positions.index", tape.dims(of), "int64", "index", tape.layout.inputs)
        table = tape.weight(POSITIONS, "positions d_model")
        x = _add(tape, "embedding/add", x, _rows_of_table(tape, str(POSITIONS), places, table))
    return x


def _rows_of_table(tape: Tape, name: str, index: Tensor, table: Tensor) -> Tensor:
    """One-hot times table: where the vocabulary is split, each device holds a partial sum."""
    rows, width = table.dims
    dtype = table.dtype if dtypes.size(table.dtype) >= 2 else tape.precision.activations  # rows are brought back
    result = tape.activation(name, (*index.dims, width), dtype, index.split)
    all_rows = tape.keeps_gathered and tape.stack.embedding == "all_rows"
    kind = WholeLookup if table.split and all_rows else Lookup
    result = tape.record(kind(name, EMBEDDING, (index, table), (result,), (index,)))
    for axis in [axis for dim, axis in table.split if dim == rows.name]:
        result = moves.reduce_to_stream(tape, result, axis)
    if not table.split and len(result.dims) == 3:
        result = result.on(tape.layout.stream)
    return result


def head(tape: Tape, x: Tensor, model: Model) -> Tensor:
    """The final norm and the output head: logits (batch seq vocab), or scores of classes (batch classes)."""
    if model.stem:
        return images.pooled(tape, x, model)
    if model.image:
        return images.classified(tape, into_head(tape, x, model), model)
    return logits(tape, into_head(tape, x, model), model)


def into_head(tape: Tape, x: Tensor, model: Model) -> Tensor:
    """The input of the head: the stream after the final norm and the transform, where the model has them."""
    x = final_norm(tape, x, model) if model.norm.final else x
    x = dropout(tape, "final_norm/dropout", x) if model.norm.final_dropout else x
    x = tape.pointwise("head/scale_input", x) if model.head_input_scale else x
    if not model.head_transform:
        return x
    einsum = "batch seq d_model, d_out d_model -> batch seq d_out"
    width = Dim("d_out", x.dims[-1].symbol)
    wide = tape.linear(Module("head", "transform"), einsum, x, bias=True, sizes=(width,))
    active = activation(tape.inside("activation"), "head/activation", wide, model.head_transform)
    return norm(tape, Module("head_norm", "norm"), tape.view(active, "batch seq d_model", "head/stream"), model.norm)


def encoded(tape: Tape, x: Tensor, model: Model, readers: sympy.Expr) -> Tensor:
    """The result of an encoder for so many layers: its stream after a norm, and after dropout."""
    x = norm(tape, Module("encoder_norm", "norm"), x, model.norm) if model.norm.final else x
    x = dropout(tape, "encoder_norm/dropout", x) if model.norm.final_dropout else x
    return share_result(tape, x, readers)


def table_of(model: Model) -> Module:
    """The module whose weight the head multiplies with: the head, or the embedding."""
    return TOKENS if model.tied else LOGITS


def final_norm(tape: Tape, x: Tensor, model: Model) -> Tensor:
    """The norm before the head."""
    return norm(tape, Module("final_norm", "norm"), x, model.norm)


def logits(tape: Tape, x: Tensor, model: Model) -> Tensor:
    """The output head over normed hidden states (batch seq d_model)."""
    weight = tape.weight(table_of(model), "vocab d_model")
    bias = tape.weight(Parameter(LOGITS, BIAS), "vocab") if model.head_bias else None
    scores = tape.contract(LOGITS, "batch seq d_model, vocab d_model -> batch seq vocab", x, weight, bias=bias)
    if model.head_softcap:
        scaled = tape.pointwise("head/softcap.divide", scores)
        tanh = tape.pointwise("head/softcap.tanh", scaled, flops=6, saves=["out"])
        scores = tape.pointwise("head/softcap.multiply", tanh)
    return tape.pointwise("head/scale", scores) if model.head_scale else scores


# --- the feed-forward part of a layer ---


def mlp(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """The feed-forward layer: plain (up, activation, down), gated (gate and up, product, down), experts, or its own."""
    return MLPS[spec.kind](tape, x, spec)


def _plain_mlp(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    up = _project_up(tape, x, "up", spec)
    inner = tape.inside("activation")
    return _project_down(tape, dropped(inner, activation(inner, "mlp/activation", up, spec.activation), spec), spec)


def _gated_mlp(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    inner = tape.inside("activation")
    if spec.fused_gate_up:
        einsum = "batch seq d_model, two d_ff d_model -> batch seq two d_ff"
        joint = tape.linear(Module("mlp", "gate_up"), einsum, x, bias=spec.bias, lead=2, sizes=(TWO,))
        product = activated_product(tape, joint, spec)
    elif tape.kernels.activation == "fused_gated":
        gate, up = _project_up(tape, x, "gate", spec), _project_up(tape, x, "up", spec)
        product = inner.pointwise("mlp/product", gate, up, flops=9, saves=[gate, up])
    else:  # act_fn(gate_proj(x)) * up_proj(x): the left operand comes first
        active = activation(inner, "mlp/activation", _project_up(tape, x, "gate", spec), spec.activation)
        up = _project_up(tape, x, "up", spec)
        product = inner.pointwise("mlp/product", active, up, saves=[active, up])
    return _project_down(tape, dropped(inner, product, spec), spec)


def dropped(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """The input of the last projection, dropped out where the model does so."""
    return dropout(tape, "mlp/dropout", x) if spec.dropout else x


def _project_up(tape: Tape, x: Tensor, name: str, spec: MLP) -> Tensor:
    einsum = "batch seq d_model, d_ff d_model -> batch seq d_ff"
    return tape.linear(Module("mlp", name), einsum, x, bias=spec.bias)


def _project_down(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    einsum = "batch seq d_ff, d_model d_ff -> batch seq d_model"
    return tape.linear(Module("mlp", "down"), einsum, x, bias=spec.bias)


MLPS: Mapping[str, Callable[[Tape, Tensor, MLP], Tensor]] = {
    "plain": _plain_mlp,
    "gated": _gated_mlp,
    "experts": experts,
    "custom": lambda tape, x, spec: custom(tape, x, spec.custom, "mlp"),
    "none": lambda _, x, __: x,  # and a layer neither norms nor adds it
}
