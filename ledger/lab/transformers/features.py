"""What a model either has or has not, by the names under which architectures of transformers ask for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.model.schedule import order

if TYPE_CHECKING:
    from ledger.spec.plan import MLP, Attention, Group, Model


def layer_order(model: Model) -> tuple[Group, ...]:
    """The group of every layer, first to last."""
    return tuple(model.groups[index] for index in order(model))


def mlp_of(model: Model) -> MLP:
    """The feed-forward part of the model: that of its experts where some layers have them."""
    return next((group.mlp for group in model.groups if group.mlp.experts), model.groups[0].mlp)


def dense(model: Model) -> tuple[bool, ...]:
    """Of each layer, first to last, whether it has no experts."""
    return tuple(not group.mlp.experts for group in layer_order(model))


def _alike(group: Group, mlp: MLP) -> MLP:
    """The feed-forward part of a layer; classes with experts take gated layers without biases among them."""
    return mlp if mlp.experts and group.mlp.kind == "gated" and not group.mlp.bias else group.mlp


def rotates(group: Group) -> bool:
    """Whether the layers of a group have rotary positions."""
    return bool(group.attention.rotary or group.attention.rope_head_dim)


def _own(group: Group, first: Attention) -> Attention:
    """What makes an attention another one: not how far it sees, nor what Llama 4 leaves out where nothing rotates."""
    alike = replace(group.attention, window=None, rotary_base=0, chunk=None, temperature=False)
    if rotates(group):
        return alike
    return replace(alike, rotary=first.rotary, rotary_form=first.rotary_form, qk_norm=first.qk_norm)


def features(model: Model) -> dict[str, object]:
    """What a class either has or has not; sizes and probabilities that every class takes are left out."""
    return {**_of_layers(model), **_of_attention(model), **_outside(model), **_of_feed_forward(model)}


def _shown(model: Model) -> Group:
    """The group that stands for the model's attention: the first that rotates, where any does."""
    return next((group for group in model.groups if rotates(group)), model.groups[0])


def _of_layers(model: Model) -> dict[str, object]:
    group, mlp = _shown(model), mlp_of(model)
    parts = {(_own(g, group.attention), _alike(g, mlp), g.norms, g.residual) for g in model.groups}
    return {
        "kinds of layer": len(parts),
        "norm": model.norm.kind,
        "norm bias": model.norm.bias,
        "unit offset": model.norm.unit_offset,
        "weight in fp32": model.norm.wide,
        "norms": group.norms,
        "residual": group.residual,
        "residual dropout": model.residual_dropout > 0,
        "dense layers": any(dense(model)) and bool(mlp.experts),
        "dense layers first": tuple(sorted(dense(model), reverse=True)) == dense(model),
    }


def _of_attention(model: Model) -> dict[str, object]:
    attention = _shown(model).attention
    bases = {group.attention.rotary_base for group in model.groups}
    return {
        "qkv bias": attention.qkv_bias,
        "output bias": attention.out_bias,
        "equal attention biases": attention.qkv_bias == attention.out_bias,
        "fused qkv": attention.fused_qkv,
        "rotary": rotates(_shown(model)),
        "rotary in every layer": len({rotates(group) for group in model.groups}) == 1,
        "partial rotary": 0 < attention.rotary < 1,
        "window": any(group.attention.window is not None for group in model.groups),
        "soft cap": attention.softcap is not None,
        "grouped queries": attention.kv_heads != attention.heads,
        "heads x head_dim = d_model": attention.heads * attention.head_dim == model.d_model,
        "attention": attention.kind,
        "rotary form": attention.rotary_form,
        "rotary bases": len(bases),
        "a rotary base for each kind of window": len(bases) == len({bool(g.attention.window) for g in model.groups}),
        "norms of queries and keys": attention.qk_norm,
        "sinks": attention.sinks,
        "temperature": any(group.attention.temperature for group in model.groups),
        "temperature where nothing rotates": all(g.attention.temperature != rotates(g) for g in model.groups),
        "chunks": any(group.attention.chunk is not None for group in model.groups),
        "chunks where something rotates": all(bool(g.attention.chunk) == rotates(g) for g in model.groups),
    }


def _outside(model: Model) -> dict[str, object]:
    return {
        "learned positions": model.learned_positions > 0,
        "embedding dropout": model.embedding_dropout > 0,
        "equal hidden dropouts": model.embedding_dropout == model.residual_dropout,
        "scaled embedding": model.scale_embedding,
        "head bias": model.head_bias,
        "head soft cap": model.head_softcap is not None,
    }


def _of_feed_forward(model: Model) -> dict[str, object]:
    mlp = mlp_of(model)
    return {
        "mlp": mlp.kind,
        "mlp bias": mlp.bias,
        "scores": mlp.router.scores,
        "normalized": mlp.router.normalize,
        "weights of chosen": mlp.router.weights,
        "router in": mlp.router.dtype,
        "router bias": mlp.router.bias,
        "groups of experts": mlp.router.groups > 1,
        "scores multiply": mlp.router.scales,
        "auxiliary loss": mlp.router.auxiliary_loss,
        "one shared expert": bool(mlp.shared and mlp.shared.count == 1),
        "shared experts": bool(mlp.shared),
        "shared experts as wide as others": bool(mlp.shared and mlp.shared.d_ff == mlp.d_ff),
        "gated shared experts": bool(mlp.shared and mlp.shared.gated),
        "capacity": mlp.capacity_factor is not None,
        "clamped": mlp.activation == "clamped_swiglu",
    }
