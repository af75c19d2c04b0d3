"""What a model either has or has not, by the names under which architectures of transformers ask for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.model.schedule import order

if TYPE_CHECKING:
    from ledger.spec.plan import Group, Model


def layer_order(model: Model) -> tuple[Group, ...]:
    """The group of every layer, first to last."""
    return tuple(model.groups[index] for index in order(model))


def features(model: Model) -> dict[str, object]:
    """What a class either has or has not; sizes and probabilities that every class takes are left out."""
    group = model.groups[0]
    attention, mlp = group.attention, group.mlp
    parts = {(replace(g.attention, window=None, rotary_base=0), g.mlp, g.norms, g.residual) for g in model.groups}
    return {
        "kinds of layer": len(parts),
        "norm": model.norm.kind,
        "norm bias": model.norm.bias,
        "unit offset": model.norm.unit_offset,
        "norms": group.norms,
        "residual": group.residual,
        "mlp": mlp.kind,
        "mlp bias": mlp.bias,
        "qkv bias": attention.qkv_bias,
        "output bias": attention.out_bias,
        "equal attention biases": attention.qkv_bias == attention.out_bias,
        "fused qkv": attention.fused_qkv,
        "rotary": bool(attention.rotary or attention.rope_head_dim),
        "partial rotary": 0 < attention.rotary < 1,
        "window": any(g.attention.window is not None for g in model.groups),
        "soft cap": attention.softcap is not None,
        "grouped queries": attention.kv_heads != attention.heads,
        "heads x head_dim = d_model": attention.heads * attention.head_dim == model.d_model,
        "learned positions": model.learned_positions > 0,
        "residual dropout": model.residual_dropout > 0,
        "embedding dropout": model.embedding_dropout > 0,
        "equal hidden dropouts": model.embedding_dropout == model.residual_dropout,
        "scaled embedding": model.scale_embedding,
        "head bias": model.head_bias,
        "head soft cap": model.head_softcap is not None,
        "attention": attention.kind,
        "rotary form": attention.rotary_form,
        "rotary bases": len({g.attention.rotary_base for g in model.groups}),
        "a rotary base for each kind of window": len({g.attention.rotary_base for g in model.groups})
        == len({bool(g.attention.window) for g in model.groups}),
        "norms of queries and keys": attention.qk_norm,
        "chunks": any(g.attention.chunk is not None for g in model.groups),
    }
