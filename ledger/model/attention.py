"""Attention: the kinds a model can name, with their projections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy

from ledger.model import tape as moves
from ledger.model.attention_cores import CORES
from ledger.model.cached_attention import (
    CONTEXT,
    CORE,
    SCORES,
    cache_of,
    cached_attention_kernel,
    from_cache,
    write_to_cache,
)
from ledger.model.causes import Module
from ledger.model.collectives import collective
from ledger.model.custom import custom
from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.gated_delta import gated_delta
from ledger.model.mamba2 import mamba2
from ledger.model.norms import norm, unweighted
from ledger.model.operations import Operation, differentiable, handed_on
from ledger.model.rotary import rotated, turned
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, CROSS, Tensor
from ledger.spec.kernel_classes import COPY, ROTARY
from ledger.spec.plan import Attention, Norm

AXIS = "context"


def attention_with_exchanges(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """The core of attention between the exchanges that it needs; the result is cut as the queries are."""
    if tape.cache:
        return from_cache(tape, query, key, value, spec)
    exchange = tape.layout.exchange if any(axis == AXIS for _, axis in query.split) else "none"
    return EXCHANGES[exchange](tape, query, key, value, spec)


def _local_core(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    return CORES[tape.kernels.attention](tape.inside("core"), query, key, value, spec)


def _gathered_core(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """Every device has all keys and values, for its own queries (Grattafiori et al. 2024, section 3.3.2)."""
    return _local_core(
        tape, query, moves.all_gather_along(tape, key, AXIS), moves.all_gather_along(tape, value, AXIS), spec
    )


def _core_by_heads(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """Every device has the whole sequence of some heads (DeepSpeed-Ulysses, Jacobs et al. 2023)."""
    query, key, value = (_exchange_cut(tape, tensor, "seq", tensor.dims[2].name) for tensor in (query, key, value))
    result = _local_core(tape, query, key, value, spec)
    return _exchange_cut(tape, result, result.dims[2].name, "seq")


def _exchange_cut(tape: Tape, tensor: Tensor, cut: str, instead: str) -> Tensor:
    """The tensor cut over another of its dims."""
    split = tuple((instead, axis) if (name, axis) == (cut, AXIS) else (name, axis) for name, axis in tensor.split)
    result = replace(tensor.on(split, f"{tensor.name}.by_{instead}"), view_of="")
    return tape.record(collective(f"{tensor.name}.all_to_all", "all_to_all", AXIS, tensor, result))


# The ring is inside the kernel: `cores` passes blocks around where the layout says so.
EXCHANGES: Mapping[str, Callable[[Tape, Tensor, Tensor, Tensor, Attention], Tensor]] = {
    "none": _local_core,
    "all_gather": _gathered_core,
    "all_to_all": _core_by_heads,
    "ring": _local_core,
}


# --- multi-head latent attention ---

# From the latents to queries, keys and values: what Megatron-Core's `mla_up_proj` rebuilds (multi_latent_attention.py,
# qkv_up_proj_and_rope_apply).
EXPANDED = "up_projection"
KEY_VALUE = Module("attention", "kv")


def latent(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Latent projections are whole on every device, heads are split where they are expanded; (batch seq d_model)."""
    query = query_of(tape, x, spec, norms)
    key, value = _latent_key_and_value(tape, x, spec, norms)
    return out_of(tape, attention_with_exchanges(tape, query, key, value, spec), spec)


def out_of(tape: Tape, context: Tensor, spec: Attention) -> Tensor:
    """The output projection of what heads attended to; (batch seq d_model)."""
    einsum = "batch seq heads v_head_dim, d_model heads v_head_dim -> batch seq d_model"
    return tape.linear(Module("attention", "out"), einsum, context, bias=spec.out_bias)


def query_of(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Queries, through a latent of their own where they have one, with the rotary part of each head turned."""
    source, up = "d_model", tape.inside(EXPANDED)
    if spec.q_rank:
        source = "q_rank"
        einsum = "batch seq d_model, q_rank d_model -> batch seq q_rank"
        narrow = tape.linear(Module("attention", "q_latent"), einsum, x, bias=spec.qkv_bias)
        x = norm(up, Module("attention", "q_latent_norm"), narrow, norms, source)
    nope, rope = tape.dims("nope_head_dim rope_head_dim")
    wide = (Dim("head_dim", nope.symbol + rope.symbol),)
    einsum = f"batch seq {source}, heads head_dim {source} -> batch seq heads head_dim"
    query = up.linear(Module("attention", "q"), einsum, x, lead=2, sizes=wide)
    if _rotates_in_place(tape):
        result = replace(query, name="attention/rotary_q", view_of=query.storage)
        return up.record(RotatedHeads(result.name, ROTARY, (query, *_rotary_tables(tape)), (result,), flops=3))
    without, with_positions = tape.dims("batch seq heads nope_head_dim"), tape.dims("batch seq heads rope_head_dim")
    parts = {"attention/q.straight": without, "attention/q.turning": with_positions}
    straight, turning = up.views_of_parts(query, parts)
    return up.concatenate("attention/q.joined", [straight, turned(up, "attention/rotary_q", turning, spec)], query.dims)


def _latent_key_and_value(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> tuple[Tensor, Tensor]:
    """Keys and values of every head from the latent; the part of the keys that is turned is one for all heads."""
    rope, nope = tape.dims("rope_head_dim nope_head_dim")
    joint = joint_latent(tape, x, spec)
    if _rotates_in_place(tape):
        return _rotated_key_and_value(tape, joint, norms)
    narrow, turning = normed_latent(tape, joint, spec, norms)
    up = tape.inside(EXPANDED)
    pair = _expanded_latent(up, narrow)
    straight, values = tape.dims("batch seq heads nope_head_dim"), tape.dims("batch seq heads v_head_dim")
    key, value = up.views_of_parts(pair, {"attention/k.straight": straight, "attention/v": values})
    together = Dim("head_dim", nope.symbol + rope.symbol)
    like = replace(key, name="attention/k", dims=(*key.dims[:-1], together), view_of="")
    for axis in [axis for dim, axis in pair.split if dim == "heads"]:
        turning = moves.gather_or_share(up, turning, axis)
    return up.pointwise("attention/k", key, turning, like=like, dtype=key.dtype, kernel=COPY), value


def joint_latent(tape: Tape, x: Tensor, spec: Attention) -> Tensor:
    """The latent of keys and values, and beside it the part of the keys that is turned; (batch seq kv_latent)."""
    kv_rank, rope = tape.dims("kv_rank rope_head_dim")
    both = Dim("kv_latent", kv_rank.symbol + rope.symbol)
    einsum = "batch seq d_model, kv_latent d_model -> batch seq kv_latent"
    return tape.linear(Module("attention", "kv_latent"), einsum, x, bias=spec.qkv_bias, sizes=(both,))


def normed_latent(tape: Tape, joint: Tensor, spec: Attention, norms: Norm) -> tuple[Tensor, Tensor]:
    """The latent, normed, and the part of the keys that all heads share, turned."""
    narrow, turning = _latent_parts(tape, joint)
    up = tape.inside(EXPANDED)
    narrow = norm(up, Module("attention", "kv_latent_norm"), narrow, norms, "kv_rank")
    return narrow, turned(up, "attention/rotary_k", turning, spec)


def _latent_parts(tape: Tape, joint: Tensor) -> tuple[Tensor, ...]:
    """Views of a joint latent: that of keys and values, and the part of the keys that all heads share."""
    straight, turning = tape.dims("batch seq kv_rank"), tape.dims("batch seq rope_head_dim")
    return tape.views_of_parts(
        joint, {"attention/kv_latent.straight": straight, "attention/kv_latent.turning": turning}
    )


def _expanded_latent(tape: Tape, narrow: Tensor) -> Tensor:
    """Keys without positions and values of every head, from their latent (batch seq heads key_value)."""
    nope, wide = tape.dims("nope_head_dim v_head_dim")
    einsum = "batch seq kv_rank, heads key_value kv_rank -> batch seq heads key_value"
    return tape.linear(KEY_VALUE, einsum, narrow, lead=2, sizes=(Dim("key_value", nope.symbol + wide.symbol),))


def _rotates_in_place(tape: Tape) -> bool:
    """Whether one kernel rotates queries in place, and one makes keys and values of what they are projected to."""
    return tape.kernels.rotary == "fused" and tape.stack.latent_rotary == "in_place"


def _rotary_tables(tape: Tape) -> tuple[Tensor, ...]:
    """Cosines, sines, and the angles in fp32, of which each layer keeps its own.

    megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py, get_cached_cos_sin and get_emb: an embedding is
    made by each attention module.
    """
    dims, names = tape.dims("seq rope_head_dim"), ("cos", "sin", "angles")
    table_dtype = tape.precision.activations
    return tuple(
        Tensor(f"attention/rotary_{name}", dims, dtype, BUFFER)
        for name, dtype in zip(names, (table_dtype, table_dtype, "fp32"), strict=True)
    )


@dataclass(frozen=True)
class RotatedHeads(Pointwise):
    """A rotation of a part of each head in place, forward and backward, which reads tables alone."""

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient of the heads is rotated in the storage of the upstream gradient."""
        return handed_on(self, self.inputs[0])


@dataclass(frozen=True)
class KeysAndValues(Pointwise):
    """Keys and values of what both are projected to and of the rotated part, which all heads share."""

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel, which reads the gradients of keys and values."""
        upstream = tuple(tensor.gradient for tensor in self.outputs)
        gradients = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        return (Pointwise(f"{self.name}.gradient", ROTARY, upstream, gradients, flops=3),)


def _rotated_key_and_value(tape: Tape, joint: Tensor, norms: Norm) -> tuple[Tensor, Tensor]:
    """Keys and values by one kernel (megatron/core/fusions/fused_mla_yarn_rope_apply.py, fused_apply_mla_rope_for_kv).

    The norm reads a copy of the latent without the rotated part (transformer_engine/pytorch/module/base.py,
    prepare_forward: `inp.contiguous()`).
    """
    up = tape.inside(EXPANDED)
    nope, rope, wide = tape.dims("nope_head_dim rope_head_dim v_head_dim")
    narrow, turning = _latent_parts(tape, joint)
    narrow = up.pointwise("attention/kv_latent.copy", narrow, kernel=COPY, add=True)
    narrow = norm(up, Module("attention", "kv_latent_norm"), narrow, norms, "kv_rank")
    for axis in [axis for _, axis in joint.split if axis == tape.layout.splits.get("heads")]:
        turning = moves.gather_or_share(tape, turning, axis)
    pair = _expanded_latent(up, narrow)
    together, heads = Dim("head_dim", nope.symbol + rope.symbol), pair.dims[:-1]
    key = up.activation("attention/k", (*heads, together), pair.dtype, pair.split)
    value = up.activation("attention/v", (*heads, wide), pair.dtype, pair.split)
    up.record(KeysAndValues(key.name, ROTARY, (pair, turning, *_rotary_tables(tape)), (key, value), flops=3))
    return key, value


# --- latent attention over a cache ---

LATENT_SCORES = "batch seq heads width, batch key width -> batch heads seq key"
LATENT_CONTEXT = "batch heads seq key, batch key values -> batch seq heads values"


def latent_from_cache(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """New latents are written to the cache, which every device of a tensor-parallel group has whole."""
    query = query_of(tape, x, spec, norms)
    narrow, turning = normed_latent(tape, joint_latent(tape, x, spec), spec, norms)
    inner = tape.inside(CORE)
    waiting = write_to_cache(inner, (narrow, turning), (*tape.dims("batch seq"), _latent_dim(tape)))
    see = _absorbed_core if cache_of(tape).decodes else _expanded_core
    return out_of(tape, see(inner, query, waiting), spec)


def _latent_dim(tape: Tape) -> Dim:
    kv_rank, rope = tape.dims("kv_rank rope_head_dim")
    return Dim("latent", kv_rank.symbol + rope.symbol)


def _key_value_weight(tape: Tape) -> Tensor:
    heads, nope, wide, kv_rank = tape.dims("heads nope_head_dim v_head_dim kv_rank")
    return tape.weight(KEY_VALUE, (heads, Dim("key_value", nope.symbol + wide.symbol), kv_rank), lead=2)


def _expanded_core(tape: Tape, query: Tensor, waiting: Tensor) -> Tensor:
    """Keys and values of every head of all tokens that a pass reads, as in training."""
    batch, seen, _ = waiting.dims
    kv_rank, rope, nope, wide = tape.dims("kv_rank rope_head_dim nope_head_dim v_head_dim")
    latents = replace(waiting, name="attention/latents", dims=(batch, seen, kv_rank), role="activation")
    einsum = "batch key kv_rank, heads key_value kv_rank -> batch key heads key_value"
    pair = tape.contract(KEY_VALUE, einsum, latents, _key_value_weight(tape))
    heads, together = pair.dims[2], Dim("head_dim", nope.symbol + rope.symbol)
    key = tape.activation("attention/k", (batch, seen, heads, together), pair.dtype, pair.split)
    turned = replace(waiting, name="attention/turned", dims=(batch, seen, rope), role="activation")
    half = replace(pair, name="attention/k.straight", dims=(batch, seen, heads, nope), view_of=pair.storage)
    key = tape.pointwise("attention/k", half, turned, like=key, dtype=key.dtype, kernel=COPY)
    value = replace(pair, name="attention/v", dims=(batch, seen, heads, wide), view_of=pair.storage)
    result = tape.activation("attention/core", (*query.dims[:3], wide), query.dtype, query.split)
    return tape.record(
        cached_attention_kernel(tape, (query, key, value), result, (query, key, value), (SCORES, CONTEXT))
    )


def _absorbed_core(tape: Tape, query: Tensor, waiting: Tensor) -> Tensor:
    """Queries in the latent see the cache as it is; what they give is expanded to values of each head."""
    batch, seq, heads, _ = query.dims
    kv_rank, rope, nope, wide = tape.dims("kv_rank rope_head_dim nope_head_dim v_head_dim")
    weight = _key_value_weight(tape)
    of_keys, of_values = (
        replace(weight, name=f"{weight.name}.of_{name}", dims=(heads, width, kv_rank))
        for name, width in (("keys", nope), ("values", wide))
    )
    straight = replace(query, name="attention/q.straight", dims=(batch, seq, heads, nope), view_of=query.storage)
    turning = replace(query, name="attention/q.turning", dims=(batch, seq, heads, rope), view_of=query.storage)
    einsum = "batch seq heads nope_head_dim, heads nope_head_dim kv_rank -> batch seq heads kv_rank"
    latent = tape.contract(Module("attention", "q_absorbed"), einsum, straight, of_keys)
    both = replace(latent, name="attention/q.both", dims=(batch, seq, heads, _latent_dim(tape)))
    values = replace(waiting, name="attention/latents", dims=(*waiting.dims[:2], kv_rank), view_of=waiting.storage)
    result = tape.activation("attention/core", latent.dims, latent.dtype, latent.split)
    kernel = cached_attention_kernel(
        tape, (latent, turning, waiting), result, (both, waiting, values), (LATENT_SCORES, LATENT_CONTEXT)
    )
    context = tape.record(kernel)
    einsum = "batch seq heads kv_rank, heads v_head_dim kv_rank -> batch seq heads v_head_dim"
    return tape.contract(Module("attention", "v_expanded"), einsum, context, of_values)


# --- attention by its kinds ---


def attention(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """The mixing of tokens, of the kind that the model names; result (batch seq d_model)."""
    kinds = {**ATTENTIONS, **OVER_A_CACHE} if tape.cache else ATTENTIONS
    return kinds[spec.kind](tape, x, spec, norms)


def cross_attention(tape: Tape, x: Tensor, spec: Attention) -> Tensor:
    """The mixing of tokens with those that the encoder gave; result (batch seq d_model)."""
    if (encoded := tape.side.encoded) is None:
        raise TypeError("nothing was encoded that tokens could attend to")
    crossing = replace(tape, side=replace(tape.side, attention=CROSS))
    query = _project(crossing, x, spec, "q", "heads")
    key, value = _key_and_value(crossing, encoded, spec)
    query = _scale_query(crossing, query) if spec.scaled == "queries" else query
    return _output_projection(crossing, attention_with_exchanges(crossing, query, key, value, spec), spec)


def _grouped_query(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Multi-head, grouped-query or multi-query causal attention with its projections; result (batch seq d_model)."""
    if spec.fused_qkv:
        query, key, value = _fused_projection(tape, x, spec)
    else:
        query, (key, value) = _project(tape, x, spec, "q", "heads"), _key_and_value(tape, x, spec)
    query = _scale_query(tape, query) if spec.scaled == "queries" else query
    if spec.fused_qkv and spec.rotary and tape.stack.split_values:
        value = tape.pointwise("attention/v.copy", value, kernel=COPY, add=True)
    return _output_projection(tape, _attention_core(tape, query, key, value, spec, norms), spec)


def _scale_query(tape: Tape, query: Tensor) -> Tensor:
    """Queries multiplied by 1 / sqrt(head_dim) before the core (transformers, WhisperAttention)."""
    return tape.pointwise(f"{tape.side.attention}/q.scale", query)


def _gated_query(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Attention, each element of whose result has a gate (Qwen3-Next; Qiu et al. 2025, arXiv 2505.06708, section 2.2).

    transformers, Qwen3NextAttention: queries and gates are the halves of one projection's heads, and gates are copied.
    """
    pair = (Dim("query_and_gate", 2 * symbol("head_dim", tape.suffix)),)
    einsum = "batch seq d_model, heads query_and_gate d_model -> batch seq heads query_and_gate"
    joint = tape.linear(Module("attention", "q"), einsum, x, bias=spec.qkv_bias, lead=2, sizes=pair)
    half = tape.dims("batch seq heads head_dim")
    query, gate = tape.views_of_parts(joint, {"attention/q.query": half, "attention/q.gate": half})
    key, value = _key_and_value(tape, x, spec)
    context = _attention_core(tape, query, key, value, spec, norms)
    apart = tape.pointwise("attention/gate.copy", gate, kernel=COPY, add=True)
    sigmoid = tape.pointwise("attention/gate.sigmoid", apart, flops=4, saves=["out"])
    return _output_projection(tape, tape.pointwise("attention/gate", context, sigmoid, saves=[context, sigmoid]), spec)


def _output_projection(tape: Tape, context: Tensor, spec: Attention) -> Tensor:
    einsum = "batch seq heads head_dim, d_model heads head_dim -> batch seq d_model"
    return tape.linear(Module(tape.side.attention, "out"), einsum, context, bias=spec.out_bias)


def _attention_core(  # noqa: PLR0913 - what attention is made of
    tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention, norms: Norm
) -> Tensor:
    """Queries and keys normed and rotated as the model says, then the core; result (batch seq heads head_dim)."""
    if spec.qk_norm in ("head", "heads", "all"):
        query, key = (
            norm(tape, Module(tape.side.attention, f"{name}_norm"), tensor, norms, *_norm_dims(tensor, spec))
            for name, tensor in (("q", query), ("k", key))
        )
    if spec.rotary:
        query = rotated(tape, "attention/rotary_q", query, spec)
        key = rotated(tape, "attention/rotary_k", key, spec)
    if spec.qk_norm == "unweighted":
        query, key = unweighted(tape, "attention/q_norm", query), unweighted(tape, "attention/k_norm", key)
    if spec.temperature:
        # Llama 4: queries times a factor that grows with their position, in fp32.
        factor = Tensor("attention/temperature.factor", tape.dims("seq"), "fp32", "statistic", tape.layout.inputs)
        query = tape.cast(tape.pointwise("attention/temperature", query, factor, saves=[factor]), query.dtype)
    return attention_with_exchanges(tape, query, key, value, spec)


def _norm_dims(tensor: Tensor, spec: Attention) -> tuple[str, int]:
    """The dims of the weight by which queries or keys are normed, and over how many of them."""
    if spec.qk_norm == "head":
        return "head_dim", 1
    return f"{tensor.dims[2].name} head_dim", 1 if spec.qk_norm == "heads" else 2


def _key_and_value(tape: Tape, x: Tensor, spec: Attention) -> tuple[Tensor, Tensor]:
    return _project(tape, x, spec, "k", "kv_heads"), _project(tape, x, spec, "v", "kv_heads")


def _project(tape: Tape, x: Tensor, spec: Attention, name: str, heads: str) -> Tensor:
    einsum = f"batch seq d_model, {heads} head_dim d_model -> batch seq {heads} head_dim"
    bias = spec.qkv_bias and (spec.key_bias or name != "k")
    return tape.linear(Module(tape.side.attention, name), einsum, x, bias=bias, lead=2)


def _fused_projection(tape: Tape, x: Tensor, spec: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """One matrix for query, key and value, whose results are three views of one tensor."""
    if spec.kv_heads != spec.heads:
        return _shared_projection(tape, x, spec)
    three = (Dim("three", sympy.Integer(3)),)
    einsum = "batch seq d_model, heads three head_dim d_model -> batch seq heads three head_dim"
    joint = tape.linear(Module(tape.side.attention, "qkv"), einsum, x, bias=spec.qkv_bias, lead=3, sizes=three)
    query, key, value = (tape.view(joint, "batch seq heads head_dim", f"{tape.side.attention}/{n}") for n in "qkv")
    return query, key, value


def _shared_projection(tape: Tape, x: Tensor, spec: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """One matrix where query heads share keys and values: each of its heads is one of a query, key or value."""
    query_dims, key_dims = tape.dims("batch seq heads head_dim"), tape.dims("batch seq kv_heads head_dim")
    heads = (Dim("qkv_heads", query_dims[2].symbol + 2 * key_dims[2].symbol),)
    einsum = "batch seq d_model, qkv_heads head_dim d_model -> batch seq qkv_heads head_dim"
    joint = tape.linear(Module(tape.side.attention, "qkv"), einsum, x, bias=spec.qkv_bias, lead=2, sizes=heads)
    query, key, value = tape.views_of_parts(
        joint, {"attention/q": query_dims, "attention/k": key_dims, "attention/v": key_dims}
    )
    return query, key, value


ATTENTIONS: Mapping[str, Callable[[Tape, Tensor, Attention, Norm], Tensor]] = {
    "grouped_query": _grouped_query,
    "gated": _gated_query,
    "latent": latent,
    "mamba2": mamba2,
    "gated_delta": gated_delta,
    "custom": lambda tape, x, spec, _: custom(tape, x, spec.custom, "attention"),
}
# Kinds whose operations over a cache are others than those over a whole sequence.
OVER_A_CACHE: Mapping[str, Callable[[Tape, Tensor, Attention, Norm], Tensor]] = {"latent": latent_from_cache}
