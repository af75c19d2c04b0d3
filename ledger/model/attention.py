"""Attention: the kinds a model can name, with their projections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import sympy

from ledger.model.context import mixed
from ledger.model.custom import custom
from ledger.model.dims import Dim, symbol
from ledger.model.gated_delta import gated_delta
from ledger.model.latent import latent
from ledger.model.latent_cache import latent_from_cache
from ledger.model.mamba2 import mamba2
from ledger.model.modules import Module
from ledger.model.norms import norm, unweighted
from ledger.model.rotary import rotated
from ledger.model.sides import CROSS
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY
from ledger.spec.plan import Attention, Norm


def attention(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """The mixing of tokens, of the kind that the model names; result (batch seq d_model)."""
    kinds = {**ATTENTIONS, **OVER_A_CACHE} if tape.cache else ATTENTIONS
    return kinds[spec.kind](tape, x, spec, norms)


def crossed(tape: Tape, x: Tensor, spec: Attention) -> Tensor:
    """The mixing of tokens with those that the encoder gave; result (batch seq d_model)."""
    if (encoded := tape.side.encoded) is None:
        raise TypeError("nothing was encoded that tokens could attend to")
    crossing = replace(tape, side=replace(tape.side, attention=CROSS))
    query = _projected(crossing, x, spec, "q", "heads")
    key, value = _key_and_value(crossing, encoded, spec)
    query = _scaled(crossing, query) if spec.scaled == "queries" else query
    return _out(crossing, mixed(crossing, query, key, value, spec), spec)


def _grouped_query(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Multi-head, grouped-query or multi-query causal attention with its projections; result (batch seq d_model)."""
    query, key, value = _fused_projection(tape, x, spec) if spec.fused_qkv else _projections(tape, x, spec)
    query = _scaled(tape, query) if spec.scaled == "queries" else query
    if spec.fused_qkv and spec.rotary and tape.stack.split_values:
        value = tape.pointwise("attention/v.copy", value, kernel=COPY, add=True)
    return _out(tape, _attended(tape, query, key, value, spec, norms), spec)


def _scaled(tape: Tape, query: Tensor) -> Tensor:
    """Queries multiplied by 1 / sqrt(head_dim) before the core (transformers, WhisperAttention)."""
    return tape.pointwise(f"{tape.side.attention}/q.scale", query)


def _gated(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """The same with a gate for each element of its result (Qwen3-Next; Qiu et al. 2025, arXiv 2505.06708, section 2.2).

    transformers, Qwen3NextAttention: queries and gates are the halves of one projection's heads, and gates are copied.
    """
    pair = (Dim("query_and_gate", 2 * symbol("head_dim", tape.suffix)),)
    einsum = "batch seq d_model, heads query_and_gate d_model -> batch seq heads query_and_gate"
    joint = tape.linear(Module("attention", "q"), einsum, x, bias=spec.qkv_bias, lead=2, sizes=pair)
    half = tape.dims("batch seq heads head_dim")
    query, gate = tape.taken(joint, {"attention/q.query": half, "attention/q.gate": half})
    key, value = _key_and_value(tape, x, spec)
    context = _attended(tape, query, key, value, spec, norms)
    apart = tape.pointwise("attention/gate.copy", gate, kernel=COPY, add=True)
    sigmoid = tape.pointwise("attention/gate.sigmoid", apart, flops=4, saves=["out"])
    return _out(tape, tape.pointwise("attention/gate", context, sigmoid, saves=[context, sigmoid]), spec)


def _out(tape: Tape, context: Tensor, spec: Attention) -> Tensor:
    einsum = "batch seq heads head_dim, d_model heads head_dim -> batch seq d_model"
    return tape.linear(Module(tape.side.attention, "out"), einsum, context, bias=spec.out_bias)


def _attended(  # noqa: PLR0913 - what attention is made of
    tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention, norms: Norm
) -> Tensor:
    """Queries and keys normed and rotated as the model says, then the core; result (batch seq heads head_dim)."""
    if spec.qk_norm in ("head", "heads", "all"):
        query, key = (
            norm(tape, Module(tape.side.attention, f"{name}_norm"), tensor, norms, *_normed(tensor, spec))
            for name, tensor in (("q", query), ("k", key))
        )
    if spec.rotary:
        query = rotated(tape, "attention/rotary_q", query, spec)
        key = rotated(tape, "attention/rotary_k", key, spec)
    if spec.qk_norm == "unweighted":
        query, key = unweighted(tape, "attention/q_norm", query), unweighted(tape, "attention/k_norm", key)
    if spec.temperature:
        query = _tempered(tape, query)
    return mixed(tape, query, key, value, spec)


def _tempered(tape: Tape, query: Tensor) -> Tensor:
    """Queries times a factor that grows with their position, in fp32 (Llama 4)."""
    factor = Tensor("attention/temperature.factor", tape.dims("seq"), "fp32", "statistic", tape.layout.inputs)
    warm = tape.pointwise("attention/temperature", query, factor, saves=[factor])
    return tape.cast(warm, query.dtype)


def _normed(tensor: Tensor, spec: Attention) -> tuple[str, int]:
    """The dims of the weight by which queries or keys are normed, and over how many of them."""
    if spec.qk_norm == "head":
        return "head_dim", 1
    return f"{tensor.dims[2].name} head_dim", 1 if spec.qk_norm == "heads" else 2


def _projections(tape: Tape, x: Tensor, spec: Attention) -> tuple[Tensor, Tensor, Tensor]:
    return _projected(tape, x, spec, "q", "heads"), *_key_and_value(tape, x, spec)


def _key_and_value(tape: Tape, x: Tensor, spec: Attention) -> tuple[Tensor, Tensor]:
    return _projected(tape, x, spec, "k", "kv_heads"), _projected(tape, x, spec, "v", "kv_heads")


def _projected(tape: Tape, x: Tensor, spec: Attention, name: str, heads: str) -> Tensor:
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
    """The same where several query heads share keys and values: each of its heads is one of a query, key or value."""
    own, theirs = tape.dims("batch seq heads head_dim"), tape.dims("batch seq kv_heads head_dim")
    heads = (Dim("qkv_heads", own[2].symbol + 2 * theirs[2].symbol),)
    einsum = "batch seq d_model, qkv_heads head_dim d_model -> batch seq qkv_heads head_dim"
    joint = tape.linear(Module(tape.side.attention, "qkv"), einsum, x, bias=spec.qkv_bias, lead=2, sizes=heads)
    query, key, value = tape.taken(joint, {"attention/q": own, "attention/k": theirs, "attention/v": theirs})
    return query, key, value


ATTENTIONS: Mapping[str, Callable[[Tape, Tensor, Attention, Norm], Tensor]] = {
    "grouped_query": _grouped_query,
    "gated": _gated,
    "latent": latent,
    "mamba2": mamba2,
    "gated_delta": gated_delta,
    "custom": lambda tape, x, spec, _: custom(tape, x, spec.custom, "attention"),
}
# Kinds whose operations over a cache are others than those over a whole sequence.
OVER_A_CACHE: Mapping[str, Callable[[Tape, Tensor, Attention, Norm], Tensor]] = {"latent": latent_from_cache}
