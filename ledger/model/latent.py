"""Multi-head latent attention: keys and values come from one narrow vector a token (DeepSeek-V2, section 2.1)."""

from __future__ import annotations

from dataclasses import replace

from ledger.model import moves
from ledger.model.context import mixed
from ledger.model.dims import Dim
from ledger.model.modules import Module
from ledger.model.norms import norm
from ledger.model.rotary import turned
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import COPY
from ledger.spec.plan import Attention, Norm

# From the latents to queries, keys and values: what Megatron-Core's `mla_up_proj` rebuilds (multi_latent_attention.py,
# qkv_up_proj_and_rope_apply).
EXPANDED = "up_projection"


def latent(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Latent projections are whole on every device, heads are split where they are expanded; (batch seq d_model)."""
    query = _query(tape, x, spec, norms)
    key, value = _key_and_value(tape, x, spec, norms)
    context = mixed(tape, query, key, value, spec)
    einsum = "batch seq heads v_head_dim, d_model heads v_head_dim -> batch seq d_model"
    return tape.linear(Module("attention", "out"), einsum, context, bias=spec.out_bias)


def _query(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
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
    straight, turning = up.taken(
        query,
        {
            "attention/q.straight": tape.dims("batch seq heads nope_head_dim"),
            "attention/q.turning": tape.dims("batch seq heads rope_head_dim"),
        },
    )
    return up.joined("attention/q.joined", [straight, turned(up, "attention/rotary_q", turning, spec)], query.dims)


def _key_and_value(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> tuple[Tensor, Tensor]:
    """Keys and values of every head from the latent; the part of the keys that is turned is one for all heads."""
    kv_rank, rope, nope, wide = tape.dims("kv_rank rope_head_dim nope_head_dim v_head_dim")
    both = Dim("kv_latent", kv_rank.symbol + rope.symbol)
    einsum = "batch seq d_model, kv_latent d_model -> batch seq kv_latent"
    joint = tape.linear(Module("attention", "kv_latent"), einsum, x, bias=spec.qkv_bias, sizes=(both,))
    narrow, turning = tape.taken(
        joint,
        {
            "attention/kv_latent.straight": tape.dims("batch seq kv_rank"),
            "attention/kv_latent.turning": tape.dims("batch seq rope_head_dim"),
        },
    )
    up = tape.inside(EXPANDED)
    narrow = norm(up, Module("attention", "kv_latent_norm"), narrow, norms, "kv_rank")
    turning = turned(up, "attention/rotary_k", turning, spec)
    expanded = Dim("key_value", nope.symbol + wide.symbol)
    einsum = "batch seq kv_rank, heads key_value kv_rank -> batch seq heads key_value"
    pair = up.linear(Module("attention", "kv"), einsum, narrow, lead=2, sizes=(expanded,))
    key, value = up.taken(
        pair,
        {
            "attention/k.straight": tape.dims("batch seq heads nope_head_dim"),
            "attention/v": tape.dims("batch seq heads v_head_dim"),
        },
    )
    together = Dim("head_dim", nope.symbol + rope.symbol)
    like = replace(key, name="attention/k", dims=(*key.dims[:-1], together), view_of="")
    for axis in [axis for dim, axis in pair.split if dim == "heads"]:
        turning = moves.used_by_all(up, turning, axis)
    return up.pointwise("attention/k", key, turning, like=like, dtype=key.dtype, kernel=COPY), value
