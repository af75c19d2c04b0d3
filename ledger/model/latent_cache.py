"""Multi-head latent attention over a cache of latents: one narrow vector a token, whatever the number of heads.

Prompts expand what waits to keys and values of every head; decoding multiplies queries into the latent instead, so that
the cache is read once for all heads (DeepSeek-V2, arXiv 2405.04434, section 2.1.2; vLLM, mla/common.py).
"""

from __future__ import annotations

from dataclasses import replace

from ledger.model.cached_attention import CONTEXT, CORE, SCORES, attended, cache_of, written
from ledger.model.dims import Dim
from ledger.model.latent import joint_latent, normed_latent, out_of, query_of
from ledger.model.modules import Module
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY
from ledger.spec.plan import Attention, Norm

KEY_VALUE = Module("attention", "kv")
LATENT_SCORES = "batch seq heads width, batch key width -> batch heads seq key"
LATENT_CONTEXT = "batch heads seq key, batch key values -> batch seq heads values"


def latent_from_cache(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """New latents are written to the cache, which every device of a tensor-parallel group has whole."""
    query = query_of(tape, x, spec, norms)
    narrow, turning = normed_latent(tape, joint_latent(tape, x, spec), spec, norms)
    inner = tape.inside(CORE)
    waiting = written(inner, (narrow, turning), (*tape.dims("batch seq"), _joint(tape)))
    see = _absorbed if cache_of(tape).decodes else _expanded
    return out_of(tape, see(inner, query, waiting), spec)


def _joint(tape: Tape) -> Dim:
    kv_rank, rope = tape.dims("kv_rank rope_head_dim")
    return Dim("latent", kv_rank.symbol + rope.symbol)


def _weight(tape: Tape) -> Tensor:
    heads, nope, wide, kv_rank = tape.dims("heads nope_head_dim v_head_dim kv_rank")
    return tape.weight(KEY_VALUE, (heads, Dim("key_value", nope.symbol + wide.symbol), kv_rank), lead=2)


def _expanded(tape: Tape, query: Tensor, waiting: Tensor) -> Tensor:
    """Keys and values of every head of all tokens that a pass reads, as in training."""
    batch, seen, _ = waiting.dims
    kv_rank, rope, nope, wide = tape.dims("kv_rank rope_head_dim nope_head_dim v_head_dim")
    latents = replace(waiting, name="attention/latents", dims=(batch, seen, kv_rank), role="activation")
    einsum = "batch key kv_rank, heads key_value kv_rank -> batch key heads key_value"
    pair = tape.contract(KEY_VALUE, einsum, latents, _weight(tape))
    heads, together = pair.dims[2], Dim("head_dim", nope.symbol + rope.symbol)
    key = tape.activation("attention/k", (batch, seen, heads, together), pair.dtype, pair.split)
    turned = replace(waiting, name="attention/turned", dims=(batch, seen, rope), role="activation")
    half = replace(pair, name="attention/k.straight", dims=(batch, seen, heads, nope), view_of=pair.storage)
    key = tape.pointwise("attention/k", half, turned, like=key, dtype=key.dtype, kernel=COPY)
    value = replace(pair, name="attention/v", dims=(batch, seen, heads, wide), view_of=pair.storage)
    result = tape.activation("attention/core", (*query.dims[:3], wide), query.dtype, query.split)
    return tape.record(attended(tape, (query, key, value), result, (query, key, value), (SCORES, CONTEXT)))


def _absorbed(tape: Tape, query: Tensor, waiting: Tensor) -> Tensor:
    """Queries in the latent see the cache as it is; what they give is expanded to values of each head."""
    batch, seq, heads, _ = query.dims
    kv_rank, rope, nope, wide = tape.dims("kv_rank rope_head_dim nope_head_dim v_head_dim")
    weight = _weight(tape)
    of_keys, of_values = (
        replace(weight, name=f"{weight.name}.of_{name}", dims=(heads, width, kv_rank))
        for name, width in (("keys", nope), ("values", wide))
    )
    straight = replace(query, name="attention/q.straight", dims=(batch, seq, heads, nope), view_of=query.storage)
    turning = replace(query, name="attention/q.turning", dims=(batch, seq, heads, rope), view_of=query.storage)
    einsum = "batch seq heads nope_head_dim, heads nope_head_dim kv_rank -> batch seq heads kv_rank"
    latent = tape.contract(Module("attention", "q_absorbed"), einsum, straight, of_keys)
    both = replace(latent, name="attention/q.both", dims=(batch, seq, heads, _joint(tape)))
    values = replace(waiting, name="attention/latents", dims=(*waiting.dims[:2], kv_rank), view_of=waiting.storage)
    result = tape.activation("attention/core", latent.dims, latent.dtype, latent.split)
    kernel = attended(
        tape, (latent, turning, waiting), result, (both, waiting, values), (LATENT_SCORES, LATENT_CONTEXT)
    )
    context = tape.record(kernel)
    einsum = "batch seq heads kv_rank, heads v_head_dim kv_rank -> batch seq heads v_head_dim"
    return tape.contract(Module("attention", "v_expanded"), einsum, context, of_values)
