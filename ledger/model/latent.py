"""Multi-head latent attention: keys and values come from one narrow vector a token (DeepSeek-V2, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ledger.model import moves
from ledger.model.context import mixed
from ledger.model.dims import Dim
from ledger.model.elementwise import Pointwise
from ledger.model.modules import Module
from ledger.model.norms import norm
from ledger.model.operations import Operation, differentiable, handed_on
from ledger.model.rotary import turned
from ledger.model.tape import Tape
from ledger.model.tensors import BUFFER, Tensor
from ledger.spec.kernel_classes import COPY, ROTARY
from ledger.spec.plan import Attention, Norm

# From the latents to queries, keys and values: what Megatron-Core's `mla_up_proj` rebuilds (multi_latent_attention.py,
# qkv_up_proj_and_rope_apply).
EXPANDED = "up_projection"


def latent(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Latent projections are whole on every device, heads are split where they are expanded; (batch seq d_model)."""
    query = query_of(tape, x, spec, norms)
    key, value = _key_and_value(tape, x, spec, norms)
    return out_of(tape, mixed(tape, query, key, value, spec), spec)


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
    if _in_place(tape):
        result = replace(query, name="attention/rotary_q", view_of=query.storage)
        return up.record(RotatedHeads(result.name, ROTARY, (query, *_own_tables(tape)), (result,), flops=3))
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
    rope, nope, wide = tape.dims("rope_head_dim nope_head_dim v_head_dim")
    joint = joint_latent(tape, x, spec)
    if _in_place(tape):
        return _turned_pair(tape, joint, norms)
    narrow, turning = normed_latent(tape, joint, spec, norms)
    up = tape.inside(EXPANDED)
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


def joint_latent(tape: Tape, x: Tensor, spec: Attention) -> Tensor:
    """The latent of keys and values, and beside it the part of the keys that is turned; (batch seq kv_latent)."""
    kv_rank, rope = tape.dims("kv_rank rope_head_dim")
    both = Dim("kv_latent", kv_rank.symbol + rope.symbol)
    einsum = "batch seq d_model, kv_latent d_model -> batch seq kv_latent"
    return tape.linear(Module("attention", "kv_latent"), einsum, x, bias=spec.qkv_bias, sizes=(both,))


def normed_latent(tape: Tape, joint: Tensor, spec: Attention, norms: Norm) -> tuple[Tensor, Tensor]:
    """The latent, normed, and the part of the keys that all heads share, turned."""
    narrow, turning = tape.taken(
        joint,
        {
            "attention/kv_latent.straight": tape.dims("batch seq kv_rank"),
            "attention/kv_latent.turning": tape.dims("batch seq rope_head_dim"),
        },
    )
    up = tape.inside(EXPANDED)
    narrow = norm(up, Module("attention", "kv_latent_norm"), narrow, norms, "kv_rank")
    return narrow, turned(up, "attention/rotary_k", turning, spec)


def _in_place(tape: Tape) -> bool:
    """Whether one kernel rotates queries in place, and one makes keys and values of what they are projected to."""
    return tape.kernels.rotary == "fused" and tape.stack.latent_rotary == "in_place"


def _own_tables(tape: Tape) -> tuple[Tensor, ...]:
    """Cosines, sines, and the angles in fp32, of which each layer keeps its own.

    megatron/core/models/common/embeddings/yarn_rotary_pos_embedding.py, get_cached_cos_sin and get_emb: an embedding is
    made by each attention module.
    """
    dims, names = tape.dims("seq rope_head_dim"), ("cos", "sin", "angles")
    own = tape.precision.activations
    return tuple(
        Tensor(f"attention/rotary_{name}", dims, dtype, BUFFER)
        for name, dtype in zip(names, (own, own, "fp32"), strict=True)
    )


@dataclass(frozen=True)
class RotatedHeads(Pointwise):
    """A rotation of a part of each head in place, forward and backward, which reads tables alone."""

    def shared(self) -> tuple[tuple[str, str], ...]:
        """The gradient is rotated where it is."""
        return handed_on(self, self.inputs[0])


@dataclass(frozen=True)
class KeysAndValues(Pointwise):
    """Keys and values of what both are projected to and of the rotated part, which all heads share."""

    def gradients(self) -> tuple[Operation, ...]:
        """One kernel, of both gradients."""
        upstream = tuple(tensor.gradient for tensor in self.outputs)
        wanted = tuple(tensor.gradient for tensor in self.inputs if differentiable(tensor))
        return (Pointwise(f"{self.name}.gradient", ROTARY, upstream, wanted, flops=3),)


def _turned_pair(tape: Tape, joint: Tensor, norms: Norm) -> tuple[Tensor, Tensor]:
    """The same, as megatron/core/fusions/fused_mla_yarn_rope_apply.py rotates it (fused_apply_mla_rope_for_kv).

    The norm reads a copy of the latent without the rotated part (transformer_engine/pytorch/module/base.py,
    prepare_forward: `inp.contiguous()`).
    """
    up = tape.inside(EXPANDED)
    nope, rope, wide = tape.dims("nope_head_dim rope_head_dim v_head_dim")
    narrow, turning = tape.taken(
        joint,
        {
            "attention/kv_latent.straight": tape.dims("batch seq kv_rank"),
            "attention/kv_latent.turning": tape.dims("batch seq rope_head_dim"),
        },
    )
    narrow = up.pointwise("attention/kv_latent.copy", narrow, kernel=COPY, add=True)
    narrow = norm(up, Module("attention", "kv_latent_norm"), narrow, norms, "kv_rank")
    for axis in [axis for _, axis in joint.split if axis == tape.layout.splits.get("heads")]:
        turning = moves.used_by_all(tape, turning, axis)
    expanded = Dim("key_value", nope.symbol + wide.symbol)
    einsum = "batch seq kv_rank, heads key_value kv_rank -> batch seq heads key_value"
    pair = up.linear(Module("attention", "kv"), einsum, narrow, lead=2, sizes=(expanded,))
    together, heads = Dim("head_dim", nope.symbol + rope.symbol), pair.dims[:-1]
    key = up.activation("attention/k", (*heads, together), pair.dtype, pair.split)
    value = up.activation("attention/v", (*heads, wide), pair.dtype, pair.split)
    up.record(KeysAndValues(key.name, ROTARY, (pair, turning, *_own_tables(tape)), (key, value), flops=3))
    return key, value
